//! One try with its connection: the state passed between the steps of the engine.
//!
//! It owns the connection: dropping it closes the connection. [`UpstreamExchange::finish`] returns the
//! connection to the idle ones.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use nowait_front::limit::connections::CountGuard;
use nowait_http::request::ReadError;
use nowait_http::request_body::PrefixedReader;
use nowait_http::response::BodyError;
use nowait_http::upstream_state::UpstreamState;
use nowait_runtime::buf::{RECV_BUF_BYTES, ReceivedBuf};
use nowait_runtime::net::{NO_TIMEOUT, PipeSource, Piped, Unread};
use nowait_runtime::time::Sleep;
use nowait_runtime::{now, sleep};
use nowait_spare::LocalSpares;
use nowait_upstream::{Peer, SessionLearner};

use super::connect::Link;
use super::pipe::Pipe;
use super::receive::HeadFault;
use super::upload::{Sending, Upload};
use super::{BodyEvent, Cause, Codec, Fault, HeadEvent, Remark, Settings};

/// A request under way on a connection to an upstream.
pub(super) struct UpstreamExchange {
    /// `None` once the connection was given back.
    link: Option<Link>,
    /// Received, but not yet decoded.
    pub(super) input: ReceivedBuf,
    /// The result of parsing the head, if that was done already.
    pub(super) early: Option<Box<Result<HeadEvent, HeadFault>>>,
    /// Bytes of the head received until now.
    pub(super) head_bytes: usize,
    /// Deadline of the complete head; set once the request was sent.
    head_until: Cell<Option<Instant>>,
    /// `None` once the response is complete.
    codec: Option<Box<dyn Codec>>,
    pub(super) settings: Arc<Settings>,
    pub(super) state: Rc<UpstreamState>,
    /// The part of the request that is still being sent.
    pub(super) upload: Option<Box<Upload>>,
    /// The upload, sent completely, until the upstream has responded.
    uploaded: Option<Box<Upload>>,
    /// Number of the try, and when it began.
    number: usize,
    began: Instant,
    /// The time of the last clock reading, and the elapsed time of the try then.
    clock: Cell<(Instant, Duration)>,
    /// Time to the head; `None` if it has not arrived.
    header_time: Option<Duration>,
    /// Bytes that the connection had sent and received before this request.
    before: (u64, u64),
    /// Bytes of content received until now.
    pub(super) content: u64,
    /// Learnt when the response has ended successfully (`sticky learn`).
    pub(super) learning: Option<Box<SessionLearner>>,
    /// Keeps the request counted at limits.
    pub(super) held: Vec<CountGuard>,
    closed: bool,
}

/// Less content than this is not worth a pipe.
const PIPED_BYTES_MIN: u64 = 64 * 1024;

/// Maximum number of unused memories of exchanges that a worker keeps.
const SPARE_MAX: usize = 128;

thread_local! {
    /// Memory of exchanges that have ended.
    static SPARE: LocalSpares<Box<Option<UpstreamExchange>>> = const { LocalSpares::new(SPARE_MAX) };
}

/// An exchange in memory that is reused, where it stays until its head was received.
pub(super) struct ExchangeSlot(Box<Option<UpstreamExchange>>);

impl ExchangeSlot {
    pub(super) fn new(
        link: Link,
        codec: Box<dyn Codec>,
        settings: Arc<Settings>,
        state: Rc<UpstreamState>,
        opened: (usize, Instant),
    ) -> Self {
        let mut place = LocalSpares::take_local(&SPARE).unwrap_or_default();
        // It is empty. The assertion lets the compiler construct the exchange in place.
        *place = None;
        *place = Some(UpstreamExchange::new(link, codec, settings, state, opened));
        Self(place)
    }

    /// Ends the exchange. Its memory becomes available to another one.
    pub(super) fn retire(self) {
        let Self(mut place) = self;
        *place = None;
        LocalSpares::keep_local(&SPARE, place);
    }

    /// Moves the exchange out.
    pub(super) fn into_inner(mut self) -> UpstreamExchange {
        self.0.take().expect(PLACED)
    }
}

