//! The cache state of a request, for `$upstream_cache_status` and related variables.

use bytes::Bytes;
use nowait_cache::Served;
use nowait_caching::status::Status;
use nowait_http::request::Request;
use nowait_http::slots::Key;
use nowait_http::variables::Builtin;
use nowait_http::variables::core::number;

use super::responses::{Own, ResponseAccount};

/// The variables of this module.
pub(super) const BUILTINS: &[Builtin] = &[
    Builtin {
        name: "upstream_cache_status",
        doc: "Cache status of the response: `MISS`, `BYPASS`, `EXPIRED`, `STALE`, \
              `UPDATING`, `REVALIDATED` or `HIT`.",
        get: |r, out| text(r, out, |state| state.status.map(|status| status.as_str().as_bytes())),
    },
    Builtin {
        name: "upstream_cache_key",
        doc: "The cache key of the response.",
        get: |r, out| text(r, out, |state| Some(&state.key)),
    },
    Builtin {
        name: "upstream_cache_last_modified",
        doc: "`Last-Modified` of a stored response that is being revalidated.",
        get: |r, out| text(r, out, |state| state.last_modified.as_deref()),
    },
    Builtin {
        name: "upstream_cache_etag",
        doc: "`ETag` of a stored response that is being revalidated.",
        get: |r, out| text(r, out, |state| state.etag.as_deref()),
    },
    Builtin {
        name: "upstream_cache_age",
        doc: "Age of the stored response that was served, in seconds.",
        get: |r, out| {
            r.state().get(&STATE).and_then(|state| state.age).is_some_and(|age| number(age, out))
        },
    },
];

fn text<'a>(
    request: &'a Request,
    out: &mut Vec<u8>,
    part: fn(&'a State) -> Option<&'a [u8]>,
) -> bool {
    let value = request.state().get(&STATE).and_then(part);
    value.map(|value| out.extend_from_slice(value)).is_some()
}

static STATE: Key<State> = Key::new();

/// How the cache handled a request: `$upstream_cache_status`; `None` if none was used.
pub fn cache_status(request: &Request) -> Option<Status> {
    request.state().get(&STATE)?.status
}

/// Kept in the request once a cache was used.
#[derive(Debug, Default)]
pub struct State {
    /// The cache status.
    pub status: Option<Status>,
    /// The text of the key.
    pub key: Bytes,
    /// `Last-Modified` of the stored response that is being revalidated, as sent to the origin.
    pub last_modified: Option<Bytes>,
    /// `ETag` of the stored response that is being revalidated.
    pub etag: Option<Bytes>,
    /// Age of the stored response in seconds.
    pub age: Option<u64>,
    /// The stored object that was served, if it is a part of a response.
    pub(super) served: Option<Served>,
    /// What it adds to the counters of the cache.
    pub(super) account: Option<ResponseAccount>,
}

impl Drop for State {
    fn drop(&mut self) {
        self.settle();
    }
}

/// The stored object that was served to a request for a part of a response ([`nowait_http::slice`]).
pub fn served(request: &Request) -> Option<Served> {
    request.state().get(&STATE)?.served.clone()
}

impl State {
    /// The state of a request, made when it is first needed.
    pub(super) fn of(request: &mut Request) -> &mut State {
        request.state_mut().of_mut(&STATE)
    }

    /// The request begins in a cache that counts it here; what it had from another one is counted there.
    pub(super) fn enter(&mut self, own: Option<Own>, key: &Bytes) {
        self.settle();
        self.key = key.clone();
        self.account = own.map(ResponseAccount::new);
    }

    /// Counts the response.
    fn settle(&mut self) {
        if let (Some(account), Some(status)) = (self.account.take(), self.status) {
            account.settle(status);
        }
    }
}
