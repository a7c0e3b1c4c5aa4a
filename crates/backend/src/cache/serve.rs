//! The steps of a request through the cache: look-up, waiting, fetching, storing, serving.
//!
//! Called by the handler of a protocol whose location has a cache. nginx: `ngx_http_upstream_cache`
//! and the related code in `ngx_http_upstream.c`.
//!
//! | status | what happens |
//! |---|---|
//! | HIT | served from the cache |
//! | MISS | fetched, and stored if allowed |
//! | BYPASS | fetched without a look-up; stored if allowed |
//! | EXPIRED | the stored response was stale: fetched |
//! | REVALIDATED | the same, but the origin confirmed it |
//! | STALE | the same, but served: the origin failed, or is asked in the background |
//! | UPDATING | the same, while another request fetches it |

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use nowait_cache::{
    CacheKey, Fill, FillOptions, FillResult, FillStart, Hit, Moment, Store, WaitResult, Waiter,
};
use nowait_caching::facts::RequestFacts;
use nowait_caching::freshness::Stale;
use nowait_caching::status::{Forward, Status};
use nowait_http::log::Level;
use nowait_http::outcome::Outcome;
use nowait_http::request::{BodyLength, Request};
use nowait_http::response::Response;
use nowait_http::slice;
use nowait_http::subrequest::{self, Entry, Subrequest};
use nowait_message::Method;
use nowait_runtime::fs::Io;
use nowait_runtime::task::{Either, select};
use nowait_runtime::{clock, now, sleep};

use super::find::{Begun, Found, Object, Waits};
use super::origin::{Origin, Source};
use super::path::paths;
use super::purge::conf::Asked;
use super::responses;
use super::state::State;
use crate::cache::conf::{CacheConf, Zone};
use crate::upstream::{BodyOptions, UpstreamVariation};

/// How many times a request that waited for another one's response repeats the look-up before it goes to
/// the origin.
const ROUNDS_MAX: u32 = 16;

/// Memory for a key's text that is kept for the next one.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// A request on its way through the cache.
pub(super) struct CacheRequest<'a> {
    pub(super) request: &'a mut Request,
    pub(super) origin: &'a mut dyn Origin,
    pub(super) conf: &'a CacheConf,
    pub(super) store: Arc<Store>,
    pub(super) io: Rc<Io>,
    /// The key without `Vary`.
    pub(super) main: CacheKey,
    /// The key of the last look-up.
    pub(super) target: CacheKey,
    /// The request's cache directives (strict mode).
    pub(super) facts: RequestFacts,
    /// Unix seconds.
    pub(super) now: i64,
    /// A response was found, but not the variant for this request.
    pub(super) vary_miss: bool,
    /// Age of the response found, in seconds.
    pub(super) age: Option<u64>,
    /// The remaining validity, in seconds.
    pub(super) ttl: Option<i64>,
    /// The status by which the origin confirmed the stored response.
    pub(super) validated_by: Option<u16>,
}

/// The remaining work for a request whose response is not in memory.
pub enum Unserved {
    /// The request has no cache.
    NoCache,
    /// Purges.
    Purge(Arc<Store>, CacheKey, Asked),
    /// Passes the request on without storing the response.
    Pass(Arc<Store>),
    /// Sends the request to the origin without a look-up.
    Bypass(Arc<Store>, CacheKey),
    /// Nothing usable is in memory.
    Search(Arc<Store>, Box<Begun>),
}

/// Serves a request of a location that has a cache from memory.
///
/// # Errors
/// The request has to wait: [`finish`] does the remaining work.
pub fn begin(
    request: &mut Request,
    origin: &mut dyn Origin,
    conf: &CacheConf,
) -> Result<Outcome, Unserved> {
    let store = match zone(request, conf) {
        Ok(Some(store)) => store,
        Ok(None) => return Err(Unserved::NoCache),
        Err(outcome) => return Ok(outcome),
    };
    let key = match CacheUse::of(request, conf) {
        CacheUse::Purge(asked) => {
            let key = key(request, origin, conf);
            return Err(Unserved::Purge(store, key, asked));
        }
        CacheUse::Pass => return Err(Unserved::Pass(store)),
        CacheUse::Serve => key(request, origin, conf),
    };
    let own = responses::own(request, &store);
    State::of(request).enter(own, &key.text);
    let mut run = CacheRequest::new(request, origin, conf, store, key);
    if conf.bypass.any(run.request) {
        return Err(Unserved::Bypass(run.store, run.main));
    }
    run.note(Status::Miss);
    let found = match run.try_find() {
        Ok(Found::Fresh(object)) => return Ok(run.hit(object, Status::Hit, None)),
        found => found,
    };
    let CacheRequest { store, main, target, vary_miss, age, ttl, .. } = run;
    Err(Unserved::Search(store, Box::new(Begun { main, target, vary_miss, age, ttl, found })))
}

