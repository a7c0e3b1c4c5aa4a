//! The epoll driver: edge-triggered, each socket registered at most once and only when it is first
//! waited for.
//!
//! Savings compared with a plain readiness loop: a connection that brings its request along and is
//! closed after the response is never registered; after a short read nothing is read again before
//! the next edge, so a keep-alive request costs one `recv`, one `send`, and a share of one
//! `epoll_wait`.
//!
//! Listeners are level-triggered, so that one accepted connection per event is enough and other
//! workers get theirs; shared ones are exclusive (one worker is woken per connection).

mod early;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};
use slab::Slab;

use super::accept_batch::AcceptBatch;
use super::calls::{accept, has_room, receive_large, retry, send_both, send_datagram, send_memory};
use super::options::DriverOptions;
use super::socket::{AfterSend, DatagramAddresses, Role, SocketKey, Wait};
use super::waiters::{Waiters, remember};
use crate::buf::{Chain, ReceivedBuf, RecvBuf};
use crate::net::Address;
use crate::receive_epoch;
use early::{Early, ReceiveAhead};

/// Maximum number of events taken from the kernel per turn, no matter what `epoll_events` says.
const EVENTS_MAX: usize = 65536;

/// Marks the inbox's eventfd among the events.
const INBOX: u64 = u64::MAX;

/// After this many consecutive new connections with nothing to receive yet, the next ones wait for
/// the event at once.
const MISSES_MAX: u8 = 2;

/// How often an immediate first receive is tried again after such a streak.
const TRY_EVERY: u8 = 16;

/// Whether new connections arrive with their request: true where they queue up, false where the
/// worker accepts them at once. Saves the receive that would fail, or the registration.
#[derive(Clone, Copy, Default)]
struct FirstReceives {
    misses: u8,
    waited: u8,
}

impl FirstReceives {
    fn is_worth_trying(&mut self) -> bool {
        if self.misses < MISSES_MAX {
            return true;
        }
        self.waited = (self.waited + 1) % TRY_EVERY;
        self.waited == 0
    }

    fn tried(&mut self, received: bool) {
        self.misses = if received { 0 } else { (self.misses + 1).min(MISSES_MAX) };
    }
}

/// One socket's state: its known readiness, and its waiters.
struct SocketSlot {
    /// Distinguishes events of an earlier socket in the same slot.
    generation: u32,
    /// The descriptor, which belongs to the socket's owner: see `early.rs`.
    fd: RawFd,
    role: Role,
    /// The interest registered with the kernel.
    interest: Interest,
    /// A read may succeed: assumed until a read comes up short.
    readable: bool,
    /// A write may succeed: assumed until one is refused.
    writable: bool,
    /// The peer has closed its side: reads continue to the end without another edge.
    peer_closed: bool,
    /// No receive or wait so far.
    fresh: bool,
    /// Whether the next receive may be made before its task runs.
    ahead: ReceiveAhead,
    read: Option<Waker>,
    waiters: Waiters,
}

// Part of the memory cost of an idle connection.
const _: () = assert!(size_of::<SocketSlot>() <= 40);

/// The registrations of a socket with the kernel, as bits.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Interest(u8);

impl Interest {
    const NOTHING: Interest = Interest(0);
    const INPUT: Interest = Interest(1);
    const OUTPUT: Interest = Interest(2);

    fn and(self, other: Interest) -> Interest {
        Interest(self.0 | other.0)
    }

    /// In the form of the kernel.
    fn flags(self, role: Role) -> EventFlags {
        let mut flags = match role {
            Role::Listener { shared: true } => EventFlags::EXCLUSIVE,
            Role::Listener { shared: false } => EventFlags::empty(),
            Role::Datagram => EventFlags::ET,
            Role::Stream | Role::Connecting | Role::Accepted => EventFlags::ET | EventFlags::RDHUP,
        };
        flags.set(EventFlags::IN, self.0 & Self::INPUT.0 != 0);
        flags.set(EventFlags::OUT, self.0 & Self::OUTPUT.0 != 0);
        flags
    }
}

/// The driver; one per worker.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    slots: Slab<SocketSlot>,
    next_generation: u32,
    multi_accept: bool,
    accepts: AcceptBatch,
    first_receives: FirstReceives,
    early: Early,
    events: Vec<Event>,
    /// Keeps the inbox's eventfd open for as long as it is watched.
    _event: Arc<OwnedFd>,
}

