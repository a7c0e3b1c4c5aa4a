//! Caches whose settings depend on the content of requests: `$request_body` in a key or a condition.
//!
//! Such content is read before the cache is searched. If the content is in a file, the settings can't use
//! it, and the cache is bypassed: otherwise all such requests would share one entry.
//!
//! nginx differs: there `$request_body` is empty for content in a file, and without request buffering.

use nowait_http::request::{Request, RequestBody};
use nowait_http::subject::{IN_FILE, IN_MEMORY};
use nowait_variables::{Late, Subject};

use super::conf::{CacheConf, Texts, Zone};
use super::purge::conf::Purge;

impl CacheConf {
    /// Whether the content has to be read before the settings are evaluated.
    pub fn awaits_content(&self, request: &Request) -> bool {
        request.awaits_content() && self.late(request).any(Late::is_late)
    }

    /// Whether the settings depend on content that they can't use.
    pub(super) fn is_blind(&self, request: &Request) -> bool {
        let seen = match request.body() {
            RequestBody::None => return false,
            RequestBody::Memory(bytes) if bytes.is_empty() => return false,
            RequestBody::Memory(_) => IN_MEMORY,
            RequestBody::File(_) => IN_FILE,
            RequestBody::Unread(_) => Late::NOTHING,
        };
        self.late(request).any(|late| late.is_late() && !late.has(seen))
    }

    /// The dependencies of each setting.
    fn late(&self, request: &Request) -> impl Iterator<Item = Late> {
        let variables = request.variables();
        let all = |texts: &Texts| {
            texts.0.iter().fold(Late::NOTHING, |all, text| all.and(variables.late_in(text)))
        };
        let one = |text: Option<&_>| text.map_or(Late::NOTHING, |text| variables.late_in(text));
        let zone = match &self.zone {
            Zone::Named(text) => Some(text),
            Zone::Fixed(_) => None,
        };
        let purge = match &self.purge {
            Purge::If(texts) => all(texts),
            Purge::Never | Purge::Method(_) => Late::NOTHING,
        };
        let texts = [&self.bypass, &self.no_cache, &self.tags, &self.purge_tags, &self.purge_soft];
        let [bypass, no_cache, tags, purge_tags, purge_soft] = texts.map(all);
        let (zone, key) = (one(zone), one(self.key.as_ref()));
        [zone, key, purge, bypass, no_cache, tags, purge_tags, purge_soft].into_iter()
    }
}