/// Serves a request that has to wait.
pub async fn finish(
    request: &mut Request,
    origin: &mut dyn Origin,
    conf: &CacheConf,
    rest: Unserved,
) -> Outcome {
    let (store, begun) = match rest {
        Unserved::NoCache => return pass(request, origin).await,
        Unserved::Purge(store, key, asked) => {
            State::of(request).key = key.text.clone();
            return super::purge::answer(request, conf, &store, &key, asked).await;
        }
        Unserved::Pass(store) => return super::purge::pass(request, origin, conf, &store).await,
        Unserved::Bypass(store, key) => {
            let mut run = CacheRequest::new(request, origin, conf, store, key);
            run.note(Status::Bypass);
            let place = StoreRight::Later(run.store.moment());
            return run.fetch(place, None, Forward::Bypass).await;
        }
        Unserved::Search(store, begun) => (store, *begun),
    };
    let mut run = CacheRequest::new(request, origin, conf, store, begun.main);
    run.target = begun.target;
    run.vary_miss = begun.vary_miss;
    run.age = begun.age;
    run.ttl = begun.ttl;
    run.follow(begun.found).await
}

/// What a cache does with a request.
pub(super) enum CacheUse {
    /// Purges.
    Purge(Asked),
    /// The request is passed on, and its response is not stored.
    Pass,
    /// Looks the response up, unless the cache is bypassed, and stores the origin's.
    Serve,
}

impl CacheUse {
    /// The decision, for [`begin`] and for [`explain`](super::explain).
    pub(super) fn of(request: &Request, conf: &CacheConf) -> Self {
        match conf.purge.asked(request) {
            Some(asked) => Self::Purge(asked),
            None if is_served(request, conf) => Self::Serve,
            None => Self::Pass,
        }
    }
}

/// Whether a request may be served from the cache, and its response stored.
fn is_served(request: &Request, conf: &CacheConf) -> bool {
    if !conf.methods.allows(request.method()) || conf.is_blind(request) {
        return false;
    }
    if !conf.strict {
        return true;
    }
    // RFC 9111 section 4: "A cache MUST write through requests with methods that are unsafe […] to the
    // origin server; i.e., a cache is not allowed to generate a reply to such a request before having
    // forwarded the request and having received a corresponding response."
    // RFC 9110 section 9.3.1: "content received in a GET request has no generally defined
    // semantics". An origin may still evaluate it, but the key does not contain it: the response
    // must not be served to other requests.
    request.method() != Method::Post
        && matches!(request.body_length(), BodyLength::None | BodyLength::Known(0))
}

/// The time in Unix seconds.
pub(super) fn unix_now() -> i64 {
    i64::try_from(clock().unix_ms() / 1000).unwrap_or(i64::MAX)
}

/// Forwards a request to the origin without the cache.
pub(super) async fn pass(request: &mut Request, origin: &mut dyn Origin) -> Outcome {
    let reply = match origin.fetch(request, UpstreamVariation::default()).await {
        Ok(reply) => reply,
        Err(failed) => return Outcome::status(failed.status),
    };
    match origin.respond(request, &reply.head, Source::Origin { cacheable: false }) {
        Ok(answer) => {
            let options = BodyOptions { buffering: Some(answer.buffering), tee: None };
            Response { head: answer.head, body: reply.body.into_body(options) }.into()
        }
        Err(outcome) => outcome,
    }
}

/// The cache of a request, if it has one.
fn zone(request: &Request, conf: &CacheConf) -> Result<Option<Arc<Store>>, Outcome> {
    Ok(position(request, conf)?.and_then(|at| request.current().caches.get(at).cloned()))
}

/// The position of its zone.
pub(super) fn position(request: &Request, conf: &CacheConf) -> Result<Option<usize>, Outcome> {
    match &conf.zone {
        Zone::Fixed(at) => Ok(Some(*at)),
        Zone::Named(text) => {
            let name = request.evaluate(text);
            if name.is_empty() || name == "off" {
                return Ok(None);
            }
            let named = paths(&request.current().conf).iter();
            let Some(at) = named.map(|path| path.zone.as_bytes()).position(|zone| zone == name)
            else {
                let name = String::from_utf8_lossy(&name);
                request.log(Level::Error, format_args!("cache \"{name}\" not found"));
                return Err(Outcome::status(500));
            };
            Ok(Some(at))
        }
    }
}

