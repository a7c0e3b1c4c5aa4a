//! An origin that keeps its connections: every request is answered with its own body.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub struct Echo {
    addr: SocketAddr,
    over: Arc<AtomicBool>,
}

impl Echo {
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let addr = listener.local_addr().expect("bound");
        let over = Arc::new(AtomicBool::new(false));
        let own = over.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if own.load(Ordering::Acquire) {
                    return;
                }
                // A connection ends when the server closes it.
                std::thread::spawn(move || while answer(&stream).is_some() {});
            }
        });
        Self { addr, over }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        // Wakes the listener.
        let _ = TcpStream::connect(self.addr);
    }
}

/// Answers one request. A connection serves one thread: nothing read ahead is lost, since the
/// server does not pipeline.
fn answer(mut stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut out = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
    out.extend_from_slice(&body);
    stream.write_all(&out).ok()
}
