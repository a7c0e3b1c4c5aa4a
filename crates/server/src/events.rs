//! Events inside the server process that concern its control thread: a queue that wakes it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::EventfdFlags;

use crate::log::Level;

/// An event.
#[derive(Debug)]
pub enum ServerEvent {
    /// All workers use the generation.
    Applied {
        /// The number.
        number: u64,
    },
    /// The generation is no longer used.
    Drained {
        /// The number.
        number: u64,
        /// The number of workers.
        workers: usize,
    },
    /// A worker's thread has ended.
    WorkerEnded {
        /// The worker set of the worker.
        worker_set: u64,
        /// The number.
        index: usize,
        /// The error, if any.
        error: Option<String>,
    },
    /// A purge has ended.
    Purged {
        /// The number.
        id: u64,
        /// The number of purged objects, or the error.
        result: Result<u64, String>,
    },
    /// Every event loop has made a turn.
    Alive {
        /// The round of the watchdog.
        round: u64,
    },
    /// A worker's peak of connections is over.
    MemoryFreed,
    /// A line for the error log, from a thread that must not write it itself.
    Log(Level, String),
}

/// The sending side; clones go to every thread.
#[derive(Clone, Debug)]
pub struct Events {
    sender: Sender<ServerEvent>,
    wake: Arc<OwnedFd>,
}

/// The control thread's side.
#[derive(Debug)]
pub struct EventQueue {
    receiver: Receiver<ServerEvent>,
    wake: Arc<OwnedFd>,
}

/// Makes both sides.
///
/// # Errors
/// If descriptors have run out.
pub fn queue() -> std::io::Result<(Events, EventQueue)> {
    let (sender, receiver) = channel();
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let wake = Arc::new(rustix::event::eventfd(0, flags)?);
    Ok((Events { sender, wake: wake.clone() }, EventQueue { receiver, wake }))
}

impl Events {
    /// Queues an event. Never waits; after the control thread has ended, the event is lost.
    pub fn send(&self, event: ServerEvent) {
        if self.sender.send(event).is_ok() {
            // Only a full counter is refused, and then the reader is awake anyway.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// An alert for the log.
    pub fn alert(&self, message: String) {
        self.send(ServerEvent::Log(Level::Alert, message));
    }
}

impl EventQueue {
    /// The next event, if any. Never waits.
    pub fn next(&self) -> Option<ServerEvent> {
        match self.receiver.try_recv() {
            Ok(event) => Some(event),
            Err(_) => {
                // Without a log file, notices would only clutter the startup output.
                let _ = rustix::io::read(&self.wake, &mut [0; 8]);
                self.receiver.try_recv().ok()
            }
        }
    }
}

impl AsFd for EventQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
