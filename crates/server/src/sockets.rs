//! The master's listening sockets: opened once, kept across reloads, inherited by upgrades.
//!
//! A reload makes a new table that shares the sockets that stay; nothing of the old table is closed
//! before the new one is in use, so a failed reload loses nothing. A socket that is kept is never
//! closed, so no connection waiting in its queue is lost.

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nowait_sys::listen::{self, ListenAddress, ListenError, ListenSpec};

use crate::log::{Level, OsErrorText, StartupLog};

/// How many times binding is tried while the address is in use (nginx: 5).
const BIND_TRIES: u32 = 5;

/// Pause between the tries (nginx: 500 ms).
const BIND_PAUSE: Duration = Duration::from_millis(500);

/// The sockets of one listener.
#[derive(Clone, Debug)]
pub struct SocketGroup {
    /// The configured address and options.
    pub spec: ListenSpec,
    /// One socket, or one per worker with `reuseport` (more if the number of workers has
    /// decreased).
    pub sockets: Vec<Arc<OwnedFd>>,
}

/// All listening sockets of a generation, in the order of its plan.
#[derive(Clone, Debug, Default)]
pub struct Sockets {
    groups: Vec<SocketGroup>,
}

impl Sockets {
    /// A table of inherited descriptors. Any that is not a listening stream socket is dropped and
    /// logged.
    pub fn inherited(fds: Vec<OwnedFd>, log: &StartupLog) -> Sockets {
        let mut groups: Vec<SocketGroup> = Vec::new();
        for fd in fds {
            let Some(address) = listen::address_of(&fd) else {
                log.log(
                    Level::Crit,
                    format_args!("the inherited socket #{} does not listen", fd.as_raw_fd()),
                );
                continue;
            };
            // systemd may hand over blocking sockets.
            if let Err(error) = rustix::io::ioctl_fionbio(&fd, true) {
                log.log(Level::Alert, format_args!("ioctl(FIONBIO) {address} failed: {error}"));
            }
            let reuseport = listen::is_reuseport(&fd);
            let socket = Arc::new(fd);
            match groups.iter_mut().find(|group| group.spec.address == address) {
                Some(group) => group.sockets.push(socket),
                None => {
                    let spec = ListenSpec { reuseport, ..ListenSpec::new(address) };
                    groups.push(SocketGroup { spec, sockets: vec![socket] });
                }
            }
        }
        Sockets { groups }
    }

    /// The groups, in the order of the plan.
    pub fn groups(&self) -> &[SocketGroup] {
        &self.groups
    }

    /// The table for `specs` with `workers` workers: takes over the sockets of `self`, opens the
    /// rest. `self` is not changed; newly opened sockets are closed again on failure.
    ///
    /// # Errors
    /// If a socket cannot be opened, which is already logged.
    pub fn renew(
        &self,
        specs: &[ListenSpec],
        workers: usize,
        log: &StartupLog,
    ) -> Result<Sockets, BindFailed> {
        let mut groups: Vec<SocketGroup> = specs
            .iter()
            .map(|spec| {
                let old = self.find(&spec.address);
                SocketGroup {
                    spec: spec.clone(),
                    sockets: old.map_or(Vec::new(), |old| old.sockets.clone()),
                }
            })
            .collect();
        for group in &groups {
            let before = self.find(&group.spec.address);
            if let Some(before) = before
                && group.spec.reuseport
                && !before.spec.reuseport
            {
                // More sockets can be added only if all of them allow it.
                for socket in &before.sockets {
                    let text = before.spec.address.to_string();
                    if let Err(error) = listen::set_reuseport(socket, &text) {
                        log.log(Level::Alert, format_args!("{}, ignored", ListenErrorText(&error)));
                    }
                }
            }
        }
        if let Err(failed) = self.open_missing(&mut groups, workers.max(1), log) {
            // The files of sockets that were bound before another bind failed.
            groups.retain(|group| !group.sockets.is_empty());
            Sockets { groups }.remove_unix(Some(self), log);
            return Err(failed);
        }
        for group in &groups {
            let before = self.find(&group.spec.address);
            for socket in &group.sockets {
                let kept = before
                    .filter(|before| before.sockets.iter().any(|old| Arc::ptr_eq(old, socket)))
                    .map(|before| &before.spec);
                for error in listen::configure(socket, &group.spec, kept) {
                    log.log(Level::Alert, format_args!("{}, ignored", ListenErrorText(&error)));
                }
                if group.spec.quic && kept.is_none() {
                    warn_small_buffer(socket, &group.spec, log);
                }
                if kept.is_some_and(|old| old.backlog != group.spec.backlog)
                    && let Err(error) = listen::listen(socket, &group.spec)
                {
                    log.log(Level::Alert, format_args!("{}, ignored", ListenErrorText(&error)));
                }
            }
        }
        Ok(Sockets { groups })
    }

    fn open_missing(
        &self,
        groups: &mut [SocketGroup],
        workers: usize,
        log: &StartupLog,
    ) -> Result<(), BindFailed> {
        for attempt in 1..=BIND_TRIES {
            let mut in_use = false;
            for group in &mut *groups {
                let wanted = if group.spec.reuseport { workers } else { 1 };
                while group.sockets.len() < wanted {
                    match listen::open(&group.spec) {
                        Ok(socket) => group.sockets.push(Arc::new(socket)),
                        Err(error) => {
                            log.log(Level::Emerg, ListenErrorText(&error));
                            if !error.is_in_use() {
                                if let Some(hint) = hint(&group.spec.address, &error) {
                                    log.hint(hint);
                                }
                                return Err(BindFailed);
                            }
                            in_use = true;
                            break;
                        }
                    }
                }
            }
            if !in_use {
                return Ok(());
            }
            log.log(
                Level::Notice,
                format_args!("try again to bind() after {}ms", BIND_PAUSE.as_millis()),
            );
            if attempt < BIND_TRIES {
                std::thread::sleep(BIND_PAUSE);
            }
        }
        log.log(Level::Emerg, "still could not bind()");
        log.hint("another program, or another nowait, listens there: \"ss -ltnp\" shows which");
        Err(BindFailed)
    }

