//! The cache in the long run: under mixed load, and after `kill -9`. Every response served is a
//! whole response sent by the origin, in a version that was not purged.
//!
//! The origin sends each object in a new version each time; every byte of a body follows from
//! number and version, so that each response can be checked ([`load`]). Progress is counted in
//! responses, not in time.

mod crash;
mod load;
mod objects;
mod origin;
mod restart;
mod soak;

use nowait_testkit::Binary;

fn binary() -> Binary {
    Binary::nowait(env!("CARGO_BIN_EXE_nowait"))
}
