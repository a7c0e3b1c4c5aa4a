//! Frames between the master and the server process: a Unix stream socket that carries bytes and
//! descriptors.
//!
//! A frame is a header of four little-endian 32-bit words (magic with the version, kind, bytes,
//! descriptors), then the bytes, then one filler byte per [`FDS_PER_MESSAGE_MAX`] descriptors,
//! which are attached to it. Both ends are this program, but not always the same build of it (across
//! an upgrade only for [`MasterFrame`]: the new master starts its own server process), and the master does
//! not trust the server process: every length has a bound, and an invalid frame closes the socket.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use nowait_conf::Contents;
use nowait_sys::fdpass::{self, FDS_PER_MESSAGE_MAX};

use crate::log::Level;
use crate::logs::PassedLogs;

/// "NW" and the version of the format.
const MAGIC: u32 = 0x4e57_0001;

/// Maximum bytes of a frame: mostly the texts of a configuration.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// Maximum descriptors of a frame: mostly the sockets of a generation.
const FRAME_FDS_MAX: usize = 65_536;

/// Maximum items of a list in a frame.
const LIST_MAX: usize = 65_536;

/// Four numbers: what a frame is, its kind, the length of its body, the number of descriptors.
const HEAD_BYTES: usize = 16;

/// Bytes of the texts that are sent together with what precedes them.
const PIECE_BYTES: usize = 64 << 10;

/// Time limit for one frame, after which the other side counts as dead.
const FRAME_TIMEOUT: Duration = Duration::from_secs(10);

/// Messages from the master to the server process.
#[derive(Debug)]
pub enum ToServer {
    /// Use this configuration from now on.
    Generation(Box<GenerationFrame>),
    /// The logs were reopened: write to these.
    Reopen(PassedLogs),
    /// The disks of some logs have answered at last: write to these, and keep the others.
    LateLogs(PassedLogs),
    /// Purge a cache, and reply with this number.
    Purge(u64, PurgeOrder),
    /// Give all error logs this level, or again their own, and reply with this number.
    LogLevel(u64, Option<Level>),
    /// A configuration was refused, for this reason: for status pages.
    ReloadFailed(String),
    /// These other server processes receive from the same UDP sockets: their numbers, and the sending ends of their
    /// inboxes.
    Others(Vec<(u16, OwnedFd)>),
    /// Shut down gracefully.
    Quit,
    /// Shut down fast.
    Terminate,
}

/// What a master tells the other one during an upgrade. A change of its form costs the connections over QUIC of those
/// who upgrade from one form to the other.
#[derive(Debug, Default)]
pub struct MasterFrame {
    /// From which the keys of QUIC are derived.
    pub secret: Vec<u8>,
    /// The last bit of the numbers of the receiver's server processes.
    pub parity: u16,
    /// The highest number so far.
    pub last: u16,
    /// The sender's server processes, as in [`ToServer::Others`].
    pub processes: Vec<(u16, OwnedFd)>,
}

/// The objects to purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeOrder {
    /// Name of the cache's zone.
    pub zone: String,
    /// The meaning of `text`.
    pub kind: PurgeKind,
    /// Mark objects as expired instead of removing them.
    pub soft: bool,
    /// A key, the beginning of keys, or a tag.
    pub text: Vec<u8>,
}

/// The selection of objects to purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeKind {
    /// By key.
    Key,
    /// By a prefix of the key.
    Prefix,
    /// By tag.
    Tag,
    /// All of them.
    All,
}

/// In the order of their numbers.
const KINDS: [PurgeKind; 4] = [PurgeKind::Key, PurgeKind::Prefix, PurgeKind::Tag, PurgeKind::All];

/// A configuration in transit: texts, and the descriptors that the master opened for it.
#[derive(Debug, Default)]
pub struct GenerationFrame {
    /// Counted from 1.
    pub number: u64,
    /// Every configuration file read, as `conf` serialises them.
    pub bundle: Contents,
    /// The main file.
    pub conf_file: PathBuf,
    /// `-p`.
    pub prefix: PathBuf,
    /// `-e`, a full path; empty for standard error.
    pub error_log: PathBuf,
    /// `-e stderr`.
    pub error_log_is_stderr: bool,
    /// `-g`.
    pub globals: Option<String>,
    /// Sockets per listener of the plan.
    pub listeners: Vec<Vec<OwnedFd>>,
    /// The logs.
    pub logs: PassedLogs,
}

