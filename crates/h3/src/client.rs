//! A connection to a server, seen from the client. See [`crate::server`] for an example of both sides.

use bytes::BufMut;
use nowait_fields::{MessageState, Token};

pub use crate::connection::ClientSide;
use crate::connection::{HeadKind, HeadWriter};
use crate::frame::StreamId;
use crate::stream::StreamState;

/// The protocol state of a connection to a server.
pub type ClientConnection = crate::connection::Connection<ClientSide>;

/// The control data of a request (RFC 9114 section 4.3.1), trusted by the caller to be valid.
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
    /// `:protocol` of extended CONNECT. Check [`crate::Settings::enable_connect_protocol`] first.
    pub protocol: Option<&'a [u8]>,
}

/// The server takes no more requests on this connection. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoingAway;

impl std::fmt::Display for GoingAway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection takes no more streams")
    }
}

impl std::error::Error for GoingAway {}

impl ClientConnection {
    /// Begins a request on a bidirectional stream that the caller has opened.
    ///
    /// # Errors
    /// [`GoingAway`]
    pub fn open<'a, B: BufMut>(
        &'a mut self,
        stream: StreamId,
        request: &RequestControl<'_>,
        out: &'a mut B,
    ) -> Result<HeadWriter<'a, ClientSide, B>, GoingAway> {
        if self.is_going_away() || !stream.is_request() {
            return Err(GoingAway);
        }
        let mut state = StreamState::new(stream);
        state.message = MessageState::response_to(request.method);
        self.add_stream(state);
        let mut head = self.begin_section(stream, HeadKind::Head, out).map_err(|_| GoingAway)?;
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
}
