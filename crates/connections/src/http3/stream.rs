//! A stream: one request's channel to its client. Content of the request is read from the transport when a handler asks
//! for it, so a client can send no more than the stream's window; content of the response goes to the transport as its
//! windows allow.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use nowait_front::servers::{ServerId, Virtual};
use nowait_front::tls::Tls;
use nowait_h3::{Event, Priority, StreamId};
use nowait_http::client::Client;
use nowait_http::exchange::{Exchange, Interim, OnHangup};
use nowait_http::generation::Current;
use nowait_http::request::{ReadError, Request};
use nowait_http::response::{Body, BodyError, Head, Header, LocalFuture};
use nowait_http::services::Services;
use nowait_quic::{Read, ReadError as TransportError};
use nowait_runtime::net::Address;
use nowait_runtime::sleep;
use nowait_runtime::task::{Either, select};
use nowait_sys::tcp_info::TcpInfo;

use super::connection::{Http3Connection, transport_id};
use crate::send_error::{SendError, left};
use crate::streams::connection::StreamConnection;
use crate::streams::state::StreamState;
use crate::streams::stream::{RequestStream, StreamEnd};

/// Bytes that are read from the transport at once. They are not copied.
pub(super) const READ_BYTES_MAX: usize = 64 * 1024;

/// Pieces of content below this size are joined with what has arrived behind them: frames of a byte each would otherwise
/// be as many writes to an upstream server. Those of full packets are larger, and are not copied.
const SMALL_PIECE_BYTES: usize = 1024;

/// A stream.
pub(super) struct Http3Stream {
    pub(super) connection: Rc<Http3Connection>,
    pub(super) id: StreamId,
    state: StreamState,
    pub(super) input: RefCell<Http3Input>,
    /// Heads and headers of frames that precede the content.
    pub(super) frames: RefCell<Vec<u8>>,
    /// How much of the DATA frame that has begun is still to be written.
    pub(super) frame_left: Cell<u64>,
    /// Nothing can be written until the transport says so.
    pub(super) is_blocked: Cell<bool>,
    /// The end was given to the transport.
    pub(super) is_finished: Cell<bool>,
}

/// What was read from the transport.
#[derive(Default)]
pub(super) struct Http3Input {
    /// Frames that were not looked at.
    pub(super) frames: Bytes,
    /// The transport has delivered all.
    pub(super) ended: bool,
    /// Content that was not taken.
    content: Bytes,
    /// The request is malformed.
    faulty: bool,
    waker: Option<Waker>,
}

/// What a step through the input has found.
enum Step {
    /// A part of the content.
    Content(Bytes),
    /// Something else; there may be more.
    Other,
    /// More will come.
    Blocked,
    /// Nothing more will come.
    Ended,
    /// The stream or the connection has failed.
    Closed,
}

impl Http3Stream {
    pub(super) fn new(
        connection: Rc<Http3Connection>,
        id: StreamId,
        input: Http3Input,
    ) -> Rc<Self> {
        Rc::new(Self {
            connection,
            id,
            state: StreamState::default(),
            input: RefCell::new(input),
            frames: RefCell::default(),
            frame_left: Cell::new(0),
            is_blocked: Cell::new(false),
            is_finished: Cell::new(false),
        })
    }

    /// Something may be there for a reader.
    pub(super) fn wake_reader(&self) {
        self.input.borrow_mut().waker.take().into_iter().for_each(Waker::wake);
    }

    /// Something has arrived: content, the end, or a reset.
    pub(super) fn readable(&self) {
        match self.connection.transport().received_reset(transport_id(self.id)) {
            Some(code) => self.connection.unreadable(self.id, &TransportError::Reset(code)),
            None => self.wake_reader(),
        }
    }

    /// Bytes of heads and content that are not written.
    fn unwritten(&self) -> u64 {
        self.frames.borrow().len() as u64 + self.state.outgoing.borrow().len()
    }

    /// Whether everything is written.
    fn is_flushed(&self) -> bool {
        self.unwritten() == 0
    }

    /// A section that waited for insertions can be decoded: trailers.
    pub(super) fn unblocked(&self) {
        let step = {
            let input = self.input.borrow();
            self.connection.receive(self.id, &input.frames, input.ended)
        };
        if let Some(step) = step {
            self.input.borrow_mut().frames.advance(step.consumed);
            self.note(step.event);
        }
        self.wake_reader();
    }

