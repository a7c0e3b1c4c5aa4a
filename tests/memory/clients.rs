//! Clients that begin something and then wait.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use nowait_testkit::skip::skip;
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The client's kernel takes little of what it does not read.
const RECEIVE_BUFFER_BYTES: usize = 4096;

/// How much of its content an upload sends: more than `client_body_buffer_size`.
const UPLOAD_BYTES: usize = 20_000;
/// In so many pieces, as slow networks deliver them.
const UPLOAD_PIECES: usize = 10;

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientKind {
    /// Has made a request, and keeps the connection.
    Idle,
    /// Sends the begin of a body.
    Upload,
    /// Takes the begin of a proxied response.
    Proxied,
    /// Takes the begin of a file that is not sent by sendfile.
    File,
}

/// They leave when this is dropped.
pub struct Clients(#[expect(dead_code, reason = "held open")] Vec<TcpStream>);

impl Clients {
    /// Opens so many connections; returns when the server is at work for each of them.
    pub fn open(server: SocketAddr, kind: ClientKind, count: usize) -> Clients {
        let mut streams: Vec<TcpStream> = (0..count).map(|_| connect(server)).collect();
        let request = match kind {
            ClientKind::Idle => "GET /tiny HTTP/1.1\r\nHost: a\r\n\r\n",
            ClientKind::Upload => {
                "POST /proxied/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
            }
            ClientKind::Proxied => "GET /proxied/large HTTP/1.1\r\nHost: a\r\n\r\n",
            ClientKind::File => "GET /file/large HTTP/1.1\r\nHost: a\r\n\r\n",
        };
        for stream in &mut streams {
            stream.write_all(request.as_bytes()).expect("a request is sent");
        }
        match kind {
            ClientKind::Upload => {
                for _ in 0..UPLOAD_PIECES {
                    for stream in &mut streams {
                        let piece = [b'x'; UPLOAD_BYTES / UPLOAD_PIECES];
                        stream.write_all(&piece).expect("content is sent");
                    }
                }
            }
            ClientKind::Idle | ClientKind::Proxied | ClientKind::File => {
                for stream in &mut streams {
                    let mut begin = [0; 12];
                    stream.read_exact(&mut begin).expect("a response begins");
                    assert_eq!(&begin, b"HTTP/1.1 200");
                }
            }
        }
        Clients(streams)
    }
}

fn connect(server: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
    let socket = socket.expect("a socket");
    // Before the connection is made: the window depends on it.
    sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES).expect("a small buffer");
    rustix::net::connect(&socket, &server).expect("a connection");
    TcpStream::from(socket)
}

/// Lets this process, and the servers that it starts, have files for so many clients. False, and said
/// aloud: it may not.
pub fn raise_limit(clients: usize) -> bool {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // A client, its connection to an origin, a temporary file.
    let needed = 3 * clients as u64 + 500;
    if maximum.is_some_and(|maximum| maximum < needed) {
        skip("files", &format!("{needed} open files are needed, {maximum:?} are allowed"));
        return false;
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("up to the maximum");
    true
}
