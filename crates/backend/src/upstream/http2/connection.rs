//! A shared connection: the protocol's state, its streams, and its pending output. The lanes and the
//! connection's [`task`](super::task) call it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use nowait_h2::frame::FRAME_SIZE_DEFAULT;
use nowait_h2::{ErrorCode, Limits, StreamId, client};
use nowait_message::response::INTERIM_MAX;
use nowait_runtime::buf::ReceivedBuf;
use nowait_runtime::net::Stream;
use nowait_runtime::now;
use nowait_upstream::{IdleConnection, Keepalive};

use super::heads::Heads;
use super::peers::{self, Key};
use super::stream::{StreamFault, UpstreamStream};
use crate::upstream::Fault;
use nowait_front::frames::PendingFrames;

/// Maximum number of streams, even if the server allows more.
pub(super) const STREAMS_MAX: usize = 128;

/// The receive window of a stream.
pub(super) const WINDOW_BYTES: u32 = 64 * 1024;

/// The window of a stream whose content is consumed as fast as it arrives.
pub(super) const WINDOW_BYTES_MAX: u32 = 256 * 1024;

/// Frames with content are made until so much waits for the socket, in bytes.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Receiving stops while more than this waits for the socket, in bytes.
const RECEIVE_BYTES_MAX: usize = 256 * 1024;

/// A name or a value of a head.
const STRING_BYTES_MAX: u32 = 64 * 1024 - 1;

/// All of a head.
const HEAD_BYTES_MAX: u32 = 128 * 1024;

/// Fields of a head.
const FIELDS_MAX: u16 = 1000;

/// The usage limits of a connection.
#[derive(Debug, Clone, Copy)]
pub(in crate::upstream) struct Usage {
    /// The limits of idle time, age and number of requests.
    pub(in crate::upstream) keepalive: Keepalive,
    /// Longest pause between two writes.
    pub(in crate::upstream) send_timeout: Duration,
    /// Its owner keeps it while it is idle.
    pub(in crate::upstream) is_owned: bool,
}

/// A connection.
pub(super) struct Connection {
    pub(super) stream: Rc<Stream>,
    pub(super) h2: RefCell<client::ClientConnection>,
    pub(super) heads: RefCell<Heads>,
    /// Streams that were opened, in the order of their numbers.
    lanes: RefCell<Vec<Rc<UpstreamStream>>>,
    /// Lanes without a stream yet.
    reserved: Cell<usize>,
    pub(super) input: RefCell<ReceivedBuf>,
    pub(super) output: RefCell<PendingFrames>,
    task: RefCell<Waker>,
    /// `None` for one outside of the worker's connections.
    pub(super) key: Option<Key>,
    pub(super) usage: Usage,
    opened: Instant,
    requests: Cell<u64>,
    /// The server's settings have arrived: before, it might refuse more than one stream.
    settled: Cell<bool>,
    /// The requests that wait for them.
    settling: RefCell<Vec<Waker>>,
    /// Accepts no more requests, and closes after the last one.
    leaving: Cell<bool>,
    /// Ended.
    failed: Cell<bool>,
    /// Since when it has no streams.
    idle: Cell<Option<Instant>>,
    /// The code of the server's GOAWAY.
    pub(super) goaway: Cell<ErrorCode>,
}

impl Connection {
    pub(super) fn new(connection: &IdleConnection, key: Option<Key>, usage: Usage) -> Rc<Self> {
        let limits = Limits {
            stream_window: WINDOW_BYTES,
            string_bytes_max: STRING_BYTES_MAX,
            list_bytes_max: HEAD_BYTES_MAX,
            block_bytes_max: HEAD_BYTES_MAX,
            fields_max: FIELDS_MAX,
            interim_max: INTERIM_MAX,
            long_padding: true,
            ..Limits::default()
        };
        Rc::new(Self {
            stream: connection.stream.clone(),
            h2: RefCell::new(client::ClientConnection::new(limits)),
            heads: RefCell::default(),
            lanes: RefCell::default(),
            reserved: Cell::new(0),
            input: RefCell::new(ReceivedBuf::empty()),
            output: RefCell::default(),
            task: RefCell::new(Waker::noop().clone()),
            key,
            usage,
            opened: connection.opened,
            requests: Cell::new(0),
            settled: Cell::new(false),
            settling: RefCell::default(),
            leaving: Cell::new(false),
            failed: Cell::new(false),
            idle: Cell::new(None),
            goaway: Cell::new(ErrorCode::NO_ERROR),
        })
    }

