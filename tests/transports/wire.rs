//! A connection whose side is played by the tests: TCP, with or without TLS. A seed decides the sizes of
//! records and segments, pauses, and how much is read at once. Reads and writes never wait for each other:
//! while a peer takes nothing, what it sends is read.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use nowait_testkit::wait::PATIENCE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::Connection;

use crate::random::SeededRng;

/// How many pieces of a write may be small, so that long contents don't take long.
const SMALL_PIECES_MAX: usize = 48;

/// How many pauses a write or a hundred reads may have.
const PAUSES_MAX: usize = 6;

/// Written bytes that are kept until more come, at most.
const KEPT_MAX: usize = 256 * 1024;

/// The longest record of TLS.
const RECORD_MAX: usize = 16 * 1024;

/// How a side sends and receives.
#[derive(Clone, Copy, Debug)]
enum Pieces {
    Whole,
    Tiny,
    Segments,
    NearBounds,
    Any,
}

/// Most programs don't cut what they send.
const PIECES: [Pieces; 7] = [
    Pieces::Whole,
    Pieces::Whole,
    Pieces::Whole,
    Pieces::Tiny,
    Pieces::Segments,
    Pieces::NearBounds,
    Pieces::Any,
];

impl Pieces {
    fn draw(self, random: &mut SeededRng) -> usize {
        match self {
            Pieces::Whole => usize::MAX,
            Pieces::Tiny => random.within(1, 64),
            Pieces::Segments => 1448,
            Pieces::NearBounds => {
                random.pick(&[4096, 8192, 16_384, 20_480, 65_536]) - 1 + random.below(3)
            }
            Pieces::Any => random.within(1, 40_000),
        }
    }
}

/// A connection.
pub struct Wire {
    socket: TcpStream,
    tls: Option<Box<Connection>>,
    random: SeededRng,
    records: Pieces,
    segments: Pieces,
    reads: Pieces,
    pauses: bool,
    /// Writes are sent together if more follows at once.
    gathers: bool,
    kept: Vec<u8>,
    /// Received and not yet read.
    inbox: Vec<u8>,
    read: usize,
    ended: bool,
    turns: usize,
}

