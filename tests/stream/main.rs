//! Sessions of `stream` as clients and operators see them.

mod stage;
mod tcp;
