//! A client that sends datagrams: its queue, and the socket through which it is reached.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use nowait_runtime::net::{Address, Datagram};
use nowait_sys::listen::ListenAddress;
use rustc_hash::FxHashMap;

/// Maximum number of a client's datagrams queued for its session.
const QUEUE_DATAGRAMS_MAX: usize = 64;

/// Maximum total size of these, in bytes.
const QUEUE_BYTES_MAX: usize = 256 * 1024;

/// The sender and the destination of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DatagramPeers {
    pub(super) client: SocketAddr,
    /// The local address, if the socket has several.
    pub(super) local: Option<IpAddr>,
}

/// A socket of a listening address, and its sessions.
pub(super) struct UdpSocket {
    pub(super) datagram: Rc<Datagram>,
    pub(super) listen: Arc<ListenAddress>,
    pub(super) sessions: RefCell<FxHashMap<DatagramPeers, Rc<Inbox>>>,
    pub(super) stopped: Cell<bool>,
    pub(super) stop: RefCell<Option<Waker>>,
    pub(super) complained: Cell<Option<Instant>>,
}

impl UdpSocket {
    /// Makes the client's further datagrams begin another session.
    pub(super) fn detach(&self, ends: &DatagramPeers, inbox: &Rc<Inbox>) {
        let mut sessions = self.sessions.borrow_mut();
        if sessions.get(ends).is_some_and(|known| Rc::ptr_eq(known, inbox)) {
            sessions.remove(ends);
        }
    }
}

/// Datagrams queued for their session.
#[derive(Default)]
pub(super) struct Inbox {
    queue: RefCell<VecDeque<Bytes>>,
    bytes: Cell<usize>,
    /// Number of datagrams received so far.
    taken: Cell<u32>,
    /// After this many, the client's next datagram begins another session; zero: never.
    pub(super) taken_max: Cell<u32>,
    waker: RefCell<Option<Waker>>,
}

impl Inbox {
    /// False: there is no room.
    pub(super) fn push(&self, data: Bytes) -> bool {
        let mut queue = self.queue.borrow_mut();
        let bytes = self.bytes.get() + data.len();
        if queue.len() >= QUEUE_DATAGRAMS_MAX || bytes > QUEUE_BYTES_MAX {
            return false;
        }
        queue.push_back(data);
        self.bytes.set(bytes);
        self.taken.set(self.taken.get().saturating_add(1));
        drop(queue);
        let waker = self.waker.take();
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Whether it receives no more datagrams.
    pub(super) fn is_complete(&self) -> bool {
        let max = self.taken_max.get();
        max > 0 && self.taken.get() >= max
    }

    fn pop(&self) -> Option<Bytes> {
        let data = self.queue.borrow_mut().pop_front()?;
        self.bytes.set(self.bytes.get() - data.len());
        Some(data)
    }
}

/// A session's client that sends datagrams.
pub struct UdpClient {
    pub(super) socket: Rc<UdpSocket>,
    pub(super) ends: DatagramPeers,
    pub(super) inbox: Rc<Inbox>,
    pub(super) local: Address,
}

impl UdpClient {
    /// The local address that the client sends to.
    pub fn local(&self) -> &Address {
        &self.local
    }

    /// The next datagram of the client.
    pub async fn receive(&self) -> Bytes {
        poll_fn(|cx| match self.inbox.pop() {
            Some(data) => Poll::Ready(data),
            None => {
                *self.inbox.waker.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    /// Sends a datagram to the client. If the socket's buffer is full it is lost, as datagrams may
    /// be.
    ///
    /// # Errors
    /// The network's error: too long, no route.
    pub fn send(&self, data: &[u8]) -> io::Result<()> {
        let DatagramPeers { client, local } = self.ends;
        self.socket.datagram.try_send_from(data, client, local).map(drop)
    }
}

impl Drop for UdpClient {
    fn drop(&mut self) {
        self.socket.detach(&self.ends, &self.inbox);
    }
}
