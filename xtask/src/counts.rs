//! `cargo xtask counts`: instructions per request, compared with `bench/counts.json`.
//!
//! The server is built with the profile `dist`, because counts of another profile would not be those of the
//! program that is shipped. The program that counts is built as the tests are.

use crate::workspace::{Outcome, build_shipped, cargo, succeed};

const FILE: &str = "bench/counts.json";

/// Compares, or writes the file again with `--record`.
pub fn run(args: &[String]) -> Outcome {
    let option = match args {
        [] => "--check-counts",
        [arg] if arg == "--record" => "--record-counts",
        _ => return Err("usage: cargo xtask counts [--record]".to_owned()),
    };
    for program in ["valgrind", "nginx"] {
        if !is_there(program) {
            println!("Counts are not compared: there is no {program}.");
            return Ok(());
        }
    }
    build_shipped(None)?;
    let args = ["run", "--quiet", "-p", "nowait-bench", "--", "--in-place", option, FILE];
    succeed(cargo().args(args))
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