    /// An event without content.
    fn note(&self, event: Event) {
        if let Event::StreamError { error, answerable } = event {
            self.connection.log_info(format_args!("client sent {error}"));
            self.input.borrow_mut().faulty = true;
            if !answerable {
                self.leave();
            }
        }
    }

    /// Takes content that has arrived, at most so many bytes; `Ok(None)`: all of it was taken. `None`: more will come.
    fn take(&self, limit: Option<usize>) -> Option<Result<Option<Bytes>, ReadError>> {
        loop {
            let mut input = self.input.borrow_mut();
            if !input.content.is_empty() {
                let bytes = input.content.len().min(limit.unwrap_or(usize::MAX).max(1));
                return Some(Ok(Some(input.content.split_to(bytes))));
            }
            if input.faulty {
                return Some(Err(ReadError::Malformed("client sent malformed request body")));
            }
            drop(input);
            if self.connection.has_ended(self.id) {
                return Some(match self.state.presence.is_gone() {
                    true => Err(closed()),
                    false => Ok(None),
                });
            }
            if self.state.presence.is_gone() {
                return Some(Err(closed()));
            }
            match self.step() {
                Step::Content(content) => {
                    let content = self.join(content);
                    self.input.borrow_mut().content = content;
                }
                Step::Other => {}
                Step::Blocked => return None,
                // The core has forgotten the stream.
                Step::Ended => return Some(Ok(None)),
                Step::Closed => return Some(Err(closed())),
            }
        }
    }

    /// Adds what has arrived behind a small piece of content, until it is no longer small.
    fn join(&self, content: Bytes) -> Bytes {
        let mut joined = BytesMut::new();
        loop {
            let is_over = self.connection.has_ended(self.id)
                || self.input.borrow().faulty
                || self.state.presence.is_gone();
            if is_over || content.len().max(joined.len()) >= SMALL_PIECE_BYTES {
                break;
            }
            match self.step() {
                Step::Content(more) => {
                    if joined.is_empty() {
                        joined.reserve(SMALL_PIECE_BYTES);
                        joined.extend_from_slice(&content);
                    }
                    joined.extend_from_slice(&more);
                }
                Step::Other => {}
                // The next reader finds the same.
                Step::Blocked | Step::Ended | Step::Closed => break,
            }
        }
        if joined.is_empty() { content } else { joined.freeze() }
    }

    /// Passes the input to the core, up to the next event, or reads more of it.
    fn step(&self) -> Step {
        let mut input = self.input.borrow_mut();
        let Some(step) = self.connection.receive(self.id, &input.frames, input.ended) else {
            return Step::Closed;
        };
        let content = match &step.event {
            Event::Data { range, .. } => input.frames.slice(range.clone()),
            _ => Bytes::new(),
        };
        input.frames.advance(step.consumed);
        match step.event {
            Event::Data { .. } => return Step::Content(content),
            Event::Blocked => return Step::Blocked,
            Event::NeedMore => {}
            event => {
                drop(input);
                self.note(event);
                return Step::Other;
            }
        }
        if input.ended {
            return Step::Ended;
        }
        match self.connection.transport().read(transport_id(self.id), READ_BYTES_MAX) {
            Ok(Read::Data(bytes)) => input.frames = bytes,
            Ok(Read::End) => input.ended = true,
            Ok(Read::Blocked) => return Step::Blocked,
            Err(error) => {
                drop(input);
                self.connection.unreadable(self.id, &error);
                return Step::Closed;
            }
        }
        Step::Other
    }
}

fn closed() -> ReadError {
    ReadError::Closed(io::ErrorKind::UnexpectedEof.into())
}

impl Http3Input {
    /// What was read behind a head.
    pub(super) fn new(frames: Bytes, ended: bool) -> Self {
        Self { frames, ended, ..Self::default() }
    }
}

impl RequestStream for Http3Stream {
    const NAME: &'static str = "http3";

    type Id = StreamId;
    type Connection = Http3Connection;

    fn id(&self) -> StreamId {
        self.id
    }

    fn connection(&self) -> &Http3Connection {
        &self.connection
    }

    fn state(&self) -> &StreamState {
        &self.state
    }

    fn is_enabled(&self, request: &Request, _: Option<&Virtual>) -> bool {
        let http3 = &request.server().http3;
        if self.connection.is_hq() { http3.http3_hq } else { http3.http3 }
    }

