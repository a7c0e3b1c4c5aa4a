//! A network device whose packets this process reads and writes (TUN): the way into an emulated path.
//!
//! Called by the benchmarks. The device exists as long as its descriptor is open; addresses are given to it by `ip`.
//!
//! Ownership argument for the unsafe code: the only call takes a pointer to a local value, which outlives it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

/// Where the kernel makes such devices.
const DEVICE: &str = "/dev/net/tun";

/// Makes a device of this name in the network namespace of the calling thread. Each read returns an IP packet without
/// any header before it, each write delivers one; neither waits.
///
/// # Errors
/// The kernel has no such devices, the caller may not make them, or the name is taken, or too long.
pub fn open(name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(DEVICE, flags, Mode::empty())?;
    // SAFETY: all-zero is a valid `ifreq`: bytes and integers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let text = CString::new(name)?;
    let bytes = text.as_bytes_with_nul();
    if bytes.len() > request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request is a whole `ifreq`, which outlives the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_is_refused() {
        match open("a-name-of-more-than-15-bytes") {
            Err(error) => assert!(error.kind() != io::ErrorKind::AlreadyExists, "{error}"),
            Ok(_) => panic!("the kernel takes 15 bytes"),
        }
    }
}