/// The reason why the option is never empty.
const PLACED: &str = "it stays until it is retired";

impl Deref for ExchangeSlot {
    type Target = UpstreamExchange;

    fn deref(&self) -> &UpstreamExchange {
        self.0.as_ref().as_ref().expect(PLACED)
    }
}

impl DerefMut for ExchangeSlot {
    fn deref_mut(&mut self) -> &mut UpstreamExchange {
        self.0.as_mut().as_mut().expect(PLACED)
    }
}

/// The time without any sign of the upstream while the request is still being sent. In the body it counts
/// from the last receive, as in nginx. Before the head, only the time counts in which the client does not
/// send anything either, since a server may want all of the content before it responds. nginx differs: it
/// has no limit then, but `client_body_timeout`.
struct Pause {
    limit: Duration,
    has_head: bool,
    /// The end, and the bytes of the client's content when it was set.
    end: Option<(Sleep, u64)>,
}

impl Pause {
    fn new(limit: Duration, has_head: bool) -> Self {
        Self { limit, has_head, end: None }
    }

    /// Ready when it was too long.
    fn poll(&mut self, upload: &Upload, cx: &mut Context<'_>) -> Poll<()> {
        let content = match (self.has_head, upload.waits_for_client()) {
            (true, _) => 0,
            (false, Some(content)) => content,
            (false, None) => {
                self.end = None;
                return Poll::Pending;
            }
        };
        let (sleep, since) = self.end.get_or_insert_with(|| (sleep(self.limit), content));
        if *since != content {
            (*sleep, *since) = (nowait_runtime::sleep(self.limit), content);
        }
        Pin::new(sleep).poll(cx)
    }
}

/// A try, for a client that may leave before its end.
pub(super) struct Attempt {
    state: Rc<UpstreamState>,
    number: usize,
    began: Instant,
}

impl Attempt {
    pub(super) fn new(state: Rc<UpstreamState>, (number, began): (usize, Instant)) -> Self {
        Self { state, number, began }
    }

    /// The client has left: the try has taken this long, unless it has ended.
    pub(super) fn left(&self) {
        let elapsed = now().saturating_duration_since(self.began);
        self.state.update(self.number, |one| {
            one.response.get_or_insert(elapsed);
        });
    }
}

/// A try that has no connection yet. Dropped, it records that the client has left.
pub(super) struct Connecting(Option<Attempt>);

impl Connecting {
    pub(super) fn new(state: &Rc<UpstreamState>, opened: (usize, Instant)) -> Self {
        Self(Some(Attempt::new(state.clone(), opened)))
    }

    /// There is a connection, or none can be made.
    pub(super) fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if let Some(attempt) = &self.0 {
            attempt.left();
        }
    }
}

/// State of a response's content.
#[derive(Debug)]
pub(super) enum More {
    /// More content follows.
    Yes,
    /// The body is complete.
    Complete,
    /// The body will never be complete.
    Broken(Fault),
}

/// The reason why no data was received.
pub(super) enum ReceiveFault {
    Network(io::Error),
    /// The rest of the request could not be read from the client.
    Client(ReadError),
    /// The rest of the request could not be read from memory or from its file.
    Ours(BodyError),
}

impl UpstreamExchange {
    #[inline(always)]
    pub(super) fn new(
        link: Link,
        codec: Box<dyn Codec>,
        settings: Arc<Settings>,
        state: Rc<UpstreamState>,
        (number, began): (usize, Instant),
    ) -> Self {
        let before = (link.pipe.bytes_sent(), link.pipe.bytes_received());
        Self {
            link: Some(link),
            input: ReceivedBuf::empty(),
            early: None,
            head_bytes: 0,
            head_until: Cell::new(None),
            codec: Some(codec),
            settings,
            state,
            upload: None,
            uploaded: None,
            number,
            began,
            clock: Cell::new((began, Duration::ZERO)),
            header_time: None,
            before,
            content: 0,
            learning: None,
            held: Vec::new(),
            closed: false,
        }
    }

    fn link(&self) -> &Link {
        self.link.as_ref().expect("not after the end")
    }

