//! Receiving: a task per socket, which takes batches of datagrams and sends them on their way.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::Poll;

use bytes::BytesMut;
use nowait_sys::udp::DatagramBatch;

use super::Endpoint;
use crate::Counters;
use crate::datagram::Datagram;
use crate::socket::Socket;

/// Batches that a socket's task receives before other tasks have their turn.
const BATCHES_MAX: usize = 4;

thread_local! {
    /// Memory for receiving, used by one task at a time.
    static BATCH: RefCell<Option<Box<DatagramBatch>>> = const { RefCell::new(None) };
}

/// Receives from a socket, until it is closed.
pub(super) async fn receive(endpoint: Weak<Endpoint>, socket: Weak<Socket>) {
    poll_fn(|cx| {
        let (Some(endpoint), Some(socket)) = (endpoint.upgrade(), socket.upgrade()) else {
            return Poll::Ready(());
        };
        socket.set_receiver(cx);
        let mut batch = BATCH.take().unwrap_or_default();
        let mut result = Poll::Pending;
        let mut waits = false;
        for _ in 0..BATCHES_MAX {
            match socket.trains().poll_receive(&mut batch, cx) {
                Poll::Ready(Ok(_)) => endpoint.take_batch(&batch, &socket),
                Poll::Ready(Err(_)) => {
                    // The descriptor is unusable: connections end by their timeouts.
                    result = Poll::Ready(());
                    break;
                }
                Poll::Pending => {
                    waits = true;
                    break;
                }
            }
        }
        BATCH.set(Some(batch));
        endpoint.absorb_received();
        if !waits && result.is_pending() {
            cx.waker().wake_by_ref();
        }
        result
    })
    .await;
}

impl Endpoint {
    fn take_batch(&self, batch: &DatagramBatch, socket: &Rc<Socket>) {
        let mut received = 0;
        for train in batch.trains() {
            let segment = train.segment.max(1);
            for datagram in train.data.chunks(segment) {
                received += 1;
                // Each has memory of its own: a few bytes that nobody reads must not hold a whole train.
                let data = BytesMut::from(datagram);
                let (from, local, ecn) = (train.from, train.local, train.ecn);
                self.route(Datagram { data, from, local, ecn }, Some(socket), 0);
            }
        }
        Counters::add(&self.counters().datagrams_received, received);
    }
}
