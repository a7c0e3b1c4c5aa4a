//! Protocols to applications behind an HTTP server, without sockets, files, clocks or threads: the
//! client side of FastCGI, SCGI, uwsgi, and of memcached's `get`.
//!
//! Contents:
//! - [`fastcgi`]: records, parameters, and a response in records;
//! - [`scgi`], [`uwsgi`]: the beginning of a request; their responses are those of [`cgi`];
//! - [`memcached`]: one value.
//!
//! Requests are appended to the caller's buffer. Of responses, the caller owns the input; content is
//! reported as ranges of it, and only an incomplete head is kept, in the caller's
//! [`ResponseBuilder`](nowait_message::ResponseBuilder).
//!
//! What it never does: decide which parameters are sent, log, retry.
//!
//! `unsafe` is forbidden.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod cgi;
mod error;
pub mod fastcgi;
pub mod memcached;
mod params;
pub mod scgi;
mod step;
pub mod uwsgi;

pub use error::Error;
pub use nowait_h1::ResponseError as HeadError;
pub use params::ParamForm;
pub use step::{BodyEvent, BodyStep, HeadEvent, HeadStep};
