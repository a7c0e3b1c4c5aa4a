//! The floor of proxies: a blind relay.
//!
//! Each connection of a client gets one to the origin, and bytes are copied both ways through one buffer
//! of the thread. Nothing is parsed, and no connection of the origin is used by a second client.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, connect, recv, send,
    socket_with,
};

use super::{EVENTS, data};
use crate::server::ORIGIN;

/// Bytes that are copied at a time.
const BUFFER_BYTES: usize = 64 * 1024;

/// One end of a relay.
struct RelayEnd {
    socket: OwnedFd,
    /// The number of the other end.
    peer: usize,
    /// What came from the other end and is not sent yet.
    pending: Vec<u8>,
}

/// Both ends are closed.
struct Closed;

/// One thread, until it is killed.
pub fn serve_one(listener: &OwnedFd) -> io::Result<()> {
    let queue = epoll::create(CreateFlags::CLOEXEC)?;
    let listening = data(listener);
    epoll::add(&queue, listener, listening, EventFlags::IN)?;
    let mut ends = RelayTable::default();
    let mut events = Vec::with_capacity(EVENTS);
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
    loop {
        events.clear();
        match epoll::wait(&queue, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let (number, flags) = (event.data.u64(), event.flags);
            if number == listening.u64() {
                ends.accept(&queue, listener)?;
            } else if ends.ready(number as usize, flags, &mut buffer).is_err() {
                ends.close(number as usize);
            }
        }
    }
}

/// By the number of their descriptor.
#[derive(Default)]
struct RelayTable(Vec<Option<RelayEnd>>);

impl RelayTable {
    fn accept(&mut self, queue: &OwnedFd, listener: &OwnedFd) -> io::Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        if let Ok(client) = accept_with(listener, flags) {
            let origin = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
            match connect(&origin, &ORIGIN) {
                Ok(()) | Err(Errno::INPROGRESS) => {}
                Err(error) => return Err(error.into()),
            }
            let numbers = [client.as_raw_fd() as usize, origin.as_raw_fd() as usize];
            let peers = [numbers[1], numbers[0]];
            for (socket, peer) in [client, origin].into_iter().zip(peers) {
                let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
                epoll::add(queue, &socket, data(&socket), flags)?;
                let number = socket.as_raw_fd() as usize;
                if self.0.len() <= number {
                    self.0.resize_with(number + 1, || None);
                }
                self.0[number] = Some(RelayEnd { socket, peer, pending: Vec::new() });
            }
        }
        Ok(())
    }

    fn ready(
        &mut self,
        number: usize,
        flags: EventFlags,
        buffer: &mut [MaybeUninit<u8>],
    ) -> Result<(), Closed> {
        let Some(Some(end)) = self.0.get(number) else { return Ok(()) };
        let peer = end.peer;
        if flags.contains(EventFlags::OUT) && !end.pending.is_empty() {
            self.copy(peer, true, buffer)?;
        }
        let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(EventFlags::IN | ends) {
            self.copy(number, flags.intersects(ends), buffer)?;
        }
        Ok(())
    }

    /// Copies what one end has to the other; `all`: until it has nothing more, which costs a call.
    fn copy(
        &mut self,
        from: usize,
        all: bool,
        buffer: &mut [MaybeUninit<u8>],
    ) -> Result<(), Closed> {
        loop {
            let Some(Some(end)) = self.0.get_mut(from) else { return Err(Closed) };
            let to = end.peer;
            let Some(Some(other)) = self.0.get_mut(to) else { return Err(Closed) };
            if !other.pending.is_empty() {
                let sent = send_some(&other.socket, &other.pending)?;
                other.pending.drain(..sent);
                if !other.pending.is_empty() {
                    return Ok(());
                }
            }
            let Some(Some(end)) = self.0.get(from) else { return Err(Closed) };
            let room = buffer.len();
            let read = match recv(&end.socket, &mut *buffer, RecvFlags::empty()) {
                Err(Errno::AGAIN) => return Ok(()),
                Ok(((read, _), 1..)) => read,
                Ok(_) | Err(_) => return Err(Closed),
            };
            let Some(Some(other)) = self.0.get_mut(to) else { return Err(Closed) };
            let sent = send_some(&other.socket, read)?;
            if sent < read.len() {
                other.pending.extend_from_slice(&read[sent..]);
                return Ok(());
            }
            // What arrives from now on is a new event.
            if read.len() < room && !all {
                return Ok(());
            }
        }
    }

    fn close(&mut self, number: usize) {
        if let Some(end) = self.0.get_mut(number).and_then(Option::take) {
            self.0[end.peer] = None;
        }
    }
}

fn send_some(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Closed> {
    match send(socket, bytes, SendFlags::NOSIGNAL) {
        Ok(sent) => Ok(sent),
        Err(Errno::AGAIN) => Ok(0),
        Err(_) => Err(Closed),
    }
}