/// Messages from the server process to the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToMaster {
    /// The generation is in use by all workers.
    Ready {
        /// The generation.
        number: u64,
        /// The number of workers.
        workers: u32,
    },
    /// The generation could not be used; the previous one stays.
    Refused {
        /// The generation.
        number: u64,
        /// The reason.
        reason: String,
    },
    /// A forwarded request has been executed.
    Replied {
        /// The number of the request.
        id: u64,
        /// The number of purged objects (zero for other requests), or the error.
        result: Result<u64, String>,
    },
    /// Every event loop has made a turn since the last such message.
    Alive {
        /// Counted from 1.
        round: u64,
    },
    /// The last connection that used the generation is gone.
    Drained {
        /// The generation.
        number: u64,
        /// The number of workers.
        workers: u32,
    },
}

const GENERATION: u32 = 1;
const REOPEN: u32 = 2;
const QUIT: u32 = 3;
const TERMINATE: u32 = 4;
const PURGE: u32 = 5;
const LATE_LOGS: u32 = 6;
const RELOAD_FAILED: u32 = 7;
const OTHERS: u32 = 8;
const LOG_LEVEL: u32 = 9;
const READY: u32 = 16;
const REFUSED: u32 = 17;
const ALIVE: u32 = 20;
const DRAINED: u32 = 18;
const REPLIED: u32 = 19;
const MASTER: u32 = 32;

/// Makes the socket pair between a master and a server process.
///
/// # Errors
/// The kernel's.
pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let (a, b) = UnixStream::pair()?;
    set_timeouts(&a)?;
    set_timeouts(&b)?;
    Ok((a, b))
}

/// Limits how long a frame may take.
///
/// # Errors
/// The kernel's.
pub fn set_timeouts(socket: &UnixStream) -> io::Result<()> {
    socket.set_read_timeout(Some(FRAME_TIMEOUT))?;
    socket.set_write_timeout(Some(FRAME_TIMEOUT))
}

impl ToServer {
    /// Sends the message; the descriptors stay the caller's.
    ///
    /// # Errors
    /// The socket's error; a timeout means that the server process is no longer listening.
    pub fn send(&self, socket: &UnixStream) -> io::Result<()> {
        let mut body = FrameWriter::default();
        let mut fds = Vec::new();
        let kind = match self {
            ToServer::Generation(frame) => {
                body.number(frame.number);
                body.number(frame.bundle.len() as u64);
                body.bytes(frame.conf_file.as_os_str().as_bytes());
                body.bytes(frame.prefix.as_os_str().as_bytes());
                body.bytes(frame.error_log.as_os_str().as_bytes());
                body.number(u64::from(frame.error_log_is_stderr));
                body.number(u64::from(frame.globals.is_some()));
                body.bytes(frame.globals.as_deref().unwrap_or_default().as_bytes());
                body.number(frame.listeners.len() as u64);
                for group in &frame.listeners {
                    body.number(group.len() as u64);
                    fds.extend(group.iter().map(|fd| fd.as_fd()));
                }
                body.logs(&frame.logs, &mut fds);
                GENERATION
            }
            ToServer::Reopen(logs) => {
                body.logs(logs, &mut fds);
                REOPEN
            }
            ToServer::LateLogs(logs) => {
                body.logs(logs, &mut fds);
                LATE_LOGS
            }
            ToServer::Purge(id, order) => {
                body.number(*id);
                body.bytes(order.zone.as_bytes());
                body.number(KINDS.iter().position(|kind| *kind == order.kind).unwrap_or(0) as u64);
                body.number(u64::from(order.soft));
                body.bytes(&order.text);
                PURGE
            }
            ToServer::LogLevel(id, level) => {
                body.number(*id);
                body.number(level.map_or(0, |level| level as u64));
                LOG_LEVEL
            }
            ToServer::ReloadFailed(reason) => {
                body.bytes(reason.as_bytes());
                RELOAD_FAILED
            }
            ToServer::Others(others) => {
                body.processes(others, &mut fds);
                OTHERS
            }
            ToServer::Quit => QUIT,
            ToServer::Terminate => TERMINATE,
        };
        let texts = match self {
            ToServer::Generation(frame) => frame.bundle.as_slice(),
            _ => &[],
        };
        send_frame(socket, kind, &body.0, texts, &fds)
    }

