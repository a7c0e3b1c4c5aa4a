//! Sessions of `stream` as clients and operators see them.

mod access;
mod pass;
mod preread;
mod session_drop;
mod stage;
mod tcp;
mod tls;
mod udp;
mod variables;
mod zones;
