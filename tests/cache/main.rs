//! The cache in the long run: under load of all kinds, and after `kill -9`. Whatever is served is a
//! whole response that the origin has sent, in a version that nobody has purged.
//!
//! The origin sends each object in a new version each time; every byte of a body follows from number
//! and version, so that each response tells what it must be ([`load`]). Progress is counted in
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
