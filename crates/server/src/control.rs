//! The master's control socket: reports to `nowait -s reload` whether the reload worked, and passes
//! requests of `nowait cache purge` to the caches.
//!
//! An abstract Unix socket named after the master's process ID: it needs no file, and vanishes with
//! the process. Credentials are checked on both sides: the master replies only to root and to its
//! own user, and the client makes sure that it talks to the process in the pid file. If the socket
//! cannot be reached (another network namespace, or nginx itself as the master), the signal is sent
//! instead, as in nginx, without any feedback.
//!
//! One line goes each way: `presence`, then `ok 1` from a master that serves; `upgraded`, and no
//! reply; `reload`, then `ok GENERATION` and errors that did not prevent it, or `failed` and the
//! diagnostics; `purge ZONE KIND TEXT`
//! with zone and text in hexadecimal, then `ok OBJECTS`, or `failed` and the reason; `log-level LEVEL`, or
//! `log-level -` for the configured ones, then `ok 0`, or `failed` and the reason.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;

use crate::log::Level;
use crate::wire::{PurgeKind, PurgeOrder};

/// Maximum number of clients served per wake-up, and held while a reload is in progress.
pub const CLIENTS_MAX: usize = 16;

/// How long the master waits for a client's request.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a client waits for a reload to finish.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum size of a reply: the diagnostics are bounded, too.
const REPLY_BYTES_MAX: u64 = 1 << 20;

/// Maximum size of a request: mostly the hexadecimal text of a key.
const REQUEST_BYTES_MAX: usize = 256 << 10;

/// Time that a start waits for another master's report whether it serves.
const PRESENCE_TIMEOUT: Duration = Duration::from_secs(2);

const RELOAD: &str = "reload";

/// The reply to other users.
const NOT_PERMITTED: &str = "nowait: [error] the master process belongs to another user; use \
                             its account, or root\n";

const PRESENCE: &str = "presence";

const UPGRADED: &str = "upgraded";

const LOG_LEVEL: &str = "log-level ";

/// A client's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlRequest {
    /// A reload.
    Reload,
    /// Asks whether the master serves and is not about to end.
    Presence,
    /// Tells the master that the one it started for an upgrade now serves. No reply is read.
    Upgraded,
    /// A purge of a cache.
    Purge(PurgeOrder),
    /// All error logs of requests get this level until the next reload; `None`: again their own.
    LogLevel(Option<Level>),
}

impl ControlRequest {
    /// As a line, without the line end.
    fn line(&self) -> String {
        match self {
            Self::Reload => RELOAD.to_owned(),
            Self::Presence => PRESENCE.to_owned(),
            Self::Upgraded => UPGRADED.to_owned(),
            Self::Purge(order) => {
                let mut line = format!("purge {}", HEXLOWER.encode(order.zone.as_bytes()));
                line.push_str(match order.kind {
                    PurgeKind::Key => " key",
                    PurgeKind::Prefix => " prefix",
                    PurgeKind::Tag => " tag",
                    PurgeKind::All => " all",
                });
                line.push_str(if order.soft { " soft " } else { " hard " });
                line.push_str(&HEXLOWER.encode(&order.text));
                line
            }
            Self::LogLevel(level) => format!("{LOG_LEVEL}{}", level.map_or("-", Level::name)),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        if line == RELOAD {
            return Some(Self::Reload);
        }
        if line == PRESENCE {
            return Some(Self::Presence);
        }
        if line == UPGRADED {
            return Some(Self::Upgraded);
        }
        if let Some(name) = line.strip_prefix(LOG_LEVEL) {
            let level = Level::from_name(name.as_bytes());
            return (level.is_some() || name == "-").then_some(Self::LogLevel(level));
        }
        let mut words = line.strip_prefix("purge ")?.split(' ');
        let zone = String::from_utf8(HEXLOWER.decode(words.next()?.as_bytes()).ok()?).ok()?;
        let kind = match words.next()? {
            "key" => PurgeKind::Key,
            "prefix" => PurgeKind::Prefix,
            "tag" => PurgeKind::Tag,
            "all" => PurgeKind::All,
            _ => return None,
        };
        let soft = match words.next()? {
            "soft" => true,
            "hard" => false,
            _ => return None,
        };
        let text = HEXLOWER.decode(words.next()?.as_bytes()).ok()?;
        let order = PurgeOrder { zone, kind, soft, text };
        words.next().is_none().then_some(Self::Purge(order))
    }
}

fn address(pid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("nowait/{pid}"))
}

