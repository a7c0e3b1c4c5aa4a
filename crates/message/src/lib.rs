//! The parts of HTTP messages common to all versions of the protocol (RFC 9110), without I/O.
//!
//! Contents:
//! - of requests: [`RequestHead`], [`Method`], [`uri`] and [`host`], with nginx's normalisation and
//!   validation;
//! - of responses: [`ResponseHead`], [`status`], [`etag`];
//! - [`fields`] of a head, field names that have a number ([`Known`]), dates ([`http_date`]), ranges ([`range`]), conditions
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
pub mod fields;
pub mod host;
pub mod http_date;
pub mod method;
pub mod name;
pub mod range;
pub mod request;
pub mod response;
pub mod scan;
pub mod status;
pub mod strftime;
pub mod uri;
pub mod version;

pub use fields::{Field, FieldPosition, FieldTable, Fields, Span};
pub use host::{HostParts, InvalidHost};
pub use method::Method;
pub use name::{Known, may_be_trailer};
pub use request::{ControlData, FieldError, RequestHead, TargetForm};
pub use response::{ResponseBuilder, ResponseHead};
pub use version::Version;
