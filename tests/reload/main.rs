//! Reloads that change the workers: what clients see of them, and what they leave behind.

mod echo;
mod handover;
mod leaks;

use nowait_testkit::{Binary, Server, ServerBuilder};

fn site(http: &str) -> ServerBuilder {
    Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait"))).http(http)
}
