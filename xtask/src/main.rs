//! Checks and generators of the repository, run as `cargo xtask COMMAND`.
//!
//! Kept small on purpose: no dependencies, so that it compiles in a second and the checks run
//! before anything else has been built. It reads the tree and starts programs; it changes only generated
//! files: `docs` writes `docs/reference/`, `counts --record` writes `bench/counts.json`.

#![forbid(unsafe_code)]

mod aarch64;
mod bench;
mod counts;
mod disks;
mod dist;
mod docs;
mod features;
mod fuzz;
mod ktls;
mod nfs;
mod package;
mod peers;
mod sim;
mod soak;
mod tidy;
mod transports;
mod upgrades;
mod vm;
mod workspace;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask COMMAND

  tidy                   check the rules of the repository that the compiler cannot see
  docs [--check]         write docs/reference/ from the directive tables; --check only compares
  features               check the program with none of its Cargo features, and with each alone
  fuzz [OPTIONS]         run the fuzz targets for a short while
  sim [--seed N] [--seeds N] [--trace N]
                         run simulated workers by seed; --trace replays one and prints its trace
  soak [--minutes N] [--seed N]
                         mixed load with reloads: bytes are checked, resources are watched
  upgrades [--reloads N] [--upgrades N]
                         reloads and binary upgrades under a load over HTTP/3: nothing may be lost
  transports [--minutes N] [--count N] [--seed N] [--driver NAME] [--print]
                         every transport, task and length by seed, on both drivers; --count 1 replays
  disks [TEST]...        run tests/slow_disk with every disk, driver and number of workers
  nfs [OPTIONS] [TEST]...
                         run tests/nfs in a virtual machine whose kernel has NFS
  ktls [OPTIONS] [TEST]...
                         run tests/ktls in a virtual machine whose kernel has TLS
  peers [TEST]...        run tests/peers with real clients and servers: browsers, libraries, tools
  aarch64 [TEST]...      build for 64-bit ARM and run the tests with that program, emulated
  package [OPTIONS]      make Debian and RPM packages and an OCI image in target/package
  dist [--target TRIPLE]...
                         make the files of a release in target/dist-files
  counts [--record]      compare instructions per request with bench/counts.json, or write it
  bench [OPTIONS]        run the benchmarks against nginx (options: cargo xtask bench --help)
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = args.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let outcome = match command.as_str() {
        "tidy" => tidy::run(rest),
        "dist" => dist::run(rest),
        "docs" => docs::run(rest),
        "features" => features::run(rest),
        "fuzz" => fuzz::run(rest),
        "sim" => sim::run(rest),
        "soak" => soak::run(rest),
        "upgrades" => upgrades::run(rest),
        "transports" => transports::run(rest),
        "aarch64" => aarch64::run(rest),
        "disks" => disks::run(rest),
        "nfs" => nfs::SUITE.run(rest),
        "ktls" => ktls::SUITE.run(rest),
        "package" => package::run(rest),
        "peers" => peers::run(rest),
        "bench" => bench::run(rest),
        "counts" => counts::run(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        other => Err(format!("unknown command \"{other}\"\n\n{USAGE}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask {command}: {message}");
            ExitCode::FAILURE
        }
    }
}
