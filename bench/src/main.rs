//! Side-by-side benchmarks against nginx.

fn main() {}