/// The master's side.
#[derive(Debug)]
pub struct ControlListener {
    listener: UnixListener,
}

/// A client that waits for the result of its request.
#[derive(Debug)]
pub struct ControlClient {
    stream: UnixStream,
    /// The request.
    pub wish: ControlRequest,
    /// The process ID, as reported by the kernel.
    pub pid: u32,
}

impl ControlListener {
    /// Listens under this process's ID.
    ///
    /// # Errors
    /// The kernel's error; the server can do without the socket.
    pub fn open() -> io::Result<ControlListener> {
        let listener = UnixListener::bind_addr(&address(std::process::id())?)?;
        listener.set_nonblocking(true)?;
        Ok(ControlListener { listener })
    }

    /// The next client with a request, if any. Clients without permission or with invalid requests are
    /// dropped.
    pub fn accept(&self) -> Option<ControlClient> {
        for _ in 0..CLIENTS_MAX {
            let (stream, _) = self.listener.accept().ok()?;
            if let Ok(client) = admit(stream) {
                return Some(client);
            }
        }
        None
    }
}

impl AsFd for ControlListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn admit(mut stream: UnixStream) -> io::Result<ControlClient> {
    let peer = rustix::net::sockopt::socket_peercred(&stream)?;
    let own = nowait_sys::user::effective_uid();
    if !peer.uid.is_root() && peer.uid.as_raw() != own {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let line = read_line(&mut stream)?;
    let wish = ControlRequest::parse(&line).ok_or(io::ErrorKind::InvalidData)?;
    let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
    Ok(ControlClient { stream, wish, pid })
}

/// Reads up to the end of a line.
fn read_line(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    let until = Instant::now() + REQUEST_TIMEOUT;
    let mut piece = [0; 4096];
    while line.last() != Some(&b'\n') {
        let count = stream.read(&mut piece)?;
        line.extend_from_slice(&piece[..count]);
        if count == 0 || line.len() > REQUEST_BYTES_MAX || Instant::now() > until {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    line.pop();
    String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData.into())
}

impl ControlClient {
    /// Sends the client the result: the number of the new generation or of the purged objects, or
    /// the error.
    pub fn reply(self, result: Result<u64, &str>) {
        self.reply_with(result.map(|number| (number, "")));
    }

    /// Like [`ControlClient::reply`], with errors that did not prevent it.
    pub fn reply_with(mut self, result: Result<(u64, &str), &str>) {
        let text = match result {
            Ok((number, said)) => format!("ok {number}\n{said}"),
            Err(reason) => format!("failed\n{reason}"),
        };
        // A client that has disconnected needs no result.
        let _ = self.stream.write_all(text.as_bytes());
    }
}

/// The result of a request to a master.
#[derive(Debug, PartialEq, Eq)]
pub enum ControlReply {
    /// The new generation with this number is in use, or this many objects were purged; and
    /// errors that did not prevent that.
    Done(u64, String),
    /// Failed, for this reason.
    Failed(String),
    /// The master cannot be reached this way: for a reload, send the signal.
    Unreachable,
}

/// Sends a request to the master `pid`, and waits for the result.
pub fn request(pid: u32, wish: &ControlRequest) -> ControlReply {
    let mut stream = match connect(pid, wish, REPLY_TIMEOUT) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return ControlReply::Failed(NOT_PERMITTED.to_owned());
        }
        Err(_) => return ControlReply::Unreachable,
    };
    let mut reply = Vec::new();
    if let Err(error) = Read::by_ref(&mut stream).take(REPLY_BYTES_MAX).read_to_end(&mut reply) {
        return ControlReply::Failed(format!("no answer from the master process {pid}: {error}\n"));
    }
    let reply = String::from_utf8_lossy(&reply);
    match reply.split_once('\n') {
        Some(("failed", reason)) => ControlReply::Failed(reason.to_owned()),
        Some((first, said)) if first.starts_with("ok ") => {
            ControlReply::Done(first["ok ".len()..].parse().unwrap_or(0), said.to_owned())
        }
        _ => ControlReply::Failed(format!("the master process {pid} ended meanwhile\n")),
    }
}