    /// The peer of this exchange; a probe has none.
    pub(super) fn peer(&self) -> Option<&Arc<Peer>> {
        self.link().peer()
    }

    /// Whether the connection had served requests before.
    pub(super) fn is_reused(&self) -> bool {
        self.link().reused
    }

    /// The connection or stream.
    pub(super) fn pipe(&self) -> &Pipe {
        &self.link().pipe
    }

    /// Whether the connection has become a tunnel.
    pub(super) fn is_tunnel(&self) -> bool {
        self.codec.as_ref().is_some_and(|codec| codec.is_tunnel())
    }

    /// Whether the head of the response takes no input.
    pub(super) fn responds_by_itself(&self) -> bool {
        self.codec.as_ref().is_some_and(|codec| codec.responds_by_itself())
    }

    pub(super) fn codec(&mut self) -> &mut dyn Codec {
        &mut **self.codec.as_mut().expect("there until the exchange ends")
    }

    /// The codec and its unread input.
    pub(super) fn codec_and_input(&mut self) -> (&mut dyn Codec, &mut ReceivedBuf) {
        (&mut **self.codec.as_mut().expect("there until the exchange ends"), &mut self.input)
    }

    /// Ends the exchange; its connection is closed.
    pub(super) fn into_link(mut self) -> Option<Link> {
        self.close(self.elapsed());
        self.link.take()
    }

    pub(super) fn bytes_sent(&self) -> u64 {
        self.link.as_ref().map_or(0, |link| link.pipe.bytes_sent() - self.before.0)
    }

    pub(super) fn bytes_received(&self) -> u64 {
        self.link.as_ref().map_or(0, |link| link.pipe.bytes_received() - self.before.1)
    }

    /// Time since the try began.
    fn elapsed(&self) -> Duration {
        let now = now();
        let (at, elapsed) = self.clock.get();
        // The clock stands still within a turn of the loop.
        if now == at {
            return elapsed;
        }
        let elapsed = now.saturating_duration_since(self.began);
        self.clock.set((now, elapsed));
        elapsed
    }

    pub(super) fn connected(&self) {
        let elapsed = self.elapsed();
        self.state.update(self.number, |one| one.connect = Some(elapsed));
    }

    /// The client's content as it was before the try, if all of it is still there.
    pub(super) fn take_content(&mut self) -> Option<PrefixedReader> {
        self.upload.take().or(self.uploaded.take())?.resume()
    }

    pub(super) fn head_received(&mut self, status: u16) {
        self.uploaded = None;
        if let Some(upload) = &mut self.upload {
            upload.forget();
        }
        let elapsed = self.elapsed();
        self.header_time = Some(elapsed);
        self.state.update(self.number, |one| {
            one.header = Some(elapsed);
            one.status = status;
        });
        if let Some(link) = &mut self.link {
            link.header_received(status, elapsed);
        }
    }

    pub(super) fn failed(&self, cause: Cause) {
        self.state.update(self.number, |one| one.status = cause.status());
    }

    /// Receives as soon as data arrives, and meanwhile sends the rest of the request. Empty: the
    /// upstream has closed its side. The time-out starts when the request was sent, or when
    /// sending can't continue before the upstream has sent data.
    pub(super) async fn receive(&mut self, large: usize) -> Result<ReceivedBuf, ReceiveFault> {
        if self.upload.is_some()
            && let Some(received) = self.receive_while_sending(large).await?
        {
            return Ok(received);
        }
        let timeout = self.read_timeout();
        self.pipe().recv(timeout, large).await.map_err(ReceiveFault::Network)
    }

    /// Whether the rest of the content may pass through pipes: the codec need not see it, and it is worth it.
    pub(super) fn passes_unseen(&self) -> bool {
        let left = || self.codec.as_ref()?.unframed();
        self.upload.is_none()
            && self.pipe().own().is_some_and(|stream| PipeSource::of(stream).is_some())
            && left().is_some_and(|left| left >= PIPED_BYTES_MIN)
    }

