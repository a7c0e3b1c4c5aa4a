//! A connection to an upstream server, seen from the client. See [`crate::server`] for an example of
//! both sides.
//!
//! A connection carries many requests. [`ClientConnection::can_open`] tells whether one more fits; a stream
//! that ends with `REFUSED_STREAM` has not been processed, and its request may be sent elsewhere.

use bytes::BufMut;
use nowait_fields::MessageState;

pub use crate::connection::ClientSide;
use crate::connection::{HeadKind, HeadWriter};
use crate::frame::StreamId;
use crate::hpack::Token;
use crate::stream::StreamState;

/// The protocol state of a connection to a server.
pub type ClientConnection = crate::connection::Connection<ClientSide>;

/// The control data of a request (RFC 9113 section 8.3.1), trusted by the caller to be valid.
#[derive(Debug, Clone, Copy)]
pub struct RequestControl<'a> {
    /// `:method`
    pub method: &'a [u8],
    /// `:scheme`; empty for CONNECT without `:protocol`.
    pub scheme: &'a [u8],
    /// `:authority`; omitted if empty.
    pub authority: &'a [u8],
    /// `:path`; empty for CONNECT without `:protocol`.
    pub path: &'a [u8],
    /// `:protocol` of extended CONNECT. Check [`crate::frames::Parameters::enable_connect_protocol`]
    /// first.
    pub protocol: Option<&'a [u8]>,
}

/// The reason why no stream can be opened. No frame was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// As many streams are open as the server allows.
    TooManyStreams,
    /// The connection takes no more streams: GOAWAY, an error, or all numbers are used.
    GoingAway,
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            OpenError::TooManyStreams => "the server allows no more streams at once",
            OpenError::GoingAway => "the connection takes no more streams",
        })
    }
}

impl std::error::Error for OpenError {}

impl ClientConnection {
    /// The number of further streams that may be opened now.
    pub fn can_open(&self) -> usize {
        if self.is_going_away() || self.next_stream().is_none() {
            return 0;
        }
        (self.peer().max_concurrent_streams as usize).saturating_sub(self.open_streams())
    }

    /// Opens a stream and begins its request.
    pub fn open<'a, B: BufMut + AsMut<[u8]>>(
        &'a mut self,
        request: &RequestControl<'_>,
        out: &'a mut B,
    ) -> Result<HeadWriter<'a, ClientSide, B>, OpenError> {
        let next = self.next_stream().filter(|_| !self.is_going_away());
        let id = next.ok_or(OpenError::GoingAway)?;
        if self.can_open() == 0 {
            return Err(OpenError::TooManyStreams);
        }
        let mut stream = self.new_stream(id);
        stream.message = MessageState::response_to(request.method);
        self.add_stream(stream);
        let mut head =
            self.begin_block(id, HeadKind::Head, out).map_err(|_| OpenError::GoingAway)?;
        head.pseudo(Token::METHOD, request.method);
        for (token, value) in [
            (Token::SCHEME, request.scheme),
            (Token::AUTHORITY, request.authority),
            (Token::PATH, request.path),
        ] {
            if !value.is_empty() {
                head.pseudo(token, value);
            }
        }
        if let Some(protocol) = request.protocol {
            head.protocol(protocol);
        }
        Ok(head)
    }

    fn new_stream(&self, id: StreamId) -> StreamState {
        StreamState::new(id, self.peer().initial_window_size, self.limits().stream_window)
    }
}
