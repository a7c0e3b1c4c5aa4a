//! `cargo xtask sim`: whole workers under the simulated driver, for as many seeds as wanted.
//!
//! The scenarios and their checks are the test `sim` of the crate `http`.

use crate::workspace::{Outcome, cargo, succeed};

/// Runs seeds. `args`: `--seed N` (the first one; 0 if not given), `--seeds N` (1000 if not given),
/// `--trace N` (replays a single seed and prints what happens).
pub fn run(args: &[String]) -> Outcome {
    let (mut seed, mut seeds, mut trace) = (0, 1000, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || {
            let number = args.next().and_then(|text| text.parse::<u64>().ok());
            number.ok_or_else(|| format!("{arg} needs a whole number"))
        };
        match arg.as_str() {
            "--seed" => seed = number()?,
            "--seeds" => seeds = number()?,
            "--trace" => trace = Some(number()?),
            _ => {
                let known = "--seed N, --seeds N, --trace N";
                return Err(format!("unknown option \"{arg}\": {known}"));
            }
        }
    }
    let mut command = cargo();
    command
        .args(["test", "--locked", "-p", "nowait-connections", "--test", "sim", "--"])
        .args(["--exact", "workers_by_seed", "--nocapture"])
        .env("NOWAIT_SIM_SEED", seed.to_string())
        .env("NOWAIT_SIM_SEEDS", seeds.to_string());
    if let Some(trace) = trace {
        command.env("NOWAIT_SIM_TRACE", trace.to_string());
    }
    succeed(&mut command)
}
