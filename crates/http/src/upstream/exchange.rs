//! One try with its connection: the state that the steps of the engine hand to each other.
//!
//! It owns the connection: dropping it closes the connection. [`Exchange::finish`] returns the
//! connection to the idle ones.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use nowait_runtime::buf::{Chain, RECV_BUF_BYTES, Received};
use nowait_runtime::net::{NO_TIMEOUT, Stream};
use nowait_runtime::now;
use nowait_upstream::{Learning, Peer};

use super::connect::Link;
use super::receive::HeadFault;
use super::upload::{Limits, Sending, Upload};
use super::{BodyEvent, Cause, Codec, Fault, HeadEvent, Settings, State};
use crate::limit::Held;
use crate::request::ReadError;
use crate::response::BodyError;

/// A request under way on a connection to an upstream.
pub(super) struct Exchange {
    /// `None` once the connection was given back.
    link: Option<Link>,
    /// Received and not yet used.
    pub(super) input: Received,
    /// What was found of the head already.
    pub(super) early: Option<Box<Result<HeadEvent, HeadFault>>>,
    /// Bytes of the head so far.
    pub(super) head_bytes: usize,
    /// Until when the head has to be complete; known once the request was sent.
    head_until: Cell<Option<Instant>>,
    /// `None` only at the end.
    codec: Option<Box<dyn Codec>>,
    pub(super) settings: Arc<Settings>,
    pub(super) state: Rc<State>,
    /// What is still being sent of the request.
    pub(super) upload: Option<Box<Upload>>,
    /// The try's number, and when it began.
    number: usize,
    began: Instant,
    /// When the clock was looked at last, and how long the try had taken then.
    clock: Cell<(Instant, Duration)>,
    /// Time to the head; `None`: it has not come.
    header_time: Option<Duration>,
    /// What the connection had sent and received before.
    before: (u64, u64),
    /// Bytes of content so far.
    pub(super) content: u64,
    /// What is learnt when the response has ended well (`sticky learn`).
    pub(super) learning: Option<Box<Learning>>,
    /// Counts the request at limits.
    pub(super) held: Vec<Held>,
    closed: bool,
}

/// How the content of a response goes on.
#[derive(Debug)]
pub(super) enum More {
    /// There is more to come.
    Yes,
    /// It is complete.
    Complete,
    /// It will never be complete.
    Broken(Fault),
}

/// Why nothing was received.
pub(super) enum ReceiveFault {
    Network(io::Error),
    /// The rest of the request could not be had from the client.
    Client(ReadError),
    /// Nor from where it is kept.
    Ours(BodyError),
}

