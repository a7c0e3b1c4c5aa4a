//! A blocking HTTP/1.x client that sends exactly the bytes a test specifies.
//!
//! One value is one connection. It never retries, never adds a header and never guesses: a test
//! spells out the bytes to send, and the response is parsed strictly ([`crate::response`]). All
//! waits end after [`Client::set_patience`] with a panic that shows the bytes received so far.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::response::{Framing, Response, parse_chunked, parse_head};
use crate::wait::{self, PATIENCE, STEP};

/// Bytes read from the socket at once.
const READ_BYTES: usize = 64 * 1024;

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// Received, but not yet consumed as part of a response.
    pending: Vec<u8>,
    eof: bool,
    /// Longest wait for bytes.
    patience: Duration,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    Bytes(usize),
    /// The server closed its side normally (FIN).
    End,
    /// The server reset the connection (RST).
    Reset,
    /// Nothing within the time limit.
    Nothing,
}

impl Client {
    /// Connects to 127.0.0.1.
    ///
    /// # Panics
    /// If the port is closed.
    #[track_caller]
    pub fn to_port(port: u16) -> Client {
        Client::to((Ipv4Addr::LOCALHOST, port).into())
    }

    /// Connects.
    ///
    /// # Panics
    /// If the port is closed.
    #[track_caller]
    pub fn to(addr: SocketAddr) -> Client {
        match Client::try_to(addr) {
            Ok(client) => client,
            Err(e) => panic!("connect to {addr}: {e}"),
        }
    }

    /// Connects.
    ///
    /// # Errors
    /// As `connect(2)`.
    pub fn try_to(addr: SocketAddr) -> std::io::Result<Client> {
        Client::over(TcpStream::connect_timeout(&addr, PATIENCE)?)
    }