    /// Receives content that passes without the codec, as soon as any arrives, into a pipe: at most `max` bytes.
    /// `None`: it has to be received as usual. Without content, there may be no more.
    pub(super) async fn receive_piped(
        &mut self,
        max: usize,
    ) -> Result<Option<(Piped, More)>, ReceiveFault> {
        let timeout = self.read_timeout();
        let Some(left) = self.codec().unframed() else { return Ok(None) };
        let Some(stream) = self.pipe().own() else { return Ok(None) };
        let Some(source) = PipeSource::of(stream) else { return Ok(None) };
        let max = usize::try_from(left).map_or(max, |left| left.min(max));
        let piped = source.recv(timeout, max).await.map_err(ReceiveFault::Network)?;
        drop(source);
        Ok(piped.map(|piped| {
            let more = if piped.is_empty() { self.eof() } else { self.skipped(piped.len() as u64) };
            (piped, more)
        }))
    }

    /// Content has passed without the codec. After all of it, the exchange is finished.
    fn skipped(&mut self, bytes: u64) -> More {
        self.codec().skip(bytes);
        self.content += bytes;
        if self.codec().unframed().is_some() {
            self.note_bytes();
            return More::Yes;
        }
        let leftover = self.pipe().own().is_some_and(|stream| stream.unread() == Unread::Bytes);
        self.finish(leftover);
        More::Complete
    }

    /// Remaining time to wait for the upstream. The head as a whole gets `read_timeout`, so that an
    /// upstream that sends it byte by byte can't hold a request forever. In the body, each pause
    /// gets `read_timeout`.
    pub(super) fn read_timeout(&self) -> Duration {
        let timeout = self.settings.read_timeout;
        if self.header_time.is_some() {
            return timeout;
        }
        match self.head_until.get() {
            Some(until) => until.saturating_duration_since(now()),
            None => {
                self.head_until.set(now().checked_add(timeout));
                timeout
            }
        }
    }

    /// An interim response has arrived: the next head gets the full time again.
    pub(super) fn interim_received(&mut self) {
        self.head_bytes = 0;
        self.head_until.set(None);
    }

    /// Like `receive`. `None`: no data has arrived, and no more can be sent.
    async fn receive_while_sending(
        &mut self,
        large: usize,
    ) -> Result<Option<ReceivedBuf>, ReceiveFault> {
        let pipe = self.pipe().clone();
        let codec = self.codec.as_mut().expect("there until the exchange ends");
        let Some(upload) = &mut self.upload else { return Ok(None) };
        let max = if large == 0 { RECV_BUF_BYTES } else { large };
        let mut recv = pin!(pipe.recv(NO_TIMEOUT, max));
        let mut sent = false;
        let mut pause = Pause::new(self.settings.read_timeout, self.header_time.is_some());
        let outcome = poll_fn(|cx| {
            if let Poll::Ready(received) = recv.as_mut().poll(cx) {
                return Poll::Ready(received.map(Some).map_err(ReceiveFault::Network));
            }
            if let Poll::Ready(sending) = upload.poll(&mut **codec, &pipe, cx) {
                return Poll::Ready(sending.map(|sending| {
                    sent = sending == Sending::Done;
                    None
                }));
            }
            let ended = pause.poll(upload, cx);
            ended.map(|()| Err(ReceiveFault::Network(io::ErrorKind::TimedOut.into())))
        })
        .await;
        match outcome {
            Ok(None) if sent => self.uploaded = self.upload.take().filter(|upload| upload.keeps()),
            Ok(_) => {}
            // The response may have been sent before the upstream closed the connection on the rest
            // of the request.
            Err(ReceiveFault::Network(error)) if error.raw_os_error().is_some() => {
                upload.fail();
                let timeout = self.settings.read_timeout;
                return match pipe.recv(timeout, 0).await {
                    Ok(received) if !received.is_empty() => Ok(Some(received)),
                    _ => Err(ReceiveFault::Network(error)),
                };
            }
            Err(_) => upload.fail(),
        }
        outcome
    }

