//! The filter on loop threads: which system calls may wait for a disk.

/// Mark in the sixth argument of a call that the filter lets pass.
pub const PASS: libc::c_long = 0x6e6f_7761;
