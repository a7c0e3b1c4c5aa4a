//! `cargo xtask soak`: mixed load with reloads, for as long as wanted.
//!
//! The load and its checks are the ignored test `soak` in `tests/reload`.

use crate::workspace::{Outcome, cargo, succeed};

/// Runs the load. `args`: `--minutes N` (15 if not given), `--seed N`.
pub fn run(args: &[String]) -> Outcome {
    let (mut minutes, mut seed) = (15, 1);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let value = || format!("{arg} needs a whole number");
        let number = args.next().and_then(|text| text.parse::<u64>().ok()).ok_or_else(value)?;
        match arg.as_str() {
            "--minutes" => minutes = number,
            "--seed" => seed = number,
            _ => return Err(format!("unknown option \"{arg}\"")),
        }
    }
    succeed(
        cargo()
            .args(["test", "--locked", "-p", "nowait", "--test", "reload", "--"])
            .args(["--ignored", "--exact", "soak::mixed_load_with_reloads", "--nocapture"])
            .env("NOWAIT_SOAK_SECONDS", (minutes * 60).to_string())
            .env("NOWAIT_SOAK_SEED", seed.to_string()),
    )
}