    fn find(&self, address: &ListenAddress) -> Option<&SocketGroup> {
        self.groups.iter().find(|group| group.spec.address == *address)
    }

    /// Removes the Unix-domain sockets that `next` does not use; with no `next`, all of them.
    pub fn remove_unix(&self, next: Option<&Sockets>, log: &StartupLog) {
        for group in &self.groups {
            let ListenAddress::Unix(path) = &group.spec.address else { continue };
            if next.is_some_and(|next| next.find(&group.spec.address).is_some()) {
                continue;
            }
            if next.is_some() {
                log.log(Level::Warn, format_args!("deleting socket {}", path.display()));
            }
            if let Err(error) = std::fs::remove_file(path) {
                log.log(
                    Level::Emerg,
                    format_args!("unlink() {} failed {}", path.display(), OsErrorText(&error)),
                );
            }
        }
    }

    /// Closes the sockets of this process, for a graceful shutdown: new connections are refused
    /// rather than left waiting. The addresses stay known.
    pub fn close(&mut self) {
        for group in &mut self.groups {
            group.sockets.clear();
        }
    }

    /// Copies of all descriptors, per group, to send to the server process.
    ///
    /// # Errors
    /// If descriptors have run out.
    pub fn duplicate(&self) -> std::io::Result<Vec<Vec<OwnedFd>>> {
        let copies = |group: &SocketGroup| {
            group.sockets.iter().map(|socket| socket.as_fd().try_clone_to_owned()).collect()
        };
        self.groups.iter().map(copies).collect()
    }
}

/// Says that datagrams will be lost, unless the operator wants such a buffer.
fn warn_small_buffer(socket: &OwnedFd, spec: &ListenSpec, log: &StartupLog) {
    let wanted = listen::QUIC_BUFFER_BYTES;
    let Ok(bytes) = listen::receive_buffer(socket) else { return };
    if spec.rcvbuf.is_none() && bytes < wanted as usize {
        let text = format_args!(
            "the receive buffer of {} holds only {bytes} bytes: under load, datagrams are lost",
            spec.address
        );
        log.log(Level::Warn, text);
        log.hint("raise the kernel's limit: sysctl -w net.core.rmem_max=2097152");
    }
}

/// The hint for an address that cannot be listened on.
pub fn hint(address: &ListenAddress, error: &ListenError) -> Option<&'static str> {
    match (error.error.kind(), address) {
        (ErrorKind::PermissionDenied, ListenAddress::Inet(_)) => Some(
            "ports below 1024 are for root: start as root, permit them to the program by \
                 \"setcap cap_net_bind_service=+ep\" with its path, or listen on a higher port",
        ),
        (ErrorKind::AddrNotAvailable, _) => {
            Some("this machine does not have the address: \"ip address\" shows those that it has")
        }
        _ => None,
    }
}

/// A listener could not be opened; the log says which one and why.
#[derive(Debug)]
pub struct BindFailed;

/// The step and the reason of an error: `bind() to 0.0.0.0:80 failed (13: Permission denied)`.
pub struct ListenErrorText<'a>(pub &'a ListenError);

impl std::fmt::Display for ListenErrorText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} failed {}", self.0.step, OsErrorText(&self.0.error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn quiet() -> StartupLog {
        let mut log = StartupLog::stderr(Level::Emerg);
        log.set_sinks(Vec::new());
        log.set_stderr_copy(false);
        log
    }

    fn any(reuseport: bool) -> ListenSpec {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address: SocketAddr = probe.local_addr().unwrap();
        ListenSpec { reuseport, ..ListenSpec::new(ListenAddress::Inet(address)) }
    }

    #[test]
    fn a_reload_keeps_sockets_and_adds_what_is_new() {
        let (log, one, two) = (quiet(), any(false), any(true));
        let first = Sockets::default().renew(std::slice::from_ref(&one), 2, &log).unwrap();
        let second = first.renew(&[two.clone(), one.clone()], 3, &log).unwrap();
        assert_eq!(second.groups()[0].sockets.len(), 3);
        assert!(Arc::ptr_eq(&first.groups()[0].sockets[0], &second.groups()[1].sockets[0]));
        // Fewer workers: no socket of the listener is closed.
        let third = second.renew(&[two], 1, &log).unwrap();
        assert_eq!(third.groups()[0].sockets.len(), 3);
    }

    #[test]
    fn a_listener_can_become_reuseport_without_closing() {
        let (log, spec) = (quiet(), any(false));
        let first = Sockets::default().renew(std::slice::from_ref(&spec), 2, &log).unwrap();
        let spec = ListenSpec { reuseport: true, ..spec };
        let second = first.renew(&[spec], 2, &log).unwrap();
        assert_eq!(second.groups()[0].sockets.len(), 2);
        assert!(Arc::ptr_eq(&first.groups()[0].sockets[0], &second.groups()[0].sockets[0]));
    }

    #[test]
    fn inherited_sockets_are_found_by_address() {
        let (log, spec) = (quiet(), any(false));
        let first = Sockets::default().renew(std::slice::from_ref(&spec), 1, &log).unwrap();
        let fds = first.duplicate().unwrap().into_iter().flatten().collect();
        let table = Sockets::inherited(fds, &log);
        drop(first);
        assert_eq!(table.renew(&[spec], 1, &log).unwrap().groups()[0].sockets.len(), 1);
    }
}
