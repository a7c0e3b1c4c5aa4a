//! `cargo xtask bench`: builds the server and the benchmark program in release mode and runs it.
//!
//! All measuring and plotting is in the crate `nowait-bench`; its options are passed through.

use crate::workspace::{Outcome, cargo, succeed};

/// Builds what is measured, then measures. `args` go to the benchmark program as they are.
pub fn run(args: &[String]) -> Outcome {
    // One build for both, so that what is measured is never older than the tree.
    succeed(cargo().args(["build", "--release", "-p", "nowait", "-p", "nowait-bench"]))?;
    let args = args.strip_prefix(&["--".to_owned()]).unwrap_or(args);
    succeed(cargo().args(["run", "--quiet", "--release", "-p", "nowait-bench", "--"]).args(args))
}
