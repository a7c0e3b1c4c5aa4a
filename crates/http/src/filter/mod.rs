//! Filters: what changes a response between its handler and the socket, in one fixed order.
//!
//! Called by the phases for every response. A filter sees the head and the body as a whole and
//! may wrap the body; it never sends anything. One that can't accept the response ends it with a
//! status, which then goes the way of every status: `error_page`, else a built-in page.

mod addition;
mod charset;
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

use crate::conf::Location;
use crate::conf::userid::UserId;
use crate::outcome::Special;
use crate::request::Request;
use crate::response::Response;

/// A filter, and whether it may apply to responses of a location.
struct Filter {
    apply: fn(&mut Request, &mut Response) -> Result<(), Box<Special>>,
    concerns: fn(&Location) -> bool,
}

/// A row of [`FILTERS`].
macro_rules! filters {
    ($($apply:path, if $concerns:expr;)+) => {
        &[$(Filter { apply: $apply, concerns: $concerns }),+]
    };
}

/// All filters in the order of their application. nginx: the order of its header filters, from the
/// top down.
const FILTERS: &[Filter] = filters! {
    slice::apply, if |l| l.slice.slice.0 != 0;
    not_modified::apply, if |_| true;
    headers::apply, if |_| true;
    userid::apply, if |l| matches!(l.userid.userid, UserId::V1 | UserId::V2);
    gunzip::apply, if |l| l.gunzip.gunzip;
    addition::decide, if |l| l.addition.uris() != [None, None];
    sub::apply, if |l| l.sub_filter.is_some();
    charset::name, if |_| true;
    ssi::decide, if |l| l.ssi.ssi;
    codings::decide, if |l| l.brotli.brotli || l.zstd.zstd;
    gzip::decide, if |l| l.gzip.gzip || l.gzip.gzip_vary;
    range::apply, if |_| true;
    charset::convert, if |_| true;
    ssi::apply, if |l| l.ssi.ssi;
    addition::apply, if |l| l.addition.uris() != [None, None];
    codings::compress, if |l| l.brotli.brotli || l.zstd.zstd;
    gzip::compress, if |l| l.gzip.gzip;
};

/// The filters that may apply to responses of a location: most locations use few, and only these
/// are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Concerned(u32);

const _: () = assert!(FILTERS.len() <= 32);

impl Concerned {
    /// The filters enabled by a location's settings.
    pub(crate) fn of(location: &Location) -> Self {
        let bits = FILTERS.iter().enumerate().map(|(n, f)| u32::from((f.concerns)(location)) << n);
        Self(bits.fold(0, |all, bit| all | bit))
    }
}

/// Decisions of filters about the head, for their later step with the body.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    /// Whether something is added to the body.
    addition: bool,
    /// Whether SSI commands in the body are executed.
    ssi: bool,
    /// Time format set by the commands in the body.
    pub(crate) time_format: Option<Bytes>,
    /// Compression of the body other than gzip.
    pub(crate) coded: Option<crate::codings::Coded>,
}

/// Sends a response through all filters.
///
/// # Errors
/// The status that replaces the response.
pub fn run(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    let mut left = request.location().filters.0;
    while left != 0 {
        (FILTERS[left.trailing_zeros() as usize].apply)(request, response)?;
        left &= left - 1;
    }
    Ok(())
}
