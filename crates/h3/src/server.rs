//! A client's connection, seen from the server.

use bytes::BufMut;
use nowait_fields::Token;
use nowait_fields::write::status_digits;

pub use crate::connection::ServerSide;
use crate::connection::{HeadKind, HeadWriter, SendError};
use crate::frame::StreamId;

/// The protocol state of a client's connection.
pub type ServerConnection = crate::connection::Connection<ServerSide>;

impl ServerConnection {
    /// Begins a response.
    pub fn respond<'a, B: BufMut>(
        &'a mut self,
        stream: StreamId,
        status: u16,
        out: &'a mut B,
    ) -> Result<HeadWriter<'a, ServerSide, B>, SendError> {
        let mut head = self.begin_section(stream, HeadKind::Head, out)?;
        head.pseudo(Token::STATUS, &status_digits(status));
        Ok(head)
    }

    /// Begins an interim response: 100, 103.
    pub fn interim<'a, B: BufMut>(
        &'a mut self,
        stream: StreamId,
        status: u16,
        out: &'a mut B,
    ) -> Result<HeadWriter<'a, ServerSide, B>, SendError> {
        let mut head = self.begin_section(stream, HeadKind::Interim, out)?;
        head.pseudo(Token::STATUS, &status_digits(status));
        Ok(head)
    }
}
