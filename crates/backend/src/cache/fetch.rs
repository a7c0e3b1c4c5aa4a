//! Requests to the origin, and the use of their responses and failures.
//! Called by [`super::serve`].

use bytes::Bytes;
use nowait_cache::{Fill, Hit, Lookup, LookupOptions, UnixMs};
use nowait_caching::freshness::Stale;
use nowait_caching::status::{CacheStatus, Forward, Status};
use nowait_caching::updates;
use nowait_http::outcome::Outcome;
use nowait_http::response::Response;
use nowait_http::upstream_state::UpstreamState;
use nowait_message::{Known, Method, http_date};

use super::decoded::Decoded;
use super::filling::{FillTee, Storing};
use super::find::Object;
use super::origin::Source;
use super::origin_resume::OriginResume;
use super::responses::Own;
use super::serve::{CacheRequest, StoreRight, is_head, unix_now};
use super::state::State;
use crate::upstream::{BodyOptions, Cause, Condition, Reply, RequestError, UpstreamVariation};

/// A stale response, and when it may still be served.
pub(super) type Old = Option<(Object<Hit>, Stale)>;

/// A request to the origin.
struct RequestToOrigin {
    /// Its response may be stored.
    for_cache: bool,
    /// Unix seconds.
    at: i64,
    /// The number of its first try.
    first_try: usize,
}

