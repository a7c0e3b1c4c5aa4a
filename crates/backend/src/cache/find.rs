//! Looking a response up: by its key, by the variant that the request selects, and whether it is fresh or stale
//! (`judge`). Called by [`super::serve`].

use std::rc::Rc;

use bytes::Bytes;
use nowait_cache::format::ObjectHead;
use nowait_cache::{CacheKey, FillReader, Hit, Lookup, LookupOptions, Pending, UnixMs};
use nowait_caching::freshness::{self, Freshness, Stale, Stored};
use nowait_caching::meta::Meta;
use nowait_caching::vary::{self, Form};
use nowait_http::log::Level;
use nowait_http::slice;
use nowait_message::Known;

use super::decoded::Decoded;
use super::serve::{CacheRequest, is_head};

/// How many times a look-up waits for an object whose file is being renamed.
const SETTLED_MAX: u32 = 4;

/// The result of a search.
#[derive(Debug)]
pub(super) enum Found {
    /// A response that may be used as it is.
    Fresh(Object<Hit>),
    /// A response that is being stored.
    Growing(Object<FillReader>),
    /// A response that the origin has to confirm first.
    Stale(Object<Hit>, Stale),
    /// A remembered error of the origin.
    Error(u16),
    /// No object.
    Absent {
        /// Requested often enough to be stored.
        wanted: bool,
    },
    /// The cache can't be used now.
    Unavailable,
}

/// A stored response with its decoded head.
#[derive(Debug)]
pub(super) struct Object<T> {
    pub(super) inner: T,
    pub(super) decoded: Rc<Decoded>,
}

/// The cause of waiting in a look-up.
#[derive(Debug)]
pub(super) enum Waits {
    /// The disk is needed.
    Disk(Pending),
    /// The object's file is being renamed; whether the object is usable before.
    Settle(Object<FillReader>, bool),
}

/// The result of a look-up without waiting.
#[derive(Debug)]
pub struct Begun {
    /// The key without `Vary`.
    pub(super) main: CacheKey,
    /// The key of the last look-up.
    pub(super) target: CacheKey,
    pub(super) vary_miss: bool,
    pub(super) age: Option<u64>,
    pub(super) ttl: Option<i64>,
    pub(super) found: Result<Found, Waits>,
}

/// The next step after a look-up.
enum Step {
    Found(Found),
    /// Another variant has to be looked up.
    Look,
    /// The object's file is being renamed; whether the object is usable before.
    Settle(Object<FillReader>, bool),
}

