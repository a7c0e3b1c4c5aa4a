//! A stream of a shared connection for the engine and a codec: one try's channel to its server. Content is
//! queued here in both directions; the connection's task moves it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::ops::Deref;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use nowait_h2::client::{ClientSide, RequestControl};
use nowait_h2::{HeadWriter, StreamId};
use nowait_http::response::Header;
use nowait_message::ResponseHead;
use nowait_runtime::buf::{Chain, Chunk, RECV_BUF_BYTES, ReceivedBuf};
use nowait_runtime::net::{Channel, ChannelFuture, NO_TIMEOUT, SendOptions, Unread};
use nowait_runtime::time::timeout;
use nowait_runtime::yield_now;

use super::connection::{Connection, WINDOW_BYTES, WINDOW_BYTES_MAX};
use crate::upstream::Fault;

/// Content of a request that waits for its window or for the socket, in bytes; one piece more may
/// exceed it.
pub(in crate::upstream) const QUEUED_BYTES_MAX: usize = 64 * 1024;

/// Interim responses that wait for a slow client; of more, the latest count.
const INTERIM_MAX: usize = 4;

/// A stream, reserved for a try and opened by its codec.
pub struct UpstreamStream {
    connection: Rc<Connection>,
    /// `None` until it is opened.
    id: Cell<Option<StreamId>>,
    input: RefCell<Input>,
    pub(super) outgoing: RefCell<Outgoing>,
    /// The size of its receive window.
    window: Cell<u32>,
    sent: Cell<u64>,
    received: Cell<u64>,
}

/// Received data that was not taken yet.
#[derive(Default)]
struct Input {
    /// Heads, the interim ones marked: at most [`INTERIM_MAX`] of them.
    heads: VecDeque<(bool, Rc<ResponseHead>)>,
    data: BytesMut,
    trailers: Vec<Header>,
    /// The response is complete.
    ended: bool,
    broken: Option<StreamFault>,
    waker: Option<Waker>,
}

/// The reason why no more data arrives.
#[derive(Debug, Clone)]
pub(super) enum StreamFault {
    /// The server's fault, or its wish.
    Fault(Fault),
    /// The connection's error: its number, or its kind.
    Network(Option<i32>, io::ErrorKind),
}

impl StreamFault {
    pub(super) fn network(error: &io::Error) -> Self {
        Self::Network(error.raw_os_error(), error.kind())
    }
}

/// Content to be sent.
#[derive(Default)]
pub(super) struct Outgoing {
    pieces: VecDeque<Bytes>,
    /// Bytes of the pieces.
    pub(super) bytes: usize,
    /// The request ends with them.
    pub(super) ends: bool,
    waker: Option<Waker>,
}

impl Outgoing {
    /// Passes so many bytes on, piece by piece.
    pub(super) fn take(&mut self, mut bytes: usize, mut pass: impl FnMut(Bytes)) {
        self.bytes -= bytes;
        while bytes > 0 {
            let Some(piece) = self.pieces.front_mut() else { return };
            let now = piece.split_to(bytes.min(piece.len()));
            if piece.is_empty() {
                self.pieces.pop_front();
            }
            bytes -= now.len();
            pass(now);
        }
        if self.bytes < QUEUED_BYTES_MAX {
            self.waker.take().into_iter().for_each(Waker::wake);
        }
    }
}

/// The control data of a request.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// `:method`
    pub method: &'a [u8],
    /// `:scheme`
    pub scheme: &'a [u8],
    /// `:authority`; omitted if empty.
    pub authority: &'a [u8],
    /// `:path`
    pub path: &'a [u8],
    /// `:protocol` of extended CONNECT (RFC 8441), for which the server's settings have been checked.
    pub protocol: Option<&'a [u8]>,
}

/// Takes the header fields of a request.
pub struct Fields<'a>(HeadWriter<'a, ClientSide, Vec<u8>>);

