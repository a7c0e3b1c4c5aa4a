//! Introduces the server processes that receive from the same UDP sockets to each other, so that none loses the
//! connections over QUIC of another one: those of this master, and during an upgrade those of the other master.
//!
//! Each server process gets a number and an inbox (`nowait_quic::Processes` says what for); the sending end stays here,
//! and every other process gets a copy. Numbers grow with time. Those of two masters that live at the same time
//! differ: one counts in even numbers, the other in odd ones. Masters tell each other of their processes through a
//! socket, which the new one inherits; the first message through it carries the secret of the keys of QUIC, so that
//! it stands in no environment and no file.
//!
//! Called by the master when processes come and go. Never waits for a server process; for the other master no longer than
//! for a server process.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use nowait_quic::is_newer;
use nowait_sys::parcels;
use rustix::rand::{GetRandomFlags, getrandom};

use super::child::Child;
use super::{Introduction, Master};
use crate::log::{Level, OsErrorText};
use crate::wire::{self, MasterFrame, ToServer};

/// Bytes of the secret.
const SECRET_BYTES: usize = 32;

/// The server processes that know each other.
pub(super) struct Introductions {
    secret: Vec<u8>,
    /// The last bit of this master's numbers.
    parity: u16,
    /// The highest number so far.
    last: u16,
    own: Vec<Own>,
    /// Those of the other master.
    others: Vec<(u16, OwnedFd)>,
    /// To the other master: the one that started this one, or the one that this one has started.
    channel: Option<UnixStream>,
}

/// A server process of this master.
struct Own {
    pid: u32,
    number: u16,
    inbox: OwnedFd,
}

/// The sending end of the inbox of a process that is about to start.
pub(super) struct Inbox {
    number: u16,
    sender: OwnedFd,
}

impl Introductions {
    /// Of a master that has no predecessor.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(super) fn new() -> io::Result<Introductions> {
        let mut secret = vec![0; SECRET_BYTES];
        let filled = getrandom(&mut secret[..], GetRandomFlags::empty())?;
        if filled < SECRET_BYTES {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Introductions {
            secret,
            parity: 0,
            last: 0,
            own: Vec::new(),
            others: Vec::new(),
            channel: None,
        })
    }

    /// Of a master that another one has started, which has already written to this socket.
    ///
    /// # Errors
    /// The other master does not speak this language.
    pub(super) fn inherited(channel: OwnedFd) -> io::Result<Introductions> {
        let channel = UnixStream::from(channel);
        wire::set_timeouts(&channel)?;
        let frame = MasterFrame::receive(&channel)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let MasterFrame { secret, parity, last, processes } = frame;
        if secret.len() != SECRET_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (parity, others, channel) = (parity & 1, processes, Some(channel));
        Ok(Introductions { secret, parity, last, own: Vec::new(), others, channel })
    }

    /// A number and an inbox for a process that is about to start.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn begin(&mut self) -> io::Result<(Introduction, Inbox)> {
        let (sender, inbox) = parcels::pair()?;
        let next = self.last.wrapping_add(1);
        let number = if next & 1 == self.parity { next } else { next.wrapping_add(1) };
        self.last = number;
        let secret = self.secret.clone();
        Ok((Introduction { number, secret, inbox }, Inbox { number, sender }))
    }

    /// The process has started.
    pub(super) fn add(&mut self, pid: u32, inbox: Inbox) {
        let Inbox { number, sender } = inbox;
        self.own.push(Own { pid, number, inbox: sender });
    }

    /// A process has ended.
    fn remove(&mut self, pid: u32) {
        self.own.retain(|own| own.pid != pid);
    }

    /// The processes that the one with this ID has beside it.
    fn beside(&self, pid: u32) -> io::Result<Vec<(u16, OwnedFd)>> {
        let own = self.own.iter().filter(|own| own.pid != pid);
        let own = own.map(|own| (own.number, &own.inbox));
        let others = self.others.iter().map(|(number, inbox)| (*number, inbox));
        own.chain(others).map(|(number, inbox)| Ok((number, inbox.try_clone()?))).collect()
    }

    /// What the other master should know.
    fn frame(&self) -> io::Result<MasterFrame> {
        let own = self.own.iter().map(|own| Ok((own.number, own.inbox.try_clone()?)));
        Ok(MasterFrame {
            secret: self.secret.clone(),
            parity: self.parity ^ 1,
            last: self.last,
            processes: own.collect::<io::Result<_>>()?,
        })
    }

    /// A socket for a master that is about to be started.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn open_channel(&mut self) -> io::Result<OwnedFd> {
        let (channel, theirs) = wire::pair()?;
        self.frame()?.send(&channel)?;
        self.channel = Some(channel);
        Ok(theirs.into())
    }

    /// The socket to the other master, for `poll`.
    pub(super) fn channel(&self) -> Option<&UnixStream> {
        self.channel.as_ref()
    }

    /// Receives a message of the other master.
    fn hear(&mut self) {
        let Some(channel) = &self.channel else { return };
        match MasterFrame::receive(channel) {
            Ok(Some(MasterFrame { last, processes, .. })) => {
                self.others = processes;
                if is_newer(last, self.last) {
                    self.last = last;
                }
            }
            // Its processes may live on for a while.
            Ok(None) | Err(_) => self.channel = None,
        }
        self.others.retain(|(_, inbox)| parcels::has_receiver(inbox));
    }
}

