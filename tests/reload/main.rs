//! Reloads that change the workers: what clients see of them, and what they leave behind.

mod echo;
mod handover;
mod leaks;
#[expect(dead_code, reason = "the cache's own tests use more of it")]
#[path = "../cache/load.rs"]
mod load;
#[path = "../cache/objects.rs"]
mod objects;
#[path = "../cache/origin.rs"]
mod origin;
mod soak;

use nowait_testkit::{Binary, Server, ServerBuilder};

fn site(http: &str) -> ServerBuilder {
    Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait"))).http(http)
}
