//! What HTTP messages consist of in every version of the protocol (RFC 9110), without I/O.
//!
//! Contents:
//! - of requests: [`Method`], [`uri`] and [`host`], with nginx's normalisation and validation;
//! - of responses: [`status`], [`etag`];
//! - field names that have a number ([`Known`]), dates ([`http_date`]), ranges ([`range`]), conditions
//!   ([`conditional`]);
//! - [`escape`] for texts, URIs and logs, [`strftime`], and [`scan`] for the bytes of fields.
//!
//! What it never does: read a clock, know a connection, or frame a message: see `h1`.
//!
//! `unsafe` is forbidden.
#![forbid(unsafe_code)]

pub mod conditional;
pub mod escape;
pub mod etag;
pub mod host;
pub mod http_date;
pub mod method;
pub mod name;
pub mod range;
pub mod scan;
pub mod status;
pub mod strftime;
pub mod uri;

pub use host::{HostParts, InvalidHost};
pub use method::Method;
pub use name::Known;
