//! Sending a range of a file from a pool thread so that the operation can be abandoned while the
//! disk does not respond: first the disk fills a pipe that only the thread uses, then the pipe is
//! sent to the socket, which does not wait.
//!
//! Called by: `net::Stream::send`, if [`SendOptions::gives_up`](crate::net::SendOptions) is set.
//! Bytes are moved in the kernel, as by sendfile(2), which does the same but cannot be interrupted.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::{Errno, retry_on_intr as retry};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use super::file::FileHandle;
use super::send::{Sent, sent};
use super::{File, Io};

/// Bytes per step: the capacity of a pipe. Where the kernel grants smaller ones, steps are smaller.
const PIPE_BYTES: usize = 256 * 1024;

const READING: u8 = 0;
const SENDING: u8 = 1;
const GIVEN_UP: u8 = 2;

/// A thread's right to send the bytes that it is reading. Either the thread or
/// [`give_up`](Claim::give_up) wins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claim(Arc<AtomicU8>);

impl Claim {
    /// The thread has finished reading and is about to send; false: the operation was cancelled.
    fn begin(&self) -> bool {
        self.change(SENDING)
    }

    /// Cancels the operation: no data has been or will be sent. False: sending has begun.
    pub(crate) fn give_up(&self) -> bool {
        self.change(GIVEN_UP)
    }

    fn change(&self, to: u8) -> bool {
        self.0.compare_exchange(READING, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl File {
    /// Like [`send_in_pool`](File::send_in_pool), but `claim` can be cancelled during the read: then no
    /// data was sent, and the connection is unchanged.
    ///
    /// # Errors
    /// Those of splice(2); of the pool.
    pub(crate) async fn splice_in_pool<S>(
        &self,
        io: &Io,
        socket: S,
        offset: u64,
        len: u64,
        claim: Claim,
    ) -> io::Result<Sent>
    where
        S: AsFd + Send + 'static,
    {
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(PIPE_BYTES);
        let step =
            move |handle: &FileHandle| step(handle.as_fd(), socket.as_fd(), offset, len, &claim);
        self.send_by(io, offset, step).await
    }
}

/// An empty pipe.
struct EmptyPipe {
    read: OwnedFd,
    write: OwnedFd,
}

thread_local! {
    /// The pipe that this thread used before.
    static SPARE: Cell<Option<EmptyPipe>> = const { Cell::new(None) };
}

impl EmptyPipe {
    /// `None`: no descriptors left.
    fn take() -> Option<EmptyPipe> {
        SPARE.take().or_else(|| {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC).ok()?;
            // A user with many pipes gets small ones.
            let _ = fcntl_setpipe_size(&write, PIPE_BYTES);
            Some(EmptyPipe { read, write })
        })
    }
}

fn step(
    file: BorrowedFd<'_>,
    socket: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    claim: &Claim,
) -> io::Result<Sent> {
    let Some(pipe) = EmptyPipe::take() else {
        return match claim.begin() {
            true => sent(nowait_sys::fs::send_file(socket, file, offset, len)),
            false => Err(given_up()),
        };
    };
    let mut at = offset;
    let mut fill = || splice(file, Some(&mut at), &pipe.write, None, len, SpliceFlags::empty());
    let held = retry(&mut fill)?;
    if held == 0 {
        SPARE.set(Some(pipe));
        return Ok(Sent::Ended);
    }
    // The contents of the pipe are discarded with it.
    if !claim.begin() {
        return Err(given_up());
    }
    let mut left = held;
    while left > 0 {
        let give = || splice(&pipe.read, None, socket, None, left, SpliceFlags::NONBLOCK);
        match retry(give) {
            Ok(0) => break,
            Ok(given) => left -= given.min(left),
            Err(Errno::AGAIN) => break,
            Err(error) if left == held => return Err(error.into()),
            // The next step will encounter the error again.
            Err(_) => break,
        }
    }
    if left == 0 {
        SPARE.set(Some(pipe));
    }
    Ok(if left == held { Sent::Full } else { Sent::Bytes(held - left) })
}

fn given_up() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "gave up waiting for the disk")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_was_given_up_is_never_sent() {
        let mut file = tempfile();
        let text: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        file.write_all(&text).unwrap();
        let (socket, mut peer) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        peer.set_nonblocking(true).unwrap();
        let send =
            |offset, claim: &Claim| step(file.as_fd(), socket.as_fd(), offset, PIPE_BYTES, claim);
        let given_up = Claim::default();
        assert!(given_up.give_up() && !given_up.give_up());
        assert_eq!(send(0, &given_up).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(peer.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);

        let mut got = Vec::new();
        let mut was_full = false;
        loop {
            let claim = Claim::default();
            match send(got.len() as u64, &claim).unwrap() {
                Sent::Bytes(count) => {
                    assert!(!claim.give_up(), "it was sent");
                    // The next step sends the rest.
                    let mut piece = vec![0; count];
                    was_full |= send(0, &Claim::default()).unwrap() == Sent::Full;
                    peer.read_exact(&mut piece).unwrap();
                    got.extend_from_slice(&piece);
                    while peer.read(&mut [0; 4096]).is_ok() {}
                }
                Sent::Full => panic!("no other task sends"),
                Sent::Ended => break,
            }
        }
        assert!(got == text && was_full);
    }

    fn tempfile() -> std::fs::File {
        let path = std::env::temp_dir().join(format!("nowait-splice-{}", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(&path);
        std::fs::remove_file(&path).unwrap();
        file.unwrap()
    }
}