impl Epoll {
    pub(crate) fn new(options: DriverOptions, event: Arc<OwnedFd>) -> io::Result<Epoll> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let interest = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &event, EventData::new_u64(INBOX), interest)?;
        Ok(Epoll {
            epoll,
            slots: Slab::new(),
            next_generation: 0,
            multi_accept: options.multi_accept,
            accepts: AcceptBatch::new(),
            first_receives: FirstReceives::default(),
            early: Early::default(),
            events: Vec::with_capacity(options.events_max.clamp(1, EVENTS_MAX)),
            _event: event,
        })
    }

    pub(crate) fn turn(&mut self, max: Option<Duration>, woken: &mut Vec<Waker>) -> io::Result<()> {
        let timeout = max.map(|max| Timespec {
            tv_sec: max.as_secs() as i64,
            tv_nsec: i64::from(max.subsec_nanos()) as _,
        });
        self.events.clear();
        self.early.begin();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in self.events.drain(..) {
            let data = event.data.u64();
            let (index, generation) = (data as u32 as usize, (data >> 32) as u32);
            // The inbox's event only ends the wait. An unknown slot or generation belongs to a
            // socket closed earlier in this batch.
            let Some(slot) = self.slots.get_mut(index) else { continue };
            if data != INBOX && slot.generation == generation {
                slot.take_event(event.flags, woken);
                if slot.ahead == ReceiveAhead::Due {
                    self.early.add(SocketKey(index as u32));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn attach(&mut self, fd: BorrowedFd<'_>, role: Role) -> io::Result<SocketKey> {
        if !matches!(role, Role::Accepted | Role::Connecting) {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        self.next_generation = self.next_generation.wrapping_add(1) & (u32::MAX >> 1);
        let slot = SocketSlot {
            generation: self.next_generation,
            fd: fd.as_raw_fd(),
            role,
            interest: Interest::NOTHING,
            readable: !matches!(role, Role::Listener { .. } | Role::Connecting),
            writable: true,
            peer_closed: false,
            fresh: role == Role::Accepted,
            ahead: ReceiveAhead::No,
            read: None,
            waiters: Waiters::default(),
        };
        Ok(SocketKey(self.slots.insert(slot) as u32))
    }

    pub(crate) fn detach(&mut self, key: SocketKey, fd: OwnedFd, dropped: &mut Vec<Waker>) {
        let slot = self.remove(key, dropped);
        // A listener's description may be shared with other processes: closing our descriptor
        // would then not end its registration.
        if matches!(slot.role, Role::Listener { .. }) && slot.interest != Interest::NOTHING {
            let _ = epoll::delete(&self.epoll, &fd);
        }
    }

    fn remove(&mut self, key: SocketKey, dropped: &mut Vec<Waker>) -> SocketSlot {
        let mut slot = self.slots.remove(key.0 as usize);
        if slot.ahead == ReceiveAhead::Done {
            let _ = self.early.take(key);
        }
        let waiters = [slot.waiters.take_write(), slot.waiters.take_hangup()];
        dropped.extend(slot.read.take().into_iter().chain(waiters.into_iter().flatten()));
        slot
    }

    /// Stops watching a socket that continues in another worker. False: data was received for it, and it
    /// stays.
    pub(crate) fn unregister(&mut self, key: SocketKey, fd: BorrowedFd<'_>) -> io::Result<bool> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.ahead == ReceiveAhead::Done {
            return Ok(false);
        }
        // A woken task finds no data here any more.
        slot.ahead = ReceiveAhead::No;
        if slot.interest != Interest::NOTHING {
            slot.interest = Interest::NOTHING;
            epoll::delete(&self.epoll, fd)?;
        }
        Ok(true)
    }

    /// Removes the state of an unregistered socket.
    pub(crate) fn release(&mut self, key: SocketKey, dropped: &mut Vec<Waker>) {
        self.remove(key, dropped);
    }

    pub(crate) fn poll_recv(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<RecvBuf>> {
        let slot = &mut self.slots[key.0 as usize];
        if std::mem::replace(&mut slot.ahead, ReceiveAhead::No) == ReceiveAhead::Done {
            return Poll::Ready(Ok(self.early.take(key)?));
        }
        let fresh = std::mem::take(&mut slot.fresh);
        if fresh && !self.first_receives.is_worth_trying() {
            slot.readable = false;
        }
        if slot.readable {
            let received = slot.receive(fd);
            if fresh {
                self.first_receives.tried(received.is_ok());
            }
            match received {
                Ok(received) => {
                    self.early.receive(&mut self.slots);
                    return Poll::Ready(Ok(received));
                }
                Err(Errno::AGAIN) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        slot.ahead = ReceiveAhead::Waits;
        remember(&mut slot.read, cx);
        slot.waiters.trim();
        self.register(key, fd, Interest::INPUT)
    }

    pub(crate) fn poll_recv_large(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<ReceivedBuf>> {
        let slot = &mut self.slots[key.0 as usize];
        if std::mem::replace(&mut slot.ahead, ReceiveAhead::No) == ReceiveAhead::Done {
            return Poll::Ready(Ok(ReceivedBuf::Lent(self.early.take(key)?)));
        }
        if slot.readable {
            match receive_large(fd, max) {
                Ok((buf, full)) => {
                    // As for regular buffers.
                    slot.readable = full || buf.is_empty() || slot.peer_closed;
                    return Poll::Ready(Ok(buf));
                }
                Err(Errno::AGAIN) => slot.readable = false,
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        remember(&mut slot.read, cx);
        self.register(key, fd, Interest::INPUT)
    }

    pub(crate) fn poll_send(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        chain: &mut Chain,
        follows: AfterSend,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.writable {
            let mut flags = SendFlags::NOSIGNAL;
            flags.set(SendFlags::MORE, follows == AfterSend::AtOnce);
            match retry(|| send_memory(fd, chain, flags)) {
                Ok(sent) => {
                    chain.advance(sent as u64);
                    return Poll::Ready(Ok(sent));
                }
                Err(Errno::AGAIN) => slot.writable = false,
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        slot.waiters.remember_write(cx);
        self.register(key, fd, Interest::OUTPUT)
    }

    /// Whether a write may succeed.
    pub(crate) fn is_writable(&self, key: SocketKey) -> bool {
        self.slots[key.0 as usize].writable
    }

    pub(crate) fn try_send(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        pieces: [&[u8]; 2],
    ) -> io::Result<usize> {
        let slot = &mut self.slots[key.0 as usize];
        if !slot.writable {
            return Ok(0);
        }
        match retry(|| send_both(fd, pieces, SendFlags::NOSIGNAL)) {
            Err(Errno::AGAIN) => {
                slot.writable = false;
                Ok(0)
            }
            sent => Ok(sent?),
        }
    }

    /// Receives a datagram by `receive`, which returns EAGAIN when there is none.
    pub(crate) fn poll_datagram<T>(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
        receive: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Poll<io::Result<T>> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.readable {
            match receive(fd) {
                // There may be more datagrams.
                Ok(datagram) => {
                    receive_epoch::add();
                    return Poll::Ready(Ok(datagram));
                }
                Err(Errno::AGAIN) => slot.readable = false,
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        remember(&mut slot.read, cx);
        slot.waiters.trim();
        self.register(key, fd, Interest::INPUT)
    }

    pub(crate) fn poll_send_to(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        data: &[u8],
        ends: DatagramAddresses,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.writable {
            match send_datagram(fd, data, ends) {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(Errno::AGAIN) => slot.writable = false,
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        slot.waiters.remember_write(cx);
        self.register(key, fd, Interest::OUTPUT)
    }

    /// Resolves when datagrams can be sent again; the last attempt found no room.
    pub(crate) fn poll_datagram_writable(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let slot = &mut self.slots[key.0 as usize];
        match has_room(fd) {
            Ok(()) => return Poll::Ready(Ok(())),
            Err(Errno::AGAIN) => slot.writable = false,
            Err(error) => return Poll::Ready(Err(error.into())),
        }
        slot.waiters.remember_write(cx);
        self.register(key, fd, Interest::OUTPUT)
    }

    pub(crate) fn poll_accept(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(OwnedFd, Option<Address>)>> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.readable {
            if self.accepts.is_over() {
                self.accepts.begin();
            }
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match accept(fd, flags) {
                Ok(accepted) => {
                    // Level-triggered: the next turn reports what is still queued.
                    slot.readable = self.accepts.taken() || self.multi_accept;
                    return Poll::Ready(Ok(accepted));
                }
                Err(Errno::AGAIN) => {
                    slot.readable = false;
                    self.accepts.found_none();
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        remember(&mut slot.read, cx);
        self.register(key, fd, Interest::INPUT)
    }

    pub(crate) fn pause_accept(&mut self, key: SocketKey, fd: BorrowedFd<'_>) {
        let slot = &mut self.slots[key.0 as usize];
        if slot.interest != Interest::NOTHING {
            // Fails only if it was not registered.
            let _ = epoll::delete(&self.epoll, fd);
            slot.interest = Interest::NOTHING;
        }
        slot.readable = false;
    }

    pub(crate) fn poll_hangup(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let slot = &mut self.slots[key.0 as usize];
        if slot.peer_closed {
            return Poll::Ready(Ok(()));
        }
        slot.waiters.remember_hangup(cx);
        self.register(key, fd, Interest::INPUT)
    }

    pub(crate) fn reads_directly(&self, key: SocketKey) -> bool {
        self.slots[key.0 as usize].ahead == ReceiveAhead::No
    }

    /// `armed` is the caller's memory between polls, false at first.
    pub(crate) fn poll_readable(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
        armed: &mut bool,
    ) -> Poll<io::Result<()>> {
        let slot = &mut self.slots[key.0 as usize];
        debug_assert_ne!(
            slot.ahead,
            ReceiveAhead::Done,
            "a direct read would pass over what was received"
        );
        if !*armed {
            *armed = true;
            slot.readable = false;
        }
        if slot.readable {
            return Poll::Ready(Ok(()));
        }
        remember(&mut slot.read, cx);
        self.register(key, fd, Interest::INPUT)
    }

    /// `armed` is the caller's memory between polls, false at first.
    pub(crate) fn poll_writable(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        cx: &mut Context<'_>,
        armed: &mut bool,
    ) -> Poll<io::Result<()>> {
        let slot = &mut self.slots[key.0 as usize];
        if !*armed {
            *armed = true;
            slot.writable = false;
        }
        if slot.writable {
            return Poll::Ready(Ok(()));
        }
        slot.waiters.remember_write(cx);
        // A connecting socket will also receive: one registration for both.
        let wanted = match slot.role {
            Role::Connecting => Interest::INPUT.and(Interest::OUTPUT),
            _ => Interest::OUTPUT,
        };
        self.register(key, fd, wanted)
    }

    /// Adds to the socket's registered interest. Registering reports the current state.
    fn register<T>(
        &mut self,
        key: SocketKey,
        fd: BorrowedFd<'_>,
        wanted: Interest,
    ) -> Poll<io::Result<T>> {
        let slot = &mut self.slots[key.0 as usize];
        let interest = slot.interest.and(wanted);
        if slot.interest == interest {
            return Poll::Pending;
        }
        let data = EventData::new_u64(u64::from(key.0) | u64::from(slot.generation) << 32);
        let flags = interest.flags(slot.role);
        let registered = match slot.interest {
            Interest::NOTHING => epoll::add(&self.epoll, fd, data, flags),
            _ => epoll::modify(&self.epoll, fd, data, flags),
        };
        if let Err(error) = registered {
            return Poll::Ready(Err(error.into()));
        }
        slot.interest = interest;
        Poll::Pending
    }

    pub(crate) fn forget(&mut self, key: SocketKey, wait: Wait) -> Option<Waker> {
        let slot = self.slots.get_mut(key.0 as usize)?;
        match wait {
            Wait::Read => {
                // Received data waits for the next future.
                if slot.ahead != ReceiveAhead::Done {
                    slot.ahead = ReceiveAhead::No;
                }
                slot.read.take()
            }
            Wait::Write => slot.waiters.take_write(),
            Wait::Hangup => slot.waiters.take_hangup(),
        }
    }
}

impl SocketSlot {
    fn take_event(&mut self, flags: EventFlags, woken: &mut Vec<Waker>) {
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        if broken || flags.contains(EventFlags::RDHUP) {
            self.peer_closed = true;
            woken.extend(self.waiters.take_hangup());
        }
        if broken || flags.intersects(EventFlags::IN | EventFlags::RDHUP) {
            self.readable = true;
            let reader = self.read.take();
            if self.ahead == ReceiveAhead::Waits && reader.is_some() {
                self.ahead = ReceiveAhead::Due;
            }
            woken.extend(reader);
        }
        if broken || flags.contains(EventFlags::OUT) {
            self.writable = true;
            woken.extend(self.waiters.take_write());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_receives_are_tried_where_they_succeed() {
        let tries = |first: &mut FirstReceives, success: bool| {
            let mut tries = 0;
            for _ in 0..160 {
                if first.is_worth_trying() {
                    tries += 1;
                    first.tried(success);
                }
            }
            tries
        };
        let mut first = FirstReceives::default();
        assert_eq!(tries(&mut first, true), 160);
        assert!(tries(&mut first, false) <= 12);
        assert!(tries(&mut first, true) >= 140);
    }
}