impl Wire {
    /// Takes over a socket.
    ///
    /// # Errors
    /// If the handshake fails.
    pub fn new(socket: TcpStream, tls: Option<Connection>, seed: u64) -> io::Result<Wire> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let mut wire = Wire {
            socket,
            tls: tls.map(Box::new),
            random: SeededRng::new(0),
            records: Pieces::Whole,
            segments: Pieces::Whole,
            reads: Pieces::Whole,
            pauses: false,
            gathers: false,
            kept: Vec::new(),
            inbox: Vec::new(),
            read: 0,
            ended: false,
            turns: 0,
        };
        wire.behave(seed);
        while wire.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            wire.send_records()?;
            if wire.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
                wire.wait(PollFlags::IN)?;
                wire.accept_bytes()?;
                // Everything may come at once, the end included.
                if wire.ended && wire.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
        }
        wire.send_records()?;
        Ok(wire)
    }

    /// Has the habits of a seed from now on.
    pub fn behave(&mut self, seed: u64) {
        let mut random = SeededRng::new(seed);
        self.records = random.pick(&PIECES);
        self.segments = random.pick(&PIECES);
        self.reads = random.pick(&PIECES);
        self.pauses = random.one_in(2);
        self.gathers = random.one_in(2);
        self.random = random;
    }

    /// Ends this side.
    ///
    /// # Errors
    /// If the peer is gone.
    pub fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            self.send_records()?;
        }
        match self.socket.shutdown(Shutdown::Write) {
            // The peer has reset the connection: it has what it wanted, which the receiver compares.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            other => other,
        }
    }

    /// Reads what is there, without waiting. `None`: nothing.
    ///
    /// # Errors
    /// Like [`Read::read`].
    pub fn read_early(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if self.inbox.len() == self.read && !self.ended {
            self.accept_bytes()?;
        }
        if self.inbox.len() == self.read && !self.ended {
            return Ok(None);
        }
        self.read(buffer).map(Some)
    }

    /// Receives what is there, up to a bound.
    fn accept_bytes(&mut self) -> io::Result<()> {
        if self.ended {
            return Ok(());
        }
        self.turns += 1;
        let small = self.turns < SMALL_PIECES_MAX;
        let most = if small { self.reads.draw(&mut self.random) } else { usize::MAX };
        let mut buffer = vec![0; most.min(64 * 1024)];
        let count = match self.socket.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        self.ended = count == 0;
        let Some(tls) = &mut self.tls else {
            self.inbox.extend_from_slice(&buffer[..count]);
            return Ok(());
        };
        let mut records = &buffer[..count];
        loop {
            if tls.read_tls(&mut records)? == 0 && count > 0 {
                break;
            }
            let state = tls.process_new_packets().map_err(io::Error::other)?;
            let start = self.inbox.len();
            self.inbox.resize(start + state.plaintext_bytes_to_read(), 0);
            tls.reader().read_exact(&mut self.inbox[start..])?;
            if state.peer_has_closed() {
                self.ended = true;
            } else if count == 0 {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "no close_notify"));
            }
            if records.is_empty() {
                break;
            }
        }
        if tls.wants_write() && !tls.is_handshaking() {
            self.send_records()?;
        }
        Ok(())
    }

    /// Sends what TLS has to send.
    fn send_records(&mut self) -> io::Result<()> {
        let mut records = Vec::new();
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                tls.write_tls(&mut records)?;
            }
        }
        self.send(&records)
    }

    /// Sends bytes in segments.
    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let (mut pieces, mut pauses) = (0, 0);
        while !bytes.is_empty() {
            pieces += 1;
            let small = pieces < SMALL_PIECES_MAX;
            let most = if small { self.segments.draw(&mut self.random) } else { usize::MAX };
            let mut piece = &bytes[..bytes.len().min(most)];
            bytes = &bytes[piece.len()..];
            while !piece.is_empty() {
                match self.socket.write(piece) {
                    Ok(count) => piece = &piece[count..],
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        let ready = self.wait(PollFlags::IN | PollFlags::OUT)?;
                        if ready.contains(PollFlags::IN) {
                            self.accept_bytes()?;
                        }
                        if self.ended {
                            self.wait(PollFlags::OUT)?;
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            if !bytes.is_empty() && pauses < PAUSES_MAX && self.pauses && self.random.one_in(4) {
                pauses += 1;
                self.pause();
            }
        }
        Ok(())
    }

    fn pause(&mut self) {
        std::thread::sleep(Duration::from_micros(self.random.below(1500) as u64));
    }

    /// Waits for the socket as long as a test does.
    fn wait(&self, flags: PollFlags) -> io::Result<PollFlags> {
        // Steps, as everywhere: a machine that stands still must not fail a test.
        let step = Duration::from_millis(500);
        let timeout = Timespec { tv_sec: 0, tv_nsec: step.as_nanos() as i64 };
        for _ in 0..PATIENCE.as_millis() / step.as_millis() {
            let mut fds = [PollFd::new(&self.socket, flags)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(fds[0].revents()),
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::new(ErrorKind::TimedOut, "nothing happens on the connection"))
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.flush()?;
        if self.pauses && self.turns < 100 * PAUSES_MAX && self.random.one_in(16) {
            self.pause();
        }
        while self.inbox.len() == self.read && !self.ended {
            self.wait(PollFlags::IN)?;
            self.accept_bytes()?;
        }
        let count = buffer.len().min(self.inbox.len() - self.read);
        buffer[..count].copy_from_slice(&self.inbox[self.read..self.read + count]);
        self.read += count;
        if self.read == self.inbox.len() {
            self.inbox.clear();
            self.read = 0;
        }
        Ok(count)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.kept.extend_from_slice(bytes);
        if !self.gathers || self.kept.len() > KEPT_MAX || self.random.one_in(8) {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let kept = std::mem::take(&mut self.kept);
        let mut bytes = &kept[..];
        if self.tls.is_none() {
            return self.send(bytes);
        }
        let mut records = Vec::new();
        let mut pieces = 0;
        while !bytes.is_empty() {
            pieces += 1;
            let small = pieces < SMALL_PIECES_MAX;
            let most = if small { self.records.draw(&mut self.random) } else { RECORD_MAX };
            let (record, rest) = bytes.split_at(bytes.len().min(most).min(RECORD_MAX));
            bytes = rest;
            let refreshes = self.random.one_in(200);
            let tls = self.tls.as_mut().expect("looked at above");
            // Fails with TLS 1.2, which has no such thing.
            if refreshes {
                let _ = tls.refresh_traffic_keys();
            }
            tls.writer().write_all(record)?;
            while tls.wants_write() {
                tls.write_tls(&mut records)?;
            }
        }
        self.send(&records)
    }
}
