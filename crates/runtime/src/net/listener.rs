//! Listening sockets: accepting within the worker's limits, and sharing the load between workers.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rustix::io::Errno;

use super::{Address, Stream};
use crate::driver::{Role, SocketKey};
use crate::local::{self, Local};
use crate::time::{Sleep, sleep};

/// Maximum number of connections taken by a stopped listener: under a flood there would be no end.
const SWEPT_MAX: u32 = 4096;

/// Options of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerOptions {
    /// Identity of the listen address, the same in all workers that serve it; connections are
    /// handed over under it.
    pub id: u64,
    /// The socket is shared with other workers (no `reuseport`): only one of them is woken per
    /// connection.
    pub shared: bool,
}

/// A connection just accepted.
#[derive(Debug)]
pub struct Accepted {
    /// The connection.
    pub stream: Stream,
    /// The peer's address.
    pub peer: Address,
}

/// A listening socket of this worker.
pub struct Listener {
    local: Rc<Local>,
    key: SocketKey,
    /// `None` only while it is dropped.
    fd: Option<OwnedFd>,
    id: u64,
    /// [`Listener::stop`] was called.
    stopped: Cell<bool>,
    /// Number of attempts to take a connection since the stop.
    swept: Cell<u32>,
    /// The task waiting in `accept`.
    waker: RefCell<Option<Waker>>,
}

impl Listener {
    /// Takes over a socket that already listens. Connections inherit its options (`TCP_NODELAY` and
    /// the like); it is set non-blocking as the driver needs it.
    ///
    /// # Errors
    /// When the descriptor cannot be watched.
    ///
    /// # Panics
    /// Outside of a worker.
    pub fn from_fd(fd: OwnedFd, options: ListenerOptions) -> io::Result<Listener> {
        let local = local::current();
        let role = Role::Listener { shared: options.shared };
        let key = local.driver.borrow_mut().attach(fd.as_fd(), role)?;
        local.handovers.borrow_mut().add(options.id);
        local.inbox.add_listener(options.id);
        Ok(Listener {
            local,
            key,
            fd: Some(fd),
            id: options.id,
            stopped: Cell::new(false),
            swept: Cell::new(0),
            waker: RefCell::new(None),
        })
    }

    /// The next connection: from the socket, or handed over by another worker. Waits while the
    /// worker has its maximum number of connections.
    ///
    /// # Errors
    /// `NotConnected` after [`stop`](Listener::stop), once all accepted connections have been
    /// returned. Otherwise only errors that make the listener unusable. Errors of a single
    /// connection (ECONNABORTED) are skipped; accepting pauses when descriptors run out; both are
    /// reported to the hooks. A connection that its client has meanwhile reset may be skipped
    /// without a report.
    pub async fn accept(&self) -> io::Result<Accepted> {
        loop {
            let error = match poll_fn(|cx| self.poll_accept(cx)).await {
                Ok(accepted) => return Ok(accepted),
                Err(error) => error,
            };
            match Errno::from_io_error(&error) {
                // Reset while it was queued or handed over: not worth a report.
                Some(Errno::NOTCONN) => {}
                // The connection was closed before it was accepted, or its network is down.
                Some(
                    Errno::CONNABORTED
                    | Errno::PROTO
                    | Errno::PERM
                    | Errno::NETDOWN
                    | Errno::HOSTDOWN
                    | Errno::HOSTUNREACH
                    | Errno::NETUNREACH
                    | Errno::NOPROTOOPT
                    | Errno::OPNOTSUPP
                    | Errno::NONET,
                ) => self.local.hooks.accept_failed(&error),
                Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    self.local.hooks.accept_failed(&error);
                    self.local.driver.borrow_mut().pause_accept(self.key, self.fd());
                    let pause: Sleep = sleep(self.local.accept_delay);
                    pause.await;
                }
                _ => return Err(error),
            }
        }
    }

    /// Stops taking new connections from the socket, which are left to others. Keep calling
    /// [`accept`](Listener::accept) until it returns `NotConnected`: until then it returns queued
    /// connections and those handed over by other workers. A listener that is merely dropped passes
    /// these on to other workers, or closes them if there are none.
    pub fn stop(&self) {
        if !self.stopped.replace(true) {
            self.local.driver.borrow_mut().pause_accept(self.key, self.fd());
            for fd in self.local.inbox.remove_listener(self.id) {
                self.local.deliver(self.id, fd);
            }
            let waker = self.waker.take();
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// The descriptor, for `getsockname` and options.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("present until drop").as_fd()
    }

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        let local = &self.local;
        loop {
            let delivered = local.handovers.borrow_mut().take(self.id, cx.waker());
            if let Some(fd) = delivered {
                return Poll::Ready(self.accepted(fd, None, true));
            }
            if self.stopped.get() {
                if self.swept.get() >= SWEPT_MAX {
                    return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
                }
                let queued = local.driver.borrow_mut().poll_queued(self.key, self.fd(), cx);
                self.swept.set(self.swept.get() + 1);
                return queued.map(|queued| match queued {
                    Some((fd, peer)) => self.accepted(fd, peer, false),
                    None => Err(io::ErrorKind::NotConnected.into()),
                });
            }
            {
                let mut waker = self.waker.borrow_mut();
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    *waker = Some(cx.waker().clone());
                }
            }
            let max = local.connections_max.get();
            if local.connections.get() >= max {
                local.driver.borrow_mut().pause_accept(self.key, self.fd());
                let mut waiters = local.room_waiters.borrow_mut();
                let first = waiters.is_empty();
                waiters.push(cx.waker().clone());
                drop(waiters);
                if first {
                    local.hooks.connections_exhausted(max);
                }
                return Poll::Pending;
            }
            let polled = local.driver.borrow_mut().poll_accept(self.key, self.fd(), cx);
            let (fd, peer) = std::task::ready!(polled)?;
            let Some(relief) = local.workers.relief(local.index, local.connections.get()) else {
                return Poll::Ready(self.accepted(fd, peer, false));
            };
            if let Err(fd) = local.workers.hand_over(relief, self.id, fd) {
                return Poll::Ready(self.accepted(fd, peer, false));
            }
        }
    }

    fn accepted(
        &self,
        fd: OwnedFd,
        peer: Option<Address>,
        handed_over: bool,
    ) -> io::Result<Accepted> {
        let stream = Stream::attach(&self.local, fd, Role::Accepted, handed_over)?;
        let peer = match peer {
            Some(peer) => peer,
            None => match rustix::net::getpeername(stream.fd())? {
                Some(any) => Address::from_any(any),
                None => Address::Unix(Box::default()),
            },
        };
        Ok(Accepted { stream, peer })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let fd = self.fd.take().expect("present until drop");
        let mut dropped = Vec::new();
        self.local.driver.borrow_mut().detach(self.key, fd, &mut dropped);
        let undelivered = match self.stopped.get() {
            true => Vec::new(),
            false => self.local.inbox.remove_listener(self.id),
        };
        let waiting = self.local.handovers.borrow_mut().remove(self.id);
        for fd in undelivered.into_iter().chain(waiting) {
            self.local.workers.unload(self.local.index);
            self.hand_back(fd);
        }
    }
}

impl Listener {
    /// Forwards a connection that arrived after this listener stopped to any worker that still listens.
    fn hand_back(&self, fd: OwnedFd) {
        let workers = &self.local.workers;
        let mut fd = Some(fd);
        for index in 0..workers.count() {
            if let Some(given) = fd.take() {
                fd = workers.hand_over(index, self.id, given).err();
            }
        }
    }
}