impl CacheRequest<'_> {
    /// Sends the request to the origin, stores the response where allowed, and serves it.
    pub(super) async fn fetch(&mut self, mut place: StoreRight, old: Old, why: Forward) -> Outcome {
        if self.range_is_far() {
            place.decline();
            place = StoreRight::Nowhere;
        }
        let wanted = self.wanted(&place, &old);
        let conditional = wanted.condition.as_ref().is_some_and(|condition| {
            condition.if_none_match.is_some() || condition.if_modified_since.is_some()
        });
        let for_cache = wanted.for_cache;
        let asked_at = unix_now();
        let first = UpstreamState::get(self.request.state()).map_or(0, |state| state.tries().len());
        let fetched = self.origin.fetch(self.request, wanted).await;
        self.now = unix_now();
        let reply = match fetched {
            Ok(reply) => reply,
            Err(failed) => return self.failed(failed, place, old),
        };
        let status = reply.head.status;
        let cause = Cause::of_status(status);
        let old = match old {
            Some((object, stale)) if cause.is_some_and(|cause| self.hides(cause, stale)) => {
                return self.hit(object, Status::Stale, Some(Forward::Stale));
            }
            Some((object, _)) if status == 304 && conditional => {
                return self.revalidated(place, object, &reply, asked_at).await;
            }
            Some((object, _)) if self.is_renewed_by_head(&object, &reply) => {
                return self.revalidated(place, object, &reply, asked_at).await;
            }
            old => old,
        };
        drop(old);
        self.answer(
            place,
            reply,
            RequestToOrigin { for_cache, at: asked_at, first_try: first },
            why,
        )
    }

    /// The counters for the bytes of the origin's response, with its status.
    fn counted(&mut self) -> Option<(Own, Status)> {
        let state = State::of(self.request);
        Some((state.account.as_ref()?.own.clone(), state.status?))
    }

    /// Counts what is received in the tries from this one on.
    fn count_origin(&mut self, first: usize) {
        let tries = UpstreamState::get(self.request.state()).cloned();
        if let Some(account) = &mut State::of(self.request).account {
            account.origin = tries.map(|tries| (tries, first));
        }
    }

    /// Makes our response from the origin's.
    fn answer(
        &mut self,
        place: StoreRight,
        reply: Reply,
        asked: RequestToOrigin,
        why: Forward,
    ) -> Outcome {
        let RequestToOrigin { for_cache, at: asked_at, first_try: first } = asked;
        let tunnel = reply.body.is_tunnel();
        let storing = match for_cache && !tunnel {
            true => self.decide(&reply.head, asked_at),
            false => Storing::no(false),
        };
        let source = Source::Origin { cacheable: for_cache && !storing.refused };
        let answer = match self.origin.respond(self.request, &reply.head, source) {
            Ok(answer) => answer,
            Err(outcome) => {
                self.remember(place, reply.head.status, &outcome, &storing);
                return outcome;
            }
        };
        let mut head = answer.head;
        self.keep_date(&mut head, &reply.head);
        let fill = match storing.entry {
            Some(entry) if answer.buffering => self.open(place, entry),
            _ => {
                place.decline();
                None
            }
        };
        self.report(
            &mut head,
            CacheStatus { forward: Some(why), stored: fill.is_some(), ..CacheStatus::default() },
        );
        let is_complete = reply.body.is_complete();
        let tee = fill.map(|fill| {
            let stored = fill.stored().filter(|_| !is_complete);
            let rest = stored.and_then(|stored| {
                OriginResume::of_fill(self.request, self.origin.again(), &stored)
            });
            FillTee::boxed(fill, rest, self.counted())
        });
        if tee.is_none() {
            self.count_origin(first);
        }
        // A client that requested only the head must not end the storing.
        let options = BodyOptions { buffering: Some(answer.buffering), tee };
        Response { head, body: reply.body.into_body(options) }.into()
    }

    /// Whether this is the origin's response to a HEAD that was not converted to GET, and matches
    /// the stored response, which it then renews: otherwise a response with a body would be
    /// replaced by one without.
    fn is_renewed_by_head(&self, object: &Object<Hit>, reply: &Reply) -> bool {
        let asked = self.conf.strict && is_head(self.request.method()) && !self.conf.convert_head;
        let meta = &object.decoded.meta;
        if !asked || reply.head.status != 200 || meta.headless {
            return false;
        }
        let time = reply.head.known(Known::LastModified).and_then(http_date::parse);
        let length = reply.head.known(Known::ContentLength).and_then(nowait_conf::number);
        updates::head_is_about(
            (meta.etag.as_deref(), meta.last_modified, object.inner.body_length()),
            (reply.head.known(Known::ETag), time, length),
        )
    }

    /// The fill for a response, which may have to continue under another key.
    fn open(&self, place: StoreRight, entry: super::filling::Entry) -> Option<Fill> {
        let mut fill = match place {
            StoreRight::Fill(fill) => fill,
            StoreRight::Later(_) if self.displaces_content(&entry) => return None,
            StoreRight::Later(asked) => self.begin_bypassed(asked)?,
            StoreRight::Nowhere => return None,
        };
        // nginx: `ngx_http_file_cache_update_variant`. The first variant stands under the plain key.
        let own = fill.target().clone();
        let stays =
            own.key == self.main.key || entry.variant.as_ref().is_some_and(|v| v.key == own.key);
        if !stays {
            fill.rekey(&self.main).ok()?;
        }
        fill.head(entry.state, entry.tags).ok()?;
        Some(fill)
    }

    /// Whether a response to HEAD, without a body, would replace a stored response with a body that was
    /// not looked up (BYPASS).
    ///
    /// nginx differs: the stored response is replaced.
    fn displaces_content(&self, entry: &super::filling::Entry) -> bool {
        if !entry.headless {
            return false;
        }
        let has_content = |head| Decoded::of(head).is_none_or(|decoded| !decoded.meta.headless);
        let options = LookupOptions { read_while_filling: true, ..LookupOptions::default() };
        match self.store.try_lookup(&self.io, &self.main, options) {
            Ok(Lookup::Memory(hit) | Lookup::File(hit)) => has_content(hit.head()),
            Ok(Lookup::Filling(growing)) => has_content(growing.head()),
            Ok(_) => false,
            // Without waiting for the disk.
            Err(_) => true,
        }
    }

    /// An intercepted error is remembered while it is valid. nginx:
    /// `ngx_http_upstream_intercept_errors`.
    fn remember(&self, place: StoreRight, status: u16, outcome: &Outcome, storing: &Storing) {
        let intercepted = matches!(outcome, Outcome::Status(special) if special.status == status);
        match (place, &storing.entry) {
            (StoreRight::Fill(fill), Some(entry)) if intercepted => {
                fill.remember_error(status, entry.state.valid_until);
            }
            (place, _) => place.decline(),
        }
    }

    /// Adds `Cache-Status`.
    pub(super) fn report(&self, head: &mut nowait_http::response::Head, report: CacheStatus) {
        let Some(name) = &self.conf.status else { return };
        let name = self.request.evaluate(name);
        if !name.is_empty() {
            // RFC 9211 section 2: each cache appends its member to the list.
            head.add("Cache-Status", report.member(&name));
        }
    }

    /// The changes of the request to the origin.
    fn wanted(&mut self, place: &StoreRight, old: &Old) -> UpstreamVariation {
        let for_cache = !matches!(place, StoreRight::Nowhere);
        let mut wanted = UpstreamVariation { for_cache, ..UpstreamVariation::default() };
        if !for_cache {
            return wanted;
        }
        if self.request.method() == Method::Head && self.conf.convert_head {
            wanted.method = Some("GET");
        }
        if let Some((object, _)) = old
            && (self.conf.revalidate || self.conf.strict)
        {
            let meta = &object.decoded.meta;
            let if_modified_since =
                meta.last_modified.map(|time| Bytes::copy_from_slice(&http_date::format(time)));
            let condition = Condition {
                if_none_match: meta.etag.clone(),
                if_modified_since,
                ..Condition::default()
            };
            let state = State::of(self.request);
            state.etag = condition.if_none_match.clone();
            state.last_modified = condition.if_modified_since.clone();
            wanted.condition = Some(Box::new(condition));
        }
        wanted
    }

    /// Whether the requested range begins too far into the body to fetch all bytes before it. nginx:
    /// `ngx_http_upstream_cache_check_range`.
    fn range_is_far(&self) -> bool {
        let (Some(max), Some(range)) =
            (self.conf.max_range_offset, self.request.head().header(Known::Range))
        else {
            return false;
        };
        range_is_far(range, max)
    }

    /// Whether the stale response is served in place of an error sent by the origin.
    ///
    /// nginx: `stale-if-error` concerns origins that can't be reached, not the responses that they
    /// send.
    fn hides(&self, cause: Cause, stale: Stale) -> bool {
        self.serves_stale(cause, Stale { if_error: stale.if_error && self.conf.strict, ..stale })
    }

    /// Whether the stale response is served after a failure.
    fn serves_stale(&self, cause: Cause, stale: Stale) -> bool {
        (stale.by_configuration && self.conf.use_stale.after(cause))
            || (stale.if_error && is_error(cause))
    }

    /// There is no response: serves the stale one, or responds with the failure and caches it while it is
    /// valid.
    fn failed(&mut self, failed: RequestError, place: StoreRight, old: Old) -> Outcome {
        if let (Some(cause), Some((object, stale))) = (failed.cause, old)
            && self.serves_stale(cause, stale)
        {
            // The next request may try again.
            drop(place);
            return self.hit(object, Status::Stale, Some(Forward::Stale));
        }
        let seconds = self.conf.valid.seconds(failed.status);
        match place {
            // nginx: the end of `ngx_http_upstream_finalize_request`.
            StoreRight::Fill(fill) if seconds > 0 && matches!(failed.status, 502 | 504) => {
                let until = self.now.saturating_add_unsigned(seconds);
                fill.remember_error(failed.status, UnixMs::from_secs(until));
            }
            place => drop(place),
        }
        Outcome::status(failed.status)
    }

    /// The origin confirmed the stored response: its times and fields are renewed, and it is
    /// served.
    async fn revalidated(
        &mut self,
        place: StoreRight,
        object: Object<Hit>,
        reply: &Reply,
        asked_at: i64,
    ) -> Outcome {
        self.validated_by = Some(reply.head.status);
        let renewed = self.renew(&object, &reply.head, asked_at);
        let hit = match (place, renewed) {
            (StoreRight::Fill(fill), Some(state)) => {
                fill.revalidated(&object.inner, state).await.ok()
            }
            (place, _) => {
                place.decline();
                None
            }
        };
        let object = match hit {
            Some(hit) => match Decoded::of(hit.head()) {
                Some(decoded) => Object { inner: hit, decoded },
                None => object,
            },
            None => object,
        };
        let head = object.inner.head().clone();
        // Age and remaining time are those of this moment.
        let _ = self.judge(&head, &object.decoded.meta, false);
        self.hit(object, Status::Revalidated, Some(Forward::Stale))
    }
}

