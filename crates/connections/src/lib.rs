//! Connections of clients: how they begin, the front ends of HTTP/1.1 and HTTP/2, and the worker that has them.
//!
//! A front end brings requests of one protocol to the core and sends its responses. The program makes one
//! [`worker::Worker`] per worker thread.
#![forbid(unsafe_code)]

mod admission;
mod body;
mod connection;
mod connections;
mod handshake;
mod http1;
mod http2;
mod http3;
mod idle;
mod life;
mod migration;
mod proxy_protocol;
mod quic;
mod send_error;
mod start;
mod streams;
pub mod worker;
