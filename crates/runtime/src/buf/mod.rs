//! Buffers: memory lent for receives, buffers for building responses, and chains of both.
//!
//! Every buffer is exclusively owned by its holder; a per-thread pool only keeps the memory of
//! dropped buffers for reuse. A buffer may therefore outlive its connection, its task, and even its
//! worker; in that case the memory is simply freed.
//!
//! Called by: drivers (receive buffers), http (builds chains), `net` (sends them). Never: holds a
//! buffer on behalf of an idle connection.

mod chain;
mod free;
mod large;
mod small;
mod small_copies;

pub use chain::{Chain, Chunk, FileRange};
pub use large::{LARGE_BUF_BYTES, LargeBuf, ReceivedBuf, large_bytes_in_use};
pub use small::{OUT_BUF_BYTES, OutBuf, RECV_BUF_BYTES, RecvBuf};
pub(crate) use small::{RecvMemory, put_recv_memory, take_recv_memory};
pub use small_copies::join_briefly;

/// Shrinks this thread's pools towards recent demand. The worker calls it once per second.
pub(crate) fn trim() {
    small::trim();
    large::trim();
}