impl StoreRight {
    /// The response can't be stored.
    pub(super) fn decline(self) {
        if let Self::Fill(fill) = self {
            fill.decline();
        }
    }
}

/// RFC 5861 section 4: "an error is any situation that would result in a 500, 502, 503, or 504 HTTP
/// response status code being returned."
fn is_error(cause: Cause) -> bool {
    !matches!(cause, Cause::Http403 | Cause::Http404 | Cause::Http429)
}

fn range_is_far(range: &[u8], max: u64) -> bool {
    if max == 0 {
        return true;
    }
    let Some((unit, ranges)) = range.split_at_checked(6) else { return false };
    if !unit.eq_ignore_ascii_case(b"bytes=") || ranges.is_empty() {
        return false;
    }
    let ranges = ranges.trim_ascii_start();
    if ranges.first() == Some(&b'-') {
        return true;
    }
    let digits = ranges.iter().take_while(|b| b.is_ascii_digit()).count();
    nowait_conf::number(&ranges[..digits]).is_none_or(|offset| offset >= max) && digits > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_ranges() {
        for (range, far) in [
            (&b"bytes=0-"[..], false),
            (b"bytes=9-20", false),
            (b"bytes=10-20", true),
            (b"BYTES= 10-", true),
            (b"bytes=-5", true),
            (b"bytes=99999999999999999999-", true),
            (b"bytes=x", false),
            (b"lines=99-", false),
            (b"bytes=", false),
        ] {
            assert_eq!(range_is_far(range, 10), far, "{}", range.escape_ascii());
            assert!(range_is_far(range, 0));
        }
    }

    #[test]
    fn which_failures_are_errors() {
        assert!(is_error(Cause::Timeout) && is_error(Cause::Http503) && !is_error(Cause::Http404));
    }
}
