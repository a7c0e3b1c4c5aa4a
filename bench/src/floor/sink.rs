//! An origin for uploads: it takes the content of each request, which has a `Content-Length`, and answers when
//! all of it is there. A thread per connection, on the load generator's processor; content is discarded in the
//! kernel.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};

/// Bytes taken at once.
const TAKEN_BYTES: usize = 1 << 20;

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK";

/// Until it is killed.
pub fn serve_one(listener: &OwnedFd) -> io::Result<()> {
    // The listener never waits, so that this does.
    rustix::io::ioctl_fionbio(listener, false)?;
    loop {
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => drop(std::thread::spawn(move || serve(&socket))),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Answers requests until the client has gone or sends something else.
fn serve(socket: &OwnedFd) -> Option<()> {
    let mut memory = vec![0; TAKEN_BYTES];
    let mut filled = 0;
    loop {
        let Some(head) = memory[..filled].windows(4).position(|part| part == b"\r\n\r\n") else {
            filled += receive(socket, memory.get_mut(filled..)?, RecvFlags::empty())?;
            continue;
        };
        let (begin, length) = (head + 4, content_length(&memory[..head])?);
        let here = length.min(filled - begin);
        memory.copy_within(begin + here..filled, 0);
        filled -= begin + here;
        let mut left = length - here;
        while left > 0 {
            let most = left.min(TAKEN_BYTES);
            // Nothing of the next request is there before its response.
            left -= receive(socket, &mut memory[..most], RecvFlags::TRUNC)?;
        }
        send(socket, RESPONSE, SendFlags::NOSIGNAL).ok()?;
    }
}

/// How many bytes were taken; `None`: the client has gone.
fn receive(socket: &OwnedFd, room: &mut [u8], flags: RecvFlags) -> Option<usize> {
    loop {
        match recv(socket, &mut *room, flags) {
            // With `TRUNC` the second number is what the kernel took.
            Ok((_, 0)) => return None,
            Ok((_, taken)) => return Some(taken),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Zero if the head states none.
fn content_length(head: &[u8]) -> Option<usize> {
    let head = std::str::from_utf8(head).ok()?;
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    match fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length")) {
        Some((_, value)) => value.trim().parse().ok(),
        None => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::content_length;

    #[test]
    fn lengths_are_read() {
        assert_eq!(content_length(b"PUT /a HTTP/1.1\r\nHost: x\r\ncontent-length: 12"), Some(12));
        assert_eq!(content_length(b"GET /a HTTP/1.1\r\nHost: x"), Some(0));
        assert_eq!(content_length(b"PUT /a HTTP/1.1\r\nContent-Length: x"), None);
    }
}
