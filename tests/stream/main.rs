//! Sessions of `stream` as clients and operators see them.

mod access;
mod pass;
mod preread;
mod stage;
mod tcp;
mod udp;
mod variables;
