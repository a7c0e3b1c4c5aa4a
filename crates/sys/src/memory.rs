//! The allocator: giving memory back to the system.
//!
//! Called by the control thread of the `server` crate, after a peak of connections. Decides nothing.
//!
//! Ownership argument for the unsafe code: `malloc_trim` takes the allocator's own locks and touches
//! only memory that nobody has allocated.

/// Gives the memory that is free in the allocator back to the system, in whole pages. Takes some
/// milliseconds per 100 MB, and an allocation by another thread may wait for the part of it that this
/// thread allocates from. Does nothing with a C library that gives memory back by itself.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}
