//! The objects that a request purges, and the page that reports the purge.
//!
//! Used by [`super::answer`] and by locations that purge ([`super::location`]).

use std::sync::Arc;

use bytes::Bytes;
use nowait_cache::index::{How, PurgeError, What};
use nowait_cache::{CacheKey, Purged, Store};
use nowait_http::log::Level;
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Body, Head, Response};
use nowait_http::special_pages;
use nowait_message::escape;

/// The field with the number of purged objects.
pub(super) const PURGED: &str = "X-Purged";

/// The objects that a request purges.
pub(super) struct Aims {
    pub(super) what: Vec<What>,
    pub(super) how: How,
    /// An empty purge is no failure.
    pub(super) may_be_none: bool,
}

/// A key, or the beginning of keys if it ends with an asterisk.
pub(super) fn aims(key: &CacheKey) -> Aims {
    let (what, may_be_none) = match key.text.strip_suffix(b"*") {
        Some(prefix) => (What::Prefix(prefix.into()), true),
        None => (What::Key(key.main), false),
    };
    Aims { what: vec![what], how: How::Hard, may_be_none }
}

/// Purges; returns the number of objects, or `None` if there were none.
pub(super) async fn purge(
    request: &Request,
    store: &Arc<Store>,
    aims: Aims,
) -> Result<Option<u64>, Outcome> {
    let mut objects = 0;
    for what in aims.what {
        match store.purge(what, aims.how).await {
            Ok(purged) => objects += count(purged),
            Err(error @ PurgeError::TooMany) => {
                request.log(Level::Error, format_args!("cache purge: {error}"));
                return Err(Outcome::status(503));
            }
        }
    }
    Ok((aims.may_be_none || objects > 0).then_some(objects))
}

/// The page that reports a purge. Programs search for its title, which is that of `ngx_cache_purge`.
pub(super) fn page(request: &Request, key: &[u8], objects: u64) -> Outcome {
    let mut text = Vec::with_capacity(256 + key.len());
    text.extend_from_slice(
        b"<html>\r\n<head><title>Successful purge</title></head>\r\n<body>\r\n\
          <center><h1>Successful purge</h1>\r\n<p>Key: ",
    );
    escape::push_html(&mut text, key);
    let product = request.location().pages.server_tokens.text();
    text.extend_from_slice(
        format!(
            "</p>\r\n<p>Objects: {objects}</p></center>\r\n<hr><center>{product}</center>\r\n\
             </body>\r\n</html>\r\n"
        )
        .as_bytes(),
    );
    let mut head = Head::new(200);
    head.content_type = Some(Bytes::from_static(special_pages::CONTENT_TYPE.as_bytes()));
    head.content_length = Some(text.len() as u64);
    head.add(PURGED, objects.to_string());
    Response { head, body: Body::Bytes(text.into()) }.into()
}

/// Number of objects.
pub(super) fn count(purged: Purged) -> u64 {
    purged.objects + purged.fills
}
