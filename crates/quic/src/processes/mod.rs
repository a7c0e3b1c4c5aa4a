//! The server processes that receive from the same sockets: during a binary upgrade, and when a reload replaces the
//! process because its user or its limits change. No connection is lost by that.
//!
//! A socket that two processes have open gives each datagram to one of them, whichever reads first. So each process has
//! a *number*, which stands, encrypted, in the IDs of its connections, and an *inbox*, a socket of parcels
//! ([`nowait_sys::parcels`]) into which the others put the datagrams that belong to it.
//!
//! ```text
//! UDP socket → worker of P1 ─ its own ID ───────────→ connection
//!                           ├ ID of P2 → inbox of P2 → thread "quic inbox" → mailbox of the worker → connection
//!                           └ first packet of a client → the newest process that takes connections
//! ```
//!
//! - The master gives a process its number and the receiving end of its inbox when it starts it, and tells all of its
//!   processes, and the other master during an upgrade, of the sending end. Numbers grow with time: whichever process
//!   is newer has the higher one. Both masters share the secret from which the keys of IDs, tokens and resets are
//!   derived, so each process can read the IDs of all others.
//! - First packets go to the highest number. A process that takes no connections, because it ends, has not begun or
//!   has no QUIC, hands them down to the next lower number, so those of one client always arrive at the same process,
//!   and within it at the same worker. When the newer binary is given up, the older one takes connections again without
//!   being told.
//! - An ID of a process that has ended is answered by a reset, an ID of one that is newer than all known ones by
//!   nothing: it is about to be introduced. What is lost at this moment is sent again by the client.
//! - Sending never waits: without room in the inbox, the datagram is lost, as in the network. A process that has ended
//!   is noticed by the first attempt, and costs nothing afterwards. A process without others has no thread for its
//!   inbox, and does nothing for any of this but compare numbers.
//!
//! Called by the router of each worker, and by the server process, which learns of others from its master. Never looks
//! into a packet beyond its ID.

mod parcel;

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use nowait_sys::listen::ListenAddress;
use nowait_sys::parcels::{self, Sent};

use self::parcel::{HEAD_BYTES, PARCEL_BYTES_MAX, decode, encode};
use crate::Directory;
use crate::datagram::Datagram;
use crate::directory::Forwarded;
use crate::packet::destination;

/// Numbers beyond the highest known one that may be those of processes about to be introduced.
const UNBORN_MAX: i16 = 64;

/// Whether the number `a` is that of a newer process than `b`. They wrap around; those in use at a time are close.
pub fn is_newer(a: u16, b: u16) -> bool {
    a.wrapping_sub(b) as i16 > 0
}

/// This process among others that receive from the same sockets.
pub struct Processes {
    number: u16,
    /// There are others that live.
    crowded: AtomicBool,
    known: RwLock<Arc<Known>>,
    inbox: Mutex<Inbox>,
}

/// The processes that this one knows of.
struct Known {
    /// The highest number so far; its process may have ended.
    highest: u16,
    /// From the newest to the oldest.
    others: Box<[Other]>,
}

/// The receiving end, until its thread has it, and the workers for which that thread receives.
struct Inbox {
    receiver: Option<OwnedFd>,
    directory: Weak<Directory>,
}

/// Another process.
struct Other {
    number: u16,
    inbox: OwnedFd,
    gone: AtomicBool,
}

/// What has become of a datagram for another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// It was passed on.
    Yes,
    /// Its inbox is full: the datagram is lost.
    Full,
    /// There is no such process any more.
    Gone,
    /// There is no such process yet.
    Unborn,
}

impl Processes {
    /// A process with this number, and the receiving end of its inbox.
    pub fn new(number: u16, inbox: OwnedFd) -> Arc<Processes> {
        Processes::with(number, Some(inbox))
    }

    /// A process without others.
    pub fn alone() -> Arc<Processes> {
        Processes::with(0, None)
    }

