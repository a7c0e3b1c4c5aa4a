//! Reloads: read, open, hand over, and only then release the old configuration.
//!
//! Until the server process reports that the new generation is in use, the running one is
//! unchanged; an earlier failure leaves it as it was.

use std::ops::ControlFlow;
use std::path::PathBuf;

use super::renewal::Renewal;
use super::{Master, MasterExit, Running};
use crate::config::{self, Loaded};
use crate::config_path::ConfigPath;
use crate::control::ControlRequest;
use crate::log::{Level, Sink, StartupLog};
use crate::logs::{Logs, SlowLogPolicy};
use crate::pidfile::PidFile;
use crate::reader::FileReader;
use crate::sockets::Sockets;
use crate::wire::ToServer;

use super::child::Child;
use super::directories;

/// A generation that was sent but is not yet in use.
pub struct PendingReload {
    running: Running,
    /// The replacing server process, where the old one cannot take over: its user or limits
    /// changed.
    replaces: bool,
    pid_file: Option<PidFile>,
    /// Errors that did not prevent it, for the client that requested it.
    said: String,
}

impl PendingReload {
    /// The logs.
    pub(super) fn logs(&mut self) -> &mut Logs {
        &mut self.running.logs
    }
}

/// A configuration whose files are open.
pub struct OpenedConfig {
    loaded: Loaded,
    logs: Logs,
}

/// Opens the files that a configuration names. `None` if a file cannot be opened, which is logged; no file
/// stays open then.
pub fn open(
    loaded: Loaded,
    place: &ConfigPath,
    absent: SlowLogPolicy<'_>,
    log: &StartupLog,
) -> Option<OpenedConfig> {
    let settings = &loaded.settings;
    let emerg = |message: String| log.log(Level::Emerg, message);
    directories::make(&loaded.needs.directories, settings, log).map_err(emerg).ok()?;
    let default_logs = place.prefix.join("logs");
    let main_logs = settings.error_logs.iter().filter_map(|log| log.file());
    let paths = main_logs.chain(loaded.needs.logs.iter().map(PathBuf::as_path));
    let paths = paths.map(|log| (log.to_path_buf(), log.parent() == Some(&default_logs)));
    let logs = Logs::open(paths, absent, log)
        .map_err(|failure| {
            emerg(failure.message);
            if failure.of_directory {
                log.hint(
                    "this is the default directory of logs; access_log and error_log can name another",
                );
            }
        })
        .ok()?;
    Some(OpenedConfig { loaded, logs })
}

impl OpenedConfig {
    /// The sinks of the main error log.
    pub(super) fn sinks(&self) -> Vec<Sink> {
        self.logs.sinks(&self.loaded.settings.error_logs)
    }

    /// Opens the sockets that `old` lacks. `None` if one cannot be opened, which is logged.
    pub(super) fn bind(self, old: &Sockets, number: u64, log: &StartupLog) -> Option<Running> {
        let OpenedConfig { loaded, logs } = self;
        let sockets = old.renew(&loaded.needs.listens, loaded.settings.workers, log).ok()?;
        Some(Running { number, loaded, sockets, logs })
    }
}

impl Running {
    /// The sinks of the main error log.
    pub(super) fn sinks(&self) -> Vec<Sink> {
        self.logs.sinks(&self.loaded.settings.error_logs)
    }
}

impl Master {
    pub(super) fn pending_number(&self) -> Option<u64> {
        self.pending.as_ref().map(|pending| pending.running.number)
    }

    /// Control clients: each requests a reload or a purge, and waits for the result.
    pub(super) fn take_clients(&mut self) -> ControlFlow<MasterExit> {
        let before = self.clients.len();
        for _ in 0..crate::control::CLIENTS_MAX {
            if self.clients.len() == crate::control::CLIENTS_MAX {
                break;
            }
            let Some(client) = self.control.as_ref().and_then(|control| control.accept()) else {
                break;
            };
            match client.wish.clone() {
                ControlRequest::Reload => self.clients.push(client),
                ControlRequest::Purge(order) => self.purge(client, order),
                ControlRequest::LogLevel(level) => self.set_log_level(client, level),
                ControlRequest::Upgraded => self.new_binary_serves(client.pid),
                ControlRequest::Presence if self.stopping.is_some() => {
                    client.reply(Err("stopping\n"))
                }
                ControlRequest::Presence => client.reply(Ok(1)),
            }
        }
        if self.clients.len() == before {
            return ControlFlow::Continue(());
        }
        if self.stopping.is_some() {
            return self.discard("nowait: [emerg] the server is shutting down\n");
        }
        self.reload()
    }

    /// HUP: rereads the configuration and hands it over.
    pub(super) fn reload(&mut self) -> ControlFlow<MasterExit> {
        if self.stopping.is_some() {
            return ControlFlow::Continue(());
        }
        if self.new_binary.is_some() {
            // As in nginx: resume serving with this binary and its configuration.
            if self.noaccepting {
                return self.start_child();
            }
            return self.discard("nowait: [emerg] an upgrade is in progress\n");
        }
        if self.pending.is_some() {
            self.reload_again = true;
            return ControlFlow::Continue(());
        }
        self.notifier.reloading();
        self.log.log(Level::Notice, "reconfiguring");
        let known = config::following(&self.running.loaded.bundle);
        let reader = FileReader::of(&known);
        let loaded = self.notifier.patiently(|| config::load_again(&self.place, &reader));
        reader.late().into_iter().for_each(directories::note_late);
        drop(reader);
        match loaded {
            Ok(loaded) => {
                for warning in &loaded.warnings {
                    self.log.log(Level::Warn, warning);
                }
                self.hand_over(loaded)
            }
            Err(refused) => {
                for line in &refused.lines {
                    self.log.log(line.level, &line.text);
                }
                self.discard(&refused.rendered)
            }
        }
    }

