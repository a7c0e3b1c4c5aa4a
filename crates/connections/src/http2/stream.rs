//! A stream: one request's channel to its client. Shared by the connection's task and the stream's task:
//! received content that was not read yet, content to be sent, and whether the client has disconnected.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use nowait_front::servers::ServerId;
use nowait_front::tls::Tls;
use nowait_h2::{ErrorCode, StreamId};
use nowait_http::client::Client;
use nowait_http::exchange::{Exchange, Interim, OnHangup};
use nowait_http::generation::Current;
use nowait_http::request::ReadError;
use nowait_http::response::{BodyError, FileBody, LocalFuture, Part};
use nowait_http::services::Services;
use nowait_runtime::net::Address;
use nowait_runtime::task::{Either, select};
use nowait_runtime::{now, sleep};
use nowait_sys::tcp_info::{TcpInfo, tcp_info};

use super::connection::Http2Connection;
use super::window::{self, Window};
use crate::send_error::{SendError, left};

/// A stream.
pub(super) struct Stream {
    pub(super) connection: Rc<Http2Connection>,
    pub(super) id: StreamId,
    on_hangup: Cell<OnHangup>,
    /// Reset, or the connection has ended.
    gone: Cell<bool>,
    hangups: RefCell<Vec<Waker>>,
    pub(super) input: RefCell<Input>,
    pub(super) outgoing: RefCell<Outgoing>,
    /// The largest DATA frame (`http2_chunk_size`).
    pub(super) frame_bytes_max: Cell<usize>,
    /// The client asks for a tunnel: CONNECT (RFC 9113 section 8.5, RFC 8441).
    pub(super) asks_for_tunnel: Cell<bool>,
    /// Once its content is being read.
    window: Cell<Option<Window>>,
    /// The memory of its request's head, in bytes.
    pub(super) head_bytes: Cell<usize>,
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

/// Content to be sent: a part at a time.
#[derive(Default)]
pub(super) struct Outgoing {
    /// Bytes read from a file, which precede the rest of it.
    pub(super) front: Bytes,
    pub(super) part: Option<Part>,
    /// The response ends with it.
    pub(super) ends: bool,
    /// The next bytes of the file are not in memory; so many are wanted.
    pub(super) cold: Option<usize>,
    /// The file could not be read.
    pub(super) failed: Option<BodyError>,
    /// Changes whenever a frame is made.
    progress: u64,
    waker: Option<Waker>,
}

impl Outgoing {
    /// Bytes left.
    pub(super) fn len(&self) -> u64 {
        self.front.len() as u64 + self.part.as_ref().map_or(0, Part::len)
    }

    /// Takes at most so many bytes in memory; `None` if the next ones are in a file.
    pub(super) fn take(&mut self, max: usize) -> Option<Bytes> {
        let memory = match &mut self.part {
            _ if !self.front.is_empty() => &mut self.front,
            Some(Part::Bytes(bytes)) => bytes,
            Some(Part::File(_)) => return None,
            None => return Some(Bytes::new()),
        };
        Some(memory.split_to(max.min(memory.len())))
    }

    /// Whether no more frames can be made of it for now.
    pub(super) fn stops(&self) -> bool {
        self.len() == 0 || self.cold.is_some() || self.failed.is_some()
    }

    /// Frames were made, or can't be made.
    pub(super) fn advanced(&mut self) {
        self.progress += 1;
        if self.stops()
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }
}

/// The reason why [`Stream::put`] stopped.
enum Stopped {
    Done,
    /// Read so many bytes of the file.
    Cold(usize),
    Failed(SendError),
}

impl Stream {
    pub(super) fn new(connection: Rc<Http2Connection>, id: StreamId, ended: bool) -> Rc<Self> {
        Rc::new(Self {
            connection,
            id,
            on_hangup: Cell::default(),
            gone: Cell::new(false),
            hangups: RefCell::default(),
            input: RefCell::new(Input { ended, ..Input::default() }),
            outgoing: RefCell::default(),
            frame_bytes_max: Cell::new(usize::MAX),
            asks_for_tunnel: Cell::new(false),
            window: Cell::new(None),
            head_bytes: Cell::new(0),
        })
    }

    /// The client has reset the stream, or the connection has ended.
    pub(super) fn leave(&self) {
        self.gone.set(true);
        for waker in self.hangups.take() {
            waker.wake();
        }
        self.input.borrow_mut().waker.take().into_iter().for_each(Waker::wake);
        self.outgoing.borrow_mut().waker.take().into_iter().for_each(Waker::wake);
    }

    /// Whether its content fits into one frame.
    pub(super) fn is_small(&self) -> bool {
        self.outgoing.borrow().len() <= self.frame_bytes_max.get() as u64
    }

    /// Whether the client no longer receives the response.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.get()
    }

    /// Whether more of the request is to come.
    pub(super) fn is_incomplete(&self) -> bool {
        let input = self.input.borrow();
        !input.ended && !input.faulty && !self.gone.get()
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
        self.is_gone().then(|| Err(ReadError::Closed(io::ErrorKind::UnexpectedEof.into())))
    }

    /// Waits for content, and takes it as [`Stream::take`] does.
    pub(super) async fn next(&self, limit: Option<usize>) -> Result<Option<Bytes>, ReadError> {
        loop {
            if let Some(taken) = self.take(limit) {
                return taken;
            }
            poll_fn(|cx| self.poll_input(cx)).await;
        }
    }

