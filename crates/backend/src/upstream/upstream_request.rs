//! The request to an upstream server: the URI, and the changes by a cache.

use bytes::Bytes;
use nowait_http::upstream_state::LogUri;

/// A request to an upstream server, as far as it differs from the client's.
#[derive(Debug, Default, Clone)]
pub struct UpstreamRequest {
    /// The requested URI.
    pub uri: LogUri,
    /// The changes that the user of the response requires.
    pub wanted: UpstreamVariation,
}

/// Changes to a request whose response has another user than the client, such as a cache.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct UpstreamVariation {
    /// The response may be stored: the client's conditions and ranges are not passed on.
    pub for_cache: bool,
    /// Replaces the client's method.
    pub method: Option<&'static str>,
    /// Only a part of the response is needed, or perhaps none. Boxed: few requests have it.
    pub condition: Option<Box<Condition>>,
}

/// Fields that make a response conditional, or a part of one.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Condition {
    /// `If-Modified-Since`: the stored response is sent again only if it has changed.
    pub if_modified_since: Option<Bytes>,
    /// `If-None-Match`, likewise.
    pub if_none_match: Option<Bytes>,
    /// `Range` and `If-Range`: only the rest of a response is needed, which is not stored on its own.
    pub rest: Option<(Bytes, Bytes)>,
    /// The rest completes a response that is being stored.
    pub completes: bool,
}

impl Condition {
    /// The fields that are set: the name in requests of HTTP, the name in those of CGI, the value.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, &'static str, &Bytes)> {
        let (range, if_range) = match &self.rest {
            Some((range, validator)) => (Some(range), Some(validator)),
            None => (None, None),
        };
        let all = [
            ("If-Modified-Since", "IF_MODIFIED_SINCE", self.if_modified_since.as_ref()),
            ("If-None-Match", "IF_NONE_MATCH", self.if_none_match.as_ref()),
            ("Range", "RANGE", range),
            ("If-Range", "IF_RANGE", if_range),
        ];
        all.into_iter().filter_map(|(name, cgi, value)| Some((name, cgi, value?)))
    }
}

impl UpstreamVariation {
    /// Whether the request continues after its client has disconnected, regardless of the settings.
    pub fn outlives_client(&self) -> bool {
        let is_kept = |only: &Condition| only.rest.is_none() || only.completes;
        self.for_cache && self.condition.as_deref().is_none_or(is_kept)
    }
}
