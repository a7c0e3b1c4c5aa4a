//! `cargo xtask fuzz`: runs every fuzz target for a short while.

use crate::Outcome;

/// Runs the fuzz targets; there are none yet.
pub fn run(_args: &[String]) -> Outcome {
    println!("no fuzz targets yet");
    Ok(())
}
