//! The workers of a process, as their datagrams find them: each connection ID carries, encrypted, the number of the
//! worker that has its connection.
//!
//! One per process, kept by reloads; [`Processes`] connects it to those of other processes. Endpoints register when they are made. A datagram that the kernel gave to another
//! worker is left in the mailbox of the right one. Locks are held for a few instructions, and not taken for datagrams
//! that arrive where they belong.

use std::collections::{HashMap, VecDeque};
use std::future::ready;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use nowait_runtime::Remote;
use nowait_runtime::worker;
use nowait_sys::listen::ListenAddress;
use rustc_hash::FxBuildHasher;

use crate::connection_id::{IdKey, Place};
use crate::datagram::Datagram;
use crate::keys::Keys;
use crate::packet::destination;
use crate::processes::{Passed, Processes};
use crate::tokens::UsedTokens;
use crate::{Counters, HostKey};

/// Datagrams in the mailbox of a worker, at most; further ones are dropped, as by a socket.
pub const MAILBOX_DATAGRAMS_MAX: usize = 4096;

/// Their bytes together, at most.
pub const MAILBOX_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Moves of a connection, at most, that a datagram follows.
pub(crate) const MOVES_MAX: usize = 64;

/// A datagram for another worker.
pub(crate) struct Forwarded {
    pub(crate) datagram: Datagram,
    /// The listening socket through which it came; `None`: a client's socket.
    pub(crate) listen: Option<Arc<ListenAddress>>,
    /// Workers that it was handed to.
    pub(crate) forwards: u8,
}

/// Datagrams for a worker.
pub(crate) struct Mailbox {
    remote: Remote,
    /// Has the endpoint of a process and with a number look into its mailbox; called on its thread.
    look: fn(u16, u16),
    /// The worker takes new connections.
    accepting: AtomicBool,
    queue: Mutex<Mail>,
    /// The worker was told to look.
    told: AtomicBool,
}

/// Datagrams, and their bytes together.
#[derive(Default)]
struct Mail {
    datagrams: VecDeque<Forwarded>,
    bytes: usize,
}

/// The workers of a process, and what they share.
pub struct Directory {
    counters: Counters,
    processes: Arc<Processes>,
    ids: Arc<IdKey>,
    /// The keys without a `quic_host_key`.
    own_keys: Arc<Keys>,
    keys: RwLock<Arc<Keys>>,
    used_tokens: Arc<UsedTokens>,
    workers: RwLock<Registered>,
    /// Connections that have left the worker that their IDs name; `None`: they have arrived nowhere yet.
    moved: RwLock<HashMap<Place, Option<Place>>>,
}

#[derive(Default)]
struct Registered {
    next: u16,
    mailboxes: HashMap<u16, Arc<Mailbox>>,
}

impl Directory {
    /// Of one of these processes, which share a secret: the key of IDs is derived from it, and those of tokens and
    /// resets as long as there is no other.
    pub fn new(secret: &HostKey, processes: Arc<Processes>) -> Arc<Directory> {
        let keys = Arc::new(Keys::new(secret, None));
        let directory = Arc::new(Directory {
            counters: Counters::default(),
            processes,
            ids: keys.ids.clone(),
            own_keys: keys.clone(),
            keys: RwLock::new(keys),
            used_tokens: Arc::default(),
            workers: RwLock::default(),
            moved: RwLock::default(),
        });
        directory.processes.set_directory(&directory);
        directory
    }