/// The key of a request.
pub(super) fn key(request: &Request, origin: &dyn Origin, conf: &CacheConf) -> CacheKey {
    thread_local! {
        /// Memory for the text.
        static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    let mut text = TEXT.take();
    text.clear();
    match &conf.key {
        Some(key) => key.append(request, &mut text),
        None => origin.default_key(request, &mut text),
    }
    let target = CacheKey::of(&text);
    if text.capacity() <= TEXT_BYTES_MAX {
        TEXT.set(text);
    }
    target
}

fn facts(request: &Request) -> RequestFacts {
    let fields: Vec<(&[u8], &[u8])> =
        request.head().fields().iter().map(|field| (field.name, field.value)).collect();
    RequestFacts::read(request.method(), fields.into_iter())
}

/// The right to store a response, and how to fetch it.
pub(super) enum StoreRight {
    /// In this fill.
    Fill(Fill),
    /// In a fill that begins with the response (BYPASS); the request was sent at that moment.
    Later(Moment),
    /// Must not be stored.
    Nowhere,
}

impl<'a> CacheRequest<'a> {
    fn new(
        request: &'a mut Request,
        origin: &'a mut dyn Origin,
        conf: &'a CacheConf,
        store: Arc<Store>,
        key: CacheKey,
    ) -> Self {
        let fixed = matches!(conf.zone, Zone::Fixed(_));
        let io = request.current().cache_io(request.location_id(), || request.io(), &store, fixed);
        let facts = match conf.strict {
            true => facts(request),
            false => RequestFacts { method: request.method(), ..RequestFacts::default() },
        };
        Self {
            request,
            origin,
            conf,
            store,
            io,
            target: key.clone(),
            main: key,
            facts,
            now: unix_now(),
            vary_miss: false,
            age: None,
            ttl: None,
            validated_by: None,
        }
    }

    /// Serves what was found, and fetches from the origin what is not stored.
    async fn follow(&mut self, found: Result<Found, Waits>) -> Outcome {
        let deadline = now() + self.conf.lock_timeout;
        let mut looked_twice = false;
        let mut found = Some(found);
        for _ in 0..ROUNDS_MAX {
            let found = match found.take() {
                Some(found) => found,
                None => {
                    self.target = self.main.clone();
                    self.try_find()
                }
            };
            let waiter = match self.find(found).await {
                Found::Fresh(object) => return self.hit(object, Status::Hit, None),
                Found::Growing(object) => match self.grow(object, None).await {
                    Some(outcome) => return outcome,
                    None => continue,
                },
                Found::Error(status) => {
                    self.note(Status::Hit);
                    return Outcome::status(status);
                }
                // RFC 9111 section 5.2.1.7: only-if-cached "indicates that the client only wishes to
                // obtain a stored response"; a cache that has none "SHOULD […] respond with a 504".
                Found::Stale(..) | Found::Absent { .. } | Found::Unavailable
                    if self.facts.control.only_if_cached =>
                {
                    return Outcome::status(504);
                }
                Found::Unavailable => {
                    self.note(Status::Bypass);
                    return self.fetch(StoreRight::Nowhere, None, Forward::Bypass).await;
                }
                Found::Stale(object, stale) => match self.stale(object, stale).await {
                    Next::Answer(outcome) => return outcome,
                    Next::Wait(waiter) => waiter,
                },
                Found::Absent { wanted: false } => {
                    return self.fetch(StoreRight::Nowhere, None, Forward::UriMiss).await;
                }
                Found::Absent { wanted: true } => match self.begin() {
                    // Another worker may have stored it since: with the lock only one request goes
                    // to the origin.
                    FillStart::Fill(_)
                        if self.conf.lock && !looked_twice && self.store.has(&self.target) =>
                    {
                        looked_twice = true;
                        continue;
                    }
                    FillStart::Fill(fill) => {
                        let why = self.miss();
                        return self.fetch(StoreRight::Fill(fill), None, why).await;
                    }
                    FillStart::Busy(waiter) => waiter,
                    FillStart::Unavailable(_) => {
                        return self.fetch(StoreRight::Nowhere, None, Forward::UriMiss).await;
                    }
                },
            };
            match self.wait(waiter, deadline).await {
                Waited::Look => {}
                Waited::Growing(growing) => {
                    if let Some(object) = self.join(growing) {
                        let why = self.miss();
                        if let Some(outcome) = self.grow(object, Some(why)).await {
                            return outcome;
                        }
                    }
                }
                Waited::Fetch => break,
            }
        }
        let why = self.miss();
        self.fetch(StoreRight::Nowhere, None, why).await
    }

    fn miss(&self) -> Forward {
        if self.vary_miss { Forward::VaryMiss } else { Forward::UriMiss }
    }

    /// Sets `$upstream_cache_status`.
    pub(super) fn note(&mut self, status: Status) {
        State::of(self.request).status = Some(status);
    }

    /// Acquires the right to store the response.
    pub(super) fn begin(&self) -> FillStart {
        let background = self.request.nested().is_some_and(|nested| nested.background);
        let options = FillOptions {
            lock: self.conf.lock || background,
            lock_age: (!background).then_some(self.conf.lock_age),
            read_while_filling: self.conf.read_while_filling,
            asked: None,
        };
        self.store.begin_fill(&self.io, &self.target, options)
    }

    /// The fill for the response to a request that bypassed the cache, and was sent to the origin at that
    /// moment. It is stored even if an older response is just being stored, since that one may be outdated.
    pub(super) fn begin_bypassed(&self, asked: Moment) -> Option<Fill> {
        let options = FillOptions {
            lock: false,
            read_while_filling: self.conf.read_while_filling,
            asked: Some(asked),
            ..FillOptions::default()
        };
        match self.store.begin_fill(&self.io, &self.target, options) {
            FillStart::Fill(fill) => Some(fill),
            FillStart::Busy(_) | FillStart::Unavailable(_) => None,
        }
    }

    /// The response is stale: serves it if allowed, fetches a new one, or waits for another request
    /// that fetches it.
    async fn stale(&mut self, object: Object<Hit>, stale: Stale) -> Next {
        let background = self.request.nested().is_some_and(|nested| nested.background);
        let may_serve = stale.while_updating
            || (stale.by_configuration && self.conf.use_stale.while_updating());
        if may_serve && !background {
            if object.inner.updating {
                return Next::Answer(self.hit(object, Status::Updating, Some(Forward::Stale)));
            }
            // An update that can't be stored is of no use to others.
            let is_useful = self.conf.background_update && self.store.takes_objects();
            if is_useful && self.update_in_background() {
                return Next::Answer(self.hit(object, Status::Stale, Some(Forward::Stale)));
            }
        }
        self.note(Status::Expired);
        let place = match self.begin() {
            FillStart::Fill(fill) => StoreRight::Fill(fill),
            FillStart::Unavailable(_) => StoreRight::Nowhere,
            FillStart::Busy(_) if background => return Next::Answer(Outcome::status(204)),
            // Another request has just begun.
            FillStart::Busy(_) if may_serve => {
                return Next::Answer(self.hit(object, Status::Updating, Some(Forward::Stale)));
            }
            // nginx differs: it sends all requests that find an expired response to the origin; here, with
            // the lock, only one is sent.
            FillStart::Busy(waiter) => return Next::Wait(waiter),
        };
        let why =
            if self.ttl.is_some_and(|ttl| ttl > 0) { Forward::Request } else { Forward::Stale };
        Next::Answer(self.fetch(place, Some((object, stale)), why).await)
    }

    /// Starts a background request to the origin. nginx:
    /// `ngx_http_upstream_cache_background_update`.
    fn update_in_background(&self) -> bool {
        let update = Subrequest {
            entry: Entry::Content,
            background: true,
            header_only: true,
            ..Subrequest::copy(self.request)
        };
        let update = update.begin(self.request);
        // Of the same part.
        let part = slice::of(self.request);
        let update = update.inspect(|update| part.iter().for_each(|_| slice::set(update, part)));
        update.and_then(subrequest::background).is_ok()
    }

    /// Waits for another request's fetch, at most `proxy_cache_lock_timeout`.
    async fn wait(&mut self, waiter: Waiter, deadline: Instant) -> Waited {
        let left = deadline.saturating_duration_since(now());
        let aged = self.conf.lock_age.saturating_sub(waiter.age());
        let woken = match select(waiter, sleep(left.min(aged))).await {
            Either::Left(woken) => woken,
            // One more request is sent, on behalf of those that wait.
            Either::Right(()) if aged < left => return Waited::Look,
            Either::Right(()) => {
                self.request.log(Level::Info, format_args!("cache lock timeout"));
                return Waited::Fetch;
            }
        };
        match woken {
            WaitResult::Filling(growing) => Waited::Growing(growing),
            // The next response is unlikely to be storable either: all go to the origin at once.
            WaitResult::Ended(FillResult::Declined) => Waited::Fetch,
            WaitResult::Ended(FillResult::Stored | FillResult::Failed | FillResult::Moved) => {
                Waited::Look
            }
        }
    }
}

/// The next step after a stale response.
enum Next {
    Answer(Outcome),
    Wait(Waiter),
}

/// The result of waiting.
enum Waited {
    /// Repeat the look-up.
    Look,
    /// Read the growing object.
    Growing(nowait_cache::FillReader),
    /// Fetch without storing.
    Fetch,
}

/// Whether responses to this method have no body.
pub(super) fn is_head(method: Method) -> bool {
    method == Method::Head
}