    /// Speaks over this connection, which may lead through a relay that adds TLS.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    pub fn over(stream: TcpStream) -> std::io::Result<Client> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut client = Client { stream, pending: Vec::new(), eof: false, patience: PATIENCE };
        client.set_read_patience(PATIENCE)?;
        Ok(client)
    }

    /// Sets the maximum time to wait for the server.
    pub fn set_patience(&mut self, patience: Duration) {
        self.set_read_patience(patience)
            .and_then(|()| self.stream.set_write_timeout(Some(patience)))
            .expect("patience is not zero");
    }

    fn set_read_patience(&mut self, patience: Duration) -> std::io::Result<()> {
        self.patience = patience;
        self.stream.set_read_timeout(Some(patience.min(STEP)))
    }

    /// Sends bytes unchanged.
    ///
    /// # Panics
    /// If the server does not accept them in time.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        if let Err(e) = self.stream.write_all(bytes.as_ref()) {
            panic!("send: {e}; arrived so far: {}", self.shown());
        }
    }

    /// Sends bytes in pieces of `piece` bytes with a pause after each, like a slow client.
    #[track_caller]
    pub fn send_slowly(&mut self, bytes: impl AsRef<[u8]>, piece: usize, pause: Duration) {
        for part in bytes.as_ref().chunks(piece) {
            self.send(part);
            std::thread::sleep(pause);
        }
    }

    /// Sends a GET request for `path` with `Host: localhost` that keeps the connection alive.
    #[track_caller]
    pub fn send_get(&mut self, path: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    }

    /// Requests `path` and returns the response.
    #[track_caller]
    pub fn get(&mut self, path: &str) -> Response {
        self.send_get(path);
        self.response()
    }

    /// Reads the next response to a request other than HEAD.
    ///
    /// # Panics
    /// If none arrives in time, it is malformed, or the connection ends too early.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        match self.try_response(false) {
            Ok(all) => all,
            Err(why) => panic!("{why}; arrived so far: {}", self.shown()),
        }
    }

    /// Reads the response to a HEAD request.
    ///
    /// # Panics
    /// As for [`Client::response`].
    #[track_caller]
    pub fn response_to_head(&mut self) -> Response {
        match self.try_response(true) {
            Ok(all) => all,
            Err(why) => panic!("{why}; arrived so far: {}", self.shown()),
        }
    }

    /// Reads the next response.
    ///
    /// # Errors
    /// A description of why there is none.
    pub fn try_response(&mut self, to_head_request: bool) -> Result<Response, String> {
        let head = loop {
            match parse_head(&self.pending, to_head_request) {
                Err(malformed) => return Err(format!("malformed response: {}", malformed.0)),
                Ok(Some(head)) => break head,
                Ok(None) => self.more("a response head")?,
            }
        };
        self.pending.drain(..head.length);
        let mut response = head.response;
        match head.framing {
            Framing::None => {}
            Framing::Length(length) => {
                while self.pending.len() < length {
                    self.more("the rest of a body")?;
                }
                response.body = self.pending.drain(..length).collect();
            }
            Framing::Chunked => loop {
                match parse_chunked(&self.pending) {
                    Err(malformed) => return Err(format!("malformed body: {}", malformed.0)),
                    Ok(None) => self.more("the rest of a chunked body")?,
                    Ok(Some(chunked)) => {
                        self.pending.drain(..chunked.length);
                        response.body = chunked.body;
                        response.trailers = chunked.trailers;
                        break;
                    }
                }
            },
            Framing::Close => response.body = self.try_rest()?,
        }
        Ok(response)
    }

    /// Reads everything until the server closes.
    ///
    /// # Panics
    /// If it does not close in time or resets the connection.
    #[track_caller]
    pub fn rest(&mut self) -> Vec<u8> {
        self.try_rest().unwrap_or_else(|why| panic!("{why}; arrived so far: {}", self.shown()))
    }

    fn try_rest(&mut self) -> Result<Vec<u8>, String> {
        loop {
            match self.receive() {
                Arrival::Bytes(_) => {}
                Arrival::End => return Ok(std::mem::take(&mut self.pending)),
                Arrival::Reset => return Err("the connection was reset".to_owned()),
                Arrival::Nothing => return Err("the server doesn't close".to_owned()),
            }
        }
    }

    /// Asserts that the server closes the connection (normally or by reset) without sending another
    /// byte.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        let arrival = if self.pending.is_empty() { self.receive() } else { Arrival::Bytes(0) };
        assert!(
            matches!(arrival, Arrival::End | Arrival::Reset),
            "expected the end of the connection, got {arrival:?}: {}",
            self.shown()
        );
    }

    /// Reports what arrives within `duration`. For "nothing must arrive" where no event can be
    /// awaited; keep it short.
    pub fn arrives_within(&mut self, duration: Duration) -> Arrival {
        if !self.pending.is_empty() {
            return Arrival::Bytes(self.pending.len());
        }
        let old = self.patience;
        let set = self.set_read_patience(duration);
        debug_assert!(set.is_ok(), "duration is not zero");
        let arrival = self.receive();
        let _ = self.set_read_patience(old);
        arrival
    }

    /// Bytes received and not yet consumed as a response.
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// Reads once, at most `limit` bytes, like a slow reader.
    #[track_caller]
    pub fn read_some(&mut self, limit: usize) -> Vec<u8> {
        if self.pending.is_empty() {
            let arrival = self.receive();
            assert!(
                !matches!(arrival, Arrival::Nothing | Arrival::Reset),
                "expected bytes, got {arrival:?}"
            );
        }
        let n = limit.min(self.pending.len());
        self.pending.drain(..n).collect()
    }

    /// Closes the sending side (FIN); responses can still be read.
    pub fn half_close(&mut self) {
        // Fails only if the server is already gone, which the next read reports.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Resets the connection (RST).
    pub fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO))
            .expect("SO_LINGER can be set on an open socket");
    }

    /// The socket itself. Its reads wait for less than the patience of the client, which is to be read from
    /// instead.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn more(&mut self, what: &str) -> Result<(), String> {
        match self.receive() {
            Arrival::Bytes(_) => Ok(()),
            Arrival::End => Err(format!("the server closed the connection before {what}")),
            Arrival::Reset => Err(format!("the server reset the connection before {what}")),
            Arrival::Nothing => Err(format!("timed out waiting for {what}")),
        }
    }

    fn receive(&mut self) -> Arrival {
        if self.eof {
            return Arrival::End;
        }
        let mut buffer = [0; READ_BYTES];
        match wait::read(&self.stream, &mut buffer, self.patience) {
            Ok(0) => {
                self.eof = true;
                Arrival::End
            }
            Ok(n) => {
                self.pending.extend_from_slice(&buffer[..n]);
                Arrival::Bytes(n)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Arrival::Nothing
            }
            Err(_) => Arrival::Reset,
        }
    }

    fn shown(&self) -> String {
        let shown = self.pending.len().min(500);
        let text = String::from_utf8_lossy(&self.pending[..shown]);
        format!("{} bytes {text:?}", self.pending.len())
    }
}

/// Reads what the server sends, unchanged. After the patience, the error is that of a timeout.
impl Read for Client {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.pending.is_empty() {
            return wait::read(&self.stream, buffer, self.patience);
        }
        let n = buffer.len().min(self.pending.len());
        buffer[..n].copy_from_slice(&self.pending[..n]);
        self.pending.drain(..n);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::{Origin, Step};

    #[test]
    fn takes_pipelined_responses_one_by_one() {
        let origin = Origin::start([[
            Step::expect("GET /b"),
            Step::reply(
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nAHTTP/1.1 200 OK\r\n\
                 Transfer-Encoding: chunked\r\n\r\n1\r\nB\r\n0\r\n\r\n",
            ),
        ]]);
        let mut client = Client::to(origin.addr());
        client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.response().text(), "A");
        assert_eq!(client.response().text(), "B");
        client.expect_closed();
    }

    #[test]
    #[should_panic(expected = "before the rest of a body")]
    fn notices_a_short_body() {
        let origin = Origin::start([[
            Step::expect("\r\n\r\n"),
            Step::reply("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"),
        ]]);
        Client::to(origin.addr()).get("/");
    }
}
