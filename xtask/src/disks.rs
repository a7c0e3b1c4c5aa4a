//! `cargo xtask disks`: `tests/slow_disk` with every combination of disk, driver and number of workers,
//! where `cargo test` takes half of them.

use crate::workspace::{Outcome, cargo, succeed};

/// Runs the tests whose names contain one of `filters`, or all. A test that cannot run fails.
pub fn run(filters: &[String]) -> Outcome {
    let mut command = cargo();
    command
        .args(["test", "--locked", "-p", "nowait", "--test", "slow_disk"])
        .args(["--", "--include-ignored"])
        .args(filters)
        .env("NOWAIT_TESTS_REQUIRE", "all");
    succeed(&mut command)
}
