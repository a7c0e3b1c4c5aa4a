//! HTTP/3 as clients and operators see it, by a client that shares no code with the server.
//!
//! Every test starts the program, on each driver, with `listen … ssl` and `listen … quic` at one port.

mod advertise;
mod configuration;
mod connections;
mod errors;
mod files;
mod hostile;
mod proxied;
mod reload;
mod requests;
mod stage;
mod steady;
mod tls;
mod upgrade;
mod versions;

#[allow(dead_code, reason = "it has more than these tests need")]
#[path = "../http/tls/client.rs"]
mod client;
