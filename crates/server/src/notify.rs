//! The service manager's interface: readiness and watchdog of systemd, and its socket activation.
//!
//! Protocols: sd_notify(3) and sd_listen_fds(3), by their documented text forms; no library.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use nowait_sys::fdpass;

/// Names the descriptor of a socket to the master that upgrades: `introductions.rs` of the master.
pub const MASTER_VARIABLE: &str = "NOWAIT_MASTER";

/// First descriptor that the service manager passes (SD_LISTEN_FDS_START).
const LISTEN_FDS_START: i32 = 3;

/// Maximum number of descriptors taken over.
const LISTEN_FDS_MAX: i32 = 4096;

/// Time limit of a reload, during which processes cannot report: names are resolved, and files may be on
/// slow disks.
const RELOAD_MAX: Duration = Duration::from_secs(600);

/// The socket that `NOTIFY_SOCKET` names, if any.
#[derive(Debug, Default)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// The manager ends a service that does not report for this long.
    watchdog: Option<Duration>,
    /// A reload is in progress: it may take longer.
    is_patient: Cell<bool>,
    /// The time of the last report to the watchdog.
    fed: Cell<Option<Instant>>,
}

impl Notifier {
    /// Reads the environment once. `watchdog` is that of [`InheritedFds`].
    pub fn from_environment(watchdog: Option<Duration>) -> Notifier {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|name| connect(&name));
        let watchdog = watchdog.filter(|_| socket.is_some());
        Notifier { socket, watchdog, ..Notifier::default() }
    }

    /// The interval of the manager's watchdog, if it has one.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Reports to the watchdog that all loops turn.
    pub fn alive(&self) {
        if self.watchdog.is_some() {
            self.fed.set(Some(Instant::now()));
            self.send("WATCHDOG=1\n");
        }
    }

    /// The time at which a master without server processes feeds the watchdog itself.
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.fed.get()? + self.watchdog? / 2)
    }

    /// Runs `read`, in which the master cannot report: the watchdog is more patient meanwhile.
    pub fn patiently<T>(&self, read: impl FnOnce() -> T) -> T {
        let before = self.is_patient.get();
        self.set_patient(true);
        let result = read();
        self.set_patient(before);
        result
    }

    fn set_patient(&self, on: bool) {
        let Some(usual) = self.watchdog else { return };
        if self.is_patient.replace(on) != on {
            let interval = if on { usual.max(RELOAD_MAX) } else { usual };
            self.fed.set(Some(Instant::now()));
            self.send(&format!("WATCHDOG_USEC={}\nWATCHDOG=1\n", interval.as_micros()));
        }
    }

    /// The server accepts connections. `pid` is the process to watch.
    pub fn ready(&self, pid: u32) {
        self.send(&format!("READY=1\nMAINPID={pid}\nSTATUS=serving\n"));
        self.set_patient(false);
        // From now on, a master that loses its server processes feeds the watchdog itself.
        self.fed.set(Some(Instant::now()));
    }

    /// Names another process as the main one. The manager accepts this only from the current main
    /// process (`NotifyAccess=main`), so a master names its successor, and a successor that gives up
    /// names its predecessor. Reports of that process count only from now on, so the watchdog is fed
    /// once for it.
    pub fn main_pid(&self, pid: u32) {
        let food = if self.watchdog.is_some() { "WATCHDOG=1\n" } else { "" };
        self.send(&format!("MAINPID={pid}\n{food}"));
    }

    /// A reload begins; [`Notifier::ready`] reports its end. The watchdog is patient meanwhile.
    pub fn reloading(&self) {
        self.set_patient(true);
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}\n"));
    }

    /// The server shuts down.
    pub fn stopping(&self) {
        self.send("STOPPING=1\n");
    }

    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.socket {
            // A missing or busy manager does not affect the service.
            let _ = socket.send_to_addr(message.as_bytes(), address);
        }
    }
}

fn connect(name: &OsStr) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest).ok()?,
        [b'/', ..] => SocketAddr::from_pathname(name).ok()?,
        _ => return None,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some((socket, address))
}

/// Descriptors inherited at the start: `NGINX=fd;fd;` from a master that upgrades, or `LISTEN_FDS`
/// and `LISTEN_PID` from the service manager.
#[derive(Debug, Default)]
pub struct InheritedFds {
    /// The value of `NGINX`, if they come from there.
    pub variable: Option<OsString>,
    /// The descriptors that were taken over.
    pub fds: Vec<OwnedFd>,
    /// A socket to the master that upgrades.
    pub master: Option<OwnedFd>,
    /// The failures, for the log.
    pub errors: Vec<String>,
    /// The interval of the service manager's watchdog.
    pub watchdog: Option<Duration>,
}

