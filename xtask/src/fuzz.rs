//! `cargo xtask fuzz`: builds the fuzz targets with coverage instrumentation and runs each for a
//! while, as many at once as there are processors. Works with the stable compiler and needs no
//! cargo-fuzz, only a C++ compiler for libFuzzer.
//!
//! What a run finds worth keeping goes to `fuzz/corpus/TARGET` (not committed), what breaks a
//! target to `fuzz/artifacts/TARGET`. Seeds are committed in `fuzz/seeds/TARGET`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::workspace::{Outcome, cargo, root, succeed};

const USAGE: &str = "usage: cargo xtask fuzz [TARGET]... [--seconds N] [--jobs N] [FILE]

  TARGET       a target in fuzz/fuzz_targets, without .rs (default: all)
  FILE         an input to run once instead, with one TARGET
  --seconds N  how long to run each target (default 20)
  --jobs N     how many targets run at once (default: one per processor)";

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
    jobs: usize,
    input: Option<PathBuf>,
}

/// Runs the fuzz targets; the first finding ends the run with an error.
pub fn run(args: &[String]) -> Outcome {
    let options = parse(args)?;
    let triple = host_triple()?;
    build(&triple, &options.targets)?;
    let binaries = root().join("fuzz/target").join(triple).join("release");
    if let (Some(input), [target]) = (&options.input, options.targets.as_slice()) {
        return succeed(Command::new(binaries.join(target)).arg(input));
    }
    let jobs = options.jobs.min(options.targets.len());
    println!("{} targets, {} s each, {jobs} at once", options.targets.len(), options.seconds);
    let run = Run { binaries, seconds: options.seconds, state: Mutex::default() };
    let targets = Mutex::new(options.targets.iter());
    let next = || lock(&targets).next();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(target) = next() {
                    if !run.fuzz(target) {
                        break;
                    }
                }
            });
        }
    });
    lock(&run.state).ended.take().map_or(Ok(()), Err)
}

/// One run of several targets, by several threads.
struct Run {
    binaries: PathBuf,
    seconds: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The processes that are running, by target.
    running: Vec<(String, Child)>,
    /// The first finding, or another reason to stop.
    ended: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parse(args: &[String]) -> Result<Options, String> {
    let known = targets()?;
    let mut options =
        Options { targets: Vec::new(), seconds: SECONDS, jobs: processors(), input: None };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => {
                let seconds = args.next().and_then(|n| n.parse().ok());
                options.seconds = seconds.ok_or("--seconds takes a number")?;
            }
            "--jobs" => {
                let jobs = args.next().and_then(|n| n.parse().ok()).filter(|jobs| *jobs > 0);
                options.jobs = jobs.ok_or("--jobs takes a number greater than 0")?;
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

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
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

/// The command that runs a target; makes its directories.
fn command(binary: &Path, target: &str, seconds: u64) -> Result<Command, String> {
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
    Ok(command)
}

impl Run {
    /// Runs one target to its end; returns whether to go on with the next one.
    fn fuzz(&self, target: &str) -> bool {
        let report = match self.start(target) {
            Ok(Some(mut stderr)) => {
                let mut report = Vec::new();
                // What can't be read is missing from the report; the status decides.
                let _ = stderr.read_to_end(&mut report);
                String::from_utf8_lossy(&report).into_owned()
            }
            Ok(None) => return false,
            Err(error) => return self.end(error),
        };
        let child = {
            let running = &mut lock(&self.state).running;
            let at = running.iter().position(|(name, _)| name == target);
            at.map(|at| running.swap_remove(at).1)
        };
        let status = child.ok_or_else(|| "not running".to_string()).and_then(|mut child| {
            // Its end of the pipe is closed: it ends now.
            child.wait().map_err(|error| error.to_string())
        });
        match status {
            Ok(status) if status.success() => {
                println!("{target}: {}", summary(&report));
                true
            }
            Ok(status) => self.end(finding(target, status, &report)),
            Err(error) => self.end(format!("{target}: {error}")),
        }
    }

    /// Starts a target, unless the run has ended; returns where its report arrives.
    fn start(&self, target: &str) -> Result<Option<impl Read>, String> {
        let binary = self.binaries.join(target);
        let mut command = command(&binary, target, self.seconds)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut state = lock(&self.state);
        if state.ended.is_some() {
            return Ok(None);
        }
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", binary.display()))?;
        let stderr = child.stderr.take();
        state.running.push((target.to_string(), child));
        Ok(stderr)
    }

    /// Ends the run with an error, unless another thread has done so, and stops the other targets.
    fn end(&self, error: String) -> bool {
        let mut state = lock(&self.state);
        if state.ended.is_none() {
            state.ended = Some(error);
            for (_, child) in &mut state.running {
                // One that has ended by itself needs no signal.
                let _ = child.kill();
            }
        }
        false
    }
}

/// The counters at the end of a target's report, in one line.
fn summary(report: &str) -> String {
    let counter = |line: &str| {
        let (name, value) = line.strip_prefix("stat::")?.split_once(':')?;
        Some(format!("{} {}", name.replace('_', " "), value.trim()))
    };
    report.lines().filter_map(counter).collect::<Vec<_>>().join(", ")
}

/// The error of a target that failed: its report, then what was found and how to see it again.
fn finding(target: &str, status: ExitStatus, report: &str) -> String {
    // libFuzzer names the file of the input, except if something else went wrong.
    let written = report.lines().find_map(|line| line.split_once("Test unit written to "));
    match written {
        Some((_, artifact)) => format!(
            "{report}\n{target}: {status}\nthe input is {artifact}; run it again with\n  \
             cargo xtask fuzz {target} {artifact}"
        ),
        None => format!("{report}\n{target}: {status}, with no input written"),
    }
}
