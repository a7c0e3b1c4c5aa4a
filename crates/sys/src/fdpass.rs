//! ProxyHandler descriptors: over a Unix socket (SCM_RIGHTS) and through `exec`.
//!
//! Called by the master and the server process. Frames and their meaning belong to the `server`
//! crate; this module handles one message with at most [`FDS_PER_MESSAGE_MAX`] descriptors.
//!
//! Ownership argument for the unsafe code: an inherited descriptor is only known by its number.
//! [`adopt`] duplicates it (which is memory-safe for any number) and owns the duplicate; it closes
//! the original, which nothing in this process can own as long as it is called before the process
//! opens anything of its own at that number. Callers run it first thing in `main`.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::FdFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// Descriptors that the kernel takes in one message (SCM_MAX_FD).
pub const FDS_PER_MESSAGE_MAX: usize = 253;

/// Room for the control data of a full message.
const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(FDS_PER_MESSAGE_MAX));

/// Sends some of `bytes`, and all of `fds` with the first of them. Returns the number of bytes
/// sent.
///
/// # Errors
/// `EINVAL` when there are no bytes, or more descriptors than fit; otherwise the kernel's.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    if bytes.is_empty() || fds.len() > FDS_PER_MESSAGE_MAX {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut space = [MaybeUninit::<u8>::uninit(); CONTROL_BYTES];
    loop {
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let data = [IoSlice::new(bytes)];
        match rustix::net::sendmsg(&socket, &data, &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Receives into `bytes`, and appends the accompanying descriptors (closed on exec). Returns the
/// number of bytes received: 0 at the end of the stream.
///
/// # Errors
/// The kernel's.
pub fn receive(socket: impl AsFd, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::<u8>::uninit(); CONTROL_BYTES];
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut data = [IoSliceMut::new(bytes)];
        match rustix::net::recvmsg(&socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(message) => {
                for part in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(received) = part {
                        fds.extend(received);
                    }
                }
                return Ok(message.bytes);
            }
        }
    }
}

/// Takes over an inherited descriptor, known only by its number. The result is closed on exec; the
/// number itself is free afterwards.
///
/// Must be called at the start of the program, before anything else may own the number.
///
/// # Errors
/// `EBADF` when nothing is open at that number; numbers below 3 (standard streams) are refused.
pub fn adopt(number: RawFd) -> io::Result<OwnedFd> {
    if number < 3 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: duplicating has no memory effect, no matter what the number is.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `number` is open (it was just duplicated) and inherited, so nothing owns it here (see
    // the head of this file).
    unsafe { libc::close(number) };
    // SAFETY: `copy` is open and new, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Controls whether the descriptor survives `exec`.
///
/// # Errors
/// The kernel's.
pub fn set_inheritable(fd: impl AsFd, inheritable: bool) -> io::Result<()> {
    let flags = if inheritable { FdFlags::empty() } else { FdFlags::CLOEXEC };
    Ok(rustix::io::fcntl_setfd(fd, flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_arrive_and_work() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut here, there) = UnixStream::pair().unwrap();
        let many: Vec<_> = (0..FDS_PER_MESSAGE_MAX).map(|_| there.as_fd()).collect();
        assert_eq!(send(&a, b"x", &many).unwrap(), 1);
        drop(there);
        let (mut bytes, mut fds) = ([0; 8], Vec::new());
        assert_eq!(receive(&b, &mut bytes, &mut fds).unwrap(), 1);
        assert_eq!(fds.len(), FDS_PER_MESSAGE_MAX);
        let mut last = UnixStream::from(fds.pop().unwrap());
        last.write_all(b"hi").unwrap();
        let mut got = [0; 2];
        here.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hi");
        drop(a);
        assert_eq!(receive(&b, &mut bytes, &mut fds).unwrap(), 0);
    }

    #[test]
    fn too_many_descriptors_are_refused() {
        let (a, _b) = UnixStream::pair().unwrap();
        let many = vec![a.as_fd(); FDS_PER_MESSAGE_MAX + 1];
        assert!(send(&a, b"x", &many).is_err());
        assert!(send(&a, b"", &[]).is_err());
    }

    #[test]
    fn adopting_what_is_not_open_fails() {
        assert_eq!(adopt(1_000_000).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(adopt(2).is_err());
    }
}
