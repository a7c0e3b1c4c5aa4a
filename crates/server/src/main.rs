//! The `nowait` program.

fn main() {}
