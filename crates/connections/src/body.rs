//! Sends the body of a response, part by part, for every version of HTTP: at the rate of `limit_rate`, no
//! longer than its head says, and from another source if a file can't be read.
//!
//! Called when a body is not sent together with its head. The next part is asked for when the last one is on
//! its way ([`Wire::put`]).

use std::future::poll_fn;
use std::task::Poll;

use nowait_http::limit_rate::Rate;
use nowait_http::request::Request;
use nowait_http::response::{Body, BodyError, BodySource, LocalFuture, Part};
use nowait_runtime::task::{Either, select};
use nowait_runtime::{now, sleep, yield_now};

use crate::life::{Following, PutError, Wire};
use crate::send_error::{SendError, left};

/// After this many bytes from pipes without a pause, other tasks have their turn.
const TURN_BYTES_MAX: u64 = 1024 * 1024;

/// The part of a response that its beginning left.
pub(crate) struct Remainder {
    pub(crate) body: Body,
    /// The length that the head states.
    pub(crate) declared: Option<u64>,
}

/// Sends what the beginning of a response has left.
///
/// # Errors
/// [`SendError`]: the client sees that the response is incomplete.
pub(crate) async fn send<W: Wire>(
    wire: &mut W,
    request: &mut Request,
    rest: Remainder,
) -> Result<(), SendError> {
    let Remainder { body, declared } = rest;
    let is_tunnel = matches!(body, Body::Tunnel(_));
    let mut pace = Pace(if is_tunnel { None } else { Rate::of(request) });
    if !wire.head(request, &mut pace).await? {
        return Ok(());
    }
    if let Body::Tunnel(tunnel) = body {
        return wire.tunnel(request, tunnel).await;
    }
    let mut sender = Sender { wire: &mut *wire, request, pace, left: declared, turn: 0 };
    sender.body(body).await?;
    if sender.left.is_some_and(|left| left > 0) {
        return Err(BodyError::Truncated.into());
    }
    wire.end(request).await
}

/// The rate of sending a response.
pub(crate) struct Pace(Option<Rate>);

impl Pace {
    /// Whether there is no limit.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.0.is_none()
    }

    /// How many of `len` bytes may be sent now; waits until at least one may.
    pub(crate) async fn allowed<W: Wire>(
        &self,
        wire: &mut W,
        request: &Request,
        len: u64,
    ) -> Result<u64, SendError> {
        let Some(rate) = &self.0 else { return Ok(len) };
        match rate.allowed(now()) {
            Ok(allowed) => Ok(allowed.min(len)),
            Err(wait) => {
                wire.flush(request.send_timeout()).await?;
                // nginx: ngx_http_test_reading.
                if let Either::Right(()) = select(sleep(wait), request.exchange().hangup()).await {
                    return Err(left());
                }
                Ok(rate.allowed(now()).unwrap_or(1).min(len).max(1))
            }
        }
    }

    /// Counts bytes that were sent.
    pub(crate) fn spend(&mut self, bytes: u64) {
        if let Some(rate) = &mut self.0 {
            rate.sent += bytes;
        }
    }
}

/// The state of sending one body.
struct Sender<'a, W> {
    wire: &'a mut W,
    request: &'a Request,
    pace: Pace,
    /// Bytes still missing, if the head states a length.
    left: Option<u64>,
    /// Bytes sent from pipes since other tasks have last had their turn.
    turn: u64,
}

