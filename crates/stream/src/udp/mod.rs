//! Datagrams: their clients, and the sessions that they belong to. nginx: `ngx_event_udp.c`.
//!
//! One task per socket receives client datagrams and queues each for its client's session, or
//! begins a new one. The queues and the number of sessions are bounded: excess datagrams are
//! dropped and counted, as a network may drop them anyway. Each session is a task of its own.

pub mod client;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use nowait_front::log::{Level, OsError};
use nowait_runtime::net::{Datagram, Packet};
use nowait_runtime::task::{Either, select};
use nowait_runtime::{now, spawn, worker, yield_now};
use nowait_sys::listen::ListenAddress;

use crate::phases;
use crate::session::{Arrival, Session, SessionTransport};
use crate::worker::Worker;
use client::{DatagramPeers, Inbox, UdpClient, UdpSocket};

/// After this many datagrams other tasks have their turn.
const TURN_DATAGRAMS: usize = 64;

/// The interval of log messages about missing room for sessions.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);

/// Receives from a socket until it is dropped.
pub struct DatagramReceiver(Rc<UdpSocket>);

impl Drop for DatagramReceiver {
    fn drop(&mut self) {
        self.0.stopped.set(true);
        let waker = self.0.stop.take();
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Begins receiving from a socket that the master has opened.
///
/// # Errors
/// The descriptor cannot be polled.
pub fn receive(
    worker: &Rc<Worker>,
    listen: &Arc<ListenAddress>,
    fd: OwnedFd,
) -> io::Result<DatagramReceiver> {
    let socket = Rc::new(UdpSocket {
        datagram: Rc::new(Datagram::from_fd(fd)?),
        listen: listen.clone(),
        sessions: RefCell::default(),
        stopped: Cell::new(false),
        stop: RefCell::default(),
        complained: Cell::new(None),
    });
    let (receiver, worker) = (socket.clone(), worker.clone());
    drop(spawn(async move { receiver.run(&worker).await }));
    Ok(DatagramReceiver(socket))
}

impl UdpSocket {
    async fn run(self: &Rc<Self>, worker: &Worker) {
        let mut turn = 0;
        loop {
            let received = select(self.datagram.recv_packet(), self.stopped()).await;
            match received {
                Either::Right(()) => return,
                Either::Left(Ok(packet)) => self.arrived(worker, packet),
                Either::Left(Err(error)) => {
                    let logs = &worker.current().logs;
                    logs.error(Level::Alert, format_args!("recvmsg() failed{}", OsError(&error)));
                }
            }
            turn += 1;
            if turn == TURN_DATAGRAMS {
                turn = 0;
                yield_now().await;
            }
        }
    }

    /// Resolves when no more is to be received.
    async fn stopped(&self) {
        poll_fn(|cx| {
            if self.stopped.get() {
                return Poll::Ready(());
            }
            *self.stop.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn arrived(self: &Rc<Self>, worker: &Worker, packet: Packet) {
        // A sender without an IP address can't be replied to.
        let Some(client) = packet.from else { return };
        let ends = DatagramPeers { client, local: packet.local };
        let known = self.sessions.borrow().get(&ends).cloned();
        if let Some(inbox) = known {
            if !inbox.push(packet.data) {
                worker.counts.dropped();
            }
            if inbox.is_complete() {
                self.detach(&ends, &inbox);
            }
            return;
        }
        let current = worker.current();
        if worker.counts.udp_active() >= current.connections_max as u64 {
            worker.counts.dropped();
            let quiet = |at: Instant| now().saturating_duration_since(at) < COMPLAINT_INTERVAL;
            if !self.complained.get().is_some_and(quiet) {
                self.complained.set(Some(now()));
                let max = current.connections_max;
                let text = format_args!("{max} worker_connections are not enough");
                current.logs.error(Level::Alert, text);
            }
            return;
        }
        let inbox = Rc::new(Inbox::default());
        let bytes = packet.data.len() as u64;
        inbox.push(packet.data);
        let local = self.listen.inet().map_or(client, |mut local| {
            local.set_ip(packet.local.unwrap_or(local.ip()));
            local
        });
        let client =
            UdpClient { socket: self.clone(), ends, inbox: inbox.clone(), local: local.into() };
        let arrival = Arrival {
            transport: SessionTransport::Udp(client),
            peer: ends.client.into(),
            listen: self.listen.clone(),
            counted: worker.counts.session(true),
        };
        let Some(session) = Session::new(current, arrival) else { return };
        session.count_received(bytes);
        // The remaining errors concern a single datagram only.
        let content = session.server().content.as_ref();
        inbox.taken_max.set(content.map_or(1, |content| content.datagrams_max()));
        if !inbox.is_complete() {
            self.sessions.borrow_mut().insert(ends, inbox);
        }
        drop(spawn(async move {
            match select(phases::serve(&session), worker::stopping()).await {
                Either::Left(()) => {}
                Either::Right(()) => {
                    session.log_bare(Level::Info, format_args!("disconnected on shutdown"));
                }
            }
        }));
    }
}
