//! What stands in front of any protocol: listening sockets, the PROXY protocol, addresses of clients.
//!
//! `http` and `stream` are made of these pieces. What asks for variables is generic over the
//! [`Subject`](nowait_variables::Subject) that has them. Nothing here knows a protocol, or serves
//! anything.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod address;
pub mod listen;
pub mod proxy_protocol;
pub mod servers;
