//! An origin that sends each object in a new version each time, and remembers how many it began.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::objects::{self, OBJECTS};

pub struct VersionedOrigin {
    addr: SocketAddr,
    shared: Arc<OriginState>,
}

struct OriginState {
    /// The newest version of each object.
    versions: Vec<AtomicU64>,
    over: AtomicBool,
}

impl VersionedOrigin {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("bound");
        let versions = (0..OBJECTS).map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(OriginState { versions, over: AtomicBool::new(false) });
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if own.over.load(Ordering::Acquire) {
                    return;
                }
                let own = Arc::clone(&own);
                // A connection ends when the server closes it or is killed.
                std::thread::spawn(move || own.serve(&stream));
            }
        });
        Self { addr, shared }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The newest version sent completely or in part; 0: none.
    pub fn newest(&self, object: usize) -> u64 {
        self.shared.versions[object].load(Ordering::SeqCst)
    }
}

impl Drop for VersionedOrigin {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        // Wakes the listener.
        let _ = TcpStream::connect(self.addr);
    }
}

impl OriginState {
    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        loop {
            let mut target = None;
            loop {
                let mut line = String::new();
                match reader.read_line(&mut line) {
                    Ok(1..) => {}
                    _ => return,
                }
                if target.is_none() {
                    target = line.split(' ').nth(1).map(str::to_owned);
                }
                if line == "\r\n" {
                    break;
                }
            }
            if self.answer(stream, &target.unwrap_or_default()).is_err() {
                return;
            }
        }
    }

    fn answer(&self, mut stream: &TcpStream, path: &str) -> std::io::Result<()> {
        let Some(object) = objects::of_path(path) else {
            return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        };
        let version = self.versions[object].fetch_add(1, Ordering::SeqCst) + 1;
        let body = objects::body(object, version);
        let chunked = object.is_multiple_of(3);
        let framing = if chunked {
            String::from("Transfer-Encoding: chunked")
        } else {
            format!("Content-Length: {}", body.len())
        };
        let head = format!("HTTP/1.1 200 OK\r\nX-Version: {version}\r\n{framing}\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        for piece in body.chunks(50_000) {
            if chunked {
                stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes())?;
            }
            stream.write_all(piece)?;
            if chunked {
                stream.write_all(b"\r\n")?;
            }
        }
        if chunked {
            stream.write_all(b"0\r\n\r\n")?;
        }
        Ok(())
    }
}
