//! Whether a response is stored, which parts of it are kept, and how its body gets to the store.
//! Called by [`super::fetch`].

use bytes::Bytes;
use nowait_cache::format::ObjectState;
use nowait_cache::index::Tag;
use nowait_cache::{CacheKey, Fill, Hit, UnixMs};
use nowait_caching::combination::Missing;
use nowait_caching::facts::ResponseFacts;
use nowait_caching::meta::{self, Field, Meta};
use nowait_caching::status::Status;
use nowait_caching::{freshness, storage, updates, validity};
use nowait_http::response::{BodySource, LocalFuture};
use nowait_message::{Known, ResponseHead, http_date};
use nowait_runtime::clock;

use super::fields;
use super::find::Object;
use super::origin_resume::OriginResume;
use super::responses::Own;
use super::serve::{CacheRequest, is_head};
use crate::upstream::Tee;

/// The maximum number of tags of one response; more are ignored.
const TAGS_MAX: usize = 64;

/// The decision about a response.
pub(super) struct Storing {
    /// The parts to store, if any.
    pub(super) entry: Option<Entry>,
    /// The response forbids it. nginx: `!u->cacheable`.
    pub(super) refused: bool,
}

/// The stored parts of a response besides its body.
pub(super) struct Entry {
    pub(super) state: ObjectState,
    pub(super) tags: Vec<Tag>,
    /// The response has no body, since it responds to HEAD.
    pub(super) headless: bool,
    /// The variant, if it varies.
    pub(super) variant: Option<CacheKey>,
}

impl Storing {
    /// The response is not stored.
    pub(super) fn no(refused: bool) -> Self {
        Self { entry: None, refused }
    }
}

/// Times and rules of a stored response.
struct Rules {
    until: i64,
    updating: u64,
    error: u64,
    meta: Meta,
    vary: Bytes,
}

