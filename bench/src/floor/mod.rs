//! The floor: a server that parses nothing. It always sends the same response, or relays ([`relay`]).
//!
//! It makes only the system calls that no server with epoll can avoid; each of its threads has a
//! listening socket of its own. Its cost is almost entirely the kernel's, so a server that does the
//! work of one cannot reach its ratio.

mod relay;
mod sink;

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, bind, listen, recv,
    send, socket_with, sockopt,
};

use crate::server::{ADDRESS, ORIGIN};

/// The argument that makes this program a floor; [`FloorKind::name`], the number of threads and the file or
/// [`NO_FILE`] follow.
const ARGUMENT: &str = "floor";
const NO_FILE: &str = "-";

/// What the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloorKind {
    /// It speaks HTTP, at [`ADDRESS`].
    Http,
    /// Like [`FloorKind::Http`], with the field that says that a cache has answered.
    Cache,
    /// It speaks FastCGI, at [`ORIGIN`].
    Fastcgi,
    /// It takes uploads, at [`ORIGIN`].
    Sink,
    /// It passes bytes from [`ADDRESS`] to [`ORIGIN`] and back.
    Relay,
}

impl FloorKind {
    const ALL: [FloorKind; 5] =
        [FloorKind::Http, FloorKind::Cache, FloorKind::Fastcgi, FloorKind::Sink, FloorKind::Relay];

    fn name(self) -> &'static str {
        match self {
            FloorKind::Http => "http",
            FloorKind::Cache => "cache",
            FloorKind::Fastcgi => "fastcgi",
            FloorKind::Sink => "sink",
            FloorKind::Relay => "relay",
        }
    }
}

/// Events taken at once, as in nginx.
const EVENTS: usize = 512;

const BACKLOG: i32 = 8192;

/// Requests are smaller.
const REQUEST_BYTES_MAX: usize = 4096;

/// A longer body is sent by sendfile, as both servers do: copying would cost more.
const COPIED_BYTES_MAX: u64 = 64 * 1024;

/// A longer response may not fit into the socket.
const FITTING_BYTES_MAX: u64 = 4096;

/// As short: records with a head, two bytes, and the end of the request.
const FASTCGI_RESPONSE: &[u8] =
    b"\x01\x06\0\x01\0\x2e\x02\0Content-Type: text/plain\nContent-Length: 2\n\nOK\0\0\
    \x01\x06\0\x01\0\0\0\0\x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0";

/// The end of a FastCGI request.
const FASTCGI_END: &[u8] = b"\x01\x05\0\x01\0\0\0\0";

/// The arguments of this program for a floor that sends this file; `None`: two bytes.
pub fn arguments(kind: FloorKind, threads: usize, file: Option<&Path>) -> [String; 4] {
    let file = file.map_or_else(|| NO_FILE.to_owned(), |file| file.display().to_string());
    [ARGUMENT.to_owned(), kind.name().to_owned(), threads.to_string(), file]
}

/// Serves until this program is killed, if its arguments say so.
pub fn serve_if_asked(mut arguments: impl Iterator<Item = String>) -> Option<io::Result<()>> {
    if arguments.next().as_deref() != Some(ARGUMENT) {
        return None;
    }
    let kind = arguments.next();
    let kind = FloorKind::ALL.into_iter().find(|known| Some(known.name()) == kind.as_deref())?;
    let threads = arguments.next()?.parse().ok()?;
    let file = arguments.next()?;
    Some(Body::open(&file).and_then(|body| serve(kind, threads, &body)))
}

/// Whether connections are kept is learned from the first request; those of FastCGI are.
fn serve(kind: FloorKind, threads: usize, body: &Body) -> io::Result<()> {
    let listeners = (0..threads).map(|_| listener(kind)).collect::<io::Result<Vec<_>>>()?;
    std::thread::scope(|scope| {
        let serve = |listener| match kind {
            FloorKind::Relay => relay::serve_one(listener),
            FloorKind::Sink => sink::serve_one(listener),
            _ => serve_one(kind, body, listener),
        };
        let threads: Vec<_> =
            listeners.iter().map(|listener| scope.spawn(move || serve(listener))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        })
    })
}

/// A socket of its own.
fn listener(kind: FloorKind) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    let address = match kind {
        FloorKind::Http | FloorKind::Cache | FloorKind::Relay => ADDRESS,
        FloorKind::Fastcgi | FloorKind::Sink => ORIGIN,
    };
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The body of a response: a small one in memory, a large one in a file that the kernel has in memory.
struct Body {
    bytes: Vec<u8>,
    file: Option<File>,
    len: u64,
}

impl Body {
    fn open(path: &str) -> io::Result<Body> {
        if path == NO_FILE {
            return Ok(Body { bytes: b"OK".to_vec(), file: None, len: 2 });
        }
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        if len > COPIED_BYTES_MAX {
            return Ok(Body { bytes: Vec::new(), file: Some(file), len });
        }
        Ok(Body { bytes: std::fs::read(path)?, file: None, len })
    }
}

/// What is sent for each request.
struct FloorResponse {
    bytes: Vec<u8>,
    /// What follows, and its length.
    file: Option<(OwnedFd, u64)>,
    /// The connection is closed behind it.
    close: bool,
}

