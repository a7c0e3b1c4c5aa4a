//! `cargo xtask upgrades`: reloads and binary upgrades while clients of HTTP/3 download and upload; every byte is
//! checked, and no request may be lost.
//!
//! The load and its checks are the ignored test `many_changes` in `tests/http3`. It prints how long the slowest request
//! took.

use crate::workspace::{Outcome, cargo, succeed};

/// Runs the load on both drivers. `args`: `--reloads N` (200 if not given), `--upgrades N` (20).
pub fn run(args: &[String]) -> Outcome {
    let (mut reloads, mut upgrades) = (200, 20);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let value = || format!("{arg} needs a whole number");
        let number = args.next().and_then(|text| text.parse::<u64>().ok()).ok_or_else(value)?;
        match arg.as_str() {
            "--reloads" => reloads = number,
            "--upgrades" => upgrades = number,
            _ => return Err(format!("unknown option \"{arg}\"")),
        }
    }
    succeed(
        cargo()
            .args(["test", "--locked", "-p", "nowait", "--test", "http3", "--"])
            .args(["--ignored", "--exact", "steady::many_changes", "--nocapture"])
            .env("NOWAIT_UPGRADES_RELOADS", reloads.to_string())
            .env("NOWAIT_UPGRADES", upgrades.to_string()),
    )
}
