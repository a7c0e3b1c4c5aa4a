//! A server under test: one run of the program with one configuration in one directory.
//!
//! Built by [`Server::of`]. The program runs in the foreground in a separate process group below a
//! temporary directory (`%%DIR%%`) that holds its configuration, logs, pid file and the test's
//! files. It is stopped by [`Server::stop`], [`Server::quit`] or on drop, and its logs are then
//! searched for faults: a line at `[alert]` or `[emerg]`, a panic, or a call caught by the
//! event-loop guard fails the test unless it was allowed before.

mod builder;
mod logs;
mod process;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;

pub use builder::{Binary, Driver, ServerBuilder, StartFailure};
pub use process::{Descriptor, Usage, all_children, children, freeze, signal, usage, wait_ended};
pub use rustix::process::Signal;

use crate::client::Client;
use crate::response::Response;
use crate::skip::skip;
use crate::temp::{TempDir, write_below};
use crate::wait::{PATIENCE, try_until, until};

/// How long a server may take to exit after TERM before it is killed on drop.
const TERM_PATIENCE: Duration = Duration::from_secs(3);
/// How long a killed server may take to disappear; one that is stuck in a hung disk stays until the
/// disk is released.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// A running server.
#[derive(Debug)]
pub struct Server {
    binary: Binary,
    template: builder::Template,
    dir: TempDir,
    child: Child,
    exited: Option<ExitStatus>,
    ports: Vec<u16>,
    allowed: Vec<String>,
    checked: bool,
}

impl Server {
    /// Starts the description of a server that runs `binary`.
    pub fn of(binary: Binary) -> ServerBuilder {
        ServerBuilder::new(binary)
    }

    /// The program.
    pub fn binary(&self) -> &Binary {
        &self.binary
    }

    /// The directory (`%%DIR%%`).
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The port substituted for `%%PORT%%`.
    pub fn port(&self) -> u16 {
        self.port_n(0)
    }

    /// The port substituted for `%%PORT_n%%`; `%%PORT%%` is number 0.
    ///
    /// # Panics
    /// If the configuration has no such placeholder.
    #[track_caller]
    pub fn port_n(&self, n: usize) -> u16 {
        *self.ports.get(n).unwrap_or_else(|| panic!("the configuration has no %%PORT_{n}%%"))
    }