    pub(super) fn hand_over(&mut self, loaded: Loaded) -> ControlFlow<MasterExit> {
        let old = &self.running.loaded.settings;
        let new = &loaded.settings;
        if old.master_process != new.master_process || old.daemon != new.daemon {
            let text = "\"daemon\" and \"master_process\" cannot be changed by a reload, ignored";
            self.log.log(Level::Warn, text);
        }
        let mut loaded = loaded;
        loaded.settings.master_process = old.master_process;
        loaded.settings.daemon = old.daemon;
        let number = self.running.number + 1;
        let (sockets, logs) = (&self.running.sockets, SlowLogPolicy::Needed(&self.running.logs));
        let open = || open(loaded, &self.place, logs, &self.log)?.bind(sockets, number, &self.log);
        let (opened, said) = self.log.noting(open);
        let Some(running) = opened else { return self.discard(&said) };
        let pid = &running.loaded.settings.pid;
        let pid_file = if pid == self.pid_file.path() {
            None
        } else {
            match PidFile::create(pid) {
                Ok(file) => Some(file),
                Err(message) => {
                    self.log.log(Level::Emerg, &message);
                    return self.discard(&format!("nowait: [emerg] {message}\n"));
                }
            }
        };
        let process = running.loaded.settings.process.clone();
        let taker = self
            .children
            .iter()
            .position(|child| !child.exiting && child.is_listening() && child.process == process);
        let replaces = taker.is_none() && self.running.loaded.settings.master_process;
        match taker {
            Some(index) => self.entrust(index, &running),
            None if replaces => {
                if let Some(child) = self.spawn(&process)? {
                    self.children.push(child);
                    self.entrust(self.children.len() - 1, &running);
                }
            }
            None => {
                let index = self.children.iter().position(|child| !child.exiting);
                if let Some(index) = index {
                    let text = "\"user\", limits and \"env\" cannot be changed without a master \
                                process, ignored";
                    self.log.log(Level::Warn, text);
                    self.entrust(index, &running);
                }
            }
        }
        self.pending = Some(PendingReload { running, replaces, pid_file, said });
        ControlFlow::Continue(())
    }

    /// Sends a generation to a server process. If that fails, the process is useless.
    fn entrust(&mut self, index: usize, running: &Running) {
        if !self.send_generation(&self.children[index], running) {
            self.children[index].kill(&self.log);
        }
    }

    /// The new generation is in use and becomes the running one.
    pub(super) fn commit(&mut self) -> ControlFlow<MasterExit> {
        let Some(pending) = self.pending.take() else { return ControlFlow::Continue(()) };
        let PendingReload { running, replaces, pid_file, said } = pending;
        self.running.sockets.remove_unix(Some(&running.sockets), &self.log);
        self.running = running;
        // The texts of the old configuration may be large.
        nowait_sys::memory::give_back();
        self.renewal = Renewal::of(&self.running, &self.log);
        self.use_sinks();
        if let Some(file) = pid_file {
            let old = std::mem::replace(&mut self.pid_file, file);
            old.remove(false, &self.log);
        }
        if replaces {
            let process = &self.running.loaded.settings.process;
            for child in self.children.iter_mut().filter(|child| child.process != *process) {
                child.quit(&self.log);
            }
        }
        // WINCH may have been received meanwhile.
        self.noaccepting &= self.children.iter().all(|child| child.exiting);
        self.answer(Ok((self.running.number, &said)));
        self.reload_ended()
    }

    /// The reload failed: releases everything that was opened for it.
    pub(super) fn discard(&mut self, reason: &str) -> ControlFlow<MasterExit> {
        if let Some(pending) = self.pending.take() {
            pending.running.sockets.remove_unix(Some(&self.running.sockets), &self.log);
            if let Some(file) = pending.pid_file {
                file.remove(false, &self.log);
            }
        }
        self.answer(Err(reason));
        self.publish_failure(reason);
        self.reload_ended()
    }

    /// Has the status pages of the server processes show the first error of a failed reload.
    fn publish_failure(&self, reason: &str) {
        let first = reason.lines().find(|line| !line.trim().is_empty()).unwrap_or(reason);
        let message = ToServer::ReloadFailed(first.to_owned());
        for child in self.children.iter().filter(|child| !child.exiting) {
            child.tell(&message, &self.log);
        }
    }

    /// The server process that was to take over a pending generation has died.
    pub(super) fn child_gone(&mut self, child: &Child) {
        self.forwarded.lost(child.pid());
        self.forget_process(child.pid());
        let successor = self.children.iter().any(|other| !other.exiting);
        let Some(pending) = &self.pending else { return };
        if child.process == pending.running.loaded.settings.process || !successor {
            // The replies are sent now; the result cannot be Break, as nothing is spawned for it.
            let _ = self.discard("nowait: [emerg] the server process died during the reload\n");
        }
    }

    fn answer(&mut self, result: Result<(u64, &str), &str>) {
        for client in std::mem::take(&mut self.clients) {
            client.reply_with(result);
        }
    }

    fn reload_ended(&mut self) -> ControlFlow<MasterExit> {
        self.notifier.ready(std::process::id());
        if std::mem::take(&mut self.reload_again) {
            self.reload()
        } else {
            ControlFlow::Continue(())
        }
    }
}
