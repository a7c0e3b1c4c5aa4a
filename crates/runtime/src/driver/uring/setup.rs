//! Creates the ring for the io_uring driver, and probes at startup whether the kernel supports it.
//!
//! Called by `driver::choose` and by the driver. The required flags are all available from Linux
//! 6.1 (DEFER_TASKRUN); without them io_uring is slower than epoll, so there is no fallback form of
//! the ring.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::register::Restriction;
use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};

use super::buffers::{Buffers, GROUP};

/// Submissions per call to the kernel; when more are queued, they are submitted early.
const SUBMISSIONS: u32 = 1024;

/// Completions that the kernel holds for one turn; it keeps further ones for the next call.
const COMPLETIONS: u32 = 8192;

/// Every operation that the driver submits: none of these can wait for a disk on a socket.
const OPERATIONS: [u8; 6] = [
    opcode::Recv::CODE,
    opcode::Send::CODE,
    opcode::SendMsg::CODE,
    opcode::PollAdd::CODE,
    opcode::AsyncCancel::CODE,
    opcode::Close::CODE,
];

/// IOSQE_BUFFER_SELECT and IOSQE_CQE_SKIP_SUCCESS, the flags that the driver sets on submissions.
const FLAG_BITS: u8 = 1 << 5 | 1 << 6;

/// Creates a ring and its provided buffers. With `restrict`, the kernel refuses everything but
/// [`OPERATIONS`] from then on.
pub(super) fn ring(restrict: bool) -> io::Result<(IoUring, Buffers)> {
    let build = |no_sqarray: bool| {
        let mut builder = IoUring::builder();
        builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS);
        if restrict {
            builder.setup_r_disabled();
        }
        if no_sqarray {
            builder.setup_no_sqarray();
        }
        builder.build(SUBMISSIONS)
    };
    // NO_SQARRAY saves an indirection; Linux 6.6.
    let ring = build(true).or_else(|_| build(false))?;
    let buffers = Buffers::new(&ring.submitter())?;
    if restrict {
        let mut allowed: Vec<_> = OPERATIONS.iter().map(|op| Restriction::sqe_op(*op)).collect();
        allowed.push(Restriction::sqe_flags_allowed(FLAG_BITS));
        ring.submitter().register_restrictions(&mut allowed)?;
        ring.submitter().register_enable_rings()?;
    } else {
        // Saves looking up the ring's descriptor in every call; only an optimization, so not
        // required.
        let _ = ring.submitter().register_ring_fd();
    }
    Ok((ring, buffers))
}

/// Tests all kernel features that the driver needs. The error names the missing one, for the log.
pub(in crate::driver) fn probe() -> Result<(), String> {
    let (mut ring, _buffers) = ring(true).map_err(|error| match error.raw_os_error() {
        Some(libc_eperm) if libc_eperm == rustix::io::Errno::PERM.raw_os_error() => {
            "io_uring is forbidden here (container, or sysctl kernel.io_uring_disabled)".to_owned()
        }
        Some(enosys) if enosys == rustix::io::Errno::NOSYS.raw_os_error() => {
            "the kernel does not support io_uring".to_owned()
        }
        _ => format!("the kernel cannot create the required ring (Linux 6.1 or later): {error}"),
    })?;
    if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
        return Err("the kernel's io_uring lacks EXT_ARG or NODROP".to_owned());
    }
    receive_once(&mut ring).map_err(|error| format!("receiving with io_uring fails: {error}"))?;
    let mut operations = Probe::new();
    let plain = IoUring::new(1).map_err(|error| format!("io_uring_setup: {error}"))?;
    plain
        .submitter()
        .register_probe(&mut operations)
        .map_err(|error| format!("probing io_uring operations fails: {error}"))?;
    match OPERATIONS.iter().find(|op| !operations.is_supported(**op)) {
        Some(op) => Err(format!("the kernel's io_uring lacks operation {op}")),
        None => Ok(()),
    }
}

/// Receives a byte through the provided buffers.
fn receive_once(ring: &mut IoUring) -> io::Result<()> {
    let (left, right) = std::os::unix::net::UnixStream::pair()?;
    rustix::io::write(&left, b"?")?;
    let recv = opcode::Recv::new(types::Fd(right.as_raw_fd()), std::ptr::null_mut(), 0)
        .buf_group(GROUP)
        .build()
        .flags(squeue::Flags::BUFFER_SELECT);
    // SAFETY: the memory is the provided buffers', which outlive the ring; the descriptor is open
    // until the completion below, and if none comes, the ring is dropped with the operation.
    unsafe { ring.submission().push(&recv) }.map_err(|_| io::ErrorKind::WouldBlock)?;
    let limit = types::Timespec::new().sec(1);
    ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&limit))?;
    let completion = ring.completion().next().ok_or(io::ErrorKind::TimedOut)?;
    match completion.result() {
        1 if cqueue::buffer_select(completion.flags()).is_some() => Ok(()),
        1 => Err(io::ErrorKind::Unsupported.into()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
