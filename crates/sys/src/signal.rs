//! Signals through a descriptor: blocked in every thread, read with `poll`.
//!
//! Called by the master and by the control thread of the server process, before they start other
//! threads (which inherit the mask). No handler is ever installed except "ignore" for SIGPIPE,
//! which Rust's startup code sets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

pub use nix::sys::signal::Signal;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The signals that Nowait handles; all others keep their default.
pub const HANDLED: [Signal; 8] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCHLD,
];

/// A source of the [`HANDLED`] signals, which stay blocked while it lives and after.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
}

impl Signals {
    /// Blocks the signals and opens a descriptor for them. Non-blocking, closed on exec.
    ///
    /// # Errors
    /// The kernel's (no descriptors left).
    pub fn open() -> io::Result<Signals> {
        let set: SigSet = HANDLED.into_iter().collect();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Signals { fd })
    }

    /// Blocks the signals for a process that ends for other reasons.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ignore() -> io::Result<()> {
        let set: SigSet = HANDLED.into_iter().collect();
        Ok(sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?)
    }

    /// The next pending signal, if any. Never waits.
    ///
    /// # Errors
    /// The kernel's.
    pub fn next(&self) -> io::Result<Option<ReceivedSignal>> {
        loop {
            match self.fd.read_signal() {
                Ok(None) => return Ok(None),
                Ok(Some(info)) => {
                    if let Ok(signal) = Signal::try_from(info.ssi_signo as i32) {
                        return Ok(Some(ReceivedSignal { signal, sender: info.ssi_pid }));
                    }
                }
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A signal and the process that sent it (0: the kernel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal {
    /// The signal.
    pub signal: Signal,
    /// Process id of the sender.
    pub sender: u32,
}
