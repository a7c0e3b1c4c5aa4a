//! Checks and generators of the repository: `cargo xtask tidy|docs|fuzz|bench`.

fn main() {}
