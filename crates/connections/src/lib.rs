//! Connections of clients: how they begin, the front ends of HTTP/1.1 and HTTP/2, and the worker that has them.
//!
//! A front end brings requests of one protocol to the core and sends its responses. The program makes one
//! [`worker::Worker`] per worker thread.
#![forbid(unsafe_code)]

pub mod accepted;
pub mod connections;
mod http1;
mod http2;
mod secured;
pub mod sending;
pub mod worker;