impl CacheRequest<'_> {
    /// Waits for the result of a look-up.
    pub(super) async fn find(&mut self, mut found: Result<Found, Waits>) -> Found {
        let mut settled = 0;
        loop {
            found = match found {
                Ok(found) => return found,
                Err(Waits::Disk(pending)) => {
                    let options = self.options();
                    let lookup = self.store.resume(&self.io, &self.target, options, pending);
                    let lookup = lookup.await;
                    self.step(lookup)
                }
                Err(Waits::Settle(object, _)) if settled < SETTLED_MAX => {
                    object.inner.settled().await;
                    settled += 1;
                    self.try_find()
                }
                Err(Waits::Settle(object, true)) => return Found::Growing(object),
                Err(Waits::Settle(_, false)) => return Found::Absent { wanted: false },
            };
        }
    }

    fn wants_several_ranges(&self) -> bool {
        let range = self.request.head().header(Known::Range);
        range.is_some_and(|range| range.contains(&b','))
    }

    /// Whether a stored response can be used for the request: a response to HEAD can't be used for
    /// GET, even if both have the same key (`proxy_cache_convert_head off`, and no
    /// `$request_method` in the key).
    ///
    /// nginx differs: it uses the response to HEAD.
    pub(super) fn has_content_for(&self, meta: &Meta) -> bool {
        !meta.headless || is_head(self.request.method())
    }

    /// Looks up the response to the request, as far as possible without waiting.
    pub(super) fn try_find(&mut self) -> Result<Found, Waits> {
        match self.store.try_lookup(&self.io, &self.target, self.options()) {
            Ok(lookup) => self.step(lookup),
            Err(pending) => Err(Waits::Disk(pending)),
        }
    }

    /// Continues from the result of a look-up. A variant leads to no other one.
    fn step(&mut self, lookup: Lookup) -> Result<Found, Waits> {
        match self.look_at(lookup) {
            Step::Found(found) => Ok(found),
            Step::Settle(object, usable) => Err(Waits::Settle(object, usable)),
            Step::Look => self.try_find(),
        }
    }

    fn options(&self) -> LookupOptions {
        LookupOptions {
            read_while_filling: self.conf.lock && self.conf.read_while_filling,
            silence_max: self.conf.lock_age,
            min_uses: u16::try_from(self.conf.min_uses).unwrap_or(u16::MAX),
        }
    }

    /// Examines the result.
    fn look_at(&mut self, lookup: Lookup) -> Step {
        let head = match &lookup {
            Lookup::Memory(hit) | Lookup::File(hit) => hit.head().clone(),
            Lookup::Filling(growing) => growing.head().clone(),
            Lookup::Error { status, .. } => return Step::Found(Found::Error(*status)),
            Lookup::Absent { wanted } => return Step::Found(Found::Absent { wanted: *wanted }),
            Lookup::Unavailable(_) => return Step::Found(Found::Unavailable),
        };
        let Some(decoded) = Decoded::of(&head) else {
            return Step::Found(Found::Absent { wanted: true });
        };
        let meta = &decoded.meta;
        if !self.has_content_for(meta) {
            return Step::Found(Found::Absent { wanted: true });
        }
        if let Some(other) = self.other_variant(meta) {
            if self.target.key != self.main.key {
                let key = self.target.key;
                self.request
                    .log(Level::Crit, format_args!("cache object {key} has incorrect vary hash"));
                return Step::Found(Found::Absent { wanted: true });
            }
            self.target = other;
            self.vary_miss = true;
            return Step::Look;
        }
        self.vary_miss = false;
        Step::Found(match lookup {
            Lookup::Memory(hit) | Lookup::File(hit) => {
                let mut usable = self.judge(&head, meta, hit.soft_purged);
                if slice::outdated(self.request) == Some(hit.stamp()) {
                    usable = Freshness::Validate(Stale::default());
                }
                let object = Object { inner: hit, decoded };
                match usable {
                    Freshness::Fresh | Freshness::Accepted => Found::Fresh(object),
                    Freshness::Validate(stale) => Found::Stale(object, stale),
                }
            }
            Lookup::Filling(growing) => {
                let usable = self.judge(&head, meta, false);
                let is_whole = growing.received().1;
                let object = Object { inner: growing, decoded };
                match usable {
                    // Only the file's name is missing; a named file can serve several ranges.
                    Freshness::Fresh | Freshness::Accepted
                        if is_whole && self.wants_several_ranges() =>
                    {
                        return Step::Settle(object, true);
                    }
                    Freshness::Fresh | Freshness::Accepted => Found::Growing(object),
                    // Stale from the start; the stored response can be revalidated.
                    Freshness::Validate(_) if is_whole => return Step::Settle(object, false),
                    Freshness::Validate(_) => Found::Absent { wanted: false },
                }
            }
            _ => Found::Unavailable,
        })
    }

    /// The key of this request's variant, if the response found is another one.
    fn other_variant(&self, meta: &Meta) -> Option<CacheKey> {
        if meta.vary.is_empty() {
            return None;
        }
        let wanted = self.variant(&meta.vary, meta.strict);
        (wanted.key.0 != meta.variant).then_some(wanted)
    }

    /// The variant of a response with this `Vary` that belongs to the request.
    pub(super) fn variant(&self, vary: &Bytes, strict: bool) -> CacheKey {
        let form = if strict { Form::Strict } else { Form::Nginx };
        let fields = self.request.head().fields();
        let fields = fields.iter().map(|field| (field.name, field.value));
        let fields: Vec<(&[u8], &[u8])> = fields.collect();
        self.main.variant(&vary::distinction(vary, fields.into_iter(), form))
    }

    /// Whether a stored response is fresh, or how stale it is.
    pub(super) fn judge(&mut self, head: &ObjectHead, meta: &Meta, soft_purged: bool) -> Freshness {
        let state = &head.state;
        let now = self.now;
        let within = |until: UnixMs| until.secs() >= now.unsigned_abs();
        let age = freshness::current_age(
            u64::from(meta.initial_age),
            i64::try_from(state.updated.secs()).unwrap_or(i64::MAX),
            now,
        );
        self.age = Some(age);
        self.ttl = Some(i64::try_from(state.valid_until.secs()).unwrap_or(i64::MAX) - now);
        let fresh = within(state.valid_until) && !soft_purged;
        if !self.conf.strict {
            return if fresh {
                Freshness::Fresh
            } else {
                Freshness::Validate(Stale {
                    while_updating: within(state.stale_while_revalidate) || soft_purged,
                    if_error: within(state.stale_if_error),
                    by_configuration: true,
                })
            };
        }
        let lifetime = if soft_purged { 0 } else { self.lifetime_of(head, meta) };
        let after = |until: UnixMs| until.secs().saturating_sub(state.valid_until.secs());
        freshness::usable(
            &self.facts,
            &Stored {
                lifetime,
                age,
                always_validate: meta.always_validate,
                never_stale: meta.never_stale,
                updating: after(state.stale_while_revalidate),
                error: after(state.stale_if_error),
            },
        )
    }

    /// The freshness lifetime of a stored response from its generation on; for a response stored by nginx's
    /// rules, from the moment of storing.
    fn lifetime_of(&self, head: &ObjectHead, meta: &Meta) -> u64 {
        if meta.strict {
            return u64::from(meta.lifetime);
        }
        let state = &head.state;
        state.valid_until.secs().saturating_sub(state.updated.secs())
    }
}
