//! Connections that other workers have accepted for this one, until its listeners take them.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::task::Waker;

use rustc_hash::FxHashMap;

/// Connections handed to this worker, per listener identity.
#[derive(Default)]
pub(crate) struct Handovers {
    queues: FxHashMap<u64, HandoverQueue>,
}

#[derive(Default)]
struct HandoverQueue {
    listeners: usize,
    connections: VecDeque<OwnedFd>,
    waker: Option<Waker>,
}

impl Handovers {
    pub(crate) fn add(&mut self, id: u64) {
        self.queues.entry(id).or_default().listeners += 1;
    }

    /// Returns the remaining connections when the identity's last listener is removed.
    pub(crate) fn remove(&mut self, id: u64) -> VecDeque<OwnedFd> {
        let Some(queue) = self.queues.get_mut(&id) else { return VecDeque::new() };
        queue.listeners -= 1;
        if queue.listeners > 0 {
            return VecDeque::new();
        }
        self.queues.remove(&id).map(|queue| queue.connections).unwrap_or_default()
    }

    /// The next connection for this identity; if there is none, remembers the waker.
    pub(crate) fn take(&mut self, id: u64, waker: &Waker) -> Option<OwnedFd> {
        let queue = self.queues.get_mut(&id)?;
        let connection = queue.connections.pop_front();
        if connection.is_none() && !queue.waker.as_ref().is_some_and(|w| w.will_wake(waker)) {
            queue.waker = Some(waker.clone());
        }
        connection
    }

    /// Queues a connection for this identity; returns the waker of a task that waits for it.
    ///
    /// # Errors
    /// Returns the connection if there is no listener with this identity.
    pub(crate) fn deliver(&mut self, id: u64, fd: OwnedFd) -> Result<Option<Waker>, OwnedFd> {
        let Some(queue) = self.queues.get_mut(&id) else { return Err(fd) };
        queue.connections.push_back(fd);
        Ok(queue.waker.take())
    }
}
