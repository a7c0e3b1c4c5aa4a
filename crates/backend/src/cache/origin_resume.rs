//! The remainder of a response that broke off: the disk of its object failed while it was read, and the
//! reader's next bytes are not in memory; or the origin failed while it was stored. The remainder is
//! fetched from the origin by a range request.
//!
//! Bytes of two responses are combined only if they certainly belong to one representation, which
//! [`nowait_caching::combination`] decides; in any doubt the connection is cut. The stored response may
//! be a part itself (206: `slice`, or `Range` in the key).
//!
//! Called by [`super::streaming_hit`] and [`super::filling`]. Never stores anything.

use std::sync::Arc;

use nowait_cache::format::ObjectHead as Stored;
use nowait_caching::combination::{Identity, Missing, Transfer};
use nowait_caching::meta;
use nowait_http::log::Level;
use nowait_http::request::Request;
use nowait_http::response::{Body, BodyError, BodySource, LocalFuture, Part};
use nowait_http::slice;
use nowait_http::subrequest::Subrequest;
use nowait_message::{Method, ResponseHead};

use super::origin::Again;
use crate::upstream::{BodyOptions, Condition, UpstreamVariation};

/// Can request the rest of a response.
pub(super) struct OriginResume {
    /// The request to be copied for the origin.
    request: Box<Request>,
    again: Again,
    stored: Arc<Stored>,
    /// Completes a response that is being stored.
    completes: bool,
}

/// The remainder, as it arrives from the origin.
pub(super) struct ResumedBody(State);

enum State {
    /// Being requested.
    Asking(LocalFuture<'static, Result<Got, BodyError>>),
    Got(Got),
}

/// The origin's response.
struct Got {
    body: Body,
    /// Bytes to be skipped first.
    skip: u64,
    /// The position of the next byte in the whole, after those.
    at: u64,
    /// The position in the whole at which it has to end; `None`: known only at its end.
    end: Option<u64>,
}

impl ResumedBody {
    /// The next piece; `None` at the end. Dropping the future loses no data.
    pub(super) async fn next(&mut self) -> Result<Option<Part>, BodyError> {
        if let State::Asking(got) = &mut self.0 {
            self.0 = State::Got(got.await?);
        }
        match &mut self.0 {
            State::Got(got) => got.next().await,
            State::Asking(_) => Err(BodyError::Truncated),
        }
    }
}

impl BodySource for ResumedBody {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(Self::next(self))
    }

    fn is_urgent(&self) -> bool {
        false
    }
}

impl Got {
    async fn next(&mut self) -> Result<Option<Part>, BodyError> {
        let Self { body, skip, at, end } = self;
        while end.is_none_or(|end| *at < end) {
            let Some(part) = body.next().await? else {
                // The engine has received its end, which is compared with the expected one here.
                return if end.is_none() && *skip == 0 {
                    Ok(None)
                } else {
                    Err(BodyError::Truncated)
                };
            };
            let left_out = part.len().min(*skip);
            *skip -= left_out;
            let wanted = end.map_or(u64::MAX, |end| end - *at).min(part.len() - left_out);
            *at += wanted;
            if wanted > 0 {
                return Ok(part.cut(&(left_out..left_out + wanted)));
            }
        }
        Ok(None)
    }
}

impl OriginResume {
    /// For the response to a request; `None`: it has no ranges.
    pub(super) fn of(request: &Request, again: Again, stored: &Arc<Stored>) -> Option<Box<Self>> {
        if request.method() != Method::Get || !matches!(stored.state.status, 200 | 206) {
            return None;
        }
        let slice = slice::of(request);
        let request = Subrequest::copy(request).begin(request).ok()?;
        if slice.is_some() {
            slice::set(&request, slice);
        }
        Some(Box::new(Self { request, again, stored: stored.clone(), completes: false }))
    }

    /// For the response to a request that is being stored, if its validator distinguishes it from other
    /// representations.
    pub(super) fn of_fill(
        request: &Request,
        again: Again,
        stored: &Arc<Stored>,
    ) -> Option<Box<Self>> {
        let stored = Some(stored).filter(|stored| is_certain(stored))?;
        let rest = Self::of(request, again, stored)?;
        Some(Box::new(Self { completes: true, ..*rest }))
    }

    /// Not needed.
    pub(super) fn give_up(&self) {
        self.request.shared().ended();
    }

    /// The same once more.
    pub(super) fn copy(&self) -> Option<Box<Self>> {
        let rest = Self::of(&self.request, self.again, &self.stored)?;
        Some(Box::new(Self { completes: self.completes, ..*rest }))
    }

    /// Requests the rest from the origin. A failure is logged with the response that can't be
    /// completed.
    pub(super) fn ask(self, missing: Missing) -> ResumedBody {
        let Self { mut request, again, stored, completes } = self;
        ResumedBody(State::Asking(Box::pin(async move {
            let Some(identity) = identity(&stored) else {
                return Err(lost("it has no strong validator"));
            };
            let Some(missing) = identity.missing(missing) else {
                return Err(lost("its length differs from the announced one"));
            };
            request.log(
                Level::Info,
                format_args!("cache: the rest of the response is fetched from the origin"),
            );
            let rest = Some((missing.range(), identity.if_range()));
            let condition = Condition { rest, completes, ..Condition::default() };
            let condition = Some(Box::new(condition));
            let wanted =
                UpstreamVariation { for_cache: true, condition, ..UpstreamVariation::default() };
            let reply = again(&mut request, wanted).await;
            let reply = reply.map_err(|failed| {
                lost(&format!("the range request to the origin failed ({})", failed.status))
            })?;
            match identity.continues(&transfer(&reply.head), &missing) {
                Ok((skip, end)) => {
                    // The pump of a fill is a buffer of its own.
                    let buffering = completes.then_some(false);
                    let body = reply.body.into_body(BodyOptions { buffering, tee: None });
                    Ok(Got { body, skip, at: missing.start, end })
                }
                Err(why) => Err(lost(why)),
            }
        })))
    }
}

/// Whether the representation of a stored response can be distinguished from any other.
pub(super) fn is_certain(stored: &Stored) -> bool {
    identity(stored).is_some()
}

fn identity(stored: &Stored) -> Option<Identity> {
    let fields = meta::decode_fields(&stored.state.header)?;
    let fields = fields.iter().map(|field| (&field.name[..], &field.value[..]));
    Identity::of(Transfer::read(stored.state.status, fields))
}

/// A response that was just received; the length of its content follows from its framing.
fn transfer(head: &ResponseHead) -> Transfer {
    let fields = head.fields().map(|field| (field.name, field.value));
    Transfer { content_length: head.content_length, ..Transfer::read(head.status, fields) }
}

fn lost(why: &str) -> BodyError {
    BodyError::Upstream(format!("cache: the rest of a response can't be fetched: {why}"))
}
