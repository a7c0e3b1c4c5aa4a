//! A location that purges: `cache_purge ZONE KEY`, as of the third-party module `ngx_cache_purge`. The
//! directive is read in [`super::conf`].

use nowait_cache::CacheKey;
use nowait_http::module::{Handler, Step};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::variables::complex::Complex;
use nowait_message::Method;

use super::aims::{aims, page, purge};

/// Purges the object of a key.
pub(super) struct Location {
    /// Position of the cache in [`HttpConf::caches`](nowait_http::conf::HttpConf::caches). `None`: an error of
    /// the configuration.
    pub(super) cache: Option<usize>,
    /// The key; with an asterisk at its end, the beginning of keys.
    pub(super) key: Complex,
}

impl Handler for Location {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let method = request.method_name();
        if !matches!(request.method(), Method::Get | Method::Head | Method::Delete)
            && method != b"PURGE"
        {
            return Step::Done(request, Outcome::status(405));
        }
        let store = self.cache.and_then(|at| request.current().caches.get(at).cloned());
        let Some(store) = store else {
            return Step::Done(request, Outcome::status(500));
        };
        let key = CacheKey::of(&request.evaluate(&self.key));
        Step::wait(async move {
            let outcome = match purge(request, &store, aims(&key)).await {
                Ok(Some(objects)) => page(request, &key.text, objects),
                Ok(None) => Outcome::status(404),
                Err(outcome) => outcome,
            };
            Step::Done(request, outcome)
        })
    }
}
