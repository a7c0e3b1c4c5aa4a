//! Hot files under cold load: what requests for a file in memory get while hundreds of others wait
//! for a slow disk.
//!
//! The disk is the test kit's: an ordinary ext4 whose every block read takes as long as that of a
//! hard disk. The hot file is read once before; the cold files are never in memory.

use std::time::Duration;

use nowait_testkit::slow_disk::{DiskImage, ImageOptions, Ops};

use super::throughput::random_bytes;
use crate::bench::{Bench, Candidate, Subject, variant};
use crate::load::{self, GroupResult, Load, LoadGroup};
use crate::probe;
use crate::results::{Better, Samples, ScenarioResult};
use crate::server::{ADDRESS, ServerProcess, Setup, Side, Variant};

const FILE_BYTES: usize = 4 << 20;
const COLD_FILES: usize = 300;
const COLD_CONNECTIONS: usize = 200;
const HOT_CONNECTIONS: usize = 50;
const WORKERS: usize = 2;
/// One block operation of the disk, and how many it does at a time.
const OPERATION: Duration = Duration::from_millis(8);
const HEADS: usize = 4;
/// Until every cold connection has its first read in the queue.
const WARM_UP: Duration = Duration::from_secs(2);
/// Reading the hot file this often makes it hot for caches that count uses, too.
const HOT_READS: usize = 3;

/// One measurement of one variant: the hot group alone, and both groups together.
struct ColdSample {
    alone: GroupResult,
    hot: GroupResult,
    cold: GroupResult,
    seconds: f64,
}

pub fn run(bench: &Bench, scenario: &Subject) -> Result<ScenarioResult, String> {
    let options = ImageOptions { size: 2 << 30, ..ImageOptions::default() };
    let mut image = DiskImage::or_skip(options).ok_or("there is no slow disk on this machine")?;
    println!("{:14} writing {COLD_FILES} files of 4 MB", scenario.name);
    image.write("hot.bin", random_bytes(FILE_BYTES));
    for nth in 0..COLD_FILES {
        image.write(&cold_name(nth), random_bytes(FILE_BYTES));
    }
    let variants = variants(bench);
    let mut samples: Vec<Samples> =
        variants.iter().map(|v| Samples::new(&v.label, v.side)).collect();
    for round in 0..bench.options.rounds {
        for (variant, samples) in variants.iter().zip(&mut samples) {
            image.disk().heal();
            image.make_cold();
            image.disk().set_heads(HEADS);
            image.disk().delay(Ops::READ | Ops::WRITE, OPERATION);
            let sample = measure(bench, &image, variant)
                .map_err(|error| format!("{}: {error}", variant.label))?;
            bench.progress(scenario, round, &variant.label, &sample.to_string());
            samples.push(sample.kept_percent(), &sample.also());
        }
    }
    let mut outcome =
        bench.outcome(scenario, "% of its rate alone that the hot file keeps", Better::Higher);
    outcome.fill(&samples, None);
    Ok(outcome)
}

/// nginx without a pool, with its default pool of 32 threads and with 128; Nowait with its
/// default pool of 32, asked for or not.
fn variants(bench: &Bench) -> Vec<Variant> {
    const SENDFILE: &str = "sendfile on; sendfile_max_chunk 512k;";
    let threads = format!("{SENDFILE} aio threads;");
    let mut variants = vec![
        variant("nginx", Side::Nginx, "", SENDFILE),
        variant("nginx aio threads", Side::Nginx, "", &threads),
        Variant {
            main: "thread_pool default threads=128;".to_owned(),
            ..variant("nginx aio threads, 128", Side::Nginx, "", &threads)
        },
    ];
    for (name, events) in bench.drivers() {
        if bench.candidate == Some(Candidate::Nowait) {
            variants.push(variant(&name, Side::Nowait, events, SENDFILE));
        }
        variants.push(variant(&format!("{name} aio threads"), Side::Nowait, events, &threads));
    }
    variants
}

fn measure(bench: &Bench, image: &DiskImage, variant: &Variant) -> Result<ColdSample, String> {
    let setup = Setup { root: image.path().to_path_buf(), ..bench.setup(WORKERS) };
    let directory = bench.directory.join("server");
    let server = ServerProcess::start(bench.binary(variant.side), &directory, &setup, variant)?;
    let request = probe::request("/hot.bin", false);
    let mut expect = probe::fetch(ADDRESS, &request)?;
    for _ in 1..HOT_READS {
        expect = probe::fetch(ADDRESS, &request)?;
    }
    let hot = LoadGroup {
        connections: HOT_CONNECTIONS,
        requests: vec![request],
        expect: expect.clone(),
        close: false,
    };
    let cold = LoadGroup {
        connections: COLD_CONNECTIONS,
        requests: (0..COLD_FILES)
            .map(|nth| probe::request(&format!("/{}", cold_name(nth)), false))
            .collect(),
        expect,
        close: false,
    };
    let length = Duration::from_secs_f64(bench.options.seconds);
    let load = |groups: &[LoadGroup], warm_up, length| {
        load::run(&Load { target: ADDRESS, groups, warm_up, length }, || {})
            .map_err(|error| format!("{error} {}", server.log()))
    };
    let alone = load(std::slice::from_ref(&hot), length / 3, length)?;
    let both = load(&[hot, cold], WARM_UP, length * 2)?;
    match (<[GroupResult; 1]>::try_from(alone), <[GroupResult; 2]>::try_from(both)) {
        (Ok([alone]), Ok([hot, cold])) => {
            Ok(ColdSample { alone, hot, cold, seconds: length.as_secs_f64() })
        }
        _ => Err("the groups were not all seen".to_owned()),
    }
}

fn cold_name(nth: usize) -> String {
    format!("cold-{nth:03}.bin")
}

impl ColdSample {
    fn alone_per_second(&self) -> f64 {
        self.alone.requests() / self.seconds
    }

    /// The loaded part lasts twice as long.
    fn hot_per_second(&self) -> f64 {
        self.hot.requests() / (2.0 * self.seconds)
    }

    fn kept_percent(&self) -> f64 {
        100.0 * self.hot_per_second() / self.alone_per_second()
    }

    fn cold_mb_per_second(&self) -> f64 {
        self.cold.bytes as f64 / 1e6 / (2.0 * self.seconds)
    }

    /// The 99th percentile in milliseconds; without a single response, the whole measured time.
    fn p99_ms(seen: &GroupResult, seconds: f64) -> f64 {
        let seconds =
            if seen.responses == 0 { seconds } else { seen.latency_at(99.0).as_secs_f64() };
        seconds * 1e3
    }

    fn also(&self) -> [(&'static str, f64); 5] {
        [
            ("alone/s", self.alone_per_second()),
            ("under load/s", self.hot_per_second()),
            ("p99 alone ms", ColdSample::p99_ms(&self.alone, self.seconds)),
            ("p99 under load ms", ColdSample::p99_ms(&self.hot, 2.0 * self.seconds)),
            ("cold MB/s", self.cold_mb_per_second()),
        ]
    }
}

impl std::fmt::Display for ColdSample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [(_, alone), (_, hot), (_, p99_alone), (_, p99), (_, cold)] = self.also();
        write!(
            f,
            "{:3.0} %  hot {alone:.0}/s alone, {hot:.1}/s under load; p99 {p99_alone:.0} and \
             {p99:.0} ms; cold {cold:.0} MB/s",
            self.kept_percent()
        )
    }
}
