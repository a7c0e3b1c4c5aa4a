//! Where the repository is, and how commands run in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The result of a command: an error is one complete message for its user.
pub type Outcome = Result<(), String>;

/// The root of the repository: the directory above this crate.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// A `cargo` command that runs in the root of the repository, with the cargo that started us.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a command to its end; a non-zero exit is an error that names the command.
pub fn succeed(command: &mut Command) -> Outcome {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}

/// Runs a command and returns what it prints; a non-zero exit is an error with its complaints.
pub fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!(
            "{command:?}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// Builds the program as it is shipped, for this machine or for another target; returns its path.
pub fn build_shipped(target: Option<&str>) -> Result<PathBuf, String> {
    let mut command = cargo();
    command.args(["build", "--profile", "dist", "--locked", "-p", "nowait"]);
    let mut folder = root().join("target");
    let is_foreign = |target: &&str| !target.starts_with(std::env::consts::ARCH);
    if let Some(target) = target.filter(is_foreign) {
        command.args(["--target", target]);
        command.envs(crate::aarch64::linker(target));
        folder.push(target);
    }
    succeed(&mut command)?;
    Ok(folder.join("dist/nowait"))
}

/// How long tests wait for an emulated program, in seconds (`wait::PATIENCE` of the test kit).
pub const PATIENCE: (&str, &str) = ("NOWAIT_TESTS_PATIENCE", "300");

/// Builds a test of the program `nowait`, to be run in an emulator, and returns the path of the test's own program.
pub fn test_program(name: &str) -> Result<String, String> {
    let mut command = cargo();
    command.args(["test", "--locked", "--no-run", "-p", "nowait", "--test", name]);
    command.args(["--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    command.env(PATIENCE.0, PATIENCE.1);
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status));
    }
    let target = format!("\"name\":\"{name}\"");
    // One object per line; the program itself is built too.
    let path = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| line.contains("\"kind\":[\"test\"]") && line.contains(&target))
        .find_map(|line| {
            Some(line.split_once("\"executable\":\"")?.1.split_once('"')?.0.to_owned())
        });
    path.ok_or_else(|| format!("cargo has built no test \"{name}\""))
}

/// Finds a program, also where administrators' programs are.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Checks that programs are installed, given with their Debian packages.
///
/// # Errors
/// Names all that are missing and how to install them.
pub fn require(programs: &[(&str, &str)]) -> Outcome {
    let missing = programs.iter().filter(|(program, _)| find_program(program).is_none());
    let (programs, packages): (Vec<_>, Vec<_>) = missing.copied().unzip();
    if programs.is_empty() {
        return Ok(());
    }
    Err(format!(
        "missing: {}. On Debian: apt-get install --no-install-recommends {}",
        programs.join(", "),
        packages.join(" ")
    ))
}
