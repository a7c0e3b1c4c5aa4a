//! Hot files in little memory, while clients read far more cold data than fits: what the requests for the hot
//! files notice.
//!
//! The server runs in a control group. Its hot files take half of the group's memory and are asked for at a
//! steady rate; each cold file is read once. A server whose cold reads displace the hot files reads those from
//! the disk again and again.

use std::time::Duration;

use nowait_testkit::Cgroup;
use nowait_testkit::slow_disk::{DiskImage, ImageOptions, Ops};

use super::throughput::random_bytes;
use crate::bench::{Bench, Candidate, Subject, variant};
use crate::paced::{self, PacedStream, StreamResult};
use crate::probe;
use crate::results::{Better, Samples, ScenarioResult};
use crate::server::{ADDRESS, ServerProcess, Setup, Side, Variant};

const MEMORY_BYTES: usize = 256 << 20;
const HOT_BYTES: usize = 1 << 20;
/// Half of the memory.
const HOT_FILES: usize = MEMORY_BYTES / 2 / HOT_BYTES;
const COLD_BYTES: usize = 4 << 20;
/// Ten times the memory.
const COLD_FILES: usize = 10 * MEMORY_BYTES / COLD_BYTES;
/// Each hot file is asked for about every other second.
const HOT_PER_SECOND: f64 = 60.0;
/// 100 MB/s.
const COLD_PER_SECOND: f64 = 25.0;
const HOT_CONNECTIONS: usize = 32;
const COLD_CONNECTIONS: usize = 200;
const WORKERS: usize = 2;
/// One block operation of the disk, of up to 128 KB, and how many it does at a time.
const OPERATION: Duration = Duration::from_millis(4);
const HEADS: usize = 8;
/// How often the hot files are read before.
const HOT_READS: usize = 3;

/// The hot stream alone and beside the cold one.
struct CacheSample {
    alone: StreamResult,
    hot: StreamResult,
    cold: StreamResult,
}

pub fn run(bench: &Bench, scenario: &Subject) -> Result<ScenarioResult, String> {
    let options = ImageOptions { size: 4 << 30, ..ImageOptions::default() };
    let mut image = DiskImage::or_skip(options).ok_or("there is no slow disk on this machine")?;
    println!("{:14} writing {HOT_FILES} hot files and {COLD_FILES} cold ones", scenario.name);
    for nth in 0..HOT_FILES {
        image.write(&hot_name(nth), random_bytes(HOT_BYTES));
    }
    for nth in 0..COLD_FILES {
        image.write(&cold_name(nth), random_bytes(COLD_BYTES));
    }
    let variants = variants(bench);
    let mut samples: Vec<Samples> =
        variants.iter().map(|v| Samples::new(&v.label, v.side)).collect();
    for round in 0..bench.options.rounds {
        for (variant, samples) in variants.iter().zip(&mut samples) {
            let sample = measure(bench, &mut image, variant)
                .map_err(|error| format!("{}: {error}", variant.label))?;
            bench.progress(scenario, round, &variant.label, &sample.to_string());
            samples.push(sample.times(), &sample.also());
        }
    }
    let unit = "times its p99 alone is the p99 of hot files beside cold reads";
    let mut outcome = bench.outcome(scenario, unit, Better::Lower);
    outcome.fill(&samples, None);
    Ok(outcome)
}

fn variants(bench: &Bench) -> Vec<Variant> {
    const FILES: &str = "sendfile on; sendfile_max_chunk 512k; aio threads;";
    let mut variants = vec![variant("nginx aio threads", Side::Nginx, "", FILES)];
    for (name, events) in bench.drivers() {
        let mut add = |setting| {
            let label = format!("{name} read_cache {setting}");
            let lines = format!("{FILES} read_cache {setting};");
            variants.push(variant(&label, Side::Nowait, events, &lines));
        };
        if bench.candidate == Some(Candidate::Nowait) {
            add("auto");
            add("on");
        }
    }
    variants
}