    /// Receives a message; `None` at the end of the stream.
    ///
    /// # Errors
    /// The socket's error; `InvalidData` for anything that is not a message.
    pub fn receive(socket: &UnixStream) -> io::Result<Option<ToServer>> {
        let Some((kind, mut received, fds)) = receive_frame(socket)? else { return Ok(None) };
        let mut body = FrameReader(&received);
        let mut fds = VecDeque::from(fds);
        let message = match kind {
            GENERATION => {
                let number = body.number()?;
                let texts = body.number()?;
                let mut frame = GenerationFrame {
                    number,
                    conf_file: body.path()?,
                    prefix: body.path()?,
                    error_log: body.path()?,
                    ..GenerationFrame::default()
                };
                frame.error_log_is_stderr = body.number()? != 0;
                let has_globals = body.number()? != 0;
                let globals = body.string()?;
                frame.globals = has_globals.then_some(globals);
                for _ in 0..body.list()? {
                    let count = body.list()?;
                    let group = (0..count).map(|_| fds.pop_front().ok_or_else(invalid));
                    frame.listeners.push(group.collect::<io::Result<_>>()?);
                }
                frame.logs = body.logs(&mut fds)?;
                // The texts are all the rest. They may be large, and stay where they are.
                if body.0.len() as u64 != texts {
                    return Err(invalid());
                }
                let others = received.len() - body.0.len();
                received.drain(..others);
                frame.bundle = received;
                ToServer::Generation(Box::new(frame))
            }
            REOPEN => ToServer::Reopen(body.logs(&mut fds)?),
            LATE_LOGS => ToServer::LateLogs(body.logs(&mut fds)?),
            PURGE => {
                let id = body.number()?;
                let zone = body.string()?;
                let kind = usize::try_from(body.number()?).ok().and_then(|n| KINDS.get(n).copied());
                let soft = body.number()? != 0;
                let text = body.bytes()?.to_vec();
                let kind = kind.ok_or_else(invalid)?;
                ToServer::Purge(id, PurgeOrder { zone, kind, soft, text })
            }
            LOG_LEVEL => {
                let (id, number) = (body.number()?, body.number()?);
                let level = u8::try_from(number).ok().and_then(Level::of_number);
                // Zero stands for their own levels.
                if level.is_none() && number != 0 {
                    return Err(invalid());
                }
                ToServer::LogLevel(id, level)
            }
            RELOAD_FAILED => ToServer::ReloadFailed(body.string()?),
            OTHERS => ToServer::Others(body.processes(&mut fds)?),
            QUIT => ToServer::Quit,
            TERMINATE => ToServer::Terminate,
            _ => return Err(invalid()),
        };
        Ok(Some(message))
    }
}

impl MasterFrame {
    /// Sends the message; the descriptors stay the caller's.
    ///
    /// # Errors
    /// The socket's.
    pub fn send(&self, socket: &UnixStream) -> io::Result<()> {
        let (mut body, mut fds) = (FrameWriter::default(), Vec::new());
        body.bytes(&self.secret);
        body.number(self.parity.into());
        body.number(self.last.into());
        body.processes(&self.processes, &mut fds);
        send_frame(socket, MASTER, &body.0, &[], &fds)
    }

