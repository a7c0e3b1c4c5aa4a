//! A client's connection, seen from the server.
//!
//! ```
//! use nowait_h2::hpack::HpackField;
//! use nowait_h2::{ConnectionError, Event, Limits, Sink, StreamId, client, server};
//!
//! #[derive(Default)]
//! struct Fields(Vec<(Vec<u8>, Vec<u8>)>);
//!
//! impl Sink for Fields {
//!     fn begin(&mut self, _: StreamId) {
//!         self.0.clear();
//!     }
//!     fn field(&mut self, field: &HpackField<'_>) {
//!         self.0.push((field.name.to_vec(), field.value.to_vec()));
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut client = client::ClientConnection::new(Limits::default());
//! let mut input = Vec::new();
//! let request = client::RequestControl {
//!     method: b"GET",
//!     scheme: b"https",
//!     authority: b"x",
//!     path: b"/",
//!     protocol: None,
//! };
//! let mut head = client.open(&request, &mut input)?;
//! head.field(b"Accept", b"*/*");
//! head.finish(true);
//!
//! let mut server = server::ServerConnection::new(Limits::default());
//! let mut fields = Fields::default();
//! let step = server.receive(&input, &mut fields)?; // SETTINGS
//! assert_eq!(step.event, Event::Settings);
//! let step = server.receive(&input[step.consumed..], &mut fields)?;
//! let Event::Request { stream, end: true } = step.event else { panic!() };
//! assert_eq!(fields.0[0], (b":method".to_vec(), b"GET".to_vec()));
//!
//! let mut output = Vec::new();
//! let mut head = server.respond(stream, 200, &mut output)?;
//! head.field(b"Content-Type", b"text/plain");
//! head.finish(false);
//! assert_eq!(server.reserve(stream, 5), 5);
//! server.data_header(stream, 5, true, &mut output)?;
//! output.extend_from_slice(b"hello");
//! assert_eq!(server.open_streams(), 0);
//! # Ok(())
//! # }
//! ```

use bytes::BufMut;
use nowait_fields::write::status_digits;

pub use crate::connection::ServerSide;
use crate::connection::{HeadWriter, SendError};
use crate::frame::StreamId;
use crate::hpack::Token;

/// The protocol state of a client's connection.
pub type ServerConnection = crate::connection::Connection<ServerSide>;

impl ServerConnection {
    /// Begins a response.
    pub fn respond<'a, B: BufMut + AsMut<[u8]>>(
        &'a mut self,
        stream: StreamId,
        status: u16,
        out: &'a mut B,
    ) -> Result<HeadWriter<'a, ServerSide, B>, SendError> {
        let mut head = self.begin_block(stream, crate::connection::HeadKind::Head, out)?;
        head.pseudo(Token::STATUS, &status_digits(status));
        Ok(head)
    }

    /// Begins an interim response: 100, 103.
    pub fn interim<'a, B: BufMut + AsMut<[u8]>>(
        &'a mut self,
        stream: StreamId,
        status: u16,
        out: &'a mut B,
    ) -> Result<HeadWriter<'a, ServerSide, B>, SendError> {
        let mut head = self.begin_block(stream, crate::connection::HeadKind::Interim, out)?;
        head.pseudo(Token::STATUS, &status_digits(status));
        Ok(head)
    }
}
