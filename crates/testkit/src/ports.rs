//! Free ports of 127.0.0.1, for TCP and UDP, for servers under test.
//!
//! Taken from below the kernel's ephemeral range, so that no outgoing connection of another test
//! takes one between the choice and the server's `bind`. Another test process still may; the server
//! is then restarted with other ports (see [`crate::server`]).

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

static NEXT: AtomicU32 = AtomicU32::new(u32::MAX);

/// A port that is currently unused.
///
/// # Panics
/// If no port of the range is free.
#[track_caller]
pub fn free_port() -> u16 {
    // Test processes run side by side: each starts at a different port.
    let start = std::process::id().wrapping_mul(7919) % COUNT;
    let _ = NEXT.compare_exchange(u32::MAX, start, Ordering::Relaxed, Ordering::Relaxed);
    for _ in 0..COUNT {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = u16::try_from(FIRST + offset).expect("FIRST + COUNT fits a port number");
        let address = (Ipv4Addr::LOCALHOST, port);
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return port;
        }
    }
    panic!("no free port from {FIRST} to {}", FIRST + COUNT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_the_same_twice_in_a_row() {
        assert_ne!(free_port(), free_port());
    }
}
