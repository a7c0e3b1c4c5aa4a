//! `cargo xtask bench`: builds the server as it is shipped, and the benchmark program, and runs it.
//!
//! All measuring and plotting is in the crate `nowait-bench`; its options are passed through.

use crate::workspace::{Outcome, build_shipped, cargo, succeed};

/// Builds what is measured, then measures. `args` go to the benchmark program as they are.
pub fn run(args: &[String]) -> Outcome {
    // What is measured is never older than the tree.
    build_shipped(None)?;
    let args = args.strip_prefix(&["--".to_owned()]).unwrap_or(args);
    succeed(cargo().args(["run", "--quiet", "--release", "-p", "nowait-bench", "--"]).args(args))
}
