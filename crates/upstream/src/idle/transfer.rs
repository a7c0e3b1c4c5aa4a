//! Moving an idle connection from one worker to another: its worker takes it out of its driver and
//! sends the descriptor.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use nowait_runtime::Remote;
use nowait_runtime::net::{DetachedLayer, Stream};
use nowait_runtime::time::timeout;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::connection::{IdleConnection, Tag};
use super::pools::POOLS;

/// Maximum time for another worker to hand a connection over. It takes some tens of microseconds if
/// its loop is not busy; a new connection is better than waiting for a busy one.
const HANDOVER_MAX: Duration = Duration::from_millis(5);

/// A connection in transit.
struct MovedConnection {
    fd: OwnedFd,
    layer: Option<DetachedLayer>,
    opened: Instant,
    requests: u64,
}

/// Requests an idle connection from another worker.
pub(super) async fn ask(
    from: &Remote,
    peer: u64,
    tag: Tag,
    local: bool,
) -> Option<Box<IdleConnection>> {
    let slot = Arc::<TransferSlot>::default();
    let sender = Sender(slot.clone());
    let give = Box::new(move || -> nowait_runtime::worker::LocalFuture {
        Box::pin(give(peer, tag, local, sender))
    });
    from.spawn(give).ok()?;
    let MovedConnection { fd, layer, opened, requests } =
        timeout(HANDOVER_MAX, Receiver(slot)).await.ok()??;
    if layer.is_none() && !is_open(&fd) {
        return None;
    }
    let stream = Rc::new(Stream::from_fd(fd).ok()?);
    if let Some(layer) = layer {
        stream.attach_layer(layer);
        // The received data may be for the layer only.
        let noise = stream.poll_quiet(&mut Context::from_waker(Waker::noop())).is_ready();
        stream.unwatch();
        if noise {
            return None;
        }
    }
    Some(Box::new(IdleConnection { stream, opened, requests, watched: None }))
}

/// Hands over a connection of this worker, or reports that there is none.
async fn give(peer: u64, tag: Tag, local: bool, sender: Sender) {
    let entry = POOLS.with_borrow_mut(|pools| pools.take(peer, tag, local));
    let Some(entry) = entry else { return };
    let IdleConnection { stream, opened, requests, .. } = *entry.connection;
    stream.unwatch();
    let Some(stream) = Rc::into_inner(stream) else { return };
    if let Ok((fd, layer)) = stream.into_parts().await {
        sender.send(MovedConnection { fd, layer, opened, requests });
    }
}

/// Whether neither data nor the end was received on a connection.
fn is_open(fd: &OwnedFd) -> bool {
    let mut byte = [0u8; 1];
    let seen = rustix::net::recv(fd, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
    matches!(seen, Err(Errno::AGAIN))
}

/// The slot in which one worker leaves a connection for another.
#[derive(Default)]
struct TransferSlot(Mutex<MoveState>);

#[derive(Default)]
struct MoveState {
    moved: Option<MovedConnection>,
    /// No connection will be delivered any more.
    ended: bool,
    waker: Option<Waker>,
}

struct Sender(Arc<TransferSlot>);

impl Sender {
    fn send(self, moved: MovedConnection) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).moved = Some(moved);
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.ended = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct Receiver(Arc<TransferSlot>);

impl Future for Receiver {
    type Output = Option<MovedConnection>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<MovedConnection>> {
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            return Poll::Ready(state.moved.take());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
