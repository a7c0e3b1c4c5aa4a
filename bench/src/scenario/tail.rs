//! Tail latency of a cache on a disk that is usually fast: hot objects are asked for all the time,
//! cold ones now and then, and one disk operation in a hundred takes up to a second. What the
//! requests for hot objects, which are in memory, notice of that.
//!
//! The objects are 2 to 60 KB, as thumbnails, scripts and style sheets are.

use std::time::Duration;

use nowait_testkit::slow_disk::{DiskImage, ImageOptions, Latency, Ops, Spike};

use super::throughput::{fetch_hit, random_bytes};
use crate::bench::{Bench, Candidate, Subject, variant};
use crate::paced::{self, PacedStream, StreamResult};
use crate::probe;
use crate::results::{Better, Samples, ScenarioResult};
use crate::server::{ADDRESS, ServerProcess, Setup, Side, Variant};

const HOT_OBJECTS: usize = 200;
const COLD_OBJECTS: usize = 2000;
const HOT_PER_SECOND: f64 = 1500.0;
const COLD_PER_SECOND: f64 = 20.0;
const HOT_CONNECTIONS: usize = 32;
/// More than can wait for the disk at a time.
const COLD_CONNECTIONS: usize = 48;
const OPERATION: Duration = Duration::from_micros(100);
const SPIKE: Spike = Spike {
    one_in: 100,
    shortest: Duration::from_millis(50),
    longest: Duration::from_millis(1000),
};
/// Percentiles of some seconds say nothing about spikes.
const SECONDS_MIN: f64 = 10.0;

/// The hot stream alone and beside the cold one.
struct TailSample {
    alone: StreamResult,
    hot: StreamResult,
    cold: StreamResult,
}

pub fn run(bench: &Bench, scenario: &Subject) -> Result<ScenarioResult, String> {
    let options = ImageOptions { size: 1 << 30, ..ImageOptions::default() };
    let mut image = DiskImage::or_skip(options).ok_or("there is no slow disk on this machine")?;
    let sizes = write_objects(bench)?;
    let variants = variants(bench, &image);
    let mut samples: Vec<Samples> =
        variants.iter().map(|v| Samples::new(&v.label, v.side)).collect();
    for round in 0..bench.options.rounds {
        for (variant, samples) in variants.iter().zip(&mut samples) {
            let sample = measure(bench, &mut image, variant, &sizes)
                .map_err(|error| format!("{}: {error}", variant.label))?;
            bench.progress(scenario, round, &variant.label, &sample.to_string());
            samples.push(sample.times(), &sample.also());
        }
    }
    let unit = "times its p99 alone is the p99 of hot objects beside cold ones";
    let mut outcome = bench.outcome(scenario, unit, Better::Lower);
    outcome.fill(&samples, None);
    Ok(outcome)
}

fn variants(bench: &Bench, image: &DiskImage) -> Vec<Variant> {
    let cache = format!(
        "sendfile on; proxy_cache_path {}/cache levels=2:2 keys_zone=objects:64m inactive=7d \
         max_size=100g use_temp_path=off;",
        image.path().display()
    );
    let threads = format!("{cache} aio threads;");
    let mut variants = vec![
        variant("nginx", Side::Nginx, "", &cache),
        variant("nginx aio threads", Side::Nginx, "", &format!("{threads} aio_write on;")),
    ];
    for (name, events) in bench.drivers() {
        if bench.candidate == Some(Candidate::Nowait) {
            variants.push(variant(&name, Side::Nowait, events, &cache));
        }
        variants.push(variant(&format!("{name} aio threads"), Side::Nowait, events, &threads));
    }
    variants
}

