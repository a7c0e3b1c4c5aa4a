//! Connections whose records the kernel seals (kTLS), and those on which it cannot.
//!
//! Every test runs with epoll and io_uring under the strict event-loop guard. Tests of what the kernel
//! does need its module `tls` and the programs curl and openssl, and print `skipped: …` where that is
//! missing. `cargo xtask ktls` runs them in an emulated machine with such a kernel, and lets none be
//! skipped. Bytes are compared with those of the files; nothing is timed.

mod fallback;
mod keys;
mod life;
mod sending;
mod stage;
