//! USR2: another binary takes over. The new master inherits the listening sockets and writes its
//! own pid file; this one renames its file to `.oldbin` and lives until told to quit. Both tell each other of their
//! server processes meanwhile (`introductions.rs`).

use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use nowait_sys::fdpass;

use super::Master;
use crate::control;
use crate::log::{Level, OsErrorText};
use crate::notify::MASTER_VARIABLE;
use crate::pidfile::old_path;
use crate::sockets::Sockets;

impl Master {
    /// Starts the program again, from the file it was started from.
    pub(super) fn upgrade(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        if self.new_binary.is_some() || self.living_parent().is_some() {
            self.log.log(Level::Notice, "the changing binary signal is ignored: one is under way");
            return;
        }
        self.log.log(Level::Notice, "changing binary");
        let program = self.program.clone();
        if let Err(error) = self.pid_file.move_away() {
            self.log.log(
                Level::Alert,
                format_args!(
                    "rename() {} to {} failed {} before executing new binary process \"{}\"",
                    self.pid_file.path().display(),
                    old_path(self.pid_file.path()).display(),
                    OsErrorText(&error),
                    program.display()
                ),
            );
            return;
        }
        match self.execute(&program) {
            Ok(pid) => {
                self.log.log(Level::Notice, format_args!("start new binary process {pid}"));
                self.new_binary = Some(pid);
            }
            Err(error) => {
                self.log.log(
                    Level::Alert,
                    format_args!(
                        "execve() failed while executing new binary process \"{}\" {}",
                        program.display(),
                        OsErrorText(&error)
                    ),
                );
                self.take_pid_file_back("an attempt to execute");
            }
        }
    }

    fn execute(&mut self, program: &Path) -> std::io::Result<u32> {
        let arguments = std::env::args_os().skip(1);
        let channel = self.introductions.open_channel()?;
        let sockets = &self.running.sockets;
        let mut variables = self.running.loaded.settings.process.environment();
        variables.push(("NGINX".into(), sockets.variable().into()));
        let number = channel.as_raw_fd().to_string();
        variables.push((MASTER_VARIABLE.into(), number.into()));
        // The new master reports to the service manager in this one's place.
        for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC"] {
            variables.extend(std::env::var_os(name).map(|value| (name.into(), value)));
        }
        sockets.set_inheritable(true)?;
        fdpass::set_inheritable(&channel, true)?;
        // The standard library resets the signal mask in the child.
        let child = Command::new(program).args(arguments).env_clear().envs(variables).spawn();
        sockets.set_inheritable(false)?;
        // Reaped with all other children; dropping the handle does nothing.
        child.map(|child| child.id())
    }

    /// The master that started this one for an upgrade, while it lives.
    pub(super) fn living_parent(&self) -> Option<u32> {
        self.parent.filter(|parent| *parent == std::os::unix::process::parent_id())
    }

    /// This master serves: reports that to the service manager, and once to the master that it is
    /// to replace, which alone can make the manager watch another process.
    pub(super) fn tell_ready(&mut self) {
        self.notifier.ready(std::process::id());
        if let Some(parent) = self.living_parent()
            && !std::mem::replace(&mut self.parent_told, true)
        {
            control::tell_upgraded(parent);
        }
    }

    /// A client reports to be the new master, and to serve.
    pub(super) fn new_binary_serves(&self, pid: u32) {
        if self.new_binary == Some(pid) {
            self.notifier.main_pid(pid);
        }
    }

    /// This master is about to end; if there is another one, the service continues.
    pub(super) fn tell_manager_of_end(&self) {
        match (self.living_parent(), self.new_binary) {
            (Some(parent), _) => self.notifier.main_pid(parent),
            (None, Some(_)) => {}
            (None, None) => self.notifier.stopping(),
        }
    }

    /// The process of the new binary has ended: this master is the only one again.
    pub(super) fn new_binary_ended(&mut self) {
        self.new_binary = None;
        // The new master has logged that, unless it crashed.
        self.notifier.main_pid(std::process::id());
        self.take_pid_file_back("the end of the");
        if self.noaccepting && self.stopping.is_none() {
            self.noaccepting = false;
            self.restart_at = Some(std::time::Instant::now());
        }
    }

    fn take_pid_file_back(&self, after: &str) {
        if let Err(error) = self.pid_file.move_back() {
            self.log.log(
                Level::Alert,
                format_args!(
                    "rename() {} back to {} failed {} after {after} new binary process",
                    old_path(self.pid_file.path()).display(),
                    self.pid_file.path().display(),
                    OsErrorText(&error)
                ),
            );
        }
    }
}

/// The file that this program was started from, under its original name: an upgrade starts everything that
/// has that name then. A name without a slash is looked up in `PATH`, as by the shell.
pub(super) fn program() -> PathBuf {
    let name = std::env::args_os().next().unwrap_or_default();
    if name.as_bytes().contains(&b'/') {
        // An absolute path stays valid if the server process changes its directory.
        return std::path::absolute(&name).unwrap_or_else(|_| name.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .filter_map(|directory| std::path::absolute(directory.join(&name)).ok())
        .find(|file| is_this_program(file));
    // The path of the file itself, where symbolic links have been followed.
    found.or_else(|| std::env::current_exe().ok()).unwrap_or_else(|| name.into())
}

fn is_this_program(file: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    let this = identity(Path::new("/proc/self/exe"));
    this.is_some() && identity(file) == this
}

impl Sockets {
    /// The value of the variable that passes the sockets to a new binary: `6;7;`.
    fn variable(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        for socket in self.groups().iter().flat_map(|group| &group.sockets) {
            // Writing to a string cannot fail.
            let _ = write!(text, "{};", socket.as_raw_fd());
        }
        text
    }

    fn set_inheritable(&self, inheritable: bool) -> std::io::Result<()> {
        for socket in self.groups().iter().flat_map(|group| &group.sockets) {
            fdpass::set_inheritable(Arc::as_ref(socket), inheritable)?;
        }
        Ok(())
    }
}