impl Fields<'_> {
    /// Adds a field. Fields that HTTP/2 does not have are left out.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        self.0.field(name, value);
    }

    /// Adds a field with a number.
    pub fn field_number(&mut self, name: &[u8], number: u64) {
        self.0.field_number(name, number);
    }
}

impl UpstreamStream {
    pub(super) fn new(connection: Rc<Connection>) -> Rc<Self> {
        Rc::new(Self {
            connection,
            id: Cell::new(None),
            input: RefCell::default(),
            outgoing: RefCell::default(),
            window: Cell::new(WINDOW_BYTES),
            sent: Cell::new(0),
            received: Cell::new(0),
        })
    }

    pub(super) fn id(&self) -> Option<StreamId> {
        self.id.get()
    }

    /// Opens the stream with the head of a request; `end`: it has no content. If the connection accepts no
    /// more streams meanwhile, the stream reports a fault that allows another try.
    pub fn open(self: &Rc<Self>, line: &Line<'_>, end: bool, write: impl FnOnce(&mut Fields<'_>)) {
        let request = RequestControl {
            method: line.method,
            scheme: line.scheme,
            authority: line.authority,
            path: line.path,
            protocol: line.protocol,
        };
        let opened = self.connection.open(self, |h2, out| {
            let start = out.len();
            let mut fields = Fields(h2.open(&request, out).ok()?);
            write(&mut fields);
            let id = fields.0.finish(end);
            self.sent.set((out.len() - start) as u64);
            Some(id)
        });
        match opened {
            Some(id) => {
                self.id.set(Some(id));
                self.outgoing.borrow_mut().ends = end;
            }
            None => {
                let text = "upstream takes no more streams on this connection";
                self.fail(StreamFault::Fault(Fault::Unprocessed(text.into())));
            }
        }
    }

    /// Waits for the server's settings. Whether it takes extended CONNECT; also if the connection has
    /// ended, which opening a stream finds out.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after `limit`.
    pub(in crate::upstream) async fn takes_tunnels(&self, limit: Duration) -> io::Result<bool> {
        within(limit, poll_fn(|cx| self.connection.poll_settled(cx))).await?;
        Ok(!self.connection.is_settled() || self.connection.takes_tunnels())
    }

    /// Queues content.
    pub fn put(&self, piece: Bytes) {
        let mut outgoing = self.outgoing.borrow_mut();
        if self.is_broken() || outgoing.ends || piece.is_empty() {
            return;
        }
        outgoing.bytes += piece.len();
        outgoing.pieces.push_back(piece);
        drop(outgoing);
        self.connection.offer(self);
    }

    /// Ends the content.
    pub fn end(&self) {
        let mut outgoing = self.outgoing.borrow_mut();
        if std::mem::replace(&mut outgoing.ends, true) || self.is_broken() {
            return;
        }
        let queued = outgoing.bytes;
        drop(outgoing);
        self.connection.end(self, queued);
    }

    /// Whether more content may be queued.
    pub fn has_room(&self) -> bool {
        self.outgoing.borrow().bytes < QUEUED_BYTES_MAX || self.is_broken()
    }

    /// Waits for room.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after `limit`.
    pub(in crate::upstream) async fn room(&self, limit: Duration) -> io::Result<()> {
        let room = poll_fn(|cx| match self.has_room() {
            true => Poll::Ready(()),
            false => {
                self.outgoing.borrow_mut().waker = Some(cx.waker().clone());
                Poll::Pending
            }
        });
        within(limit, room).await
    }

    /// Waits for a head, content, the end, or a fault. Takes at most this many bytes of content, possibly
    /// none.
    ///
    /// # Errors
    /// That of the connection.
    pub(in crate::upstream) async fn recv(
        &self,
        limit: Duration,
        bytes: usize,
    ) -> io::Result<ReceivedBuf> {
        within(limit, poll_fn(|cx| self.poll_arrived(cx))).await?;
        self.take(bytes)
    }

    fn poll_arrived(&self, cx: &Context<'_>) -> Poll<()> {
        if self.has_arrived() {
            return Poll::Ready(());
        }
        self.input.borrow_mut().waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn has_arrived(&self) -> bool {
        let input = self.input.borrow();
        !input.data.is_empty() || !input.heads.is_empty() || input.ended || input.broken.is_some()
    }

    /// The immediate result of [`recv`](Self::recv); `None`: no data has arrived.
    ///
    /// # Errors
    /// That of the connection.
    pub(in crate::upstream) fn try_recv(&self, bytes: usize) -> io::Result<Option<ReceivedBuf>> {
        if self.has_arrived() { self.take(bytes).map(Some) } else { Ok(None) }
    }

    /// Takes content; the window opens by as much.
    fn take(&self, bytes: usize) -> io::Result<ReceivedBuf> {
        let mut input = self.input.borrow_mut();
        if input.data.is_empty() {
            return match input.broken {
                Some(StreamFault::Network(number, kind)) if input.heads.is_empty() => {
                    Err(number.map_or_else(|| kind.into(), io::Error::from_raw_os_error))
                }
                _ => Ok(ReceivedBuf::empty()),
            };
        }
        let bytes = bytes.min(input.data.len());
        let data = input.data.split_to(bytes);
        let keeps_up = input.data.is_empty() && !input.ended;
        drop(input);
        if let Some(id) = self.id.get() {
            // A reader that consumes all content at once may have more in flight.
            let window = self.window.get();
            if keeps_up && window < WINDOW_BYTES_MAX && self.received.get() > 2 * u64::from(window)
            {
                self.window.set(2 * window);
            }
            self.connection.taken(id, bytes, self.window.get());
        }
        Ok(ReceivedBuf::Joined(data))
    }

    /// The next head; whether it is an interim one.
    ///
    /// # Errors
    /// The reason why there will be none.
    pub fn take_head(&self) -> Result<Option<(bool, Rc<ResponseHead>)>, Fault> {
        let mut input = self.input.borrow_mut();
        match (input.heads.pop_front(), &input.broken) {
            (None, Some(StreamFault::Fault(fault))) => Err(fault.clone()),
            (head, _) => Ok(head),
        }
    }

    /// Whether the response is complete, and all of its content was taken.
    ///
    /// # Errors
    /// The reason why it never will be.
    pub fn is_complete(&self) -> Result<bool, Fault> {
        let input = self.input.borrow();
        match &input.broken {
            _ if !input.data.is_empty() => Ok(false),
            Some(StreamFault::Fault(fault)) => Err(fault.clone()),
            Some(StreamFault::Network(..)) => Ok(false),
            None => Ok(input.ended),
        }
    }

    /// The trailers of a complete response.
    pub fn take_trailers(&self) -> Vec<Header> {
        std::mem::take(&mut self.input.borrow_mut().trailers)
    }

    /// Bytes of the head and of content that were sent.
    pub(in crate::upstream) fn bytes_sent(&self) -> u64 {
        self.sent.get()
    }

    /// Bytes of heads and of content that have arrived.
    pub(in crate::upstream) fn bytes_received(&self) -> u64 {
        self.received.get()
    }

    fn is_broken(&self) -> bool {
        self.input.borrow().broken.is_some()
    }

    pub(super) fn count_sent(&self, bytes: usize) {
        self.sent.set(self.sent.get() + bytes as u64);
    }

    fn count_received(&self, bytes: usize) {
        self.received.set(self.received.get() + bytes as u64);
    }

    /// A head has arrived.
    pub(super) fn head(&self, interim: bool, head: ResponseHead, end: bool) {
        self.count_received(head.length);
        let mut input = self.input.borrow_mut();
        if interim && input.heads.len() == INTERIM_MAX {
            input.heads.pop_front();
        }
        input.heads.push_back((interim, Rc::new(head)));
        input.ended |= end;
        input.waker.take().into_iter().for_each(Waker::wake);
    }

    /// Content has arrived.
    pub(super) fn data(&self, data: &[u8], end: bool) {
        self.count_received(data.len());
        let mut input = self.input.borrow_mut();
        input.data.extend_from_slice(data);
        input.ended |= end;
        input.waker.take().into_iter().for_each(Waker::wake);
    }

    /// The response ends with these.
    pub(super) fn trailers(&self, trailers: Vec<Header>) {
        let mut input = self.input.borrow_mut();
        (input.trailers, input.ended) = (trailers, true);
        input.waker.take().into_iter().for_each(Waker::wake);
    }

    /// Whether the response is complete.
    pub(super) fn has_ended(&self) -> bool {
        self.input.borrow().ended
    }

    /// No more data arrives or is sent.
    pub(super) fn fail(&self, broken: StreamFault) {
        let mut input = self.input.borrow_mut();
        input.broken.get_or_insert(broken);
        input.waker.take().into_iter().for_each(Waker::wake);
        let mut outgoing = self.outgoing.borrow_mut();
        outgoing.pieces.clear();
        outgoing.bytes = 0;
        outgoing.waker.take().into_iter().for_each(Waker::wake);
    }
}

