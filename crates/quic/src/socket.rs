//! A socket of an endpoint: what sends through it, and what waits while the kernel has no room.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use nowait_runtime::net::{DatagramTrains, TrainSent};
use nowait_sys::listen::ListenAddress;
use nowait_sys::udp::SendTrain;
use quinn_proto::Transmit;

use crate::Counters;

/// Segments per send, and their bytes together, at most.
pub(crate) use nowait_sys::udp::{SEGMENTS_MAX, SEND_BYTES_MAX};

/// Attempts per turn to send what waits.
const TRIES_MAX: usize = 4;

/// A socket.
pub(crate) struct Socket {
    trains: DatagramTrains,
    /// `None`: a client's.
    pub(crate) listen: Option<Arc<ListenAddress>>,
    /// The connection of a client's socket: resets carry no ID of ours.
    pub(crate) only: Cell<Option<usize>>,
    /// New connections may begin here.
    pub(crate) accepting: Cell<bool>,
    /// The kernel splits trains.
    gso: Cell<bool>,
    /// The rest of a train for which there was no room: no more than this one waits, and nothing overtakes it.
    blocked: RefCell<Option<(Vec<u8>, SendTrain)>>,
    /// Datagrams sent that are not counted yet.
    sent: Cell<u64>,
    /// The task that receives.
    receiver: RefCell<Option<Waker>>,
}

impl Socket {
    pub(crate) fn new(trains: DatagramTrains, listen: Option<Arc<ListenAddress>>) -> Socket {
        let gso = trains.features().gso;
        Socket {
            trains,
            only: Cell::new(None),
            accepting: Cell::new(listen.is_some()),
            listen,
            gso: Cell::new(gso),
            blocked: RefCell::default(),
            sent: Cell::new(0),
            receiver: RefCell::default(),
        }
    }

    pub(crate) fn trains(&self) -> &DatagramTrains {
        &self.trains
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.trains.local_addr()
    }

    pub(crate) fn dont_fragment(&self) -> bool {
        self.trains.features().dont_fragment
    }

    /// Datagrams of this size that one send takes.
    pub(crate) fn datagrams_max(&self, bytes: u16) -> usize {
        match self.gso.get() {
            true => (SEND_BYTES_MAX / usize::from(bytes).max(1)).clamp(1, SEGMENTS_MAX),
            false => 1,
        }
    }

    /// Whether nothing can be sent for now.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.borrow().is_some()
    }

    /// Sends what the library has written. Without room, it waits, and nothing else may be sent until
    /// [`poll_unblocked`](Self::poll_unblocked) is ready.
    pub(crate) fn send(&self, data: &[u8], transmit: &Transmit, counters: &Counters) {
        let segment = transmit.segment_size.and_then(|size| u16::try_from(size).ok());
        let train = SendTrain {
            to: transmit.destination,
            local: transmit.src_ip,
            ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
            segment,
        };
        let data = &data[..transmit.size.min(data.len())];
        let datagrams = segment.map_or(1, |segment| data.len().div_ceil(usize::from(segment)));
        self.sent.set(self.sent.get() + datagrams as u64);
        if self.is_blocked() {
            // Stateless answers only: connections ask before.
            Counters::add(&counters.send_queue_full, 1);
            return;
        }
        match self.trains.send(data, 0, train) {
            TrainSent::All => {}
            TrainSent::Refused => self.refuse_gso(counters),
            TrainSent::Blocked(at) => {
                *self.blocked.borrow_mut() = Some((data[at..].to_vec(), train))
            }
        }
    }

    fn refuse_gso(&self, counters: &Counters) {
        if self.gso.replace(false) {
            Counters::add(&counters.gso_refused, 1);
        }
    }

    /// Sends what waits. Ready when nothing does.
    pub(crate) fn poll_unblocked(&self, counters: &Counters, cx: &mut Context<'_>) -> Poll<()> {
        let mut blocked = self.blocked.borrow_mut();
        for _ in 0..TRIES_MAX {
            let Some((data, train)) = &mut *blocked else { return Poll::Ready(()) };
            match self.trains.send(data, 0, *train) {
                TrainSent::All => *blocked = None,
                TrainSent::Refused => {
                    *blocked = None;
                    self.refuse_gso(counters);
                }
                TrainSent::Blocked(at) => {
                    data.drain(..at);
                    if self.trains.poll_writable(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
        if blocked.is_none() {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Counts what was sent: once per turn, because the counter is shared by all workers.
    pub(crate) fn count_sent(&self, counters: &Counters) {
        match self.sent.take() {
            0 => {}
            sent => Counters::add(&counters.datagrams_sent, sent),
        }
    }

    /// Remembers the task that receives: it ends with the socket.
    pub(crate) fn set_receiver(&self, cx: &Context<'_>) {
        self.receiver.replace(Some(cx.waker().clone()));
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(waker) = self.receiver.take() {
            waker.wake();
        }
    }
}