    /// Enlarges the window when a reader begins.
    pub(super) fn invite(&self) {
        if !self.input.borrow().ended && self.window.get().is_none() {
            self.connection.grow_window(self.id, window::BYTES);
            self.window.set(Some(Window::new()));
        }
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
        if !input.data.is_empty() || input.ended || input.faulty || self.gone.get() {
            return Poll::Ready(());
        }
        input.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Resolves when the client has left and the request has to end for that reason. Unlike a
    /// half-closed connection, a stream that was reset never takes a response.
    pub(super) async fn gone(&self) {
        poll_fn(|cx| match self.gone.get() && self.on_hangup.get() != OnHangup::Ignore {
            true => Poll::Ready(()),
            false => self.watch(cx),
        })
        .await;
    }

    fn watch(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut hangups = self.hangups.borrow_mut();
        if !hangups.iter().any(|waker| waker.will_wake(cx.waker())) {
            hangups.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Ends a response whose parts have all been sent.
    pub(super) fn end(&self) {
        self.outgoing.borrow_mut().ends = true;
        self.connection.end_content(self);
    }

    /// Sends a part: waits until all of it is in frames. `ends`: the response ends with it. If its file
    /// can't be read, `unread` tells how many bytes are missing.
    pub(super) async fn put(
        &self,
        part: Part,
        ends: bool,
        timeout: Duration,
        unread: &mut Option<u64>,
    ) -> Result<(), SendError> {
        if part.is_empty() && !ends {
            return Ok(());
        }
        {
            let mut outgoing = self.outgoing.borrow_mut();
            outgoing.part = Some(part);
            outgoing.ends = ends;
        }
        self.connection.offer(self);
        loop {
            match self.stopped(timeout).await {
                Stopped::Done => return Ok(()),
                Stopped::Cold(bytes) => self.read_cold(bytes).await,
                Stopped::Failed(error) => {
                    self.connection.withdraw(self);
                    if matches!(error, SendError::Body(BodyError::File(_) | BodyError::Truncated)) {
                        *unread = Some(self.outgoing.borrow().len());
                    }
                    let mut outgoing = self.outgoing.borrow_mut();
                    (outgoing.part, outgoing.front) = (None, Bytes::new());
                    return Err(error);
                }
            }
        }
    }

    /// Waits until the part is done, or stops.
    async fn stopped(&self, timeout: Duration) -> Stopped {
        if let Some(stopped) = self.state() {
            return stopped;
        }
        loop {
            let before = self.outgoing.borrow().progress;
            let changed = poll_fn(|cx| match self.state() {
                Some(stopped) => Poll::Ready(stopped),
                None => {
                    self.outgoing.borrow_mut().waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            });
            match select(changed, sleep(timeout)).await {
                Either::Left(stopped) => return stopped,
                Either::Right(()) if self.outgoing.borrow().progress == before => {
                    let error = io::Error::from(io::ErrorKind::TimedOut);
                    return Stopped::Failed(SendError::Client(error));
                }
                Either::Right(()) => {}
            }
        }
    }

    fn state(&self) -> Option<Stopped> {
        if self.gone.get() {
            return Some(Stopped::Failed(left()));
        }
        let mut outgoing = self.outgoing.borrow_mut();
        if let Some(error) = outgoing.failed.take() {
            return Some(Stopped::Failed(SendError::Body(error)));
        }
        if outgoing.len() == 0 {
            return Some(Stopped::Done);
        }
        outgoing.cold.take().map(Stopped::Cold)
    }

    /// Reads the next bytes of the file in its pool.
    async fn read_cold(&self, bytes: usize) {
        let Some(Part::File(file)) = self.outgoing.borrow().part.as_ref().map(clone_file) else {
            return;
        };
        let _reading = self.connection.reading();
        let io = file.io.for_client(self.connection.client.number);
        let mut read = pin!(file.read(&io, bytes));
        let read = poll_fn(|cx| match self.gone.get() {
            true => Poll::Ready(None),
            false => {
                let _ = self.watch(cx);
                read.as_mut().poll(cx).map(Some)
            }
        });
        let Some(read) = read.await else { return };
        {
            let mut outgoing = self.outgoing.borrow_mut();
            match read {
                Ok(read) if read.len() == bytes => {
                    if let Some(Part::File(file)) = &mut outgoing.part {
                        file.offset += bytes as u64;
                        file.len -= bytes as u64;
                    }
                    outgoing.front = read;
                }
                Ok(_) => outgoing.failed = Some(BodyError::Truncated),
                Err(error) => outgoing.failed = Some(unread(error)),
            }
        }
        self.connection.offer(self);
    }
}

fn clone_file(part: &Part) -> Part {
    match part {
        Part::Bytes(bytes) => Part::Bytes(bytes.clone()),
        Part::File(file) => Part::File(FileBody::clone(file)),
    }
}

fn unread(error: io::Error) -> BodyError {
    match nowait_runtime::pool::PoolError::of(&error) {
        Some(overflow) => BodyError::Overflow(overflow.to_string()),
        None => BodyError::File(error),
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
        &self.on_hangup
    }

    fn hangup(&self) -> LocalFuture<'_, ()> {
        Box::pin(poll_fn(|cx| match self.gone.get() {
            true => Poll::Ready(()),
            false => self.watch(cx),
        }))
    }

    fn send_interim(&self, head: Interim, _: Duration) -> LocalFuture<'_, ()> {
        self.connection.interim(self, head.status, &head.headers);
        Box::pin(std::future::ready(()))
    }
}

/// The end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The response is complete; the rest of the request is discarded.
    Complete,
    /// The missing part of request or response will not arrive: the client receives this code.
    Reset(ErrorCode),
}

/// Ends a stream when its request's task ends, for any reason.
pub(super) struct StreamGuard(pub(super) Rc<Stream>, pub(super) StreamEnd);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.connection.finish(&self.0, self.1);
    }
}