    /// Receives a message; `None` at the end of the stream.
    ///
    /// # Errors
    /// The socket's error; `InvalidData` for anything that is not a message.
    pub fn receive(socket: &UnixStream) -> io::Result<Option<MasterFrame>> {
        let Some((kind, body, fds)) = receive_frame(socket)? else { return Ok(None) };
        if kind != MASTER {
            return Err(invalid());
        }
        let (mut body, mut fds) = (FrameReader(&body), VecDeque::from(fds));
        let secret = body.bytes()?.to_vec();
        let (parity, last) = (body.small()?, body.small()?);
        Ok(Some(MasterFrame { secret, parity, last, processes: body.processes(&mut fds)? }))
    }
}

impl ToMaster {
    /// Sends the message.
    ///
    /// # Errors
    /// The socket's.
    pub fn send(&self, socket: &UnixStream) -> io::Result<()> {
        let mut body = FrameWriter::default();
        let kind = match self {
            ToMaster::Ready { number, workers } => {
                body.number(*number);
                body.number(u64::from(*workers));
                READY
            }
            ToMaster::Refused { number, reason } => {
                body.number(*number);
                body.bytes(reason.as_bytes());
                REFUSED
            }
            ToMaster::Replied { id, result } => {
                body.number(*id);
                body.number(u64::from(result.is_ok()));
                body.number(*result.as_ref().unwrap_or(&0));
                body.bytes(result.as_ref().err().map_or(b"", |reason| reason.as_bytes()));
                REPLIED
            }
            ToMaster::Drained { number, workers } => {
                body.number(*number);
                body.number(u64::from(*workers));
                DRAINED
            }
            ToMaster::Alive { round } => {
                body.number(*round);
                ALIVE
            }
        };
        send_frame(socket, kind, &body.0, &[], &[])
    }

    /// Receives a message; `None` at the end of the stream.
    ///
    /// # Errors
    /// The socket's error; `InvalidData` for anything that is not a message.
    pub fn receive(socket: &UnixStream) -> io::Result<Option<ToMaster>> {
        let Some((kind, body, _)) = receive_frame(socket)? else { return Ok(None) };
        let mut body = FrameReader(&body);
        let number = body.number()?;
        Ok(Some(match kind {
            READY => ToMaster::Ready { number, workers: body.list()? as u32 },
            REFUSED => ToMaster::Refused { number, reason: body.string()? },
            REPLIED => {
                let done = body.number()? != 0;
                let objects = body.number()?;
                let reason = body.string()?;
                let result = if done { Ok(objects) } else { Err(reason) };
                ToMaster::Replied { id: number, result }
            }
            DRAINED => ToMaster::Drained { number, workers: body.list()? as u32 },
            ALIVE => ToMaster::Alive { round: number },
            _ => return Err(invalid()),
        }))
    }
}

/// Sends a message. `texts`, which may be large, follow the rest of its body.
fn send_frame(
    mut socket: &UnixStream,
    kind: u32,
    body: &[u8],
    texts: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = body.len() + texts.len();
    if bytes > FRAME_BYTES_MAX || fds.len() > FRAME_FDS_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "configuration is too large"));
    }
    // In one piece: a process that gets no processor time between two pieces would leave the other side
    // waiting. Frames larger than the socket's buffer need several pieces in any case.
    let (first, rest) = texts.split_at(texts.len().min(PIECE_BYTES));
    let mut frame = Contents::new(Vec::with_capacity(HEAD_BYTES + body.len() + first.len()));
    for word in [MAGIC, kind, bytes as u32, fds.len() as u32] {
        frame.extend_from_slice(&word.to_le_bytes());
    }
    frame.extend_from_slice(body);
    frame.extend_from_slice(first);
    socket.write_all(&frame)?;
    socket.write_all(rest)?;
    for some in fds.chunks(FDS_PER_MESSAGE_MAX) {
        fdpass::send(socket, &[0], some)?;
    }
    Ok(())
}

type Frame = (u32, Contents, Vec<OwnedFd>);