impl CacheRequest<'_> {
    /// Decides about a response that was just received; the request for it was sent at `asked_at`.
    pub(super) fn decide(&self, head: &ResponseHead, asked_at: i64) -> Storing {
        let ignored = self.origin.ignored(self.request);
        let fields = || head.fields().map(|field| (field.name, field.value));
        let reply = ResponseFacts::read(head.status, fields(), ignored);
        let rules = match self.conf.strict {
            true => match self.strict_rules(&reply, asked_at) {
                Some(rules) => rules,
                None => return Storing::no(true),
            },
            false => {
                let validity = validity::assess(fields(), ignored, self.now);
                match validity.until(head.status, &self.conf.valid, self.now) {
                    Some(until) => Rules {
                        until,
                        updating: validity.updating,
                        error: validity.error,
                        meta: Meta::default(),
                        vary: validity.vary,
                    },
                    None => return Storing::no(validity.uncacheable),
                }
            }
        };
        if self.conf.no_cache.any(self.request) {
            return Storing::no(false);
        }
        Storing { entry: Some(self.entry(head, &reply, rules)), refused: false }
    }

    fn strict_rules(&self, reply: &ResponseFacts, asked_at: i64) -> Option<Rules> {
        let lifetime = freshness::lifetime(reply, &self.conf.valid, self.now).seconds;
        let sliced = nowait_http::slice::of(self.request).is_some();
        storage::allowed(&self.facts, reply, lifetime, sliced).ok()?;
        let age = freshness::initial_age(reply, asked_at, self.now);
        let left = i64::try_from(lifetime).unwrap_or(i64::MAX) - i64::try_from(age).unwrap_or(0);
        let control = &reply.control;
        Some(Rules {
            until: self.now.saturating_add(left),
            updating: control.stale_while_revalidate.unwrap_or(0),
            error: control.stale_if_error.unwrap_or(0),
            meta: Meta {
                initial_age: u32::try_from(age).unwrap_or(u32::MAX),
                lifetime: u32::try_from(lifetime).unwrap_or(u32::MAX),
                strict: true,
                always_validate: control.no_cache.is_whole(),
                never_stale: freshness::never_stale(control),
                ..Meta::default()
            },
            vary: reply.vary.clone(),
        })
    }

    fn entry(&self, head: &ResponseHead, reply: &ResponseFacts, rules: Rules) -> Entry {
        let fields = head.fields().map(|field| (field.name, field.value));
        let connection = updates::connection(fields.clone());
        let kept = fields.filter(|(name, _)| {
            let nothing = ResponseFacts::default();
            let reply = if self.conf.strict { reply } else { &nothing };
            !storage::excluded(name, &connection, reply)
        });
        let received = http_date::format(self.now);
        let date = dated(self.conf.strict && !head.has(Known::Date), &received);
        let header = meta::encode_fields(kept.chain(date));
        let variant = (!rules.vary.is_empty()).then(|| self.variant(&rules.vary, self.conf.strict));
        // nginx: only these two can be revalidated by a condition.
        let validated = matches!(head.status, 200 | 206) || self.conf.strict;
        let meta = Meta {
            last_modified: reply.last_modified.filter(|_| validated),
            etag: reply.etag.clone().filter(|_| validated),
            vary: rules.vary.clone(),
            variant: variant.as_ref().map_or([0; 16], |target| target.key.0),
            reason: head.reason.clone(),
            headless: is_head(self.request.method()) && !self.conf.convert_head,
            ..rules.meta.clone()
        };
        let state = state(head.status, &rules, &meta, header);
        Entry { state, tags: self.tags(), headless: meta.headless, variant }
    }

    /// The words of `cache_tag`.
    fn tags(&self) -> Vec<Tag> {
        let mut tags = Vec::new();
        for text in &self.conf.tags.0 {
            let value = self.request.evaluate(text);
            let words = value.split(|b| b" ,\t".contains(b)).filter(|word| !word.is_empty());
            tags.extend(words.map(Tag::new).take(TAGS_MAX - tags.len()));
        }
        tags
    }

    /// The state of a stored response after a 304; `None`: it stays stale.
    ///
    /// nginx: validity stated by the 304 takes precedence, then that of the stored response, then
    /// `proxy_cache_valid`.
    pub(super) fn renew(
        &self,
        object: &Object<Hit>,
        answer: &ResponseHead,
        asked_at: i64,
    ) -> Option<ObjectState> {
        let stored = &object.inner.head().state;
        let mut fields = meta::decode_fields(&stored.header)?;
        let ignored = self.origin.ignored(self.request);
        let pairs = |fields: &[Field]| -> Vec<(Bytes, Bytes)> {
            fields.iter().map(|field| (field.name.clone(), field.value.clone())).collect()
        };
        let answered = fields::of(answer);
        if self.conf.strict {
            let newer = pairs(&answered);
            let newer = newer.iter().map(|(name, value)| (&name[..], &value[..]));
            let reply = ResponseFacts::read(304, newer, ignored);
            if !updates::is_about(object.decoded.meta.etag.as_deref(), reply.etag.as_deref()) {
                return None;
            }
            // Age and date are those of the 304, which states that the response is valid.
            fields.retain(|field| !matches!(field.known, Some(Known::Age | Known::Date)));
            updates::freshen(&mut fields, &answered, &reply);
            let all = pairs(&fields);
            let all = all.iter().map(|(name, value)| (&name[..], &value[..]));
            let reply = ResponseFacts::read(stored.status, all, ignored);
            let rules = self.strict_rules(&reply, asked_at)?;
            let meta = Meta {
                last_modified: reply.last_modified,
                etag: reply.etag.clone(),
                vary: object.decoded.meta.vary.clone(),
                variant: object.decoded.meta.variant,
                reason: object.decoded.meta.reason.clone(),
                headless: object.decoded.meta.headless,
                ..rules.meta.clone()
            };
            let received = http_date::format(self.now);
            let date = dated(!answer.has(Known::Date), &received);
            let all = fields.iter().map(|field| (&field.name[..], &field.value[..]));
            let header = meta::encode_fields(all.chain(date));
            return Some(state(stored.status, &rules, &meta, header));
        }
        let assess = |fields: &[Field]| {
            let fields = fields.iter().map(|field| (&field.name[..], &field.value[..]));
            validity::assess(fields, ignored, self.now)
        };
        let mut validity = assess(&answered);
        if validity.until.is_none() {
            validity = assess(&fields);
        }
        let seconds = Some(self.conf.valid.seconds(stored.status)).filter(|seconds| *seconds > 0);
        let until = validity
            .until
            .or_else(|| seconds.map(|seconds| self.now.saturating_add_unsigned(seconds)))?;
        let rules = Rules {
            until,
            updating: validity.updating,
            error: validity.error,
            meta: object.decoded.meta.clone(),
            vary: object.decoded.meta.vary.clone(),
        };
        Some(state(stored.status, &rules, &object.decoded.meta, stored.header.clone()))
    }
}