/// Writes the origin's files; their sizes by number.
fn write_objects(bench: &Bench) -> Result<Vec<usize>, String> {
    (0..HOT_OBJECTS + COLD_OBJECTS)
        .map(|nth| {
            let size = 2048 + (nth * 7919) % (58 << 10);
            let path = bench.directory.join("www").join(name(nth));
            let written = std::fs::write(&path, random_bytes(size));
            written.map_err(|error| format!("{}: {error}", path.display())).map(|()| size)
        })
        .collect()
}

fn name(nth: usize) -> String {
    format!("object-{nth:04}")
}

fn request(nth: usize) -> Vec<u8> {
    probe::request(&format!("/cached/{}", name(nth)), false)
}

fn measure(
    bench: &Bench,
    image: &mut DiskImage,
    variant: &Variant,
    sizes: &[usize],
) -> Result<TailSample, String> {
    let setup =
        Setup { http: bench.upstream(), server: super::throughput::cached(), ..bench.setup(1) };
    let directory = bench.directory.join("server");
    let start = || ServerProcess::start(bench.binary(variant.side), &directory, &setup, variant);

    // Fill the cache, then forget everything that is in memory.
    image.disk().heal();
    let _ = std::fs::remove_dir_all(image.path().join("cache"));
    {
        let _origin = bench.origin()?;
        let _server = start()?;
        (0..sizes.len()).try_for_each(|nth| fetch_hit(&request(nth)).map(|_| ()))?;
    }
    image.make_cold();
    let _origin = bench.origin()?;
    let server = start()?;
    for _ in 0..3 {
        (0..HOT_OBJECTS).try_for_each(|nth| fetch_hit(&request(nth)).map(|_| ()))?;
    }
    image.disk().delay(Ops::READ | Ops::WRITE, Latency { base: OPERATION, spike: Some(SPIKE) });

    let requests: Vec<(Vec<u8>, usize)> =
        sizes.iter().enumerate().map(|(nth, size)| (request(nth), *size)).collect();
    let (hot, cold) = requests.split_at(HOT_OBJECTS);
    let hot = || PacedStream {
        rate: HOT_PER_SECOND,
        connections: HOT_CONNECTIONS,
        requests: hot,
        first: 0,
    };
    let cold = PacedStream {
        rate: COLD_PER_SECOND,
        connections: COLD_CONNECTIONS,
        requests: cold,
        first: 0,
    };
    let length = Duration::from_secs_f64(bench.options.seconds.max(SECONDS_MIN));
    let [alone] =
        <[StreamResult; 1]>::try_from(paced::run(&|| paced::plain(ADDRESS), &[hot()], length))
            .map_err(|_| "one stream has one result")?;
    let [hot, cold] = <[StreamResult; 2]>::try_from(paced::run(
        &|| paced::plain(ADDRESS),
        &[hot(), cold],
        length,
    ))
    .map_err(|_| "two streams have two results")?;
    match alone.failures + hot.failures + cold.failures {
        0 => Ok(TailSample { alone, hot, cold }),
        failures => Err(format!("{failures} requests failed {}", server.log())),
    }
}

impl TailSample {
    fn times(&self) -> f64 {
        self.hot.ms_at(99.0) / self.alone.ms_at(99.0)
    }

    fn also(&self) -> [(&'static str, f64); 5] {
        [
            ("p99 alone ms", self.alone.ms_at(99.0)),
            ("p99 beside cold ms", self.hot.ms_at(99.0)),
            ("p99.9 beside cold ms", self.hot.ms_at(99.9)),
            ("cold p50 ms", self.cold.ms_at(50.0)),
            ("cold p99 ms", self.cold.ms_at(99.0)),
        ]
    }
}

impl std::fmt::Display for TailSample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [(_, alone), (_, hot), (_, p999), (_, cold50), (_, cold99)] = self.also();
        write!(
            f,
            "{:7.1} times  p99 of hot {alone:.2} ms alone, {hot:.2} beside cold (p99.9 {p999:.2}); \
             cold p50 {cold50:.1}, p99 {cold99:.0} ms",
            self.times()
        )
    }
}