impl InheritedFds {
    /// Takes the descriptors over. Must be called once, first thing in `main`.
    pub fn take() -> InheritedFds {
        let mut inherited = InheritedFds::default();
        if let Some(value) = std::env::var_os("NGINX") {
            let (numbers, rest_is_bad) = numbers_of(value.as_bytes());
            if rest_is_bad {
                inherited.errors.push(format!(
                    "invalid socket number in NGINX environment variable \"{}\", ignoring the rest",
                    value.display()
                ));
            }
            inherited.adopt(&numbers);
            inherited.variable = Some(value);
            // A binary of nginx passes none.
            let master = number(MASTER_VARIABLE).map(fdpass::adopt);
            inherited.master = master.and_then(Result::ok);
        } else if number("LISTEN_PID") == Some(std::process::id() as i32)
            && let Some(count) = number("LISTEN_FDS")
        {
            let count = count.clamp(0, LISTEN_FDS_MAX);
            let numbers: Vec<i32> = (LISTEN_FDS_START..LISTEN_FDS_START + count).collect();
            inherited.adopt(&numbers);
        }
        // The number of the process is that of the master before an upgrade.
        let is_meant = std::env::var_os("WATCHDOG_PID").is_none()
            || number("WATCHDOG_PID") == Some(std::process::id() as i32)
            || inherited.variable.is_some();
        let interval = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        inherited.watchdog = interval.filter(|us| is_meant && *us > 0).map(Duration::from_micros);
        inherited
    }

    fn adopt(&mut self, numbers: &[i32]) {
        for number in numbers {
            match fdpass::adopt(*number) {
                Ok(fd) => self.fds.push(fd),
                Err(error) => {
                    self.errors
                        .push(format!("the inherited socket #{number} is unusable: {error}"));
                }
            }
        }
    }
}

fn number(name: &str) -> Option<i32> {
    std::env::var(name).ok()?.parse().ok()
}

/// The numbers of `3;4;`, and whether anything else follows.
fn numbers_of(text: &[u8]) -> (Vec<i32>, bool) {
    let mut numbers = Vec::new();
    let mut parts = text.split(|b| matches!(b, b';' | b':')).peekable();
    while let Some(part) = parts.next() {
        if part.is_empty() && parts.peek().is_none() {
            return (numbers, false);
        }
        let number = std::str::from_utf8(part).ok().and_then(|part| part.parse().ok());
        match number {
            // A number without a separator after it is not taken, as in nginx.
            Some(number) if parts.peek().is_some() => numbers.push(number),
            _ => return (numbers, true),
        }
    }
    (numbers, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_read_as_nginx_writes_it() {
        assert_eq!(numbers_of(b"6;7;"), (vec![6, 7], false));
        assert_eq!(numbers_of(b""), (vec![], false));
        assert_eq!(numbers_of(b"6;x;7;"), (vec![6], true));
        assert_eq!(numbers_of(b"6;7"), (vec![6], true));
    }

    #[test]
    fn messages_arrive_at_an_abstract_socket() {
        let name = format!("nowait-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let notifier = Notifier {
            socket: connect(OsStr::new(&format!("@{name}"))),
            watchdog: Some(Duration::from_secs(30)),
            ..Notifier::default()
        };
        notifier.ready(42);
        let mut buffer = [0; 128];
        let length = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1\nMAINPID=42\nSTATUS=serving\n");
        let (patient, usual) =
            ("WATCHDOG_USEC=600000000\nWATCHDOG=1\n", "WATCHDOG_USEC=30000000\nWATCHDOG=1\n");
        let mut expect = |messages: &[&str]| {
            for message in messages {
                let length = manager.recv(&mut buffer).unwrap();
                let received = String::from_utf8_lossy(&buffer[..length]);
                assert!(received.starts_with(message), "{received} instead of {message}");
            }
        };
        notifier.patiently(|| ());
        expect(&[patient, usual]);
        // Until the end of a reload, regardless of its contents.
        notifier.reloading();
        notifier.patiently(|| ());
        notifier.ready(42);
        expect(&[patient, "RELOADING=1\n", "READY=1\n", usual]);
        notifier.main_pid(43);
        expect(&["MAINPID=43\nWATCHDOG=1\n"]);
    }
}
