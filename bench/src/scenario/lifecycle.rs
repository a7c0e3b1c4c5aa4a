//! Start-up and reload: how long until the server listens, and until a new configuration answers.

use std::time::{Duration, Instant};

use crate::bench::{Bench, Subject};
use crate::probe;
use crate::results::{Better, Samples, ScenarioResult};
use crate::server::{ADDRESS, ServerProcess, Setup, Variant, configuration};

const RELOAD_TIMEOUT: Duration = Duration::from_secs(10);

/// From starting the program to its first accepted connection.
pub fn start(bench: &Bench, scenario: &Subject) -> Result<ScenarioResult, String> {
    rounds(bench, scenario, |_setup, _variant, server| Ok(server.start_time))
}

/// From the signal to the first answer of the new configuration.
pub fn reload(bench: &Bench, scenario: &Subject) -> Result<ScenarioResult, String> {
    rounds(bench, scenario, |setup, variant, server| {
        let directory = bench.directory.join("server");
        let setup = Setup { server: generation(2), ..setup.clone() };
        let text = configuration(&directory, &setup, variant);
        let request = probe::request("/generation", true);
        let begin = Instant::now();
        server.reload(&text)?;
        while begin.elapsed() < RELOAD_TIMEOUT {
            if probe::fetch(ADDRESS, &request)?.body.starts_with(b"2") {
                return Ok(begin.elapsed());
            }
        }
        Err(format!("the new configuration does not answer: {}", server.log()))
    })
}

/// A location that tells which configuration answers.
fn generation(number: usize) -> String {
    format!("location = /generation {{ return 200 \"{number}\"; }}")
}

fn rounds(
    bench: &Bench,
    scenario: &Subject,
    measure: impl Fn(&Setup, &Variant, &ServerProcess) -> Result<Duration, String>,
) -> Result<ScenarioResult, String> {
    let setup = Setup { server: generation(1), ..bench.setup(1) };
    let directory = bench.directory.join("server");
    let variants = bench.plain_variants();
    let mut samples: Vec<Samples> =
        variants.iter().map(|v| Samples::new(&v.label, v.side)).collect();
    for round in 0..bench.options.rounds {
        for (variant, samples) in variants.iter().zip(&mut samples) {
            let time =
                ServerProcess::start(bench.binary(variant.side), &directory, &setup, variant)
                    .and_then(|server| measure(&setup, variant, &server))
                    .map_err(|error| format!("{}: {error}", variant.label))?;
            let ms = time.as_secs_f64() * 1e3;
            bench.progress(scenario, round, &variant.label, &format!("{ms:9.2} ms"));
            samples.push(ms, &[]);
        }
    }
    let mut outcome = bench.outcome(scenario, "ms", Better::Lower);
    outcome.fill(&samples, None);
    Ok(outcome)
}