    /// Starts the upload without waiting for it; a driver that sends by completions has accepted it
    /// then.
    ///
    /// # Errors
    /// The network's error.
    pub(super) fn begin_upload(&mut self) -> io::Result<()> {
        let pipe = self.pipe().clone();
        let codec = self.codec.as_mut().expect("there until the exchange ends");
        let Some(upload) = &mut self.upload else { return Ok(()) };
        // The later wait for the rest polls again.
        match upload.poll(&mut **codec, &pipe, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(Sending::Done)) => self.upload = None,
            Poll::Ready(Err(ReceiveFault::Network(error))) => return Err(error),
            _ => {}
        }
        Ok(())
    }

    /// Decodes the input and leaves only content in it. At the end the exchange is finished.
    pub(super) fn decode(&mut self) -> More {
        let (codec, input) = self.codec_and_input();
        let (mut at, mut kept) = (0, 0);
        let mut remarks = Vec::new();
        let more = loop {
            match codec.receive_body(&input[at..]) {
                Ok(step) => match step.event {
                    BodyEvent::Data(range) => {
                        let from = at + range.start;
                        at += step.consumed;
                        if kept == 0 {
                            input.advance(from);
                            at -= from;
                        } else if from != kept {
                            input.copy_within(from..from + range.len(), kept);
                        }
                        kept += range.len();
                    }
                    BodyEvent::Apart(remark) => {
                        at += step.consumed;
                        remarks.extend(remark);
                    }
                    BodyEvent::NeedMore => break More::Yes,
                    BodyEvent::End => {
                        at += step.consumed;
                        break More::Complete;
                    }
                },
                Err(fault) => break More::Broken(fault),
            }
        };
        let leftover = at < input.len();
        input.truncate(kept);
        for Remark { level, text } in remarks {
            self.state.notice(level, format_args!("{text}"));
        }
        self.content += kept as u64;
        match more {
            More::Complete => self.finish(leftover),
            // The log line may be written before the end.
            More::Yes | More::Broken(_) => self.note_bytes(),
        }
        more
    }

    /// This try, for the client's side.
    pub(super) fn attempt(&self) -> Attempt {
        Attempt::new(self.state.clone(), (self.number, self.began))
    }

    /// Records the bytes until now.
    fn note_bytes(&self) {
        let (sent, received) = (self.bytes_sent(), self.bytes_received());
        self.state.update(self.number, |one| {
            one.bytes_sent = sent;
            one.bytes_received = received;
            one.response_length = self.content;
        });
    }

    /// The upstream has closed its side.
    pub(super) fn eof(&mut self) -> More {
        match self.codec().receive_eof() {
            Ok(()) => {
                self.finish(false);
                More::Complete
            }
            Err(fault) => More::Broken(fault),
        }
    }

    /// The response is complete: the connection is released for another request, if it can carry
    /// one.
    pub(super) fn finish(&mut self, leftover: bool) {
        let mut codec = self.codec.take().expect("a response is complete once");
        let trailers = codec.trailers();
        if !trailers.is_empty() {
            self.state.set_trailers(trailers);
        }
        let elapsed = self.elapsed();
        self.close(elapsed);
        if let Some(learning) = self.learning.take() {
            learning.note(now());
        }
        let reusable = self.upload.is_none() && codec.is_reusable(leftover);
        codec.retire();
        let times = (self.header_time.unwrap_or_default(), elapsed);
        if let Some(link) = self.link.take() {
            link.release(reusable, Some(times));
        }
        self.state.set_action(None);
    }

    /// Completes the record of the try: its response is complete or will never be.
    fn close(&mut self, elapsed: Duration) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.held.clear();
        let Some(link) = &self.link else { return };
        link.count_bytes(self.bytes_sent(), self.bytes_received());
        self.note_bytes();
        self.state.update(self.number, |one| one.response = Some(elapsed));
    }
}

impl Drop for UpstreamExchange {
    fn drop(&mut self) {
        if !self.closed {
            self.close(self.elapsed());
        }
        if let Some(link) = self.link.take() {
            // The client has left, or a tunnel has ended: without a head this is no evidence about
            // the peer. nginx differs: it counts it as a success.
            match self.header_time {
                Some(_) => link.release(false, None),
                None => drop(link),
            }
        }
        if let Some(codec) = self.codec.take() {
            codec.retire();
        }
    }
}

#[cfg(test)]
mod tests;