    /// Requests so far, with reserved ones.
    pub(super) fn requests(&self) -> u64 {
        self.requests.get()
    }

    /// Whether one more request fits.
    pub(super) fn has_room(&self) -> bool {
        let most = if self.settled.get() { STREAMS_MAX } else { 1 };
        !self.leaving.get()
            && self.lanes.borrow().len() + self.reserved.get() < most
            && self.h2.borrow().can_open() > self.reserved.get()
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled.get()
    }

    /// Reserves a stream.
    pub(super) fn reserve(self: &Rc<Self>) -> Rc<UpstreamStream> {
        self.requests.set(self.requests.get() + 1);
        self.reserved.set(self.reserved.get() + 1);
        self.idle.set(None);
        let keepalive = &self.usage.keepalive;
        let age = now().saturating_duration_since(self.opened);
        if self.requests.get() >= keepalive.requests || age > keepalive.time {
            self.retire();
        }
        UpstreamStream::new(self.clone())
    }

    /// Opens a reserved stream with a head.
    pub(super) fn open(
        &self,
        lane: &Rc<UpstreamStream>,
        write: impl FnOnce(&mut client::ClientConnection, &mut Vec<u8>) -> Option<StreamId>,
    ) -> Option<StreamId> {
        let mut h2 = self.h2.borrow_mut();
        let id = write(&mut h2, self.output.borrow_mut().tail())?;
        self.reserved.set(self.reserved.get() - 1);
        self.lanes.borrow_mut().push(lane.clone());
        self.wake();
        Some(id)
    }

    /// A lane is left by its try.
    pub(super) fn leave(&self, lane: &Rc<UpstreamStream>) {
        match lane.id() {
            None => self.reserved.set(self.reserved.get() - 1),
            Some(id) => {
                // Complete streams are gone already.
                self.h2.borrow_mut().reset(id, ErrorCode::CANCEL);
                let mut lanes = self.lanes.borrow_mut();
                if let Ok(at) = lanes.binary_search_by_key(&Some(id), |lane| lane.id()) {
                    lanes.remove(at);
                }
            }
        }
        if self.is_idle() {
            self.idle.set(Some(now()));
            peers::idle(self);
        }
        self.wake();
        peers::notify(self);
    }

    /// Whether it has no streams.
    pub(super) fn is_idle(&self) -> bool {
        self.reserved.get() == 0 && self.lanes.borrow().is_empty()
    }

    /// Whether the just reserved stream is the only one.
    pub(super) fn is_alone(&self) -> bool {
        self.reserved.get() == 1 && self.lanes.borrow().is_empty()
    }