    /// The key of tokens and resets from now on (`quic_host_key`), or that of the secret. Tokens of another key prove
    /// nothing any more; connections and their IDs are not concerned.
    pub fn set_key(&self, key: Option<&HostKey>) {
        let keys = match key {
            Some(key) => Arc::new(Keys::new(key, Some(self.ids.clone()))),
            None => self.own_keys.clone(),
        };
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// The processes that receive from the same sockets.
    pub(crate) fn processes(&self) -> &Processes {
        &self.processes
    }

    /// Counters of all workers.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn keys(&self) -> Arc<Keys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The key of connection IDs, which never changes.
    pub(crate) fn ids(&self) -> &IdKey {
        &self.ids
    }

    pub(crate) fn used_tokens(&self) -> Arc<UsedTokens> {
        self.used_tokens.clone()
    }

    /// Registers this worker; `look` is called on its thread when there is mail. `None`: there are 65,536 already.
    pub(crate) fn register(&self, look: fn(u16, u16)) -> Option<(u16, Arc<Mailbox>)> {
        let mailbox = Arc::new(Mailbox {
            remote: worker::remote(),
            look,
            accepting: AtomicBool::new(true),
            queue: Mutex::default(),
            told: AtomicBool::new(false),
        });
        let mut workers = self.workers.write().unwrap_or_else(PoisonError::into_inner);
        // Numbers are used again as late as possible: clients may still send to connections of an earlier worker.
        let next = workers.next;
        let mut numbers = (next..=u16::MAX).chain(0..next);
        let number = numbers.find(|number| !workers.mailboxes.contains_key(number))?;
        workers.next = number.wrapping_add(1);
        workers.mailboxes.insert(number, mailbox.clone());
        Some((number, mailbox))
    }

    /// Removes a worker that ends.
    pub(crate) fn unregister(&self, number: u16) {
        let mut workers = self.workers.write().unwrap_or_else(PoisonError::into_inner);
        workers.mailboxes.remove(&number);
    }

    /// Leaves a datagram to the worker with this number; given back if there is none.
    pub(crate) fn forward(&self, number: u16, forwarded: Forwarded) -> Result<(), Forwarded> {
        let workers = self.workers.read().unwrap_or_else(PoisonError::into_inner);
        let Some(mailbox) = workers.mailboxes.get(&number).cloned() else { return Err(forwarded) };
        drop(workers);
        self.leave(number, &mailbox, forwarded);
        Ok(())
    }

    /// Leaves the first datagram of a client to a worker that takes connections; given back if there is none.
    pub(crate) fn forward_first(&self, forwarded: Forwarded) -> Result<(), Forwarded> {
        self.forward_to_any(forwarded, |mailbox| mailbox.is_accepting())
    }

    fn forward_to_any(
        &self,
        forwarded: Forwarded,
        filter: impl Fn(&Mailbox) -> bool,
    ) -> Result<(), Forwarded> {
        let workers = self.workers.read().unwrap_or_else(PoisonError::into_inner);
        // Always the same one for a client, so that all datagrams of a hello arrive at one worker.
        let hash = FxBuildHasher.hash_one(forwarded.datagram.from);
        let weighed = |(number, mailbox): (&u16, &Arc<Mailbox>)| {
            let weight = FxBuildHasher.hash_one((hash, *number));
            filter(mailbox).then(|| (weight, *number, mailbox.clone()))
        };
        let all = workers.mailboxes.iter().filter_map(weighed);
        let chosen = all.max_by_key(|(weight, number, _)| (*weight, *number));
        drop(workers);
        let Some((_, number, mailbox)) = chosen else { return Err(forwarded) };
        self.leave(number, &mailbox, forwarded);
        Ok(())
    }

    /// Takes a datagram from another process: it belongs to a connection of this one, or it is a client's first.
    pub(crate) fn take_passed(&self, forwarded: Forwarded) {
        Counters::add(&self.counters.datagrams_taken, 1);
        let Some(found) = destination(&forwarded.datagram.data) else { return };
        let place = self.ids.place(found.id);
        let place = place.filter(|place| place.slot != Place::NONE);
        let left = match place.filter(|place| place.process == self.processes.number()) {
            Some(place) => {
                let sent = self.forward(self.follow(place).worker, forwarded);
                // A worker answers by a reset.
                sent.or_else(|forwarded| self.forward_to_any(forwarded, |_| true))
            }
            None if found.long => self.forward_first(forwarded).or_else(|forwarded| {
                let listen = forwarded.listen.as_deref();
                let passed = listen.map_or(Passed::Gone, |listen| {
                    self.count(self.processes.pass_down(&forwarded.datagram, listen))
                });
                if passed == Passed::Gone { Err(forwarded) } else { Ok(()) }
            }),
            None => Err(forwarded),
        };
        if left.is_err() {
            Counters::add(&self.counters.datagrams_dropped, 1);
        }
    }

    /// Counts an attempt to pass a datagram to another process.
    pub(crate) fn count(&self, passed: Passed) -> Passed {
        match passed {
            Passed::Yes => Counters::add(&self.counters.datagrams_passed, 1),
            Passed::Full => Counters::add(&self.counters.pass_queue_full, 1),
            Passed::Unborn => Counters::add(&self.counters.datagrams_dropped, 1),
            Passed::Gone => {}
        }
        passed
    }

    /// Where the connection that was at this place is now.
    fn follow(&self, place: Place) -> Place {
        let mut place = place;
        for _ in 0..MOVES_MAX {
            match self.moved_to(place) {
                Some(Some(next)) => place = next,
                _ => break,
            }
        }
        place
    }

    fn leave(&self, number: u16, mailbox: &Arc<Mailbox>, forwarded: Forwarded) {
        if !mailbox.put(forwarded) {
            Counters::add(&self.counters.forward_queue_full, 1);
            return;
        }
        Counters::add(&self.counters.datagrams_forwarded, 1);
        if !mailbox.told.swap(true, Ordering::AcqRel) {
            let (look, process) = (mailbox.look, self.processes.number());
            // A worker that has ended has unregistered, or will.
            let _ = mailbox.remote.spawn(Box::new(move || {
                look(process, number);
                Box::pin(ready(()))
            }));
        }
    }

    /// Notes where a connection is that has left these places; `None`: on its way.
    pub(crate) fn note_moved(&self, from: &[Place], to: Option<Place>) {
        let mut moved = self.moved.write().unwrap_or_else(PoisonError::into_inner);
        moved.extend(from.iter().map(|from| (*from, to)));
    }

    /// Where a connection is that has left this place. `Some(None)`: on its way. `None`: none has.
    pub(crate) fn moved_to(&self, from: Place) -> Option<Option<Place>> {
        self.moved.read().unwrap_or_else(PoisonError::into_inner).get(&from).copied()
    }

    /// Forgets the places of a connection that has ended.
    pub(crate) fn forget_moved(&self, places: &[Place]) {
        if !places.is_empty() {
            let mut moved = self.moved.write().unwrap_or_else(PoisonError::into_inner);
            for place in places {
                moved.remove(place);
            }
        }
    }
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Directory").finish_non_exhaustive()
    }
}

impl Mailbox {
    fn put(&self, forwarded: Forwarded) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = queue.bytes + forwarded.datagram.data.len();
        let has_room = queue.datagrams.len() < MAILBOX_DATAGRAMS_MAX && bytes <= MAILBOX_BYTES_MAX;
        if has_room {
            queue.bytes = bytes;
            queue.datagrams.push_back(forwarded);
        }
        has_room
    }

    /// Takes everything.
    pub(crate) fn take(&self) -> VecDeque<Forwarded> {
        // What is put from now on is announced again.
        self.told.store(false, Ordering::Release);
        std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner)).datagrams
    }

    pub(crate) fn is_accepting(&self) -> bool {
        self.accepting.load(Ordering::Relaxed)
    }

    /// The worker takes no connections any more.
    pub(crate) fn stop_accepting(&self) {
        self.accepting.store(false, Ordering::Relaxed);
    }
}
