//! HTTP/1.1 (RFC 9112) without sockets, files, clocks or threads, for both sides.
//!
//! Contents:
//! - [`server::ServerConnection`]: bytes in, request heads and body ranges out.
//! - [`client::ClientConnection`]: the same for responses, and whether a connection is reusable.
//! - [`cgi`]: heads of responses without a status line.
//! - [`BodyDecoder`]: `Content-Length`, chunked and until-close bodies, shared by both.
//! - [`encode`]: heads and chunk framing, appended to the caller's buffer.
//!
//! Ownership: a connection object owns no heap memory, so an idle one costs only its few bytes. A
//! head is parsed into a [`RequestHead`](nowait_message::RequestHead) (or a response's builder) lent by the
//! caller. Heads are recycled: a keep-alive request allocates nothing, and fields identical to those of the
//! previous request are not parsed again. Unconsumed input (pipelined requests, unexpected body bytes) stays
//! with the caller, and body bytes are reported as ranges of the caller's input: nothing is copied.
//!
//! What it never does: decide policy (keep-alive timeouts, `client_max_body_size`, rejecting TRACE
//! and CONNECT), read a clock, log. Errors carry the status and nginx's log text.
//!
//! `unsafe` is forbidden.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod body;
pub mod cgi;
pub mod client;
pub mod encode;
pub mod error;
pub mod limits;
mod line;
mod reader;
mod request;
mod response;
pub mod server;
mod status_line;

pub use body::{BodyDecoder, BodyEvent, BodyLength, BodyStep, Trailers};
pub use error::{RequestError, ResponseError, Stage};
pub use limits::Limits;
pub use request::ConnectionTokens;
