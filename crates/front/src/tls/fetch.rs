//! One request and its response on a connection: to issuers of certificates and collectors of traces (`https.rs`),
//! and to OCSP responders (`ocsp.rs`).
//!
//! Redirects are not followed. The size of a response is limited, and its time by the caller.

use nowait_conf::Errno;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use nowait_h1::client::{ClientConnection, HeadEvent, RequestKind};
use nowait_h1::{BodyEvent, Limits};
use nowait_message::response::ResponseBuilder;
use nowait_resolver::Resolver;
use nowait_runtime::net::{Address, SendOptions, Stream};

/// Maximum time for a request and its response, and for each of its steps. nginx's value for each step of
/// a request to a responder.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum size of a response's head.
const HEAD_BYTES_MAX: u32 = 16 * 1024;

/// A response.
#[derive(Debug, Default)]
pub struct FetchedResponse {
    /// The status.
    pub status: u16,
    /// The fields, with names in lower case.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The connection can carry another request.
    pub keeps_connection: bool,
}

impl FetchedResponse {
    /// The value of the first field of this name, which is in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own == name).map(|(_, value)| value.trim())
    }
}

/// Connects to one of the addresses of a host, in their order.
pub(super) async fn open(
    resolver: &Resolver,
    resolver_timeout: Duration,
    host: &str,
    port: u16,
) -> Result<Stream, String> {
    let found = resolver.resolve(host.as_bytes(), resolver_timeout).await;
    let found = found.map_err(|error| format!("{host} could not be resolved ({error})"))?;
    let mut stream = Err(format!("no address of {host}"));
    for address in found.sockets(port) {
        let connected = Stream::connect(&Address::Inet(address), TIMEOUT).await;
        stream =
            connected.map_err(|error| format!("connect() to {address} failed ({})", Errno(&error)));
        if stream.is_ok() {
            break;
        }
    }
    stream
}

/// Sends a request, and receives the response with a body of up to `body_bytes_max`.
pub(super) async fn exchange(
    stream: &Stream,
    request: impl Into<Bytes>,
    is_head: bool,
    body_bytes_max: usize,
) -> Result<FetchedResponse, String> {
    let failed = |error: std::io::Error| format!("connection failed ({})", Errno(&error));
    stream.send(request.into(), SendOptions::new(TIMEOUT)).await.map_err(failed)?;
    let mut response = ResponseReader::new(is_head, body_bytes_max);
    loop {
        let received = stream.recv(TIMEOUT).await.map_err(failed)?;
        if response.receive(&received)? {
            return Ok(response.answer);
        }
    }
}

/// A response that is being received.
struct ResponseReader {
    connection: ClientConnection,
    head: ResponseBuilder,
    has_head: bool,
    body_bytes_max: usize,
    answer: FetchedResponse,
}

impl ResponseReader {
    fn new(is_head: bool, body_bytes_max: usize) -> Self {
        let mut connection = ClientConnection::new(Limits::one_buffer(HEAD_BYTES_MAX));
        connection.request_sent(if is_head { RequestKind::Head } else { RequestKind::Content });
        Self {
            connection,
            head: ResponseBuilder::new(),
            has_head: false,
            body_bytes_max,
            answer: FetchedResponse::default(),
        }
    }

    /// Takes bytes, or without any the end of the connection; true: it is complete.
    fn receive(&mut self, mut input: &[u8]) -> Result<bool, String> {
        let malformed = |error: &dyn fmt::Display| format!("invalid response: {error}");
        if input.is_empty() {
            self.connection.receive_eof().map_err(|error| malformed(&error))?;
            return match self.has_head {
                true => Ok(true),
                false => Err("the server closed the connection".to_owned()),
            };
        }
        while !self.has_head {
            let step = self.connection.receive_head(&mut self.head, input);
            let step = step.map_err(|error| malformed(&error))?;
            input = &input[step.consumed..];
            match step.event {
                HeadEvent::NeedMore => return Ok(false),
                HeadEvent::Interim => self.head = ResponseBuilder::new(),
                HeadEvent::Final => {
                    let head = self.head.take();
                    self.answer.status = head.status;
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let fields = head.fields();
                    let fields = fields.map(|f| (text(f.name).to_lowercase(), text(f.value)));
                    self.answer.fields = fields.collect();
                    self.has_head = true;
                }
            }
        }
        loop {
            let step = self.connection.receive_body(input).map_err(|error| malformed(&error))?;
            match step.event {
                BodyEvent::Data(range) => self.answer.body.extend_from_slice(&input[range]),
                BodyEvent::NeedMore => return Ok(false),
                BodyEvent::End => {
                    let leftover = !input[step.consumed..].is_empty();
                    self.answer.keeps_connection = self.connection.reusable(leftover);
                    return Ok(true);
                }
            }
            if self.answer.body.len() > self.body_bytes_max {
                return Err("the response is too large".to_owned());
            }
            input = &input[step.consumed..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_bounds() {
        let mut response = ResponseReader::new(false, 4);
        let head = b"HTTP/1.1 201 Created\r\nReplay-Nonce: x\r\nContent-Length: 3\r\n\r\nab";
        assert_eq!(response.receive(head), Ok(false));
        assert_eq!(response.receive(b"c"), Ok(true));
        let FetchedResponse { status, fields, body, .. } = response.answer;
        assert_eq!((status, &body[..], &fields[0].0[..]), (201, &b"abc"[..], "replay-nonce"));
        let mut response = ResponseReader::new(false, 4);
        assert!(response.receive(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabcde").is_err());
        assert!(ResponseReader::new(false, 4).receive(b"").is_err());
    }
}
