//! `cargo xtask aarch64`: builds the program for 64-bit ARM and runs the tests of what clients see
//! with it, under qemu's user-mode emulation.
//!
//! The tests themselves run natively. Emulated, the program finds a kernel without io_uring and
//! seccomp filters, so this also shows that it does without them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::{Outcome, PATIENCE, cargo, find_program, require, root, succeed};

const USAGE: &str = "usage: cargo xtask aarch64 [TEST]...

  TEST   part of the name of a test of http, stream or examples (default: the examples and
         some of each topic; :: are all)

Needs these Debian packages: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static,
and the target: rustup target add aarch64-unknown-linux-gnu";

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";

/// The C library of the target (Debian: libc6-arm64-cross).
const SYSROOT: &str = "/usr/aarch64-linux-gnu";

/// Names of the emulator in different versions of Debian.
const EMULATORS: [&str; 2] = ["qemu-aarch64-static", "qemu-aarch64"];

/// The example whose `-t` is tried as it stands.
const EXAMPLE: &str = "examples/static-benchmark.conf";

/// Tests that run by default, besides the examples: files and ranges, compression, reload and
/// shutdown, proxied and cached responses.
const SMOKE: &[&str] =
    &["files::", "ranges::", "gzip::", "lifecycle::", "proxy::response::", "cache::storing::"];

/// The emulator takes `/` for [`SYSROOT`], so that the program cannot create the directories of a path from there.
const SKIPPED_OF_SMOKE: [&str; 2] = ["--skip", "dav::files"];

/// Needs more requests per second than an emulated program answers: it exceeds a rate limit.
const SKIPPED: [&str; 2] = ["--skip", "api_gateway::api_gateway"];

/// Alerts that the emulation causes: it has no seccomp filters, and it can be so slow that a quick
/// shutdown becomes a kill.
const ALLOWED: &str = "event_loop_guard is not in force|exited on signal 9";

/// Builds, then runs the tests whose names contain one of `args`.
pub fn run(args: &[String]) -> Outcome {
    if args.iter().any(|arg| arg.starts_with('-')) {
        return Err(USAGE.to_owned());
    }
    let program = Program { emulator: emulator()?, path: build()? };
    let script = program.script()?;
    succeed(Command::new(&script).arg("-V"))?;
    let prefix = script.parent().unwrap_or(&script);
    succeed(
        Command::new(&script).arg("-t").arg("-p").arg(prefix).arg("-c").arg(root().join(EXAMPLE)),
    )?;
    if !args.is_empty() {
        return test(&script, &["http", "stream", "examples"], args);
    }
    let smoke: Vec<_> =
        SMOKE.iter().chain(&SKIPPED_OF_SMOKE).map(|name| (*name).to_owned()).collect();
    test(&script, &["http"], &smoke)?;
    test(&script, &["examples"], &SKIPPED.map(str::to_owned))
}

/// Runs the tests of these targets whose names contain one of `names`.
fn test(script: &Path, targets: &[&str], names: &[String]) -> Outcome {
    let mut command = cargo();
    command.args(["test", "--locked", "--no-fail-fast", "-p", "nowait"]);
    for target in targets {
        command.args(["--test", target]);
    }
    command.arg("--").args(names);
    command.env(PATIENCE.0, PATIENCE.1);
    command.env("NOWAIT_TESTS_PROGRAM", script);
    command.env("NOWAIT_TESTS_ALLOW_LOG", ALLOWED);
    succeed(&mut command)
}

fn emulator() -> Result<PathBuf, String> {
    let found = EMULATORS.iter().find_map(|name| find_program(name));
    found.map_or_else(
        || Err(require(&[(EMULATORS[0], "qemu-user-static")]).expect_err("it was not found")),
        Ok,
    )
}

/// Builds the program and returns its path.
fn build() -> Result<PathBuf, String> {
    require(&[(LINKER, "gcc-aarch64-linux-gnu")])?;
    if !Path::new(SYSROOT).join("include/stdio.h").exists() {
        return Err(format!(
            "no C library for {TARGET}. On Debian: apt-get install libc6-dev-arm64-cross"
        ));
    }
    check_standard_library()?;
    let target = root().join("target");
    let mut command = cargo();
    command.args(["build", "--locked", "-p", "nowait", "--target", TARGET, "--target-dir"]);
    command.arg(&target).envs(linker(TARGET));
    succeed(&mut command)?;
    Ok(target.join(TARGET).join("debug/nowait"))
}

/// The variable that names the linker for `target`, if another one than that of this machine is needed.
pub fn linker(target: &str) -> Option<(String, &'static str)> {
    let upper = TARGET.to_uppercase().replace('-', "_");
    let is_foreign = target == TARGET && std::env::consts::ARCH != "aarch64";
    is_foreign.then(|| (format!("CARGO_TARGET_{upper}_LINKER"), LINKER))
}

/// Without it, the compiler says something else for each crate.
fn check_standard_library() -> Outcome {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()
        .map_err(|error| format!("rustc: {error}"))?;
    let directory = String::from_utf8_lossy(&output.stdout);
    if Path::new(directory.trim()).is_dir() {
        return Ok(());
    }
    Err(format!("no standard library for {TARGET}: rustup target add {TARGET}"))
}

struct Program {
    emulator: PathBuf,
    path: PathBuf,
}

impl Program {
    /// Writes a script that runs the program, for tests that know one path only.
    fn script(&self) -> Result<PathBuf, String> {
        let script = self.path.with_file_name("nowait-emulated");
        let text = format!(
            "#!/bin/sh\nexec '{}' -L {SYSROOT} '{}' \"$@\"\n",
            self.emulator.display(),
            self.path.display()
        );
        fs::write(&script, text)
            .and_then(|()| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)))
            .map_err(|error| format!("{}: {error}", script.display()))?;
        Ok(script)
    }
}