impl Master {
    /// Tells all server processes of each other, and the other master of those of this one. `new` is about to be one of
    /// the children.
    pub(super) fn introduce(&mut self, new: Option<&Child>) {
        let channel = self.introductions.channel();
        if let Some(channel) = channel
            && let Err(error) = self.introductions.frame().and_then(|frame| frame.send(channel))
        {
            // It has ended, or does not listen.
            self.log.log(
                Level::Info,
                format_args!("the other master is not told of processes {}", OsErrorText(&error)),
            );
            self.introductions.channel = None;
        }
        self.introduce_here(new);
    }

    fn introduce_here(&self, new: Option<&Child>) {
        for child in self.children.iter().filter(|child| child.is_listening()).chain(new) {
            match self.introductions.beside(child.pid()) {
                Ok(others) => drop(child.tell(&ToServer::Others(others), &self.log)),
                Err(error) => {
                    let text = format_args!("dup() failed {}", OsErrorText(&error));
                    self.log.log(Level::Alert, text);
                }
            }
        }
    }

    /// Receives what the other master says of its processes.
    pub(super) fn hear_master(&mut self) {
        self.introductions.hear();
        self.introduce_here(None);
    }

    /// A server process is gone.
    pub(super) fn forget_process(&mut self, pid: u32) {
        self.introductions.remove(pid);
        self.introduce(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_count_upwards_and_apart() {
        let mut old = Introductions::new().unwrap();
        let (first, inbox) = old.begin().unwrap();
        old.add(100, inbox);
        assert_eq!(first.number, 2);
        let mut new = Introductions::inherited(old.open_channel().unwrap()).unwrap();
        assert_eq!(new.secret, first.secret);
        assert_eq!(new.others.len(), 1);
        let (second, inbox) = new.begin().unwrap();
        new.add(200, inbox);
        assert_eq!(second.number, 3);
        new.frame().unwrap().send(new.channel().unwrap()).unwrap();
        old.hear();
        assert_eq!(old.beside(100).unwrap().len(), 1);
        assert_eq!(old.beside(0).unwrap().len(), 2);
        // A process that is newer has a higher number.
        assert_eq!(old.begin().unwrap().0.number, 4);
        assert_eq!(new.begin().unwrap().0.number, 5);
        // The process ends without its master, and the master without a word.
        drop((second, new));
        old.hear();
        assert!(old.channel().is_none());
        assert!(old.beside(100).unwrap().is_empty());
        old.remove(100);
        assert!(old.beside(0).unwrap().is_empty());
    }

    #[test]
    fn another_language_is_noticed() {
        use std::io::Write;
        let (mut a, b) = UnixStream::pair().unwrap();
        a.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(Introductions::inherited(b.into()).is_err());
        let (a, b) = UnixStream::pair().unwrap();
        drop(a);
        assert!(Introductions::inherited(b.into()).is_err());
    }
}
