//! Messages between the processes that log and the log process: one datagram each, over Unix
//! sockets that keep their boundaries.
//!
//! Two sockets lead to the log process. *Lines* come from the master and from the server process,
//! which is not trusted: a line names a log by number, and nothing else can be asked for. *Commands*
//! come from the master alone.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use nowait_sys::fdpass::{self, FDS_PER_MESSAGE_MAX};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// Maximum size of a message: more than a path or a line has.
pub const MESSAGE_BYTES_MAX: usize = 8192;

/// Maximum text of a line in one message.
pub const TEXT_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 8;

/// Instead of a log's number: standard error as it was before it was redirected.
pub const STDERR: u64 = 0;

/// Logs per [`LogCommand::Give`].
pub const GIVE_MAX: usize = FDS_PER_MESSAGE_MAX;

/// A command of the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogCommand {
    /// Open the log at this path; [`Reply::Opened`] follows, however late.
    Open {
        /// The number of the log from now on.
        id: u64,
        /// The path.
        path: PathBuf,
        /// Create its directory if that is missing.
        make_directory: bool,
    },
    /// Close a log.
    Close(u64),
    /// Standard error, and lines for logs that were closed, go to this log, or to [`STDERR`].
    Stderr(u64),
    /// Pass the descriptors of these logs to the process at the other end of the attached socket.
    Give(Vec<u64>),
    /// Write everything out, then reply [`Reply::Flushed`].
    Flush,
    /// End: another log process takes over.
    End,
}

/// A report of the log process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A log is open, or why not.
    Opened(u64, Result<(), OpenFailure>),
    /// Everything that was logged before the command is in its file.
    Flushed,
    /// The log accepts no more lines.
    Ended,
}

/// The reason why a log cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFailure {
    /// The message for the log.
    pub message: String,
    /// The directory could not be created.
    pub of_directory: bool,
}

/// A socket pair for messages. Neither end ever waits.
///
/// # Errors
/// The kernel's.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// The result of reading a socket.
#[derive(Debug)]
pub enum SocketRead<T> {
    /// A message.
    Message(T),
    /// No message at the moment.
    Nothing,
    /// The other end is closed.
    End,
}

/// Receives a message's bytes and descriptors.
///
/// Only when all other ends are closed is the result [`SocketRead::End`]. An empty message, which `recvmsg`
/// reports in the same way, is skipped, so that an untrusted process can't end logging.
pub fn receive(socket: impl AsFd) -> SocketRead<(Vec<u8>, Vec<OwnedFd>)> {
    let (mut bytes, mut fds) = (vec![0; MESSAGE_BYTES_MAX], Vec::new());
    match fdpass::receive(&socket, &mut bytes, &mut fds) {
        Ok(0) if hung_up(&socket) => SocketRead::End,
        // If there is more, `poll` tells of it again.
        Ok(0) | Err(_) => SocketRead::Nothing,
        Ok(count) => {
            bytes.truncate(count);
            SocketRead::Message((bytes, fds))
        }
    }
}

/// Whether the other end is closed. If that can't be found out, so it is.
fn hung_up(socket: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&socket, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default())).is_err()
        || polled[0].revents().contains(PollFlags::HUP)
}

/// A line for a log.
pub fn line(id: u64, text: &[u8]) -> Vec<u8> {
    let mut bytes = id.to_le_bytes().to_vec();
    bytes.extend_from_slice(text);
    bytes
}

/// The log and the text of a line.
pub fn parse_line(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (id, text) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*id), text))
}

/// The numbers of logs that descriptors belong to.
pub fn ids(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|id| u64::from_le_bytes(*id)).collect()
}