impl Channel for UpstreamStream {
    fn recv(&self) -> ChannelFuture<'_, ReceivedBuf> {
        Box::pin(async {
            let received = Self::recv(self, NO_TIMEOUT, RECV_BUF_BYTES).await?;
            if received.is_empty() && !self.is_complete().map_err(io::Error::other)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(received)
        })
    }

    fn send(&self, mut chain: Chain, options: SendOptions) -> ChannelFuture<'_, ()> {
        Box::pin(async move {
            while let Some(chunk) = chain.pop_front() {
                self.room(options.timeout).await?;
                if self.is_broken() {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                self.put(match chunk {
                    Chunk::Bytes(bytes) => bytes,
                    Chunk::Static(bytes) => Bytes::from_static(bytes),
                    chunk => Bytes::copy_from_slice(chunk.memory()),
                });
            }
            Ok(())
        })
    }

    fn shutdown_write(&self) -> io::Result<()> {
        self.end();
        Ok(())
    }

    fn bytes_moved(&self) -> u64 {
        self.sent.get() + self.received.get()
    }
}

/// Waits, but not longer than this.
async fn within(limit: Duration, wait: impl Future<Output = ()>) -> io::Result<()> {
    match limit {
        NO_TIMEOUT => wait.await,
        limit => {
            timeout(limit, wait).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
        }
    }
    Ok(())
}

