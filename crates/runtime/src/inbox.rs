//! The worker's inbox: other threads leave messages, and wake the worker if it sleeps.
//!
//! Called by wakers that fire on other threads, by [`Remote`](crate::worker::Remote), and by
//! workers that hand connections over. Messages that arrive while the worker is awake cost no
//! system call, however many there are; while it sleeps, the first one writes to its eventfd.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use async_task::Runnable;
use rustix::event::{EventfdFlags, eventfd};

/// A future for one worker's thread.
pub type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;
/// Builds a future on the thread that runs it.
pub type Spawner = Box<dyn FnOnce() -> LocalFuture + Send>;

/// A message to a worker.
pub(crate) enum Message {
    /// A task of this worker is ready to run.
    Run(Runnable),
    /// Build a future on the worker's thread and run it as a task.
    Spawn(Spawner),
    /// A connection accepted by another worker, for the listener with this identity.
    Accepted(u64, OwnedFd),
    /// End when all tasks have ended.
    Stop,
    /// Drop all tasks and end.
    Kill,
}

/// A worker's mailbox, shared by all senders. The worker writes to it in every turn, so it has cache lines
/// of its own.
#[repr(align(128))]
pub(crate) struct Inbox {
    /// Unique id of the worker in the process, for the check "is this its thread?".
    pub(crate) id: u64,
    state: Mutex<InboxState>,
    /// Whether `state` holds messages: saves the lock in turns without any.
    filled: AtomicBool,
    /// Whether the worker is about to wait in the kernel, so that a message needs the eventfd.
    asleep: AtomicBool,
    /// Wakes the worker. Dropped when the worker ends: handles and wakers may outlive it for long,
    /// and must not keep a descriptor open.
    event: RwLock<Option<Arc<OwnedFd>>>,
}

#[derive(Default)]
struct InboxState {
    messages: VecDeque<Message>,
    /// Listeners served by this worker: only connections for these may be handed over.
    listeners: Vec<u64>,
    /// The worker has ended; messages are refused.
    closed: bool,
}

impl Inbox {
    pub(crate) fn new(id: u64) -> io::Result<Inbox> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Inbox {
            id,
            state: Mutex::default(),
            filled: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            event: RwLock::new(Some(Arc::new(event))),
        })
    }

    /// The descriptor that becomes readable when a message arrives while the worker sleeps. It is
    /// watched edge-triggered and never read: its counter would need centuries to overflow.
    ///
    /// # Errors
    /// `NotConnected` when the worker has ended.
    pub(crate) fn event(&self) -> io::Result<Arc<OwnedFd>> {
        let event = self.event.read().unwrap_or_else(PoisonError::into_inner);
        event.clone().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Leaves a message. Gives it back when the worker has ended.
    pub(crate) fn push(&self, message: Message) -> Result<(), Message> {
        let mut state = self.lock();
        if state.closed {
            return Err(message);
        }
        state.messages.push_back(message);
        self.filled.store(true, Ordering::SeqCst);
        drop(state);
        self.wake();
        Ok(())
    }

    /// Hands a connection over if the worker serves that listener.
    pub(crate) fn hand_over(&self, listener: u64, fd: OwnedFd) -> Result<(), OwnedFd> {
        let mut state = self.lock();
        if state.closed || !state.listeners.contains(&listener) {
            return Err(fd);
        }
        state.messages.push_back(Message::Accepted(listener, fd));
        self.filled.store(true, Ordering::SeqCst);
        drop(state);
        self.wake();
        Ok(())
    }

    /// Makes the worker take another turn.
    pub(crate) fn wake(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            let event = self.event.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(event) = &*event {
                // Fails only if the counter overflows, and then it is readable already.
                let _ = rustix::io::write(event, &1u64.to_ne_bytes());
            }
        }
    }

    /// Takes all messages. Costs one load when there are none.
    pub(crate) fn take(&self, into: &mut VecDeque<Message>) {
        if self.filled.load(Ordering::SeqCst) {
            let mut state = self.lock();
            self.filled.store(false, Ordering::SeqCst);
            into.append(&mut state.messages);
        }
    }

    /// Announces that the worker is about to wait. False if a message arrived meanwhile: then it
    /// must not wait.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        if self.filled.load(Ordering::SeqCst) {
            self.asleep.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// Whether the worker waits in the kernel.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// The worker is back from the kernel.
    pub(crate) fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Accepts connections of this listener from now on.
    pub(crate) fn add_listener(&self, listener: u64) {
        self.lock().listeners.push(listener);
    }

    /// Refuses connections of this listener from now on. Returns those already handed over.
    pub(crate) fn remove_listener(&self, listener: u64) -> Vec<OwnedFd> {
        let mut state = self.lock();
        if let Some(at) = state.listeners.iter().position(|id| *id == listener) {
            state.listeners.swap_remove(at);
        }
        if state.listeners.contains(&listener) {
            return Vec::new();
        }
        let (gone, rest): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut state.messages)
            .into_iter()
            .partition(|m| matches!(m, Message::Accepted(id, _) if *id == listener));
        state.messages = rest;
        gone.into_iter()
            .filter_map(|message| match message {
                Message::Accepted(_, fd) => Some(fd),
                _ => None,
            })
            .collect()
    }

    /// Refuses messages from now on; returns those not taken.
    pub(crate) fn close(&self) -> VecDeque<Message> {
        let mut state = self.lock();
        state.closed = true;
        state.listeners.clear();
        let messages = std::mem::take(&mut state.messages);
        drop(state);
        drop(self.event.write().unwrap_or_else(PoisonError::into_inner).take());
        messages
    }

    /// Whether the worker has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// The state is plain data, valid after every statement: a panic elsewhere cannot break it.
    fn lock(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
