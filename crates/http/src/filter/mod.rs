//! Filters: what changes a response between its handler and the socket, in one fixed order.
//!
//! Called by the phases for every response. A filter sees the head and the body as a whole and
//! may wrap the body; it never sends anything. One that can't accept the response ends it with a
//! status, which then goes the way of every status: `error_page`, else a built-in page.

mod addition;
mod charset;
mod coder;
mod codings;
mod compress;
mod gunzip;
mod gzip;
mod headers;
mod not_modified;
mod pull;
mod range;
mod slice;
mod ssi;
mod sub;
mod userid;

pub(crate) use headers::trailers;
pub(crate) use pull::Pull;

use bytes::Bytes;

use crate::outcome::Special;
use crate::request::Request;
use crate::response::Response;

/// A filter.
type Filter = fn(&mut Request, &mut Response) -> Result<(), Box<Special>>;

/// All filters in the order in which they see a response. nginx: the order of its header filters,
/// from the top down.
const FILTERS: &[Filter] = &[
    slice::apply,
    not_modified::apply,
    headers::apply,
    userid::apply,
    gunzip::apply,
    addition::decide,
    sub::apply,
    charset::name,
    ssi::decide,
    codings::decide,
    gzip::decide,
    range::apply,
    charset::convert,
    ssi::apply,
    addition::apply,
    codings::compress,
    gzip::compress,
];

/// What filters decide about the head, for their later step with the body.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    /// Something is added to the body.
    addition: bool,
    /// Commands in the body are carried out.
    ssi: bool,
    /// How the commands of the body want times to be written.
    pub(crate) time_format: Option<Bytes>,
    /// By what, besides gzip, the body is compressed.
    pub(crate) coded: Option<crate::codings::Coded>,
}

/// Sends a response through all filters.
///
/// # Errors
/// The status that replaces the response.
pub fn run(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    FILTERS.iter().try_for_each(|filter| filter(request, response))
}