impl Exchange {
    pub(super) fn new(
        link: Link,
        codec: Box<dyn Codec>,
        settings: Arc<Settings>,
        state: Rc<State>,
        (number, began): (usize, Instant),
    ) -> Self {
        let before = (link.stream.bytes_sent(), link.stream.bytes_received());
        Self {
            link: Some(link),
            input: Received::empty(),
            early: None,
            head_bytes: 0,
            head_until: Cell::new(None),
            codec: Some(codec),
            settings,
            state,
            upload: None,
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

    /// Who is asked.
    pub(super) fn peer(&self) -> &Arc<Peer> {
        self.link().peer()
    }

    /// The connection had served requests before.
    pub(super) fn is_reused(&self) -> bool {
        self.link().reused
    }

    /// The connection.
    pub(super) fn stream(&self) -> &Rc<Stream> {
        &self.link().stream
    }

    pub(super) fn codec(&mut self) -> &mut dyn Codec {
        &mut **self.codec.as_mut().expect("there until the exchange ends")
    }

    /// The codec and what it has not seen yet.
    pub(super) fn codec_and_input(&mut self) -> (&mut dyn Codec, &mut Received) {
        (&mut **self.codec.as_mut().expect("there until the exchange ends"), &mut self.input)
    }

    /// Ends the exchange; its connection is closed.
    pub(super) fn into_parts(mut self) -> (Box<dyn Codec>, Option<Link>) {
        self.close(self.elapsed());
        let codec = self.codec.take().expect("there until the exchange ends");
        (codec, self.link.take())
    }

    pub(super) fn bytes_sent(&self) -> u64 {
        self.link.as_ref().map_or(0, |link| link.stream.bytes_sent() - self.before.0)
    }

    pub(super) fn bytes_received(&self) -> u64 {
        self.link.as_ref().map_or(0, |link| link.stream.bytes_received() - self.before.1)
    }

    /// Since the try began.
    fn elapsed(&self) -> Duration {
        let now = now();
        let (at, elapsed) = self.clock.get();
        // Within a turn of the loop the clock stands.
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

    pub(super) fn head_received(&mut self, status: u16) {
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

    /// Receives what has come, as soon as something has, and meanwhile sends what is left of the
    /// request. Empty: the upstream has ended its side. Time counts from when the request was sent, or
    /// can't be sent before the upstream has said more.
    pub(super) async fn receive(&mut self, large: usize) -> Result<Received, ReceiveFault> {
        if self.upload.is_some()
            && let Some(received) = self.receive_while_sending(large).await?
        {
            return Ok(received);
        }
        let timeout = self.read_timeout();
        let stream = self.stream();
        let received = match large {
            0 => stream.recv(timeout).await.map(Received::Lent),
            max => stream.recv_large(timeout, max).await,
        };
        received.map_err(ReceiveFault::Network)
    }

    /// How long to wait for the upstream now. The head as a whole has `read_timeout`, so that an upstream
    /// that sends it byte by byte can't hold a request for ever; in the body each pause has.
    pub(super) fn read_timeout(&self) -> Duration {
        let timeout = self.settings.read_timeout;
        if self.header_time.is_some() {
            return timeout;
        }
        let now = now();
        let until = self.head_until.get().or_else(|| now.checked_add(timeout));
        self.head_until.set(until);
        until.map_or(timeout, |until| until.saturating_duration_since(now))
    }

    /// An interim response has come: the next head has all the time again.
    pub(super) fn interim_received(&mut self) {
        self.head_bytes = 0;
        self.head_until.set(None);
    }

    /// As `receive`; `None`: nothing has come, and there is nothing more that can be sent.
    async fn receive_while_sending(
        &mut self,
        large: usize,
    ) -> Result<Option<Received>, ReceiveFault> {
        let stream = self.stream().clone();
        let codec = self.codec.as_mut().expect("there until the exchange ends");
        let Some(upload) = &mut self.upload else { return Ok(None) };
        let max = if large == 0 { RECV_BUF_BYTES } else { large };
        let mut recv = pin!(stream.recv_large(NO_TIMEOUT, max));
        let mut sent = false;
        let outcome = poll_fn(|cx| {
            if let Poll::Ready(received) = recv.as_mut().poll(cx) {
                return Poll::Ready(received.map(Some).map_err(ReceiveFault::Network));
            }
            upload.poll(&mut **codec, &stream, cx).map_ok(|sending| {
                sent = sending == Sending::Done;
                None
            })
        })
        .await;
        match outcome {
            Ok(None) if sent => self.upload = None,
            Ok(_) => {}
            // The response may have been sent before the connection was closed for the rest.
            Err(ReceiveFault::Network(error)) if error.raw_os_error().is_some() => {
                upload.fail();
                let timeout = self.settings.read_timeout;
                return match stream.recv(timeout).await {
                    Ok(received) if !received.is_empty() => Ok(Some(Received::Lent(received))),
                    _ => Err(ReceiveFault::Network(error)),
                };
            }
            Err(_) => upload.fail(),
        }
        outcome
    }

    /// Begins to send what is to be sent, and does not wait: a driver that sends by completions has
    /// taken it then.
    ///
    /// # Errors
    /// What the network says.
    pub(super) fn begin_upload(&mut self) -> io::Result<()> {
        let stream = self.stream().clone();
        let codec = self.codec.as_mut().expect("there until the exchange ends");
        let Some(upload) = &mut self.upload else { return Ok(()) };
        // Whoever waits for the rest polls again.
        match upload.poll(&mut **codec, &stream, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(Sending::Done)) => self.upload = None,
            Poll::Ready(Err(ReceiveFault::Network(error))) => return Err(error),
            _ => {}
        }
        Ok(())
    }

    /// Sends what the codec has to say, as soon as something is received again or sent.
    pub(super) fn speak(&mut self) {
        let mut said = Chain::new();
        self.codec().poll_output(&mut said);
        if said.is_empty() {
            return;
        }
        match &mut self.upload {
            Some(upload) => upload.say(said),
            None => {
                let limits = Limits::of_output(&self.settings);
                self.upload = Some(Upload::whole(self.stream(), said, limits));
            }
        }
    }

    /// Leaves in the input what is content of it. At the end the exchange is finished.
    pub(super) fn decode(&mut self) -> More {
        let (codec, input) = self.codec_and_input();
        let (mut at, mut kept) = (0, 0);
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
        self.content += kept as u64;
        self.speak();
        if matches!(more, More::Complete) {
            self.finish(leftover);
        }
        more
    }

    /// The upstream has ended its side.
    pub(super) fn eof(&mut self) -> More {
        match self.codec().receive_eof() {
            Ok(()) => {
                self.finish(false);
                More::Complete
            }
            Err(fault) => More::Broken(fault),
        }
    }

    /// The response is complete: the connection is free for another request, if it can be used for
    /// one.
    pub(super) fn finish(&mut self, leftover: bool) {
        let trailers = self.codec().trailers();
        if !trailers.is_empty() {
            self.state.set_trailers(trailers);
        }
        let elapsed = self.elapsed();
        self.close(elapsed);
        if let Some(learning) = self.learning.take() {
            learning.note(now());
        }
        let reusable = self.upload.is_none() && self.codec().is_reusable(leftover);
        let times = (self.header_time.unwrap_or_default(), elapsed);
        if let Some(link) = self.link.take() {
            link.release(reusable, Some(times));
        }
        self.state.set_action(None);
    }

    /// The response is complete, or will never be: what logs say of it stands.
    fn close(&mut self, elapsed: Duration) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.held.clear();
        let Some(link) = &self.link else { return };
        let sent = link.stream.bytes_sent() - self.before.0;
        let received = link.stream.bytes_received() - self.before.1;
        link.count_bytes(sent, received);
        let content = self.content;
        self.state.update(self.number, |one| {
            one.response = Some(elapsed);
            one.bytes_sent = sent;
            one.bytes_received = received;
            one.response_length = content;
        });
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.closed {
            self.close(self.elapsed());
        }
        if let Some(link) = self.link.take() {
            // The client has left, or a tunnel has ended: without a head that says nothing about
            // the peer. nginx differs: it takes that for a success.
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
