//! The core's state of a request on its way through the phases, in groups that are reset as a whole.

use bytes::Bytes;

use crate::conf::LocationId;
use crate::outcome::StatusResponse;
use crate::response::Head;

/// Internal redirects that one request may take. nginx: `NGX_HTTP_MAX_URI_CHANGES`.
pub const URI_CHANGES_MAX: u8 = 10;

/// The changes of the request's URI.
#[derive(Debug)]
pub struct RewriteState {
    /// `try_files` found the URI below the value of an `alias` with captures.
    pub is_file: bool,
    /// The location's own rewriting has changed the URI, which therefore need not begin with the
    /// location's name. nginx: `!r->valid_location`.
    pub rewritten: bool,
    /// The URI is still the client's: nothing has changed it, so the text of the request line may
    /// be used in its place. nginx: `r->valid_unparsed_uri`.
    pub unparsed: bool,
    /// The URI was rewritten, and its location has to be found.
    pub changed: bool,
    /// Remaining internal redirects, plus one: zero means that the limit was exceeded. See
    /// [`URI_CHANGES_MAX`].
    pub changes_left: u8,
}

impl Default for RewriteState {
    fn default() -> Self {
        Self {
            is_file: false,
            rewritten: false,
            unparsed: false,
            changed: false,
            changes_left: URI_CHANGES_MAX + 1,
        }
    }
}

/// The state of a response that is replaced by another: an error page, or the response of a location named
/// by an upstream server.
#[derive(Default, Debug)]
pub struct Replacement {
    /// An error page is being made, and may not lead to another.
    pub by_error_page: bool,
    /// Status to send instead of the status of the response in progress.
    pub status: Option<u16>,
    /// No part of the response is in the requested range. Its 416 has its header fields.
    pub unsatisfied: bool,
    /// The status that an error page replaces, with its header fields.
    pub special: Option<Box<StatusResponse>>,
    /// The head whose fields the response of another location takes over.
    pub head: Option<Box<Head>>,
}

/// The request's position on its connection (RFC 9112, section 9.3: persistence).
#[derive(Default, Debug)]
pub struct Persistence {
    /// The connection may serve another request afterwards.
    pub keep_alive: bool,
    /// Arrived together with the request before it.
    pub pipelined: bool,
    /// The client must not be invited to send the body: the request is refused.
    pub body_discarded: bool,
}

/// `$realpath_root`, filled by a phase when the configuration mentions it.
#[derive(Default, Debug)]
pub struct Realpath {
    /// The value.
    pub root: Option<Bytes>,
    /// The location that it was resolved for.
    pub of: Option<LocationId>,
}
