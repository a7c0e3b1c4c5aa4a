//! What is asked of an upstream server: the URI, and the changes that a cache makes to the request.

use bytes::Bytes;

use super::LogUri;

/// A request to an upstream server, as far as it differs from the client's.
#[derive(Debug, Default, Clone)]
pub struct Order {
    /// The requested URI.
    pub uri: LogUri,
    /// What the user of the response wants.
    pub wanted: Wanted,
}

/// Changes to a request whose response has another user than the client, such as a cache.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The response may be stored: the client's conditions and ranges are not passed on.
    pub for_cache: bool,
    /// Replaces the client's method.
    pub method: Option<&'static str>,
    /// `If-Modified-Since`: the stored response is sent again only if it has changed.
    pub if_modified_since: Option<Bytes>,
    /// `If-None-Match`, likewise.
    pub if_none_match: Option<Bytes>,
    /// `Range` and `If-Range`: only the rest of a response is needed, which is not stored.
    pub rest: Option<(Bytes, Bytes)>,
}

impl Wanted {
    /// Whether the request continues after its client has left, whatever the settings say.
    pub fn outlives_client(&self) -> bool {
        self.for_cache && self.rest.is_none()
    }
}
