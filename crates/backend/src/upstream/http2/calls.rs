//! Requests that the server makes on its own behalf over HTTP/2, such as exports of traces: one connection, outside
//! of groups and balancing, and calls one after another.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use nowait_http::response::Header;
use nowait_message::ResponseHead;
use nowait_runtime::buf::RECV_BUF_BYTES;
use nowait_runtime::net::{NO_TIMEOUT, Stream};
use nowait_runtime::{now, spawn};
use nowait_upstream::{IdleConnection, Keepalive};

use super::connection::{Connection, Usage};
use super::stream::{Fields, HeldStream, Line};
use super::task;

/// Content is queued in pieces of this many bytes.
const PIECE_BYTES: usize = 16 * 1024;

/// A connection for the server's own calls. Dropped, it closes after the calls on it.
pub struct OwnConnection(Rc<Connection>);

/// The response to a call.
#[derive(Debug)]
pub struct CallResponse {
    /// The head.
    pub head: Rc<ResponseHead>,
    /// The content, up to the limit.
    pub body: Vec<u8>,
    /// The trailers.
    pub trailers: Vec<Header>,
}

impl CallResponse {
    /// A field of the trailers, or of the head of a response without content.
    pub fn trailer(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.trailers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        found.map(|field| &field.value[..]).or_else(|| self.head.field(name))
    }
}

impl OwnConnection {
    /// Takes a connection whose TLS session, if it has one, is for HTTP/2. It closes after `idle` without a call;
    /// writes may pause for `send_timeout`.
    pub fn new(stream: Stream, idle: Duration, send_timeout: Duration) -> Self {
        let keepalive = Keepalive { timeout: idle, ..Keepalive::default() };
        let usage = Usage { keepalive, send_timeout, is_owned: true };
        let connection = Connection::new(&IdleConnection::new(stream, now()), None, usage);
        drop(spawn(task::serve(connection.clone())));
        Self(connection)
    }

    /// Whether another call may be made.
    pub fn is_open(&self) -> bool {
        !self.0.has_failed() && !self.0.is_leaving()
    }

    /// Makes a call with this content. `write` adds the fields of its head. The caller limits the time.
    ///
    /// # Errors
    /// The reason why there is no complete response, for the log.
    pub async fn call(
        &self,
        line: &Line<'_>,
        write: impl FnOnce(&mut Fields<'_>),
        mut body: Bytes,
        body_bytes_max: usize,
    ) -> Result<CallResponse, String> {
        let stream = HeldStream(self.0.reserve());
        stream.lane().open(line, body.is_empty(), write);
        let network =
            |error: io::Error| format!("connection failed ({})", nowait_conf::Errno(&error));
        while !body.is_empty() {
            stream.room(NO_TIMEOUT).await.map_err(network)?;
            stream.put(body.split_to(body.len().min(PIECE_BYTES)));
        }
        stream.end();
        let fault = |fault: crate::upstream::Fault| fault.to_string();
        let (mut head, mut content) = (None, Vec::new());
        loop {
            while let Some((interim, received)) = stream.take_head().map_err(fault)? {
                if !interim {
                    head = Some(received);
                }
            }
            if stream.is_complete().map_err(fault)? {
                break;
            }
            let piece = stream.recv(NO_TIMEOUT, RECV_BUF_BYTES).await.map_err(network)?;
            let room = body_bytes_max.saturating_sub(content.len());
            content.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        let head = head.ok_or("the response has no head")?;
        Ok(CallResponse { head, body: content, trailers: stream.take_trailers() })
    }
}

impl Drop for OwnConnection {
    fn drop(&mut self) {
        self.0.retire();
    }
}
