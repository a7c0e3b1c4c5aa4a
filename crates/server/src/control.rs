//! The master's control socket: how `nowait -s reload` learns whether the reload worked.
//!
//! An abstract Unix socket named after the master's process id: it needs no file, and vanishes
//! with the process. The peer's credentials are checked on both sides: the master answers only to
//! root and to its own user, and the client makes sure that it talks to the process of the pid
//! file. Whoever cannot reach it (another network namespace, nginx itself as the master) sends the
//! signal instead, as nginx does, and learns nothing.
//!
//! One line goes each way: `reload`, then `ok GENERATION`, or `failed` and the diagnostics.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

/// Clients served per wake-up and held while a reload is under way.
pub const CLIENTS_MAX: usize = 16;

/// How long the master lets a client take to say what it wants.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a client waits for the end of a reload.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);

/// Bytes of a reply: the diagnostics are bounded, too.
const REPLY_BYTES_MAX: u64 = 1 << 20;

const REQUEST: &[u8; 7] = b"reload\n";

fn address(pid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("nowait/{pid}"))
}

/// The master's end.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
}

/// A client that waits for the result of its reload.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
}

impl Control {
    /// Listens under the id of this process.
    ///
    /// # Errors
    /// The kernel's; the server can do without.
    pub fn open() -> io::Result<Control> {
        let listener = UnixListener::bind_addr(&address(std::process::id())?)?;
        listener.set_nonblocking(true)?;
        Ok(Control { listener })
    }

    /// A client that asked for a reload; `None` when nobody (else) waits. Clients that may not ask
    /// or ask nonsense are dropped.
    pub fn accept(&self) -> Option<Client> {
        for _ in 0..CLIENTS_MAX {
            let (stream, _) = self.listener.accept().ok()?;
            if let Ok(client) = admit(stream) {
                return Some(client);
            }
        }
        None
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn admit(mut stream: UnixStream) -> io::Result<Client> {
    let peer = rustix::net::sockopt::socket_peercred(&stream)?;
    let own = nowait_sys::user::effective_uid();
    if !peer.uid.is_root() && peer.uid.as_raw() != own {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let mut request = [0; REQUEST.len()];
    stream.read_exact(&mut request)?;
    if request != *REQUEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(Client { stream })
}

impl Client {
    /// Tells the client how its reload ended: the number of the new generation, or why not.
    pub fn reply(mut self, result: Result<u64, &str>) {
        let text = match result {
            Ok(number) => format!("ok {number}\n"),
            Err(reason) => format!("failed\n{reason}"),
        };
        // A client that has gone does not want to know.
        let _ = self.stream.write_all(text.as_bytes());
    }
}

/// What came of asking a master to reload.
#[derive(Debug, PartialEq, Eq)]
pub enum Reload {
    /// The generation of this number is in use.
    Done(u64),
    /// Nothing changed; the diagnostics say why.
    Failed(String),
    /// The master cannot be asked this way: send the signal.
    Unreachable,
}

/// Asks the master `pid` to reload, and waits for the result.
pub fn request_reload(pid: u32) -> Reload {
    let Ok(mut stream) = connect(pid) else { return Reload::Unreachable };
    let mut reply = Vec::new();
    if let Err(error) = Read::by_ref(&mut stream).take(REPLY_BYTES_MAX).read_to_end(&mut reply) {
        return Reload::Failed(format!("no answer from the master process {pid}: {error}\n"));
    }
    let reply = String::from_utf8_lossy(&reply);
    match reply.split_once('\n') {
        Some(("failed", reason)) => Reload::Failed(reason.to_owned()),
        Some((first, _)) if first.starts_with("ok ") => {
            Reload::Done(first["ok ".len()..].parse().unwrap_or(0))
        }
        _ => Reload::Failed(format!("the master process {pid} ended during the reload\n")),
    }
}

fn connect(pid: u32) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect_addr(&address(pid)?)?;
    let peer = rustix::net::sockopt::socket_peercred(&stream)?;
    if peer.pid.as_raw_nonzero().get().unsigned_abs() != pid {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    stream.write_all(REQUEST)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_reaches_the_client() {
        let control = Control::open().unwrap();
        for (result, expected) in [
            (Ok(7), Reload::Done(7)),
            (Err("no such file\n"), Reload::Failed("no such file\n".into())),
        ] {
            let client = std::thread::spawn(|| request_reload(std::process::id()));
            rustix::event::poll(
                &mut [rustix::event::PollFd::new(&control, rustix::event::PollFlags::IN)],
                None,
            )
            .unwrap();
            control.accept().unwrap().reply(result);
            assert_eq!(client.join().unwrap(), expected);
        }
        // Nobody listens under the id of the first process of the system.
        assert_eq!(request_reload(1), Reload::Unreachable);
    }
}