    /// The address on which `%%PORT%%` listens.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// Connects to `%%PORT%%`.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::to(self.addr())
    }

    /// Requests `path` on a new connection.
    #[track_caller]
    pub fn get(&self, path: &str) -> Response {
        self.client().get(path)
    }

    /// Writes a file below its directory.
    #[track_caller]
    pub fn write(&self, relative: &str, content: impl AsRef<[u8]>) -> PathBuf {
        write_below(self.dir(), relative, content.as_ref())
    }

    /// Process id of the started process: the master, or the only process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ids of its direct child processes, except for the one that writes its logs.
    pub fn children(&self) -> Vec<u32> {
        process::children(self.pid())
    }

    /// Open descriptors of all its processes. `None`, with the test counted as skipped, where
    /// processes of other users may not be inspected, as in many containers.
    #[track_caller]
    pub fn descriptors(&self) -> Option<Vec<Descriptor>> {
        let mut found = Vec::new();
        for pid in self.children().into_iter().chain([self.pid()]) {
            match process::descriptors(pid) {
                Ok(of_one) => found.extend(of_one),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    skip("ptrace", "descriptors of other processes can't be seen (CAP_SYS_PTRACE)");
                    return None;
                }
                Err(_) => {} // it has ended
            }
        }
        Some(found)
    }

    /// Resource usage of all its processes together. `None` as for [`Server::descriptors`].
    #[track_caller]
    pub fn usage(&self) -> Option<Usage> {
        let mut all = Usage::default();
        for pid in self.children().into_iter().chain([self.pid()]) {
            match process::usage(pid) {
                Ok(of_one) => all = all + of_one,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    skip("ptrace", "other processes can't be inspected (CAP_SYS_PTRACE)");
                    return None;
                }
                Err(_) => {} // it has ended
            }
        }
        Some(all)
    }

    /// Sends a signal to the master.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        process::signal(self.pid(), signal);
    }

    /// Replaces the contents of the `http` block for the next [`Server::reload`].
    #[track_caller]
    pub fn set_http(&mut self, text: &str) {
        self.template.set_http(text);
        self.write_config();
    }

    /// Replaces the number of workers for the next [`Server::reload`].
    #[track_caller]
    pub fn set_workers(&mut self, workers: usize) {
        self.template.set_workers(workers);
        self.write_config();
    }

    /// Replaces the event mechanism for the next [`Server::reload`].
    #[track_caller]
    pub fn set_driver(&mut self, driver: Driver) {
        self.template.set_driver(driver);
        self.write_config();
    }

    #[track_caller]
    fn write_config(&mut self) {
        let text = self.template.render(&self.binary, self.dir.path(), &mut self.ports);
        self.write("nginx.conf", text);
    }

    /// Sends HUP and waits until the log shows that the new configuration is in use or was
    /// rejected.
    ///
    /// # Panics
    /// If the log shows neither in time.
    #[track_caller]
    pub fn reload(&self) {
        let before = self.log().len();
        self.signal(Signal::HUP);
        until("the log to report the reload", PATIENCE, || {
            let log = self.log();
            let new = log.get(before..)?;
            logs::tells_of_reload(&self.binary, new).then_some(())
        });
    }

    /// Stops it at once (TERM) and returns its exit status.
    ///
    /// # Panics
    /// If it does not exit, or its logs contain a fault.
    #[track_caller]
    pub fn stop(self) -> ExitStatus {
        self.end(Signal::TERM)
    }

    /// Lets it finish its requests (QUIT) and returns its exit status.
    ///
    /// # Panics
    /// If it does not exit, or its logs contain a fault.
    #[track_caller]
    pub fn quit(self) -> ExitStatus {
        self.end(Signal::QUIT)
    }

    #[track_caller]
    fn end(mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        let status = self.wait_exit(PATIENCE);
        self.check_logs();
        status
    }

    /// Waits until the started process has exited.
    ///
    /// # Panics
    /// If it still runs after `patience`.
    #[track_caller]
    pub fn wait_exit(&mut self, patience: Duration) -> ExitStatus {
        let pid = self.pid();
        match try_until(patience, || self.try_exit()) {
            Some(status) => status,
            None => {
                panic!("process {pid} doesn't end within {patience:?}; log:\n{}", self.log_tail())
            }
        }
    }

    /// The exit status, if it has exited.
    pub fn try_exit(&mut self) -> Option<ExitStatus> {
        if self.exited.is_none() {
            self.exited = self.child.try_wait().ok().flatten();
        }
        self.exited
    }

    /// The error log so far.
    pub fn log(&self) -> String {
        read_lossy(&self.dir().join("error.log"))
    }

    /// The standard error output so far.
    pub fn stderr(&self) -> String {
        read_lossy(&self.dir().join("stderr"))
    }

    /// A file below its directory as text; empty if it does not exist.
    pub fn read(&self, relative: &str) -> String {
        read_lossy(&self.dir().join(relative))
    }

    /// Waits until a file below its directory contains `text`, and returns the file's content.
    /// Logs are written after the response has been sent.
    ///
    /// # Panics
    /// If it doesn't in time.
    #[track_caller]
    pub fn wait_file(&self, relative: &str, text: &str) -> String {
        let look = || Some(self.read(relative)).filter(|content| content.contains(text));
        match try_until(PATIENCE, look) {
            Some(content) => content,
            None => panic!("{relative} lacks {text:?}: {}", self.read(relative)),
        }
    }

    /// Waits until the error log contains `text`.
    ///
    /// # Panics
    /// If it doesn't in time.
    #[track_caller]
    pub fn wait_log(&self, text: &str) {
        if try_until(PATIENCE, || self.log().contains(text).then_some(())).is_none() {
            panic!("the error log lacks {text:?}; it ends:\n{}", self.log_tail());
        }
    }

    /// Tolerates lines of the error log that contain `text` from now on.
    pub fn allow_log(&mut self, text: &str) {
        self.allowed.push(text.to_owned());
    }

    /// Asserts that the logs contain no fault so far.
    #[track_caller]
    pub fn check_logs(&mut self) {
        self.checked = true;
        let faults = logs::faults(&[self.log(), self.stderr()], &self.allowed);
        assert!(faults.is_empty(), "the server's logs tell of faults:\n{}", faults.join("\n"));
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// What its processes and sockets do, for a test that waited in vain.
    fn state(&self) -> String {
        let pids = std::iter::once(self.pid()).chain(self.children());
        let threads: String = pids.map(process::threads).collect();
        let sockets: String = self.ports.iter().map(|port| process::sockets(*port)).collect();
        threads + &sockets
    }

    /// Kills all of its processes; one stuck in a hung disk dies with the disk.
    fn kill(&mut self) {
        if self.try_exit().is_none() {
            process::try_signal(self.pid(), Signal::TERM);
            if try_until(TERM_PATIENCE, || self.try_exit()).is_none() {
                let pid = self.pid();
                process::kill_group(pid);
                try_until(KILL_PATIENCE, || self.try_exit());
                return;
            }
        }
        // The master may have exited without its children (a crash under test).
        process::kill_group(self.child.id());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let state = std::thread::panicking().then(|| self.state());
        self.kill();
        if let Some(state) = state {
            eprintln!("--- threads and sockets of the server under test\n{state}");
            if !self.checked {
                eprintln!("--- error log of the server under test\n{}", self.log_tail());
                eprintln!("--- its standard error\n{}", self.stderr());
            }
        } else if !self.checked {
            self.check_logs();
        }
    }
}

fn read_lossy(path: &Path) -> String {
    std::fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}
