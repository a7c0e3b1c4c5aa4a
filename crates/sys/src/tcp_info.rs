//! Kernel statistics of a TCP connection.
//!
//! Ownership argument for the unsafe code: `getsockopt` writes at most the given size into a local
//! structure of plain integers, for which all bytes are valid.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A part of `TCP_INFO` (tcp(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u32,
    /// The variance, microseconds.
    pub rttvar_us: u32,
    /// Congestion window, segments.
    pub snd_cwnd: u32,
    /// Receive window as advertised, bytes.
    pub rcv_space: u32,
}

/// Queries the kernel; never waits.
///
/// # Errors
/// When the socket is not a TCP connection.
pub fn tcp_info(socket: impl AsFd) -> io::Result<TcpInfo> {
    // SAFETY: the structure consists of integers, for which zero is valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut size = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).unwrap_or(0);
    // SAFETY: `info` and `size` are live locals, `size` tells the room in `info`; the kernel writes
    // no more than that.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut size,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(TcpInfo {
        rtt_us: info.tcpi_rtt,
        rttvar_us: info.tcpi_rttvar,
        snd_cwnd: info.tcpi_snd_cwnd,
        rcv_space: info.tcpi_rcv_space,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_a_window() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(tcp_info(&stream).unwrap().snd_cwnd > 0);
        let (pair, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(tcp_info(&pair).is_err());
    }
}