impl<W: Wire> Sender<'_, W> {
    async fn body(&mut self, body: Body) -> Result<(), SendError> {
        match body {
            Body::Empty | Body::Tunnel(_) => Ok(()),
            Body::Bytes(bytes) => Ok(self.part(Part::Bytes(bytes), Following::Nothing).await?),
            Body::File(file) => self.safe_part(Part::File(file), Following::Nothing).await,
            Body::Parts(mut parts) => {
                while let Some(part) = parts.pop_front() {
                    let next = if parts.is_empty() { Following::Nothing } else { Following::Part };
                    self.safe_part(part, next).await?;
                }
                Ok(())
            }
            Body::Stream(mut source) => self.stream(&mut *source).await,
        }
    }

    async fn stream(&mut self, source: &mut dyn BodySource) -> Result<(), SendError> {
        loop {
            if self.piped_part(source).await? {
                continue;
            }
            let Some(part) = self.pull(source).await? else { return Ok(()) };
            let next = match self.left == Some(part.len()) {
                true => Following::Nothing,
                false => Following::Unknown,
            };
            let Err(PutError { error, unread }) = self.part(part, next).await else { continue };
            if !unread.is_some_and(|unread| source.retry(unread)) {
                return Err(error);
            }
        }
    }

    /// Sends the next part if it is in a pipe; false: it is not.
    async fn piped_part(&mut self, source: &mut dyn BodySource) -> Result<bool, SendError> {
        if !self.pace.is_unlimited() || !self.wire.takes_piped() {
            return Ok(false);
        }
        let Some(next) = source.next_piped() else { return Ok(false) };
        // First, so that no pipe waits for it.
        self.wire.flush(self.request.send_timeout()).await?;
        let Some(mut part) = self.wait(next).await? else { return Ok(false) };
        let length = part.len() as u64;
        self.check_length(length)?;
        let put = self.wire.put_piped(self.request, &mut part).await;
        let sent = length - part.len() as u64;
        self.left = self.left.map(|left| left - sent);
        put?;
        if !part.is_empty() {
            source.put_back(part)?;
        }
        self.turn += sent;
        if self.turn >= TURN_BYTES_MAX {
            self.turn = 0;
            yield_now().await;
        }
        Ok(true)
    }

    /// Sends a part. If its file can't be read, the missing bytes come from elsewhere, if possible.
    async fn safe_part(&mut self, part: Part, next: Following) -> Result<(), SendError> {
        let file = match &part {
            Part::File(file) if file.elsewhere.is_some() => Some(file.clone()),
            _ => None,
        };
        let Err(PutError { error, unread }) = self.part(part, next).await else { return Ok(()) };
        let (Some(mut file), Some(unread), SendError::Body(fault)) = (file, unread, &error) else {
            return Err(error);
        };
        (file.offset, file.len) = (file.offset + file.len - unread, unread);
        let elsewhere = file.elsewhere.clone();
        let source = elsewhere.and_then(|other| other.body(self.request, file, Some(fault)));
        match source {
            // Boxed: only a broken disk needs it.
            Some(mut source) => Box::pin(self.stream(&mut *source)).await,
            None => Err(error),
        }
    }

    /// Waits for the next part. Pending output is sent before; and if only the client needs the part, the
    /// wait ends when it disconnects.
    async fn pull(&mut self, source: &mut dyn BodySource) -> Result<Option<Part>, SendError> {
        self.wait(source.next()).await
    }

    async fn wait<T>(
        &mut self,
        mut next: LocalFuture<'_, Result<T, BodyError>>,
    ) -> Result<T, SendError> {
        if let Poll::Ready(part) = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await {
            return Ok(part?);
        }
        self.wire.flush(self.request.send_timeout()).await?;
        match select(next, self.wire.gone_for_good()).await {
            Either::Left(part) => Ok(part?),
            Either::Right(()) => Err(left()),
        }
    }

    /// More bytes than the head states would be a malformed response, or the beginning of another one.
    fn check_length(&self, bytes: u64) -> Result<(), SendError> {
        if self.left.is_some_and(|left| left < bytes) {
            let text = "the body is longer than its declared length".to_owned();
            return Err(BodyError::Upstream(text).into());
        }
        Ok(())
    }

    /// Sends a part in pieces, as the rate allows.
    async fn part(&mut self, part: Part, next: Following) -> Result<(), PutError> {
        self.check_length(part.len())?;
        let mut rest = Some(part).filter(|part| !part.is_empty());
        while let Some(mut piece) = rest.take() {
            let allowed = self.pace.allowed(self.wire, self.request, piece.len()).await?;
            if allowed < piece.len() {
                rest = Some(piece.split_off(allowed));
            }
            let length = piece.len();
            let follows = match (&rest, next) {
                (Some(_), _) => Following::Unknown,
                (None, Following::Nothing) if self.left.is_some_and(|left| left > length) => {
                    Following::Unknown
                }
                (None, next) => next,
            };
            let put = self.wire.put(self.request, piece, follows).await;
            let unread = put.as_ref().err().map(|failed| failed.unread.unwrap_or(length));
            let sent = length - unread.unwrap_or(0).min(length);
            self.left = self.left.map(|left| left - sent);
            self.pace.spend(sent);
            put.map_err(|failed| PutError {
                unread: failed.unread.map(|bytes| bytes + rest.as_ref().map_or(0, Part::len)),
                ..failed
            })?;
        }
        Ok(())
    }
}
