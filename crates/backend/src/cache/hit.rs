//! Responses from the cache: from stored objects, and from objects that are being stored. Called by
//! [`super::serve`] and [`super::fetch`].

use nowait_cache::format::ObjectHead as Stored;
use nowait_cache::{FillReader, Hit, HitBody};
use nowait_caching::freshness::Freshness;
use nowait_caching::meta;
use nowait_caching::status::{CacheStatus, Forward, Status};
use nowait_http::field_order::SeparateField;
use nowait_http::log::Level;
use nowait_http::outcome::Outcome;
use nowait_http::response::{AcceptRanges, Body, FileBody, Head, HeaderSource, Response};
use nowait_message::conditional::{self, Validators};
use nowait_message::range::{self, Selection};
use nowait_message::{Known, ResponseHead};

use super::decoded::Decoded;
use super::fields;
use super::find::Object;
use super::object_reader::ObjectReader;
use super::origin::Source;
use super::serve::CacheRequest;
use super::state::State;
use super::streaming_hit::StreamingHit;

impl CacheRequest<'_> {
    /// Serves a stored response. `forward`: a request was sent to the origin, or is in progress.
    pub(super) fn hit(
        &mut self,
        object: Object<Hit>,
        status: Status,
        forward: Option<Forward>,
    ) -> Outcome {
        let Object { inner: hit, decoded } = object;
        let length = hit.body_length();
        // Once for both: it is looked up.
        let state = State::of(self.request);
        state.status = Some(status);
        if let Some(account) = &mut state.account {
            // What was received from the origin is not served.
            account.origin = None;
            account.read = length;
        }
        if nowait_http::slice::of(self.request).is_some() {
            State::of(self.request).served = Some(self.store.served(&hit));
        }
        let report = CacheStatus {
            forward: forward.filter(|_| status != Status::Hit),
            forward_status: self.validated_by.filter(|_| status == Status::Revalidated),
            ttl: self.ttl,
            ..CacheStatus::default()
        };
        let head = match decoded.response(self.request) {
            Some(head) => head,
            None => match self.head(hit.head(), &decoded, Some(length)) {
                Ok(head) => head,
                Err(outcome) => return outcome,
            },
        };
        let body = match hit.body() {
            HitBody::Bytes(bytes) if bytes.is_empty() => Body::Empty,
            HitBody::Bytes(bytes) => Body::Bytes(bytes),
            HitBody::File { .. } if length == 0 => Body::Empty,
            HitBody::File { file, offset } => {
                let (store, stored) = (self.store.store_of(&hit), hit.head().clone());
                let (again, body) = (self.origin.again(), (offset, length));
                let kept = ObjectReader::new(store, stored, again, hit.stamp(), body);
                let io = self.io.clone();
                Body::File(FileBody { file, io, offset, len: length, elsewhere: Some(kept) })
            }
        };
        self.respond(head, report, body)
    }

    /// Serves a response that is being stored, as soon as there is data for the client. `collapsed`: after
    /// waiting for it. `None`: the origin broke off before that.
    pub(super) async fn grow(
        &mut self,
        object: Object<FillReader>,
        collapsed: Option<Forward>,
    ) -> Option<Outcome> {
        self.note(Status::Hit);
        let Object { inner: mut growing, decoded } = object;
        if nowait_http::slice::of(self.request).is_some() {
            State::of(self.request).served = Some(self.store.served_growing(&growing));
        }
        let length = match growing.received() {
            (length, true) => Some(length),
            (_, false) => None,
        };
        let head = match self.head(growing.head(), &decoded, length) {
            Ok(head) => head,
            Err(outcome) => return Some(outcome),
        };
        if !self.request.header_only() && !growing.begins(self.first_byte(&head)).await {
            self.note(Status::Miss);
            return None;
        }
        let report = CacheStatus {
            forward: collapsed,
            collapsed: collapsed.is_some(),
            ttl: self.ttl,
            ..CacheStatus::default()
        };
        let (stored, again) = (growing.head().clone(), self.origin.again());
        let kept = ObjectReader::growing(self.store.store_of_growing(&growing), stored, again);
        let rest = kept.rest(self.request);
        let own = State::of(self.request).account.as_ref().map(|account| account.own.clone());
        let along = StreamingHit::growing(growing, self.io.clone(), kept, rest, own);
        Some(self.respond(head, report, Body::Stream(Box::new(along))))
    }

    /// The first byte of a response that is sent: its ranges are cut later.
    fn first_byte(&self, head: &Head) -> u64 {
        let request = self.request.head();
        let (Some(size), Some(field)) = (head.content_length, request.header(Known::Range)) else {
            return 0;
        };
        let validators =
            Validators { etag: head.etag.as_deref(), last_modified: head.last_modified };
        let holds = request
            .header(Known::IfRange)
            .is_none_or(|if_range| conditional::if_range_holds(if_range, &validators));
        let has_ranges = head.accept_ranges == AcceptRanges::Bytes && holds;
        let max_ranges = self.request.location().files.max_ranges.min(1);
        match range::select(field, size, max_ranges) {
            Selection::Single(wanted) if has_ranges => wanted.start,
            _ => 0,
        }
    }

    /// A growing object as a found response; `None`: it is another variant, or may not be used for
    /// this request.
    pub(super) fn join(&mut self, growing: FillReader) -> Option<Object<FillReader>> {
        let head = growing.head().clone();
        let decoded = Decoded::of(&head)?;
        let meta = &decoded.meta;
        let same =
            meta.vary.is_empty() || self.variant(&meta.vary, meta.strict).key.0 == meta.variant;
        let fits = same && self.has_content_for(meta);
        let usable = self.judge(&head, meta, false);
        // RFC 9111 section 4: of requests that were collapsed into one, those that can't use its
        // response as it is have to be forwarded.
        let usable = !self.conf.strict || !matches!(usable, Freshness::Validate(_));
        (fits && usable).then(|| Object { inner: growing, decoded })
    }

    /// Our head, made from the stored one of the origin; `length`: of the whole body, if known.
    fn head(
        &mut self,
        stored: &Stored,
        decoded: &Decoded,
        length: Option<u64>,
    ) -> Result<Box<Head>, Outcome> {
        let Some(fields) = meta::decode_fields(&decoded.fields(stored)) else {
            let key = stored.identity.key;
            self.request
                .log(Level::Crit, format_args!("cache object {key} contains invalid header"));
            return Err(Outcome::status(500));
        };
        let mut fields = fields;
        if self.conf.strict {
            // RFC 9111 section 4: the cache "MUST generate an Age header field, replacing any present
            // in the response".
            fields.retain(|field| !field.name.eq_ignore_ascii_case(b"age"));
        }
        let meta = &decoded.meta;
        let mut head = fields::head(stored.state.status, meta.reason.clone(), &fields);
        // nginx differs: a response received without a length is sent without one from its cache,
        // too.
        head.content_length = length.filter(|_| !meta.headless).or_else(|| {
            let told = head.known(Known::ContentLength);
            told.and_then(nowait_conf::number)
        });
        let mut answer = self.origin.respond(self.request, &head, Source::Cache)?;
        self.keep_date(&mut answer.head, &head);
        if answer.constant && length.is_some() {
            decoded.keep(self.request, &answer.head);
        }
        Ok(answer.head)
    }

    /// Strict mode: the response keeps the origin's `Date`, which `Age` is about.
    ///
    /// RFC 9110 section 6.6.1: Date is "the date and time at which the message was originated"; a
    /// cache does not originate stored responses. nginx sends the current date, and so does
    /// Nowait otherwise.
    pub(super) fn keep_date(&self, ours: &mut Head, origin: &ResponseHead) {
        if self.conf.strict
            && ours.date == HeaderSource::Ours
            && let Some(date) = origin.known(Known::Date)
        {
            ours.date = HeaderSource::Given(origin.share(date));
            ours.place(SeparateField::Date);
        }
    }

    fn respond(&mut self, mut head: Box<Head>, report: CacheStatus, body: Body) -> Outcome {
        State::of(self.request).age = self.age;
        if let Some(age) = self.age.filter(|_| self.conf.strict) {
            head.add("Age", age.to_string());
        }
        self.report(&mut head, report);
        Response { head, body }.into()
    }
}
