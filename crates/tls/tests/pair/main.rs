//! Both sides of a session against each other, on buffers in memory.

mod certificates;
mod clients;
mod early;
mod established;
mod hostile;
mod link;
mod names;
mod ocsp;
mod quic;
#[path = "../../../../tests/http/tls/responder.rs"]
mod responder;
mod sessions;
mod verification;
