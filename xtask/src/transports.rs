//! `cargo xtask transports`: every transport, task and length by seed, for as long as wanted.
//!
//! The plans and their checks are the test `transports` of the crate `server`.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::workspace::{Outcome, cargo, succeed};

/// Runs seeds. `args`: `--minutes N` (10 if not given) or `--count N` (seeds), `--seed N` (the first one;
/// a fresh one if not given), `--driver epoll|io_uring` (both if not given), `--print` (prints what the first
/// seed decides).
pub fn run(args: &[String]) -> Outcome {
    let mut command = cargo();
    command.args(["test", "--locked", "-p", "nowait", "--test", "transports", "--"]).args([
        "--ignored",
        "--exact",
        "seeds",
        "--nocapture",
    ]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // So that runs of different days have different seeds.
    let (mut seed, mut minutes, mut count) = (now.as_millis() as u64, 10, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--print" {
            command.env("NOWAIT_TRANSPORTS_PRINT", "1");
            continue;
        }
        let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{arg} needs a whole number"));
        match arg.as_str() {
            "--seed" => seed = number()?,
            "--minutes" => minutes = number()?,
            "--count" => count = Some(number()?),
            "--driver" => {
                command.env("NOWAIT_TRANSPORTS_DRIVER", value);
            }
            _ => {
                let known = "--minutes N, --count N, --seed N, --driver NAME, --print";
                return Err(format!("unknown option \"{arg}\": {known}"));
            }
        }
    }
    if let Some(count) = count {
        command.env("NOWAIT_TRANSPORTS_COUNT", count.to_string());
    }
    command
        .env("NOWAIT_TRANSPORTS_SECONDS", (minutes * 60).to_string())
        .env("NOWAIT_TRANSPORTS_SEED", seed.to_string());
    succeed(&mut command)
}