    fn with(number: u16, receiver: Option<OwnedFd>) -> Arc<Processes> {
        Arc::new(Processes {
            number,
            crowded: AtomicBool::new(false),
            known: RwLock::new(Arc::new(Known { highest: number, others: Box::default() })),
            inbox: Mutex::new(Inbox { receiver, directory: Weak::new() }),
        })
    }

    /// The number of this process.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// These are the others from now on: their numbers, and the sending ends of their inboxes.
    ///
    /// # Errors
    /// The thread of the inbox cannot be started.
    pub fn set_others(self: &Arc<Self>, others: Vec<(u16, OwnedFd)>) -> io::Result<()> {
        let other = |(number, inbox)| Other { number, inbox, gone: AtomicBool::new(false) };
        let mut others: Vec<Other> = others.into_iter().map(other).collect();
        others.retain(|other| other.number != self.number);
        others
            .sort_by_key(|other| std::cmp::Reverse(other.number.wrapping_sub(self.number) as i16));
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let newest = others.first().map(|other| other.number);
        let highest = newest.filter(|&newest| is_newer(newest, known.highest));
        let highest = highest.unwrap_or(known.highest);
        self.crowded.store(!others.is_empty(), Ordering::Release);
        *known = Arc::new(Known { highest, others: others.into() });
        drop(known);
        self.open_inbox()
    }

    /// The workers of this process.
    pub(crate) fn set_directory(&self, directory: &Arc<Directory>) {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).directory =
            Arc::downgrade(directory);
    }

    fn directory(&self) -> Option<Arc<Directory>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).directory.upgrade()
    }

    /// Starts the thread of the inbox when there are others. It does not wait for workers: others pass first packets on
    /// to this process as soon as they know of it.
    fn open_inbox(self: &Arc<Self>) -> io::Result<()> {
        if !self.has_others() {
            return Ok(());
        }
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(receiver) = inbox.receiver.take() else { return Ok(()) };
        let processes = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("quic inbox".to_owned());
        thread.spawn(move || receive(&receiver, &processes)).map(drop)
    }

    /// Whether there are others.
    pub(crate) fn has_others(&self) -> bool {
        self.crowded.load(Ordering::Acquire)
    }

    fn known(&self) -> Arc<Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Passes a datagram to the process with this number. `listen`: the listening socket through which it came.
    pub(crate) fn pass(&self, number: u16, datagram: &Datagram, listen: &ListenAddress) -> Passed {
        let known = self.known();
        if let Some(other) = known.others.iter().find(|other| other.number == number) {
            return self.put(&known, other, datagram, listen);
        }
        match number.wrapping_sub(known.highest) as i16 {
            1..=UNBORN_MAX => Passed::Unborn,
            _ => Passed::Gone,
        }
    }

    /// Passes a client's first datagram to the newest process, if that is another one.
    pub(crate) fn pass_up(&self, datagram: &Datagram, listen: &ListenAddress) -> Passed {
        self.pass_first(datagram, listen, |other| is_newer(other.number, self.number))
    }

    /// Passes a client's first datagram to the next older process.
    pub(crate) fn pass_down(&self, datagram: &Datagram, listen: &ListenAddress) -> Passed {
        self.pass_first(datagram, listen, |other| is_newer(self.number, other.number))
    }

    fn pass_first(
        &self,
        datagram: &Datagram,
        listen: &ListenAddress,
        filter: impl Fn(&Other) -> bool,
    ) -> Passed {
        let known = self.known();
        for other in known.others.iter().filter(|other| filter(other)) {
            match self.put(&known, other, datagram, listen) {
                Passed::Gone => {}
                passed => return passed,
            }
        }
        Passed::Gone
    }

    fn put(
        &self,
        known: &Arc<Known>,
        other: &Other,
        datagram: &Datagram,
        listen: &ListenAddress,
    ) -> Passed {
        if other.gone.load(Ordering::Relaxed) {
            return Passed::Gone;
        }
        let Some(head) = encode(datagram, listen) else { return Passed::Full };
        let parts = [IoSlice::new(&head), IoSlice::new(&datagram.data)];
        match parcels::send(&other.inbox, &parts) {
            Sent::Yes => Passed::Yes,
            Sent::Full => Passed::Full,
            Sent::Gone => {
                other.gone.store(true, Ordering::Relaxed);
                if known.others.iter().all(|other| other.gone.load(Ordering::Relaxed)) {
                    // Others may have been introduced meanwhile.
                    let current = self.known.read().unwrap_or_else(PoisonError::into_inner);
                    if Arc::ptr_eq(&current, known) {
                        self.crowded.store(false, Ordering::Release);
                    }
                }
                Passed::Gone
            }
        }
    }
}

