//! A pair of sockets for parcels of bytes between processes: each is taken as it was sent, or not at all. Many may
//! send, one receives, and no sender ever waits.
//!
//! Called by the master, which makes pairs, and by server processes, which pass datagrams of UDP on to each other.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, sockopt,
};

/// What the kernel holds for a receiver, in bytes with its own needs, as far as it permits: a parcel of 1,200 bytes
/// counts for about twice as much.
const QUEUE_BYTES: usize = 4 << 20;

/// Makes a pair: the end that sends, and the end that receives.
///
/// # Errors
/// The kernel's.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (sender, receiver) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // What is under way counts for the sender. For others than the superuser, the kernel takes its limit instead.
    if crate::listen::force_send_buffer(sender.as_fd(), QUEUE_BYTES as u32).is_err() {
        sockopt::set_socket_send_buffer_size(&sender, QUEUE_BYTES)?;
    }
    Ok((sender, receiver))
}

/// The result of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The receiver gets it.
    Yes,
    /// There is no room: the parcel is lost.
    Full,
    /// There is no receiver any more.
    Gone,
}

/// Sends a parcel, which consists of these parts. Never waits.
pub fn send(sender: impl AsFd, parts: &[IoSlice<'_>]) -> Sent {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        let mut control = SendAncillaryBuffer::default();
        match rustix::net::sendmsg(&sender, parts, &mut control, flags) {
            Ok(_) => return Sent::Yes,
            Err(Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET | Errno::CONNREFUSED | Errno::NOTCONN) => {
                return Sent::Gone;
            }
            Err(_) => return Sent::Full,
        }
    }
}

/// Waits for a parcel and returns its length; what exceeds `bytes` is cut off. 0: there are no senders any more.
///
/// # Errors
/// The kernel's.
pub fn receive(receiver: impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::net::recv(&receiver, &mut *bytes, RecvFlags::empty()) {
            Ok((received, _)) => return Ok(received),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether there still is a receiver.
pub fn has_receiver(sender: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&sender, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let polled = rustix::event::poll(&mut fds, Some(&at_once));
    polled.is_err() || !fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parcels_arrive_whole_and_no_sender_waits() {
        let (sender, receiver) = pair().unwrap();
        let other = sender.try_clone().unwrap();
        assert_eq!(send(&sender, &[IoSlice::new(b"one"), IoSlice::new(b"two")]), Sent::Yes);
        assert_eq!(send(&other, &[IoSlice::new(b"3")]), Sent::Yes);
        let mut bytes = [0; 5];
        assert_eq!(receive(&receiver, &mut bytes).unwrap(), 5);
        assert_eq!(&bytes, b"onetw");
        assert_eq!(receive(&receiver, &mut bytes).unwrap(), 1);
        // The queue is bounded.
        let large = [0; 1200];
        let mut sent = 0;
        while send(&sender, &[IoSlice::new(&large)]) == Sent::Yes {
            sent += 1;
            assert!(sent < 100_000);
        }
        assert!(sent > 20, "{sent}");
        assert!(has_receiver(&sender));
        drop(receiver);
        assert!(!has_receiver(&sender));
        assert_eq!(send(&sender, &[IoSlice::new(b"x")]), Sent::Gone);
    }

    #[test]
    fn the_last_sender_ends_the_receiver() {
        let (sender, receiver) = pair().unwrap();
        let other = sender.try_clone().unwrap();
        drop(sender);
        send(&other, &[IoSlice::new(b"x")]);
        drop(other);
        let mut bytes = [0; 8];
        assert_eq!(receive(&receiver, &mut bytes).unwrap(), 1);
        assert_eq!(receive(&receiver, &mut bytes).unwrap(), 0);
    }
}