/// The opposite of [`ids`].
pub fn from_ids(ids: &[u64]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

impl LogCommand {
    /// Sends it; only [`LogCommand::Give`] has a descriptor.
    ///
    /// # Errors
    /// `WouldBlock` while the other side is behind.
    pub fn send(&self, socket: impl AsFd, attached: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = match self {
            LogCommand::Open { id, path, make_directory } => {
                let mut bytes = vec![if *make_directory { b'D' } else { b'O' }];
                bytes.extend_from_slice(&line(*id, path.as_os_str().as_bytes()));
                bytes
            }
            LogCommand::Close(id) => [&b"C"[..], &id.to_le_bytes()].concat(),
            LogCommand::Stderr(id) => [&b"S"[..], &id.to_le_bytes()].concat(),
            LogCommand::Give(ids) => [&b"G"[..], &from_ids(ids)].concat(),
            LogCommand::Flush => b"F".to_vec(),
            LogCommand::End => b"E".to_vec(),
        };
        fdpass::send(socket, &bytes, attached).map(drop)
    }

    /// Reads one.
    pub fn parse(bytes: &[u8]) -> Option<LogCommand> {
        let (kind, rest) = bytes.split_first()?;
        let id = parse_line(rest);
        Some(match kind {
            b'D' | b'O' => {
                let (id, path) = id?;
                let path = OsString::from_vec(path.to_vec()).into();
                LogCommand::Open { id, path, make_directory: *kind == b'D' }
            }
            b'C' => LogCommand::Close(id?.0),
            b'S' => LogCommand::Stderr(id?.0),
            b'G' => LogCommand::Give(ids(rest)),
            b'F' => LogCommand::Flush,
            b'E' => LogCommand::End,
            _ => return None,
        })
    }
}

impl Reply {
    /// The bytes.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Reply::Opened(id, Ok(())) => [&b"+"[..], &id.to_le_bytes()].concat(),
            Reply::Opened(id, Err(failure)) => {
                let kind = if failure.of_directory { b"d" } else { b"f" };
                let text = line(*id, failure.message.as_bytes());
                let mut bytes = [&kind[..], &text].concat();
                bytes.truncate(MESSAGE_BYTES_MAX);
                bytes
            }
            Reply::Flushed => b"F".to_vec(),
            Reply::Ended => b"E".to_vec(),
        }
    }

    /// Reads one.
    pub fn parse(bytes: &[u8]) -> Option<Reply> {
        let (kind, rest) = bytes.split_first()?;
        Some(match kind {
            b'+' => Reply::Opened(parse_line(rest)?.0, Ok(())),
            b'd' | b'f' => {
                let (id, text) = parse_line(rest)?;
                let message = String::from_utf8_lossy(text).into_owned();
                Reply::Opened(id, Err(OpenFailure { message, of_directory: *kind == b'd' }))
            }
            b'F' => Reply::Flushed,
            b'E' => Reply::Ended,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::SendFlags;

    #[test]
    fn messages_survive_the_journey() {
        let (a, b) = pair().unwrap();
        let commands = [
            LogCommand::Open { id: 1, path: "/a b".into(), make_directory: true },
            LogCommand::Open { id: 2, path: "/c".into(), make_directory: false },
            LogCommand::Close(u64::MAX),
            LogCommand::Stderr(4),
            LogCommand::Give(vec![5, 6]),
            LogCommand::Flush,
            LogCommand::End,
        ];
        for command in commands {
            command.send(&a, &[]).unwrap();
            let SocketRead::Message((bytes, _)) = receive(&b) else { panic!() };
            assert_eq!(LogCommand::parse(&bytes), Some(command));
        }
        let failure = |of_directory| OpenFailure { message: "no".into(), of_directory };
        let replies = [
            Reply::Opened(1, Ok(())),
            Reply::Opened(2, Err(failure(true))),
            Reply::Opened(3, Err(failure(false))),
            Reply::Flushed,
            Reply::Ended,
        ];
        for reply in replies {
            assert_eq!(Reply::parse(&reply.bytes()), Some(reply));
        }
        assert!(matches!(receive(&b), SocketRead::Nothing));
        drop(a);
        assert!(matches!(receive(&b), SocketRead::End));
    }

    #[test]
    fn an_empty_message_is_not_the_end() {
        let (a, b) = pair().unwrap();
        rustix::net::send(&a, &[], SendFlags::NOSIGNAL).unwrap();
        LogCommand::Flush.send(&a, &[]).unwrap();
        assert!(matches!(receive(&b), SocketRead::Nothing));
        assert!(matches!(receive(&b), SocketRead::Message(_)));
        drop(a);
        assert!(matches!(receive(&b), SocketRead::End));
    }

    #[test]
    fn nonsense_is_refused() {
        for bytes in [&b""[..], b"O", b"O1234567", b"X", b"C"] {
            assert_eq!(LogCommand::parse(bytes), None);
        }
        assert_eq!(Reply::parse(b"+1"), None);
        assert_eq!(parse_line(b"1234567"), None);
    }
}
