//! Filters: what changes a response between its handler and the socket. Each is a module; its place
//! among the others is in [`Place`](crate::module::Place).

pub(crate) mod charset;
pub(crate) mod codings;
mod compress;
pub(crate) mod gunzip;
pub(crate) mod gzip;
mod pull;
pub(crate) mod slice;
pub(crate) mod ssi;

pub(crate) use compress::recode;
pub(crate) use pull::Pull;

use bytes::Bytes;

/// Decisions of filters about the head, for their later step with the body.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    /// Whether SSI commands in the body are executed.
    ssi: bool,
    /// Time format set by the commands in the body.
    pub(crate) time_format: Option<Bytes>,
    /// Compression of the body other than gzip.
    pub(crate) coded: Option<crate::codings::Coded>,
}