    /// Whether it has ended.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Since when it has none.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.idle.get()
    }

    /// Accepts no more requests; closes after the last one.
    pub(super) fn retire(&self) {
        if !self.leaving.replace(true) {
            peers::remove(self);
            self.wake();
        }
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.get()
    }

    /// The server's settings have arrived.
    pub(super) fn settle(&self) {
        if !self.settled.replace(true) {
            self.settling.take().into_iter().for_each(Waker::wake);
            peers::notify(self);
        }
    }

    /// Ready when the server's settings have arrived, or never will.
    pub(super) fn poll_settled(&self, cx: &Context<'_>) -> Poll<()> {
        if self.settled.get() || self.failed.get() {
            return Poll::Ready(());
        }
        self.settling.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    }

    /// Whether the server takes extended CONNECT.
    pub(super) fn takes_tunnels(&self) -> bool {
        self.h2.borrow().peer().enable_connect_protocol
    }

    /// The lane of a stream.
    pub(super) fn lane(&self, id: StreamId) -> Option<Rc<UpstreamStream>> {
        let lanes = self.lanes.borrow();
        let at = lanes.binary_search_by_key(&Some(id), |lane| lane.id()).ok()?;
        Some(lanes[at].clone())
    }

    /// Ends the connection: so do its streams.
    pub(super) fn fail(&self, broken: &StreamFault) {
        self.retire();
        self.failed.set(true);
        self.settling.take().into_iter().for_each(Waker::wake);
        for lane in self.lanes.borrow().iter() {
            lane.fail(broken.clone());
        }
    }

    /// The same for the violation of the protocol, or the end of the connection.
    pub(super) fn fault(&self, fault: Fault) {
        self.fail(&StreamFault::Fault(fault));
    }

    pub(super) fn register(&self, waker: &Waker) {
        let mut task = self.task.borrow_mut();
        if !task.will_wake(waker) {
            task.clone_from(waker);
        }
    }

    pub(super) fn wake(&self) {
        self.task.borrow().wake_by_ref();
    }

    /// Whether receiving stops because too much waits for the socket.
    pub(super) fn is_full(&self) -> bool {
        self.output.borrow().len() > RECEIVE_BYTES_MAX
    }

    /// Moves control frames to the output.
    pub(super) fn collect(&self) {
        self.h2.borrow_mut().poll_output(self.output.borrow_mut().tail());
    }

    /// Content was taken by a reader that deserves this window.
    pub(super) fn taken(&self, id: StreamId, bytes: usize, window: u32) {
        let mut h2 = self.h2.borrow_mut();
        h2.grow_window(id, window);
        h2.taken(id, bytes);
        if h2.has_output() {
            self.wake();
        }
    }

    /// A lane has content to be sent.
    pub(super) fn offer(&self, lane: &UpstreamStream) {
        if let Some(id) = lane.id() {
            self.h2.borrow_mut().set_ready(id, true);
            self.wake();
        }
    }

    /// A lane's content ends, behind what is queued.
    pub(super) fn end(&self, lane: &UpstreamStream, queued: usize) {
        let Some(id) = lane.id() else { return };
        if queued == 0 {
            // A closed stream has already ended.
            let mut output = self.output.borrow_mut();
            let _ = self.h2.borrow_mut().data_header(id, 0, true, output.tail());
        }
        self.wake();
    }

    /// Makes frames with content, as windows allow, of all streams in turn.
    pub(super) fn fill(&self) {
        while self.output.borrow().len() < OUTPUT_BYTES_MAX {
            let Some(id) = self.h2.borrow_mut().next_ready() else { return };
            match self.lane(id) {
                Some(lane) => self.frame(&lane, id),
                None => self.h2.borrow_mut().set_ready(id, false),
            }
        }
    }

    /// Makes a frame of a stream that has content and a window.
    fn frame(&self, lane: &UpstreamStream, id: StreamId) {
        let mut outgoing = lane.outgoing.borrow_mut();
        let mut h2 = self.h2.borrow_mut();
        let bytes = h2.reserve(id, outgoing.bytes.min(FRAME_SIZE_DEFAULT as usize));
        if bytes > 0 {
            let mut output = self.output.borrow_mut();
            let ends = outgoing.ends && outgoing.bytes == bytes;
            let header = h2.data_header(id, bytes, ends, output.tail());
            debug_assert!(header.is_ok(), "the window was reserved");
            lane.count_sent(bytes);
            outgoing.take(bytes, |piece| output.content(&piece));
        }
        if bytes == 0 || outgoing.bytes == 0 {
            h2.set_ready(id, false);
        }
    }

    /// Gives memory back while the connection is idle.
    pub(super) fn shrink(&self) {
        self.h2.borrow_mut().shrink();
        *self.heads.borrow_mut() = Heads::default();
        self.lanes.borrow_mut().shrink_to_fit();
    }
}