    fn leave(&self) {
        self.state.leave();
        self.wake_reader();
    }

    /// The transport has to know of any but the initial priority, which a PRIORITY_UPDATE may have changed before.
    fn prioritise(&self, stated: Option<Priority>) {
        let mut h3 = self.connection.h3.borrow_mut();
        if let Some(priority) = stated {
            h3.set_priority(self.id, priority);
        }
        let priority = h3.priority(self.id);
        drop(h3);
        if priority != Priority::default() {
            self.connection.prioritise(self.id);
        }
    }

    fn offer(&self) {
        self.connection.offer(self);
    }

    fn withdraw(&self) {
        self.connection.withdraw(self);
    }

    fn end(&self) {
        self.state.outgoing.borrow_mut().ends = true;
        self.connection.write(self);
    }

    fn flush(&self) {
        self.connection.write_frames(self);
    }

    async fn flushed(&self, timeout: Duration) -> Result<(), SendError> {
        if self.is_flushed() {
            return Ok(());
        }
        self.connection.write_frames(self);
        let mut before = self.unwritten();
        loop {
            let flushed = poll_fn(|cx| {
                if self.state.presence.is_gone() {
                    return Poll::Ready(Err(left()));
                }
                if self.is_flushed() {
                    return Poll::Ready(Ok(()));
                }
                self.state.outgoing.borrow_mut().waker = Some(cx.waker().clone());
                Poll::Pending
            });
            if let Either::Left(flushed) = select(flushed, sleep(timeout)).await {
                return flushed;
            }
            // The time is for each piece that the client takes, not for all of them.
            let left = self.unwritten();
            if left >= before {
                return Err(SendError::Client(io::ErrorKind::TimedOut.into()));
            }
            before = left;
        }
    }

    fn has_ended(&self) -> bool {
        self.connection.has_ended(self.id)
    }

    /// The transport's window is open already.
    fn invite(&self) {}

    async fn next(&self, limit: Option<usize>) -> Result<Option<Bytes>, ReadError> {
        poll_fn(|cx| match self.take(limit) {
            Some(taken) => Poll::Ready(taken),
            None => {
                self.input.borrow_mut().waker = Some(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    fn send_continue(&self) {
        // A client that is already sending its content needs no invitation.
        let input = self.input.borrow();
        if input.frames.is_empty() && input.content.is_empty() && !input.ended {
            self.connection.interim(self, 100, &[]);
        }
    }

    fn write_head(&self, request: &Request, head: &Head, end: bool) -> Result<(), SendError> {
        self.connection.write_head(self, request, head, end)
    }

    /// One DATA frame has a body of known length.
    fn begin_content(&self, _: &Request, length: Option<u64>) {
        if let Some(length) = length.filter(|&length| length > 0) {
            self.connection.begin_data(self, length);
        }
    }

    fn send_whole(&self, content: &Body) -> Result<bool, BodyError> {
        self.connection.send_whole(self, content)
    }

    fn write_trailers(&self, trailers: &[Header]) -> u64 {
        self.connection.write_trailers(self, trailers)
    }

    fn finish(&self, end: StreamEnd) {
        self.connection.finish(self, end);
    }
}

impl Exchange for Http3Stream {
    fn client(&self) -> &Client {
        self.connection.client()
    }

    fn services(&self) -> &Services {
        &self.connection.all().services
    }

    fn local(&self) -> &Address {
        self.connection.local()
    }

    fn tcp_info(&self) -> io::Result<TcpInfo> {
        Err(io::ErrorKind::NotConnected.into())
    }

    fn with_tls(&self, look: &mut dyn FnMut(&Tls)) {
        look(self.connection.tls());
    }

    fn default_server(&self, current: &Current) -> Option<ServerId> {
        self.connection.virtual_servers(current).map(|servers| servers.default_server)
    }

    fn on_hangup(&self) -> &Cell<OnHangup> {
        &self.state.presence.on_hangup
    }

    fn hangup(&self) -> LocalFuture<'_, ()> {
        self.state.presence.hangup()
    }

    fn send_interim(&self, head: Interim, _: Duration) -> LocalFuture<'_, ()> {
        self.connection.interim(self, head.status, &head.headers);
        Box::pin(std::future::ready(()))
    }
}
