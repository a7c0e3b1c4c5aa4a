//! USR2: another binary takes over. The new master inherits the listening sockets and writes its
//! own pid file; this one moves its file to `.oldbin` and lives until told to quit.

use std::ffi::OsString;
use std::process::Command;
use std::sync::Arc;

use nowait_sys::fdpass;

use super::Master;
use crate::log::{Level, Reason};
use crate::pidfile::old_path;
use crate::sockets::Sockets;

impl Master {
    /// Starts the program anew from the file it was started from.
    pub(super) fn upgrade(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        if self.new_binary.is_some() || self.parent == Some(std::os::unix::process::parent_id()) {
            self.log.log(Level::Notice, "the changing binary signal is ignored: one is under way");
            return;
        }
        self.log.log(Level::Notice, "changing binary");
        let mut arguments = std::env::args_os();
        let Some(program) = arguments.next() else { return };
        if let Err(error) = self.pid_file.move_away() {
            self.log.log(
                Level::Alert,
                format_args!(
                    "rename() {} to {} failed {} before executing new binary process \"{}\"",
                    self.pid_file.path().display(),
                    old_path(self.pid_file.path()).display(),
                    Reason(&error),
                    program.display()
                ),
            );
            return;
        }
        match self.execute(&program, arguments) {
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
                        Reason(&error)
                    ),
                );
                self.take_pid_file_back("an attempt to execute");
            }
        }
    }

    fn execute(
        &self,
        program: &OsString,
        arguments: impl Iterator<Item = OsString>,
    ) -> std::io::Result<u32> {
        let sockets = &self.running.sockets;
        let mut variables = self.running.loaded.settings.process.environment();
        variables.push(("NGINX".into(), sockets.variable().into()));
        // The new master reports to the service manager in this one's place.
        if let Some(manager) = std::env::var_os("NOTIFY_SOCKET") {
            variables.push(("NOTIFY_SOCKET".into(), manager));
        }
        sockets.set_inheritable(true)?;
        // The standard library resets the signal mask in the child.
        let child = Command::new(program).args(arguments).env_clear().envs(variables).spawn();
        sockets.set_inheritable(false)?;
        // Reaped with all other children; dropping the handle does nothing.
        child.map(|child| child.id())
    }

    /// The new binary's process has ended: this master is the only one again.
    pub(super) fn new_binary_ended(&mut self) {
        self.new_binary = None;
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
                    Reason(&error)
                ),
            );
        }
    }
}

impl Sockets {
    /// The value of the variable that tells a new binary its sockets: `6;7;`.
    fn variable(&self) -> String {
        use std::fmt::Write;
        use std::os::fd::AsRawFd;
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