impl std::fmt::Debug for Processes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Processes").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The thread of the inbox. It ends with the last sender; without `processes`, at the next parcel.
fn receive(receiver: &OwnedFd, processes: &Weak<Processes>) {
    let mut buffer = vec![0; PARCEL_BYTES_MAX];
    let mut last: Option<Arc<ListenAddress>> = None;
    while let Ok(len @ 1..) = parcels::receive(receiver, &mut buffer) {
        let Some(processes) = processes.upgrade() else { return };
        let Some((datagram, address)) = decode(&buffer[..len]) else { continue };
        let address = ListenAddress::Udp(address);
        let listen = last.take().filter(|last| **last == address);
        let listen = listen.unwrap_or_else(|| Arc::new(address));
        last = Some(listen.clone());
        match processes.directory() {
            Some(directory) => {
                directory.take_passed(Forwarded { datagram, listen: Some(listen), forwards: 1 });
            }
            // Without workers there are no connections either: anything that may be a first packet is one.
            None if destination(&datagram.data).is_some_and(|found| found.long) => {
                processes.pass_down(&datagram, &listen);
            }
            None => {}
        }
    }
}

const _: () = assert!(PARCEL_BYTES_MAX > HEAD_BYTES);

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    fn datagram(content: impl AsRef<[u8]>) -> Datagram {
        Datagram {
            data: BytesMut::from(content.as_ref()),
            from: "192.0.2.1:1000".parse().unwrap(),
            local: None,
            ecn: 0,
        }
    }

    /// The text of the next parcel.
    fn text(receiver: &OwnedFd) -> String {
        let mut buffer = [0; 2048];
        let len = parcels::receive(receiver, &mut buffer).unwrap();
        String::from_utf8(decode(&buffer[..len]).unwrap().0.data.to_vec()).unwrap()
    }

    #[test]
    fn datagrams_go_to_their_process_and_first_ones_to_the_newest() {
        let listen = ListenAddress::Udp("192.0.2.9:443".parse().unwrap());
        let (_own, inbox) = parcels::pair().unwrap();
        let processes = Processes::new(u16::MAX, inbox);
        assert!(!processes.has_others());
        let (older, old) = parcels::pair().unwrap();
        let (newer, new) = parcels::pair().unwrap();
        // Numbers wrap around.
        processes.set_others(vec![(u16::MAX - 2, older), (1, newer)]).unwrap();
        assert!(processes.has_others());
        let pass = |number, text| processes.pass(number, &datagram(text), &listen);
        assert_eq!(pass(1, "a"), Passed::Yes);
        assert_eq!(pass(u16::MAX - 2, "b"), Passed::Yes);
        assert_eq!(pass(2, "c"), Passed::Unborn);
        assert_eq!(pass(u16::MAX - 1, "c"), Passed::Gone);
        assert_eq!(pass(0, "c"), Passed::Gone);
        assert_eq!(pass(20_000, "c"), Passed::Gone);
        assert_eq!(processes.pass_up(&datagram("d"), &listen), Passed::Yes);
        assert_eq!(processes.pass_down(&datagram("e"), &listen), Passed::Yes);
        assert_eq!((text(&new), text(&new)), ("a".to_owned(), "d".to_owned()));
        assert_eq!((text(&old), text(&old)), ("b".to_owned(), "e".to_owned()));
        drop(new);
        assert_eq!(pass(1, "f"), Passed::Gone);
        assert_eq!(processes.pass_up(&datagram("f"), &listen), Passed::Gone);
        assert!(processes.has_others());
        drop(old);
        assert_eq!(processes.pass_down(&datagram("f"), &listen), Passed::Gone);
        assert!(!processes.has_others());
    }

    /// A process whose configuration is still being interpreted, or that has no QUIC.
    #[test]
    fn first_packets_come_back_from_a_process_without_workers() {
        let listen = ListenAddress::Udp("192.0.2.9:443".parse().unwrap());
        let (old_sender, old_inbox) = parcels::pair().unwrap();
        let (new_sender, new_inbox) = parcels::pair().unwrap();
        let (_unused, inbox) = parcels::pair().unwrap();
        let (old, new) = (Processes::new(2, inbox), Processes::new(4, new_inbox));
        new.set_others(vec![(2, old_sender)]).unwrap();
        old.set_others(vec![(4, new_sender)]).unwrap();
        // One that belongs to a connection does not come back.
        let short = datagram("@0123456789abcdef");
        assert_eq!(old.pass_up(&short, &listen), Passed::Yes);
        let long = datagram([0xc0, 0, 0, 0, 1, 2, 7, 8, 0]);
        assert_eq!(old.pass_up(&long, &listen), Passed::Yes);
        let mut buffer = [0; 2048];
        let len = parcels::receive(&old_inbox, &mut buffer).unwrap();
        assert_eq!(decode(&buffer[..len]).unwrap().0.data, long.data);
    }

    #[test]
    fn a_process_that_has_ended_is_not_expected() {
        let listen = ListenAddress::Udp("192.0.2.9:443".parse().unwrap());
        let (_own, inbox) = parcels::pair().unwrap();
        let processes = Processes::new(2, inbox);
        let (newer, _inbox) = parcels::pair().unwrap();
        processes.set_others(vec![(3, newer)]).unwrap();
        // An upgrade that is given up: its connections are to be reset.
        processes.set_others(Vec::new()).unwrap();
        assert_eq!(processes.pass(3, &datagram("a"), &listen), Passed::Gone);
        assert_eq!(processes.pass(4, &datagram("a"), &listen), Passed::Unborn);
    }

    #[test]
    fn the_end_of_former_processes_does_not_hide_new_ones() {
        let listen = ListenAddress::Udp("192.0.2.9:443".parse().unwrap());
        let (_own, inbox) = parcels::pair().unwrap();
        let processes = Processes::new(4, inbox);
        let (former, gone) = parcels::pair().unwrap();
        processes.set_others(vec![(2, former)]).unwrap();
        // A worker is about to send to it.
        let before = processes.known();
        drop(gone);
        let (newer, _inbox) = parcels::pair().unwrap();
        processes.set_others(vec![(6, newer)]).unwrap();
        assert_eq!(
            processes.put(&before, &before.others[0], &datagram("a"), &listen),
            Passed::Gone
        );
        assert!(processes.has_others());
    }

    #[test]
    fn the_inbox_of_a_process_is_bounded() {
        let listen = ListenAddress::Udp("192.0.2.9:443".parse().unwrap());
        let (_own, inbox) = parcels::pair().unwrap();
        let processes = Processes::new(2, inbox);
        let (sender, _receiver) = parcels::pair().unwrap();
        processes.set_others(vec![(4, sender)]).unwrap();
        let long = "x".repeat(1200);
        let passed = (0..100_000).map(|_| processes.pass(4, &datagram(&long), &listen));
        assert!(passed.into_iter().any(|passed| passed == Passed::Full));
        assert!(processes.has_others());
    }
}