fn receive_frame(mut socket: &UnixStream) -> io::Result<Option<Frame>> {
    let mut head = [0; HEAD_BYTES];
    match socket.read(&mut head[..1]) {
        Ok(0) => return Ok(None),
        Ok(_) => socket.read_exact(&mut head[1..])?,
        // The other side ended before it had read the whole message.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        Err(error) => return Err(error),
    }
    let word = |index: usize| {
        let bytes = head[index * 4..][..4].try_into().expect("a slice of four bytes");
        u32::from_le_bytes(bytes)
    };
    let (bytes, fd_count) = (word(2) as usize, word(3) as usize);
    if word(0) != MAGIC || bytes > FRAME_BYTES_MAX || fd_count > FRAME_FDS_MAX {
        return Err(invalid());
    }
    let mut body = Contents::new(vec![0; bytes]);
    socket.read_exact(&mut body)?;
    let mut fds = Vec::with_capacity(fd_count);
    for _ in 0..fd_count.div_ceil(FDS_PER_MESSAGE_MAX) {
        if fdpass::receive(socket, &mut [0], &mut fds)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    if fds.len() != fd_count {
        return Err(invalid());
    }
    Ok(Some((word(1), body, fds)))
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed message")
}

#[derive(Default)]
struct FrameWriter(Vec<u8>);

impl FrameWriter {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn processes<'a>(&mut self, processes: &'a [(u16, OwnedFd)], fds: &mut Vec<BorrowedFd<'a>>) {
        self.number(processes.len() as u64);
        for (number, inbox) in processes {
            self.number(u64::from(*number));
            fds.push(inbox.as_fd());
        }
    }

    fn logs<'a>(&mut self, logs: &'a PassedLogs, fds: &mut Vec<BorrowedFd<'a>>) {
        self.number(logs.ids.len() as u64);
        for (path, id) in &logs.ids {
            self.bytes(path.as_os_str().as_bytes());
            self.number(*id);
        }
        self.number(u64::from(logs.from.is_some()));
        fds.extend(logs.from.as_ref().map(|fd| fd.as_fd()));
    }
}

struct FrameReader<'a>(&'a [u8]);

impl<'a> FrameReader<'a> {
    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(invalid)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> io::Result<u64> {
        let bytes = self.take(8)?.try_into().map_err(|_| invalid())?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The length of a list.
    fn list(&mut self) -> io::Result<usize> {
        usize::try_from(self.number()?).ok().filter(|n| *n <= LIST_MAX).ok_or_else(invalid)
    }

    fn small(&mut self) -> io::Result<u16> {
        u16::try_from(self.number()?).map_err(|_| invalid())
    }

    fn processes(&mut self, fds: &mut VecDeque<OwnedFd>) -> io::Result<Vec<(u16, OwnedFd)>> {
        let count = self.list()?;
        (0..count).map(|_| Ok((self.small()?, fds.pop_front().ok_or_else(invalid)?))).collect()
    }

    fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let length = usize::try_from(self.number()?).map_err(|_| invalid())?;
        self.take(length)
    }

