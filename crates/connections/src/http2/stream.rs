//! A stream: one request's channel to its client. Shared by the connection's task and the stream's task:
//! received content that was not read yet, content to be sent, and whether the client has disconnected.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use nowait_front::servers::{ServerId, Virtual};
use nowait_front::tls::Tls;
use nowait_h2::{Priority, StreamId};
use nowait_http::client::Client;
use nowait_http::exchange::{Exchange, Interim, OnHangup};
use nowait_http::generation::Current;
use nowait_http::request::{ReadError, Request};
use nowait_http::response::{Body, BodyError, Head, Header, LocalFuture};
use nowait_http::services::Services;
use nowait_runtime::net::Address;
use nowait_runtime::now;
use nowait_sys::tcp_info::{TcpInfo, tcp_info};

use super::connection::Http2Connection;
use super::window::{self, Window};
use crate::send_error::SendError;
use crate::streams::connection::StreamConnection;
use crate::streams::state::StreamState;
use crate::streams::stream::{RequestStream, StreamEnd};

/// A stream.
pub(super) struct Stream {
    pub(super) connection: Rc<Http2Connection>,
    pub(super) id: StreamId,
    state: StreamState,
    pub(super) input: RefCell<Input>,
    /// The largest DATA frame (`http2_chunk_size`).
    pub(super) frame_bytes_max: Cell<usize>,
    /// Once its content is being read.
    window: Cell<Option<Window>>,
}

/// Content received and not yet read.
#[derive(Default)]
pub(super) struct Input {
    pub(super) data: BytesMut,
    /// The request is complete.
    pub(super) ended: bool,
    /// The request is malformed.
    pub(super) faulty: bool,
    waker: Option<Waker>,
}

impl Stream {
    pub(super) fn new(connection: Rc<Http2Connection>, id: StreamId, ended: bool) -> Rc<Self> {
        Rc::new(Self {
            connection,
            id,
            state: StreamState::default(),
            input: RefCell::new(Input { ended, ..Input::default() }),
            frame_bytes_max: Cell::new(usize::MAX),
            window: Cell::new(None),
        })
    }

    /// Whether its content fits into one frame.
    pub(super) fn is_small(&self) -> bool {
        self.state.outgoing.borrow().len() <= self.frame_bytes_max.get() as u64
    }

    /// Whether more of the request is to come.
    pub(super) fn is_incomplete(&self) -> bool {
        let input = self.input.borrow();
        !input.ended && !input.faulty && !self.state.presence.is_gone()
    }

    /// Content has arrived, or its end, or a fault.
    pub(super) fn receive(&self, data: &[u8], ended: bool, faulty: bool) {
        let mut input = self.input.borrow_mut();
        input.data.extend_from_slice(data);
        input.ended |= ended;
        input.faulty |= faulty;
        input.waker.take().into_iter().for_each(Waker::wake);
    }

    /// Takes content that has arrived, at most so many bytes; `Ok(None)`: all of it was taken. `None`:
    /// more will come.
    pub(super) fn take(&self, limit: Option<usize>) -> Option<Result<Option<Bytes>, ReadError>> {
        let mut input = self.input.borrow_mut();
        if !input.data.is_empty() {
            let bytes = input.data.len().min(limit.unwrap_or(usize::MAX).max(1));
            let taken = input.data.split_to(bytes).freeze();
            let keeps_up = input.data.is_empty() && !input.ended;
            drop(input);
            if keeps_up {
                self.adapt_window(bytes);
            }
            self.connection.taken(self.id, bytes);
            return Some(Ok(Some(taken)));
        }
        if input.faulty {
            return Some(Err(ReadError::Malformed("client sent malformed request body")));
        }
        if input.ended {
            return Some(Ok(None));
        }
        self.state
            .presence
            .is_gone()
            .then(|| Err(ReadError::Closed(io::ErrorKind::UnexpectedEof.into())))
    }

    /// Enlarges the window on long paths, within the connection's limit.
    fn adapt_window(&self, bytes: usize) {
        let Some(mut window) = self.window.get() else { return };
        let round_trip = || {
            let info = self.tcp_info().ok()?;
            Some(Duration::from_micros(info.rtt_us.into()))
        };
        if let Some(size) = window.wanted(bytes, now(), round_trip)
            && self.connection.grow_within_bounds(size - window.size())
        {
            window.set(size);
            self.connection.grow_window(self.id, size);
        }
        self.window.set(Some(window));
    }

    /// The growth of its window, in bytes.
    pub(super) fn window_grown(&self) -> u32 {
        self.window.get().map_or(0, |window| window.grown())
    }

    /// Waits for content: ready when there is some, or none will come.
    fn poll_input(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut input = self.input.borrow_mut();
        if !input.data.is_empty() || input.ended || input.faulty || self.state.presence.is_gone() {
            return Poll::Ready(());
        }
        input.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl RequestStream for Stream {
    const NAME: &'static str = "http2";

    type Id = StreamId;
    type Connection = Http2Connection;

    fn id(&self) -> StreamId {
        self.id
    }

    fn connection(&self) -> &Http2Connection {
        &self.connection
    }

    fn state(&self) -> &StreamState {
        &self.state
    }

    fn is_enabled(&self, request: &Request, servers: Option<&Virtual>) -> bool {
        request.server().http2.http2 || servers.is_some_and(|servers| servers.http2)
    }

    fn leave(&self) {
        self.state.leave();
        self.input.borrow_mut().waker.take().into_iter().for_each(Waker::wake);
    }

    fn prioritise(&self, stated: Option<Priority>) {
        if let Some(priority) = stated {
            self.connection.h2.borrow_mut().set_priority(self.id, priority);
        }
    }

    fn offer(&self) {
        self.connection.offer(self);
    }

    fn withdraw(&self) {
        self.connection.withdraw(self);
    }

    /// Ends a response whose parts have all been sent.
    fn end(&self) {
        self.state.outgoing.borrow_mut().ends = true;
        self.connection.end_content(self);
    }

    fn has_ended(&self) -> bool {
        self.input.borrow().ended
    }

    /// Enlarges the window.
    fn invite(&self) {
        if !self.input.borrow().ended && self.window.get().is_none() {
            self.connection.grow_window(self.id, window::BYTES);
            self.window.set(Some(Window::new()));
        }
    }

    async fn next(&self, limit: Option<usize>) -> Result<Option<Bytes>, ReadError> {
        loop {
            if let Some(taken) = self.take(limit) {
                return taken;
            }
            poll_fn(|cx| self.poll_input(cx)).await;
        }
    }

    fn send_continue(&self) {
        // A client that is already sending its content needs no invitation.
        if self.input.borrow().data.is_empty() {
            self.connection.interim(self, 100, &[]);
        }
    }

    fn write_head(&self, request: &Request, head: &Head, end: bool) -> Result<(), SendError> {
        self.connection.write_head(self, request, head, end)
    }

    fn begin_content(&self, request: &Request, _: Option<u64>) {
        self.frame_bytes_max.set(request.location().http2.bytes());
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

impl Exchange for Stream {
    fn client(&self) -> &Client {
        &self.connection.client
    }

    fn services(&self) -> &Services {
        &self.connection.all().services
    }

    fn local(&self) -> &Address {
        self.connection.local_address()
    }

    fn tcp_info(&self) -> io::Result<TcpInfo> {
        tcp_info(self.connection.stream.fd())
    }

    fn with_tls(&self, look: &mut dyn FnMut(&Tls)) {
        self.connection.stream.with_layer(|tls: &Tls| look(tls));
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