impl FloorResponse {
    /// The response to the first request, as long as nginx's.
    fn new(kind: FloorKind, body: &Body, request: &[u8]) -> io::Result<FloorResponse> {
        if kind == FloorKind::Fastcgi {
            return Ok(FloorResponse {
                bytes: FASTCGI_RESPONSE.to_vec(),
                file: None,
                close: false,
            });
        }
        let close = request.windows(5).any(|window| window == b"close");
        let mut bytes = head(kind, body.len, close).into_bytes();
        let file = match &body.file {
            Some(file) => Some((file.try_clone()?.into(), body.len)),
            None => {
                bytes.extend_from_slice(&body.bytes);
                None
            }
        };
        Ok(FloorResponse { bytes, file, close })
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64 + self.file.as_ref().map_or(0, |(_, len)| *len)
    }

    /// Sends what is left, as far as that is possible now.
    fn send(&self, socket: &OwnedFd, left: &mut u64) -> rustix::io::Result<()> {
        while *left > 0 {
            let at = self.len() - *left;
            let sent = match (&self.file, self.bytes.get(at as usize..)) {
                (file, Some(rest @ [_, ..])) => {
                    let more = if file.is_some() { SendFlags::MORE } else { SendFlags::empty() };
                    send(socket, rest, SendFlags::NOSIGNAL | more)
                }
                (Some((file, _)), _) => {
                    let mut offset = at - self.bytes.len() as u64;
                    sendfile(socket, file, Some(&mut offset), *left as usize)
                }
                (None, _) => return Err(Errno::PIPE),
            };
            match sent {
                Ok(sent @ 1..) => *left -= sent as u64,
                Err(Errno::AGAIN) => return Ok(()),
                Ok(_) => return Err(Errno::PIPE),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn head(kind: FloorKind, body_bytes: u64, close: bool) -> String {
    let connection = if close { "close" } else { "keep-alive" };
    let of_file = match kind {
        _ if body_bytes <= 2 => "",
        FloorKind::Cache => "ETag: \"65f0c0de-400\"\r\nX-Cache: HIT\r\nAccept-Ranges: bytes\r\n",
        _ => "ETag: \"65f0c0de-400\"\r\nAccept-Ranges: bytes\r\n",
    };
    let modified = match of_file {
        "" => "",
        _ => "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
    };
    format!(
        "HTTP/1.1 200 OK\r\nServer: floor/1.22.1\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: {body_bytes}\r\n{modified}\
         Connection: {connection}\r\n{of_file}\r\n"
    )
}

struct FloorConnection {
    socket: OwnedFd,
    /// Bytes of the response that are not sent yet.
    left: u64,
}

fn serve_one(kind: FloorKind, body: &Body, listener: &OwnedFd) -> io::Result<()> {
    let queue = epoll::create(CreateFlags::CLOEXEC)?;
    let listening = data(listener);
    epoll::add(&queue, listener, listening, EventFlags::IN)?;
    // By number.
    let mut connections: Vec<Option<FloorConnection>> = Vec::new();
    let mut made: Option<FloorResponse> = None;
    let mut events = Vec::with_capacity(EVENTS);
    let mut buffer = [MaybeUninit::uninit(); REQUEST_BYTES_MAX];
    let mut flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
    if body.len > FITTING_BYTES_MAX {
        flags |= EventFlags::OUT;
    }
    loop {
        events.clear();
        match epoll::wait(&queue, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let number = event.data.u64();
            if number == listening.u64() {
                let how = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                // One at a time: to learn that there is no other would cost a call.
                if let Ok(socket) = accept_with(listener, how) {
                    epoll::add(&queue, &socket, data(&socket), flags)?;
                    let number = socket.as_raw_fd() as usize;
                    if connections.len() <= number {
                        connections.resize_with(number + 1, || None);
                    }
                    connections[number] = Some(FloorConnection { socket, left: 0 });
                }
                continue;
            }
            let Some(slot) = connections.get_mut(number as usize) else { continue };
            let Some(FloorConnection { socket, left }) = slot else { continue };
            if *left == 0 {
                match recv(&*socket, &mut buffer, RecvFlags::empty()) {
                    Err(Errno::AGAIN) => continue,
                    // The request may come in two pieces.
                    Ok(((request, _), 1..))
                        if kind == FloorKind::Fastcgi && !request.ends_with(FASTCGI_END) =>
                    {
                        continue;
                    }
                    Ok(((request, _), 1..)) => {
                        if made.is_none() {
                            made = Some(FloorResponse::new(kind, body, request)?);
                        }
                        *left = made.as_ref().map_or(0, FloorResponse::len);
                    }
                    Ok(_) | Err(_) => {
                        *slot = None;
                        continue;
                    }
                }
            }
            let Some(response) = &made else { continue };
            if response.send(socket, left).is_err() || response.close && *left == 0 {
                *slot = None;
            }
        }
    }
}

/// The number of a descriptor.
fn data(fd: &impl AsRawFd) -> EventData {
    EventData::new_u64(fd.as_raw_fd() as u64)
}