/// Holds a lane; dropped, it ends the stream, which is reset unless both sides are complete.
pub struct HeldStream(pub(super) Rc<UpstreamStream>);

impl HeldStream {
    /// Whether the connection had carried requests before.
    pub(in crate::upstream) fn is_reused(&self) -> bool {
        self.0.connection.requests() > 1
    }

    /// Whether a request that can't be repeated may be sent: checks the socket of a connection that was
    /// idle. If the server has closed it, it accepts no more requests.
    pub(in crate::upstream) async fn is_fit(&self) -> bool {
        let connection = &self.0.connection;
        if !self.is_reused() || !connection.is_alone() {
            return true;
        }
        let ended = match connection.stream.unread() {
            Unread::Nothing => connection.has_failed(),
            Unread::End => true,
            // The end may follow these bytes, whether or not the connection's task knows of them yet.
            Unread::Bytes if connection.stream.has_ended() => true,
            Unread::Bytes => {
                // They may say that the server leaves.
                yield_now().await;
                connection.has_failed() || connection.stream.has_ended()
            }
        };
        if ended {
            connection.retire();
        }
        !ended
    }

    /// The lane.
    pub(in crate::upstream) fn lane(&self) -> &Rc<UpstreamStream> {
        &self.0
    }
}

impl Deref for HeldStream {
    type Target = UpstreamStream;

    fn deref(&self) -> &UpstreamStream {
        &self.0
    }
}

impl Drop for HeldStream {
    fn drop(&mut self) {
        self.0.connection.leave(&self.0);
    }
}
