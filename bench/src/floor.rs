//! The floor: a server that parses nothing and always sends the same response.
//!
//! It makes only the system calls that no server with epoll can avoid; each of its threads has a
//! listening socket of its own. Its cost is almost entirely the kernel's, so a server that does the
//! work of one cannot reach its ratio.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, bind, listen, recv,
    send, socket_with, sockopt,
};

use crate::server::{ADDRESS, ORIGIN};

/// The argument that makes this program the server.
pub const ARGUMENT: &str = "floor";

/// The argument that makes this program an application that speaks FastCGI, at [`ORIGIN`].
pub const FASTCGI_ARGUMENT: &str = "floor-fastcgi";

/// What the server is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It speaks HTTP, at [`ADDRESS`].
    Http,
    /// It speaks FastCGI, at [`ORIGIN`].
    Fastcgi,
}

/// Events taken at once, as in nginx.
const EVENTS: usize = 512;

const BACKLOG: i32 = 8192;

/// Requests are smaller.
const REQUEST_BYTES_MAX: usize = 4096;

/// As long as nginx's.
fn response(close: bool) -> String {
    let connection = if close { "close" } else { "keep-alive" };
    format!(
        "HTTP/1.1 200 OK\r\nServer: floor/1.22.1\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: 2\r\n\
         Connection: {connection}\r\n\r\nOK"
    )
}

/// As short: records with a head, two bytes, and the end of the request.
const FASTCGI_RESPONSE: &[u8] =
    b"\x01\x06\0\x01\0\x2e\x02\0Content-Type: text/plain\nContent-Length: 2\n\nOK\0\0\
    \x01\x06\0\x01\0\0\0\0\x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0";

/// The end of a FastCGI request.
const FASTCGI_END: &[u8] = b"\x01\x05\0\x01\0\0\0\0";

/// Serves with this number of threads until it is killed. Whether connections are kept is learned
/// from the first request; those of FastCGI are.
///
/// # Errors
/// The kernel's.
pub fn serve(kind: Kind, threads: usize) -> io::Result<()> {
    let listeners = (0..threads).map(|_| listener(kind)).collect::<io::Result<Vec<_>>>()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = listeners
            .iter()
            .map(|listener| scope.spawn(move || serve_one(kind, listener)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        })
    })
}

/// A socket of its own.
fn listener(kind: Kind) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    let address = match kind {
        Kind::Http => ADDRESS,
        Kind::Fastcgi => ORIGIN,
    };
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn serve_one(kind: Kind, listener: &OwnedFd) -> io::Result<()> {
    let queue = epoll::create(CreateFlags::CLOEXEC)?;
    let listening = data(listener);
    epoll::add(&queue, listener, listening, EventFlags::IN)?;
    // By number.
    let mut connections: Vec<Option<OwnedFd>> = Vec::new();
    let mut closes: Option<(bool, String)> = None;
    let mut events = Vec::with_capacity(EVENTS);
    let mut buffer = [MaybeUninit::uninit(); REQUEST_BYTES_MAX];
    loop {
        events.clear();
        match epoll::wait(&queue, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let number = event.data.u64();
            if number == listening.u64() {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                while let Ok(accepted) = accept_with(listener, flags) {
                    let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
                    epoll::add(&queue, &accepted, data(&accepted), flags)?;
                    let number = accepted.as_raw_fd() as usize;
                    if connections.len() <= number {
                        connections.resize_with(number + 1, || None);
                    }
                    connections[number] = Some(accepted);
                }
                continue;
            }
            let Some(slot) = connections.get_mut(number as usize) else { continue };
            let Some(connection) = &*slot else { continue };
            match recv(connection, &mut buffer, RecvFlags::empty()) {
                Err(Errno::AGAIN) => {}
                // The request may come in two pieces.
                Ok(((request, _), 1..)) if kind == Kind::Fastcgi => {
                    if request.ends_with(FASTCGI_END)
                        && send(connection, FASTCGI_RESPONSE, SendFlags::NOSIGNAL).is_err()
                    {
                        *slot = None;
                    }
                }
                Ok(((request, _), 1..)) => {
                    let (close, response) = closes.get_or_insert_with(|| {
                        let close = request.windows(5).any(|window| window == b"close");
                        (close, response(close))
                    });
                    let sent = send(connection, response.as_bytes(), SendFlags::NOSIGNAL);
                    if *close || sent.is_err() {
                        *slot = None;
                    }
                }
                Ok(_) | Err(_) => *slot = None,
            }
        }
    }
}

/// The number of a descriptor.
fn data(fd: &impl AsRawFd) -> EventData {
    EventData::new_u64(fd.as_raw_fd() as u64)
}
