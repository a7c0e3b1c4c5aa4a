//! Every way that bytes take, over every transport, on both drivers, at lengths around every bound.
//!
//! A seed decides what happens on one connection ([`plan`]): the transport, the tasks, the lengths
//! ([`bounds`]), how contents are cut into TLS records, frames and TCP segments ([`wire`]). The
//! server is the real one, with a location for every task ([`site`]); origins verify uploads and produce
//! downloads ([`origin`]); every byte is compared at both ends ([`content`]).
//!
//! `cargo test` runs a sample. `cargo xtask transports --minutes 60` goes on with fresh seeds, and replays
//! one with `--seed`. Time limits only end what would hang.

#[path = "../http/tls/client.rs"]
#[allow(dead_code, reason = "the clients of other tests")]
mod authority;
mod bounds;
mod client;
mod content;
mod duplex;
mod http1;
mod origin;
mod plan;
mod random;
mod run;
mod site;
mod wire;

use std::time::Duration;

use nowait_testkit::Driver;
use run::Until;

/// Seeds of the sample: each pair of transport and task comes first on a connection several times.
const SAMPLE: u64 = 750;

fn sample(driver: Driver) {
    let score = run::seeds(driver, 0, Until::Count(SAMPLE));
    // Each seed has an exchange or more.
    let says_enough = score.exchanges > SAMPLE && score.hits > 0;
    assert!(says_enough, "the run says too little: {score:?}");
}

#[test]
fn a_sample_on_epoll() {
    sample(Driver::Epoll);
}

#[test]
fn a_sample_on_io_uring() {
    sample(Driver::IoUring);
}

/// What `cargo xtask transports` runs, with its options in the environment.
#[test]
#[ignore = "takes as long as wanted"]
fn seeds() {
    let text = |name: &str| std::env::var(format!("NOWAIT_TRANSPORTS_{name}")).ok();
    let number = |name| text(name).map(|text| text.parse::<u64>().expect(name));
    let first = number("SEED").unwrap_or(0);
    let until = match number("COUNT") {
        Some(count) => Until::Count(count),
        None => Until::Time(Duration::from_secs(number("SECONDS").unwrap_or(600))),
    };
    let drivers: &[Driver] = match text("DRIVER").as_deref() {
        None => &[Driver::Epoll, Driver::IoUring],
        Some("epoll") => &[Driver::Epoll],
        Some("io_uring") => &[Driver::IoUring],
        Some(other) => panic!("the driver {other}"),
    };
    if text("PRINT").is_some() {
        eprintln!("{:#?}", plan::ConnectionPlan::draw(first));
    }
    std::thread::scope(|scope| {
        for driver in drivers {
            scope.spawn(move || run::seeds(*driver, first, until));
        }
    });
}
