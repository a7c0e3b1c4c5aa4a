//! What happens inside the server process and concerns its control thread: a queue that wakes it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::EventfdFlags;

use crate::log::Level;

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// All workers use the generation.
    Applied {
        /// Its number.
        number: u64,
    },
    /// Nothing uses the generation any more.
    Drained {
        /// Its number.
        number: u64,
        /// Its number of workers.
        workers: usize,
    },
    /// A worker's thread has ended.
    WorkerEnded {
        /// Which crew it belonged to.
        crew: u64,
        /// Its number.
        index: usize,
        /// What went wrong, if anything did.
        error: Option<String>,
    },
    /// A purge has ended.
    Purged {
        /// Its number.
        id: u64,
        /// How many objects there were, or why it failed.
        result: Result<u64, String>,
    },
    /// A peak of a worker's connections is over.
    MemoryFreed,
    /// A line for the error log, from a thread that must not write it itself.
    Log(Level, String),
}

/// The sending side; clones go to every thread.
#[derive(Clone, Debug)]
pub struct Events {
    sender: Sender<Event>,
    wake: Arc<OwnedFd>,
}

/// The control thread's side.
#[derive(Debug)]
pub struct EventQueue {
    receiver: Receiver<Event>,
    wake: Arc<OwnedFd>,
}

/// Makes both sides.
///
/// # Errors
/// When descriptors have run out.
pub fn queue() -> std::io::Result<(Events, EventQueue)> {
    let (sender, receiver) = channel();
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let wake = Arc::new(rustix::event::eventfd(0, flags)?);
    Ok((Events { sender, wake: wake.clone() }, EventQueue { receiver, wake }))
}

impl Events {
    /// Puts an event into the queue. Never waits; after the end of the control thread it is lost.
    pub fn send(&self, event: Event) {
        if self.sender.send(event).is_ok() {
            // Only a full counter is refused, and then the reader is awake anyway.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// An alert for the log.
    pub fn alert(&self, message: String) {
        self.send(Event::Log(Level::Alert, message));
    }
}

impl EventQueue {
    /// The next event, if there is one. Never waits.
    pub fn next(&self) -> Option<Event> {
        match self.receiver.try_recv() {
            Ok(event) => Some(event),
            Err(_) => {
                // Reset first, then look again: an event between both is not missed.
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
