//! A client's connection, seen from the server.
//!
//! ```
//! use nowait_h3::{CriticalStream, Event, FieldLine, Limits, Sink, StreamId, client, server};
//!
//! #[derive(Default)]
//! struct Fields(Vec<(Vec<u8>, Vec<u8>)>);
//!
//! impl Sink for Fields {
//!     fn begin(&mut self, _: StreamId, _: bool) {
//!         self.0.clear();
//!     }
//!     fn field(&mut self, field: &FieldLine<'_>) {
//!         self.0.push((field.name.to_vec(), field.value.to_vec()));
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut client = client::ClientConnection::new(Limits::default());
//! let mut server = server::ServerConnection::new(Limits::default());
//! let mut fields = Fields::default();
//!
//! // The client's control stream, which the caller has opened: its type, and SETTINGS.
//! let control = StreamId::new(2);
//! assert!(server.accept(control)?);
//! let settings = client.output(CriticalStream::Control);
//! assert_eq!(server.receive(control, settings, false, &mut fields)?.event, Event::Settings);
//!
//! // A request, on a stream that the caller has opened, too.
//! let stream = StreamId::new(0);
//! let request = client::RequestControl {
//!     method: b"GET",
//!     scheme: b"https",
//!     authority: b"x",
//!     path: b"/",
//!     protocol: None,
//! };
//! let mut input = Vec::new();
//! let mut head = client.open(stream, &request, &mut input)?;
//! head.field(b"Accept", b"*/*");
//! head.finish(true);
//! assert!(server.accept(stream)?);
//! let step = server.receive(stream, &input, true, &mut fields)?;
//! assert_eq!(step.event, Event::Request { end: true });
//! assert_eq!(fields.0[0], (b":method".to_vec(), b"GET".to_vec()));
//!
//! let mut output = Vec::new();
//! let mut head = server.respond(stream, 200, &mut output)?;
//! head.field(b"Content-Type", b"text/plain");
//! head.finish(false);
//! server.data_header(stream, 5, &mut output)?;
//! output.extend_from_slice(b"hello");
//! server.end(stream);
//! assert_eq!(server.open_streams(), 0);
//! # Ok(())
//! # }
//! ```

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
