//! Side-by-side benchmarks against nginx: `cargo xtask bench`.
//!
//! Both servers run by turns in one network namespace, on the same processors, with the same
//! configuration text, and the load generator of this program loads them. The main figure is the
//! processor time that a server spends per request, because it holds on any machine and under any
//! load; rates follow from it. See `bench/README.md` for what each scenario means.
#![forbid(unsafe_code)]

mod bench;
mod counts;
mod encrypted;
mod floor;
mod h2;
mod h3;
mod load;
mod machine;
mod options;
mod paced;
mod path;
mod peer;
mod probe;
mod process;
mod quic;
mod report;
mod results;
mod scenario;
mod server;
mod stats;
mod tls;

use std::path::Path;
use std::process::ExitCode;

use bench::{Bench, Candidate};
use machine::Machine;
use options::BenchOptions;
use results::Results;
use scenario::{Scenario, curves};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    if let Some(served) = floor::serve_if_asked(std::env::args().skip(1)) {
        return served.map_err(|error| format!("floor: {error}"));
    }
    let Some(mut options) = BenchOptions::parse(std::env::args().skip(1))? else { return Ok(()) };
    let scenarios = scenario::all();
    let order: Vec<&str> = scenarios.iter().map(|scenario| scenario.subject.name).collect();
    let curves = curves::all();
    if options.list && options.growth {
        curves.iter().for_each(|curve| println!("{:22} {}", curve.name(), curve.title()));
        return Ok(());
    }
    if options.list {
        scenarios
            .iter()
            .for_each(|Scenario { subject, .. }| println!("{:18} {}", subject.name, subject.title));
        return Ok(());
    }
    let names: Vec<&str> = if options.growth {
        curves.iter().map(|curve| curve.name()).collect()
    } else {
        order.clone()
    };
    if let Some(unknown) = options.only.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(format!("no scenario \"{unknown}\"; there are {}", names.join(", ")));
    }
    if !options.in_place {
        machine::enter_namespace().map_err(|why| {
            format!("no network namespace ({why}); run as root, or with --in-place")
        })?;
    }
    let _priority = machine::Priority::raise();

    let nginx = machine::version(&options.nginx)?;
    let nowait = machine::version(&options.nowait);
    if let Err(why) = &nowait {
        println!("nginx alone is measured: {why}");
    }
    let nowait = nowait.ok();
    let named = options.named_peers.clone();
    let peers = options.peers.check(&named)?;
    let candidate = nowait.as_deref().map(|version| {
        if version.starts_with("nginx") { Candidate::Nginx } else { Candidate::Nowait }
    });
    let directory = std::env::temp_dir().join(format!("nowait-bench-{}", std::process::id()));
    make_readable(&directory)?;
    let selected: Vec<&Scenario> = scenarios
        .iter()
        .filter(|scenario| {
            options.only.is_empty() || options.only.iter().any(|n| n == scenario.subject.name)
        })
        .collect();
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let bench = Bench { options, own, directory, candidate };
    let outcome = match &bench.options.counts {
        Some((mode, file)) => counts::run(&bench, &scenarios, *mode, file),
        None if bench.options.growth => {
            curves::run(&bench, Machine::describe(nginx, nowait, peers))
        }
        None => measure(&bench, &selected, &order, Machine::describe(nginx, nowait, peers)),
    };
    let _ = std::fs::remove_dir_all(&bench.directory);
    outcome
}

/// Runs the scenarios, prints a table after each, and keeps the results.
fn measure(
    bench: &Bench,
    selected: &[&Scenario],
    order: &[&str],
    machine: Machine,
) -> Result<(), String> {
    let mut results = bench.options.out.as_deref().map(Results::load).unwrap_or_default();
    results.machine = machine;
    let mut failed = Vec::new();
    for scenario in selected {
        if bench.options.count {
            if let Err(error) = scenario.count(bench) {
                println!("{}: {error}", scenario.subject.name);
                failed.push(scenario.subject.name);
            }
            continue;
        }
        match scenario.run(bench) {
            Ok(mut outcome) => {
                outcome.processor.clone_from(&results.machine.processor);
                println!("\n{}\n\n{}", outcome.title, report::table(&outcome));
                results.scenarios.insert(scenario.subject.name.to_owned(), outcome);
                if let Some(directory) = &bench.options.out {
                    report::write(&results, order, directory)?;
                }
            }
            Err(error) => {
                println!("{}: {error}", scenario.subject.name);
                failed.push(scenario.subject.name);
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("not measured: {}", failed.join(", "))) }
}

/// Makes the directory of configurations and files, readable for an unprivileged worker.
fn make_readable(directory: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;
    let www = directory.join("www");
    std::fs::create_dir_all(&www)
        .and_then(|()| {
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(directory, mode.clone())?;
            std::fs::set_permissions(&www, mode)
        })
        .map_err(|error| format!("{}: {error}", directory.display()))
}
