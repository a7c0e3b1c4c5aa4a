//! Removing stored responses: on request (`cache_purge`, `nowait cache purge`), and when an unsafe
//! method has changed the resource (RFC 9111 section 4.4, strict mode). Called by [`super::serve`]
//! and by the program.

mod aims;
pub mod conf;
mod location;

use std::sync::Arc;

use bytes::Bytes;
use nowait_cache::index::{How, Tag, What};
use nowait_cache::{CacheKey, Key, Store};
use nowait_caching::updates;
use nowait_http::conf::HttpConf;
use nowait_http::log::Level;
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Body, Head, Response};
use nowait_message::{Known, ResponseHead};

use self::aims::{Aims, PURGED, aims, count, page, purge};
use self::conf::Asked;
use super::origin::{Origin, Source};
use super::serve;
use crate::cache::conf::CacheConf;
use crate::cache::path::paths;
use crate::upstream::{BodyOptions, UpstreamVariation};

/// The maximum number of tags that one request may purge.
const TAGS_MAX: usize = 64;

/// The target of an operator's purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aim {
    /// The object of a key, and its variants.
    Key(Vec<u8>),
    /// All objects whose key begins with this prefix.
    Prefix(Vec<u8>),
    /// All objects with a tag.
    Tag(Vec<u8>),
    /// All objects.
    All,
}

impl Aim {
    fn what(&self) -> What {
        match self {
            Self::Key(text) => What::Key(Key::new(text)),
            Self::Prefix(text) => What::Prefix(text.as_slice().into()),
            Self::Tag(text) => What::Tag(Tag::new(text)),
            Self::All => What::All,
        }
    }
}

/// Purges a cache given by name; returns the number of objects. Runs on a worker.
///
/// # Errors
/// The message for the operator.
pub async fn by_name(
    conf: &HttpConf,
    stores: &[Arc<Store>],
    zone: &str,
    aim: &Aim,
    soft: bool,
) -> Result<u64, String> {
    let at = paths(conf).iter().position(|path| path.zone == zone);
    let Some(store) = at.and_then(|at| stores.get(at)) else {
        let known: Vec<&str> = paths(conf).iter().map(|path| path.zone.as_str()).collect();
        return Err(match known.is_empty() {
            true => format!("cache \"{zone}\" not found: no cache is defined"),
            false => format!("cache \"{zone}\" not found, there are: {}", known.join(", ")),
        });
    };
    let purged = store.purge(aim.what(), how(soft)).await;
    purged.map(count).map_err(|error| error.to_string())
}

fn how(soft: bool) -> How {
    if soft { How::Soft } else { How::Hard }
}

/// Responds to a purging request. By a condition, as NGINX Plus: 204. By a method, as
/// `ngx_cache_purge`: 200 with a page. Both with the number of objects in `X-Purged`; 404 if its key was
/// not stored.
pub(super) async fn answer(
    request: &mut Request,
    conf: &CacheConf,
    store: &Arc<Store>,
    key: &CacheKey,
    asked: Asked,
) -> Outcome {
    let how = how(conf.purge_soft.any(request));
    let aims = match (asked, words(request, conf)) {
        (Asked::Refused, _) => {
            request.log(Level::Error, format_args!("cache purge: access forbidden by rule"));
            return Outcome::status(403);
        }
        (Asked::All, _) => Aims { what: vec![What::All], how, may_be_none: true },
        (_, tags) if !tags.is_empty() => Aims { what: tags, how, may_be_none: true },
        _ => Aims { how, ..aims(key) },
    };
    match purge(request, store, aims).await {
        Ok(None) => Outcome::status(404),
        Ok(Some(objects)) if asked == Asked::Condition => {
            let mut head = Head::new(204);
            head.add(PURGED, objects.to_string());
            Response { head, body: Body::Empty }.into()
        }
        Ok(Some(objects)) => page(request, &key.text, objects),
        Err(outcome) => outcome,
    }
}

/// The tags of `cache_purge_tag`.
fn words(request: &Request, conf: &CacheConf) -> Vec<What> {
    let mut tags = Vec::new();
    for text in &conf.purge_tags.0 {
        let value = request.evaluate(text);
        let words = value.split(|b| b" ,\t".contains(b)).filter(|word| !word.is_empty());
        tags.extend(words.map(|word| What::Tag(Tag::new(word))).take(TAGS_MAX - tags.len()));
    }
    tags
}

/// Forwards a request whose method is not cached; in the strict mode, invalidates the resource that
/// it has changed.
pub(super) async fn pass(
    request: &mut Request,
    origin: &mut dyn Origin,
    conf: &CacheConf,
    store: &Arc<Store>,
) -> Outcome {
    let reply = match origin.fetch(request, UpstreamVariation::default()).await {
        Ok(reply) => reply,
        Err(failed) => return Outcome::status(failed.status),
    };
    if conf.strict && updates::invalidates(request.method(), reply.head.status) {
        invalidate(request, origin, conf, store, &reply.head).await;
    }
    match origin.respond(request, &reply.head, Source::Origin { cacheable: false }) {
        Ok(answer) => {
            let options = BodyOptions { buffering: Some(answer.buffering), tee: None };
            Response { head: answer.head, body: reply.body.into_body(options) }.into()
        }
        Err(outcome) => outcome,
    }
}

/// Section 4.4: "A cache MUST invalidate the target URI", and "MAY also invalidate other URIs",
/// such as those of `Location` and `Content-Location` of the same origin.
async fn invalidate(
    request: &Request,
    origin: &dyn Origin,
    conf: &CacheConf,
    store: &Arc<Store>,
    head: &ResponseHead,
) {
    let key = serve::key(request, origin, conf);
    let mut keys = vec![key.main];
    let host = request.head().header(Known::Host).unwrap_or_default();
    for name in [Known::Location, Known::ContentLocation] {
        let Some(uri) = head.known(name) else { continue };
        let path = updates::same_origin(uri, b"http", host);
        let other = path.and_then(|path| replaced(&key.text, request.head().uri(), path));
        keys.extend(other.map(|text| Key::new(&text)));
    }
    for key in keys {
        // Only purges by prefix can exceed a limit.
        let _ = store.purge(What::Key(key), How::Hard).await;
    }
}

/// The key of another URI, if the key contains the request's URI.
fn replaced(key: &Bytes, uri: &[u8], other: &[u8]) -> Option<Vec<u8>> {
    if uri.is_empty() {
        return None;
    }
    let at = key.windows(uri.len()).rposition(|part| part == uri)?;
    Some([&key[..at], other, &key[at + uri.len()..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_other_uris() {
        let key = Bytes::from_static(b"http://origin/a?bGET");
        assert_eq!(replaced(&key, b"/a?b", b"/c").as_deref(), Some(&b"http://origin/cGET"[..]));
        assert_eq!(replaced(&key, b"/x", b"/c"), None);
        assert_eq!(replaced(&key, b"", b"/c"), None);
    }
}
