//! `cargo xtask fuzz`: builds the fuzz targets with coverage instrumentation and runs each for a
//! while. Works with the stable compiler and needs no cargo-fuzz, only a C++ compiler for
//! libFuzzer.
//!
//! What a run finds worth keeping goes to `fuzz/corpus/TARGET` (not committed), what breaks a
//! target to `fuzz/artifacts/TARGET`. Seeds are committed in `fuzz/seeds/TARGET`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::{Outcome, cargo, root, succeed};

const USAGE: &str = "usage: cargo xtask fuzz [TARGET]... [--seconds N] [FILE]

  TARGET       a target in fuzz/fuzz_targets, without .rs (default: all)
  FILE         an input to run once instead, with one TARGET
  --seconds N  how long to run each target (default 20)";

const SECONDS: u64 = 20;

/// An input that takes this long is a finding, in seconds.
const INPUT_SECONDS_MAX: u32 = 10;

/// Coverage of edges with counters, and of comparisons, so that the fuzzer learns what the code
/// compares its input with.
const COVERAGE: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
    "-Ccodegen-units=1",
];

struct Options {
    targets: Vec<String>,
    seconds: u64,
    input: Option<PathBuf>,
}

/// Runs the fuzz targets; the first finding ends the run with an error.
pub fn run(args: &[String]) -> Outcome {
    let options = parse(args)?;
    let triple = host_triple()?;
    build(&triple, &options.targets)?;
    for target in &options.targets {
        let binary = root().join("fuzz/target").join(&triple).join("release").join(target);
        if let Some(input) = &options.input {
            succeed(Command::new(binary).arg(input))?;
        } else {
            println!("fuzz {target}: {} s", options.seconds);
            fuzz(&binary, target, options.seconds)?;
        }
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<Options, String> {
    let known = targets()?;
    let mut options = Options { targets: Vec::new(), seconds: SECONDS, input: None };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => {
                let seconds = args.next().and_then(|n| n.parse().ok());
                options.seconds = seconds.ok_or("--seconds takes a number")?;
            }
            "--help" | "-h" => return Err(USAGE.to_string()),
            name if known.iter().any(|target| target == name) => {
                options.targets.push(name.to_string());
            }
            path if Path::new(path).is_file() => options.input = Some(PathBuf::from(path)),
            other => {
                let known = known.join(", ");
                return Err(format!("no target or file \"{other}\" (targets: {known})\n\n{USAGE}"));
            }
        }
    }
    if options.targets.is_empty() {
        options.targets = known;
    }
    if options.input.is_some() && options.targets.len() != 1 {
        return Err("an input file needs exactly one target".to_string());
    }
    Ok(options)
}

/// The targets are the files of `fuzz/fuzz_targets`.
fn targets() -> Result<Vec<String>, String> {
    let folder = root().join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut targets: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".rs").map(String::from))
        .collect();
    targets.sort();
    Ok(targets)
}

/// The instrumentation is for the target only, not for build scripts: hence `--target`.
fn host_triple() -> Result<String, String> {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .arg("-vV")
        .output()
        .map_err(|error| format!("rustc -vV: {error}"))?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(|line| line.strip_prefix("host: ").map(String::from))
        .ok_or_else(|| "rustc -vV names no host".to_string())
}

fn build(triple: &str, targets: &[String]) -> Outcome {
    let folder = root().join("fuzz");
    let mut command = cargo();
    command
        .args(["build", "--release", "--quiet", "--target", triple])
        .arg("--manifest-path")
        .arg(folder.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(folder.join("target"))
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", COVERAGE.join("\x1f"));
    for target in targets {
        command.args(["--bin", target]);
    }
    succeed(&mut command)
}

fn fuzz(binary: &Path, target: &str, seconds: u64) -> Outcome {
    let folder = root().join("fuzz");
    let [corpus, artifacts, seeds] =
        ["corpus", "artifacts", "seeds"].map(|kind| folder.join(kind).join(target));
    for folder in [&corpus, &artifacts, &seeds] {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut command = Command::new(binary);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-print_final_stats=1", "-use_value_profile=1"])
        .arg(&corpus)
        .arg(&seeds);
    // Words of the format, for what the fuzzer cannot learn from single comparisons.
    let dictionary = folder.join("dictionaries").join(format!("{target}.dict"));
    if dictionary.is_file() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    let output = command.output().map_err(|error| format!("{}: {error}", binary.display()))?;
    let report = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        for line in report.lines().filter(|line| line.starts_with("stat::")) {
            println!("  {}", line.trim_start_matches("stat::"));
        }
        return Ok(());
    }
    Err(format!(
        "{report}\n{target}: {}\nthe input is in {}; run it again with\n  cargo xtask fuzz {target} FILE",
        output.status,
        artifacts.display()
    ))
}