fn measure(bench: &Bench, image: &mut DiskImage, variant: &Variant) -> Result<CacheSample, String> {
    let setup = Setup { root: image.path().to_path_buf(), ..bench.setup(WORKERS) };
    let directory = bench.directory.join("server");
    image.disk().heal();
    // What the group has read belongs to it until it is gone.
    image.make_cold();
    let group = Cgroup::make(MEMORY_BYTES as u64).ok_or("no control group limits memory here")?;
    let enter = format!("echo $$ > '{}' && exec \"$0\" \"$@\"", group.members().display());
    let wrapper = ["/bin/sh".to_owned(), "-c".to_owned(), enter];
    let server = ServerProcess::start_under(
        &wrapper,
        bench.binary(variant.side),
        &directory,
        &setup,
        variant,
    )?;
    for _ in 0..HOT_READS {
        for nth in 0..HOT_FILES {
            probe::fetch(ADDRESS, &request(&hot_name(nth)))?;
        }
    }
    image.disk().set_heads(HEADS);
    image.disk().delay(Ops::READ | Ops::WRITE, OPERATION);
    let hot: Vec<_> = (0..HOT_FILES).map(|nth| (request(&hot_name(nth)), HOT_BYTES)).collect();
    let cold: Vec<_> = (0..COLD_FILES).map(|nth| (request(&cold_name(nth)), COLD_BYTES)).collect();
    let hot = || PacedStream {
        rate: HOT_PER_SECOND,
        connections: HOT_CONNECTIONS,
        requests: &hot,
        first: 0,
    };
    let cold = PacedStream {
        rate: COLD_PER_SECOND,
        connections: COLD_CONNECTIONS,
        requests: &cold,
        first: 0,
    };
    let length = Duration::from_secs_f64(COLD_FILES as f64 / COLD_PER_SECOND);
    let alone = paced::run(&|| paced::plain(ADDRESS), &[hot()], length / 3);
    let both = paced::run(&|| paced::plain(ADDRESS), &[hot(), cold], length);
    let sample = match (<[_; 1]>::try_from(alone), <[_; 2]>::try_from(both)) {
        (Ok([alone]), Ok([hot, cold])) => CacheSample { alone, hot, cold },
        _ => return Err("a stream has no result".to_owned()),
    };
    match sample.alone.failures + sample.hot.failures {
        0 => Ok(sample),
        failures => Err(format!("{failures} requests failed {}", server.log())),
    }
}

fn hot_name(nth: usize) -> String {
    format!("hot/{nth:03}")
}

fn cold_name(nth: usize) -> String {
    format!("cold/{nth:03}")
}

fn request(name: &str) -> Vec<u8> {
    probe::request(&format!("/{name}"), false)
}

impl CacheSample {
    fn times(&self) -> f64 {
        self.hot.ms_at(99.0) / self.alone.ms_at(99.0)
    }

    /// Share of requests that were answered within the time that 99 % of them take alone, in percent.
    fn kept_percent(&self) -> f64 {
        let limit = (self.alone.ms_at(99.0) * 1e3) as u64;
        let within = self.hot.latency.count_between(0, limit);
        100.0 * within as f64 / self.hot.latency.len().max(1) as f64
    }

    fn also(&self) -> [(&'static str, f64); 6] {
        [
            ("p50 alone ms", self.alone.ms_at(50.0)),
            ("p50 beside cold ms", self.hot.ms_at(50.0)),
            ("p99 alone ms", self.alone.ms_at(99.0)),
            ("p99 beside cold ms", self.hot.ms_at(99.0)),
            ("% within p99 alone", self.kept_percent()),
            ("cold p50 ms", self.cold.ms_at(50.0)),
        ]
    }
}

impl std::fmt::Display for CacheSample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [(_, p50_alone), (_, p50), (_, p99_alone), (_, p99), (_, within), (_, cold)] =
            self.also();
        write!(
            f,
            "{:7.1} times  hot alone p50 {p50_alone:.1}, p99 {p99_alone:.1} ms; beside cold p50 \
             {p50:.1}, p99 {p99:.1} ms, {within:.0} % within the p99 alone; cold p50 {cold:.0} ms, \
             {} failed",
            self.times(),
            self.cold.failures
        )
    }
}
