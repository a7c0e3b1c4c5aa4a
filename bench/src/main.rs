//! Side-by-side benchmarks against nginx.

#![forbid(unsafe_code)]

fn main() {}