/// RFC 9110 section 6.6.1: "A recipient with a clock that receives a response message without a Date
/// header field MUST record the time it was received and append a corresponding Date header field to the
/// message's header section if it is cached or forwarded downstream."
fn dated(is_missing: bool, received: &[u8]) -> Option<(&[u8], &[u8])> {
    is_missing.then_some((&b"Date"[..], received))
}

fn state(status: u16, rules: &Rules, meta: &Meta, header: Bytes) -> ObjectState {
    let after = |seconds: u64| match seconds {
        0 => UnixMs::ZERO,
        seconds => UnixMs::from_secs(rules.until.saturating_add_unsigned(seconds)),
    };
    let now = clock().unix_ms();
    ObjectState {
        updated: UnixMs(now),
        // Only whole seconds matter; smaller units distinguish successive states.
        valid_until: UnixMs(UnixMs::from_secs(rules.until).0.saturating_add(now % 1000)),
        stale_while_revalidate: after(rules.updating),
        stale_if_error: after(rules.error),
        status,
        meta: meta.encode(),
        header,
    }
}

/// Passes a response's body to the store while it is sent to the client.
pub(super) struct FillTee {
    /// `None`: the store has given up.
    fill: Option<Fill>,
    /// Fetches the rest, should the origin break off.
    rest: Option<Box<OriginResume>>,
    /// Bytes of content until now.
    received: u64,
    /// Where they are counted.
    counted: Option<(Own, Status)>,
}

impl FillTee {
    pub(super) fn boxed(
        fill: Fill,
        rest: Option<Box<OriginResume>>,
        counted: Option<(Own, Status)>,
    ) -> Box<dyn Tee> {
        Box::new(Self { fill: Some(fill), rest, received: 0, counted })
    }
}

impl Drop for FillTee {
    /// A request for a remainder that was not needed does not count as a subrequest, because a response in
    /// slices has one for each slice.
    fn drop(&mut self) {
        if let Some(rest) = &self.rest {
            rest.give_up();
        }
        if let Some((own, status)) = &self.counted {
            own.count_bytes(*status, self.received);
        }
    }
}

impl Tee for FillTee {
    fn write(&mut self, piece: Bytes) -> LocalFuture<'_, ()> {
        Box::pin(async move {
            self.received += piece.len() as u64;
            if let Some(fill) = &mut self.fill
                && fill.write(piece).await.is_err()
            {
                self.fill = None;
            }
        })
    }

    fn end(mut self: Box<Self>, complete: bool) -> LocalFuture<'static, ()> {
        let fill = self.fill.take();
        Box::pin(async move {
            match fill {
                // The rest is written in the background: the client's connection does not wait for
                // it.
                Some(fill) if complete => {
                    if let Some((own, status)) = &self.counted {
                        own.count_written(*status, self.received);
                    }
                    drop(fill.commit());
                }
                fill => drop(fill),
            }
        })
    }

    /// Without this, all readers of the growing object would be cut off with it.
    fn resume(&mut self) -> Option<Box<dyn BodySource>> {
        let rest = self.rest.as_ref()?.copy()?;
        let received = self.received;
        Some(Box::new(rest.ask(Missing { start: received, end: None, length: None, received })))
    }

    /// A client that has received the whole response finds it in the cache on its next request.
    fn comes_first(&self) -> bool {
        true
    }

    fn outlives_client(&self) -> bool {
        self.fill.is_some()
    }
}
