//! Where the repository is, and how commands run in it.

use std::path::{Path, PathBuf};
use std::process::Command;

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
