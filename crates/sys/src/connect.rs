//! Options of sockets that connect.
//!
//! Called by the runtime before it binds and connects. Ownership argument for the unsafe code:
//! `setsockopt` with a pointer to a local integer and its size; nothing is kept by the kernel.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// IP_BIND_ADDRESS_NO_PORT: binding to an address without a port reserves none, so that one local
/// port can serve connections to many peers.
///
/// # Errors
/// On kernels before 4.2, which can do without it.
pub fn set_bind_no_port(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)
}

/// IP_TRANSPARENT: allows binding to an address that is not local.
///
/// # Errors
/// Without CAP_NET_ADMIN or CAP_NET_RAW.
pub fn set_transparent(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    match ipv6 {
        true => set(socket, libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT),
        false => set(socket, libc::IPPROTO_IP, libc::IP_TRANSPARENT),
    }
}

fn set(socket: impl AsFd, level: i32, option: i32) -> io::Result<()> {
    let value = 1i32;
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