/// Tells the master `pid`, which started this one, that it can be replaced. A failure does not matter:
/// nginx, for example, does not need the message.
pub fn tell_upgraded(pid: u32) {
    let _ = connect(pid, &ControlRequest::Upgraded, PRESENCE_TIMEOUT);
}

/// Whether `pid` is a master that serves. A master that does not reply counts as serving: it may be
/// busy with a reload, or reply to its own user only. Other programs have no such socket.
pub fn is_serving(pid: u32) -> bool {
    let mut stream = match connect(pid, &ControlRequest::Presence, PRESENCE_TIMEOUT) {
        Ok(stream) => stream,
        Err(error) => return error.kind() == io::ErrorKind::PermissionDenied,
    };
    let mut reply = Vec::new();
    let read = Read::by_ref(&mut stream).take(REPLY_BYTES_MAX).read_to_end(&mut reply);
    read.is_err() || !reply.starts_with(b"failed")
}

/// `PermissionDenied` means that there is such a master, but it belongs to another user.
fn connect(pid: u32, wish: &ControlRequest, timeout: Duration) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect_addr(&address(pid)?)?;
    let peer = rustix::net::sockopt::socket_peercred(&stream)?;
    if peer.pid.as_raw_nonzero().get().unsigned_abs() != pid {
        return Err(io::ErrorKind::NotFound.into());
    }
    let own = nowait_sys::user::effective_uid();
    if own != 0 && own != peer.uid.as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(format!("{}\n", wish.line()).as_bytes())?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_lines() {
        let order = PurgeOrder {
            zone: "one".into(),
            kind: PurgeKind::Prefix,
            soft: true,
            text: b"http://a/ \xff\n".to_vec(),
        };
        let everything =
            PurgeOrder { kind: PurgeKind::All, soft: false, text: Vec::new(), ..order.clone() };
        for wish in [
            ControlRequest::Reload,
            ControlRequest::Presence,
            ControlRequest::Upgraded,
            ControlRequest::Purge(order),
            ControlRequest::Purge(everything),
        ] {
            assert_eq!(ControlRequest::parse(&wish.line()), Some(wish));
        }
        for wrong in ["", "purge", "purge 6f key hard", "purge 6f key hard 6", "purge 6f x hard 6f"]
        {
            assert_eq!(ControlRequest::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_result_reaches_the_client() {
        let control = ControlListener::open().unwrap();
        for (result, expected) in [
            (Ok((7, "beware\n")), ControlReply::Done(7, "beware\n".into())),
            (Err("no such file\n"), ControlReply::Failed("no such file\n".into())),
        ] {
            let client =
                std::thread::spawn(|| request(std::process::id(), &ControlRequest::Reload));
            rustix::event::poll(
                &mut [rustix::event::PollFd::new(&control, rustix::event::PollFlags::IN)],
                None,
            )
            .unwrap();
            control.accept().unwrap().reply_with(result);
            assert_eq!(client.join().unwrap(), expected);
        }
        // No master runs as the system's first process.
        assert_eq!(request(1, &ControlRequest::Reload), ControlReply::Unreachable);
    }
}