    fn string(&mut self) -> io::Result<String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| invalid())
    }

    fn path(&mut self) -> io::Result<PathBuf> {
        Ok(PathBuf::from(std::ffi::OsString::from_vec(self.bytes()?.to_vec())))
    }

    fn logs(&mut self, fds: &mut VecDeque<OwnedFd>) -> io::Result<PassedLogs> {
        let count = self.list()?;
        let ids = (0..count).map(|_| Ok((self.path()?, self.number()?)));
        let ids = ids.collect::<io::Result<_>>()?;
        let from = match self.number()? {
            0 => None,
            _ => Some(fds.pop_front().ok_or_else(invalid)?),
        };
        Ok(PassedLogs { ids, from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn null() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn a_generation_travels_with_many_descriptors() {
        let (a, b) = pair().unwrap();
        let frame = GenerationFrame {
            number: 7,
            bundle: Contents::new(vec![1, 2, 3]),
            conf_file: "/etc/x.conf".into(),
            prefix: "/etc/".into(),
            error_log: PathBuf::new(),
            error_log_is_stderr: true,
            globals: Some("daemon off;".into()),
            listeners: vec![(0..300).map(|_| null()).collect(), vec![], vec![null()]],
            logs: PassedLogs { ids: vec![("/a.log".into(), 5)], from: Some(null()) },
        };
        let sender = std::thread::spawn(move || {
            ToServer::Generation(Box::new(frame)).send(&a).unwrap();
            let order = PurgeOrder {
                zone: "one".into(),
                kind: PurgeKind::Tag,
                soft: true,
                text: b"t\xff".to_vec(),
            };
            ToServer::Purge(9, order).send(&a).unwrap();
            ToServer::LogLevel(10, Some(Level::Debug)).send(&a).unwrap();
            ToServer::LogLevel(11, None).send(&a).unwrap();
            ToServer::Quit.send(&a).unwrap();
        });
        let Some(ToServer::Generation(got)) = ToServer::receive(&b).unwrap() else { panic!() };
        assert_eq!((got.number, got.bundle.as_slice()), (7, &[1, 2, 3][..]));
        assert_eq!(got.listeners.iter().map(Vec::len).collect::<Vec<_>>(), [300, 0, 1]);
        assert_eq!(got.globals.as_deref(), Some("daemon off;"));
        assert!(got.error_log_is_stderr);
        assert_eq!(got.logs.ids, [(PathBuf::from("/a.log"), 5)]);
        assert!(got.logs.from.is_some());
        let Some(ToServer::Purge(9, order)) = ToServer::receive(&b).unwrap() else { panic!() };
        assert_eq!(
            (order.kind, order.soft, &order.text[..]),
            (PurgeKind::Tag, true, &b"t\xff"[..])
        );
        let level = ToServer::receive(&b).unwrap();
        assert!(matches!(level, Some(ToServer::LogLevel(10, Some(Level::Debug)))));
        assert!(matches!(ToServer::receive(&b).unwrap(), Some(ToServer::LogLevel(11, None))));
        assert!(matches!(ToServer::receive(&b).unwrap(), Some(ToServer::Quit)));
        sender.join().unwrap();
        assert!(ToServer::receive(&b).unwrap().is_none());
    }

    #[test]
    fn processes_travel_with_their_inboxes() {
        let (a, b) = pair().unwrap();
        ToServer::Others(vec![(7, null()), (u16::MAX, null())]).send(&a).unwrap();
        let Some(ToServer::Others(others)) = ToServer::receive(&b).unwrap() else { panic!() };
        assert_eq!(others.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [7, u16::MAX]);
        let processes = vec![(9, null())];
        let frame = MasterFrame { secret: vec![1; 32], parity: 1, last: 9, processes };
        frame.send(&a).unwrap();
        let got = MasterFrame::receive(&b).unwrap().unwrap();
        assert_eq!((got.secret, got.parity, got.last), (vec![1; 32], 1, 9));
        assert_eq!(got.processes[0].0, 9);
        // Anything else is none.
        ToServer::Quit.send(&a).unwrap();
        assert!(MasterFrame::receive(&b).is_err());
    }

    #[test]
    fn answers_travel_back() {
        let (a, b) = pair().unwrap();
        let messages = [
            ToMaster::Ready { number: 1, workers: 2 },
            ToMaster::Refused { number: 2, reason: "no".into() },
            ToMaster::Drained { number: 1, workers: 2 },
            ToMaster::Alive { round: 9 },
            ToMaster::Replied { id: 3, result: Ok(7) },
            ToMaster::Replied { id: 4, result: Err("no such cache".into()) },
        ];
        for message in messages {
            message.send(&a).unwrap();
            assert_eq!(ToMaster::receive(&b).unwrap(), Some(message));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bytes in [&[0u8; 16][..], b"GET / HTTP/1.1\r\n\r\n"] {
            let (mut a, b) = pair().unwrap();
            a.write_all(bytes).unwrap();
            assert_eq!(ToServer::receive(&b).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        let (mut a, b) = pair().unwrap();
        let head: Vec<u8> =
            [MAGIC, QUIT, u32::MAX, 0].iter().flat_map(|w| w.to_le_bytes()).collect();
        a.write_all(&head).unwrap();
        assert!(ToServer::receive(&b).is_err());
    }
}
