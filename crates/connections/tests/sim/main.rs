//! A whole worker under the simulated driver: network, disk and time are decided by a seed.
//!
//! Clients connect, ask, dawdle, stop half-way and leave, over HTTP/1.1 and HTTP/2, with and without TLS; origins, of both
//! protocols, with and without TLS, and of FastCGI, uwsgi, SCGI and memcached, answer slowly, wrongly or not at all; the disk is slow, fails or hangs; the configuration is reloaded in between, and the server
//! may end before its clients do. In every run
//!
//! * each complete answer is exact, byte for byte, for its request and the generation that
//!   answered;
//! * each incomplete one has a reason that is part of the run;
//! * no client waits forever, and no state is left at the end;
//! * the same seed gives the same run.
//!
//! `cargo xtask sim` runs more seeds than the tests do, and replays one.

mod ask;
mod client;
mod client_http2;
mod link;
mod origin;
mod origin_gateway;
mod origin_http2;
mod plan;
mod serve;
mod site;
mod tls;
mod wire;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nowait_runtime::driver::DriverKind;
use nowait_runtime::time::timeout;
use nowait_runtime::worker::{Hooks, WorkerConfig};
use nowait_runtime::{sim, sleep, spawn};

use client::{Excuses, Score};
use plan::Plan;
use serve::Server;

/// Where the server listens.
const ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 80);

/// Where it listens with TLS.
const SECURE_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 443);

/// Seeds of the test; each runs twice.
const SEEDS: u64 = 24;

/// How long all clients together may take.
const RUN_MAX: Duration = Duration::from_secs(4 * 3600);

/// How long what they leave behind may take to end.
const REST_MAX: Duration = Duration::from_secs(600);

/// Panics of tasks.
#[derive(Clone, Default)]
struct Panics(Arc<Mutex<Vec<String>>>);

impl Hooks for Panics {
    fn task_panicked(&self, message: &str) {
        self.0.lock().unwrap().push(message.to_owned());
    }
}

/// What a run was.
struct Run {
    /// The digest of its trace.
    digest: u64,
    /// The lines, each with the digest after it.
    trace: Vec<(String, u64)>,
    score: Score,
}

/// Runs a seed on a thread of its own, so that nothing of another run is left on it.
fn run(seed: u64, prints: bool) -> Result<Run, String> {
    let panics = Panics::default();
    let hooks = panics.clone();
    let thread = std::thread::Builder::new().name(format!("seed {seed}"));
    let thread = thread.spawn(move || {
        let config = WorkerConfig {
            hooks: Rc::new(hooks),
            connections_max: 4096,
            ..WorkerConfig::new(0, DriverKind::Epoll)
        };
        sim::run_worker(seed, plan::faults(seed), config, || async move {
            let result = simulate(seed, prints).await;
            if result.is_err() {
                // What is left need not end.
                nowait_runtime::worker::remote().kill();
            }
            result
        })
    });
    let result = thread
        .unwrap()
        .join()
        .unwrap_or_else(|panic| Err(nowait_runtime::task::panic_text(&*panic).to_owned()));
    let panics = panics.0.lock().unwrap().join("; ");
    if panics.is_empty() { result } else { Err(format!("a task panicked: {panics}")) }
}

async fn simulate(seed: u64, prints: bool) -> Result<Run, String> {
    if prints {
        sim::print_trace();
    }
    let plan = Plan::draw(seed, prints);
    if prints {
        eprintln!("{plan:#?}\n{}", plan.configuration(1));
    }
    // Of an earlier run of the seed.
    let _ = std::fs::remove_dir_all(&plan.dir);
    let tasks = sim::tasks();
    let server = Server::start(plan.clone(), ADDRESS, SECURE_ADDRESS);
    let origins = origin::start(&server.pool());
    let excuses = Excuses {
        resets: plan::faults(seed).reset_one_in > 0,
        closes_unread: plan.closes_unread(),
        streams_uploads: plan.streams_uploads(),
    };
    let clients: Vec<_> = (0..plan.clients)
        .map(|number| {
            let (server, arrival_max) = (server.clone(), plan.arrival_max);
            spawn(async move {
                sleep(Duration::from_millis(sim::random(arrival_max.as_millis() as u64))).await;
                let score = client::run(server, number as u16, excuses).await;
                sim::note(format_args!("client {number} ends"));
                score
            })
        })
        .collect();
    let reloading = spawn(follow(server.clone(), plan.clone()));
    let mut score = Score::default();
    let joined = timeout(RUN_MAX, async {
        for client in clients {
            score.add(client.await.map_err(|_| "a client panicked".to_owned())??);
        }
        Ok::<(), String>(())
    });
    joined.await.map_err(|_| "the clients don't end".to_owned())??;
    reloading.await.map_err(|_| "a reload panicked".to_owned())?;
    if !server.is_stopped() {
        server.stop();
    }
    origins.into_iter().for_each(|origin| origin.abort());
    drop(server);
    let mut waited = Duration::ZERO;
    while (sim::tasks(), sim::sockets()) != (tasks, 0) {
        if waited > REST_MAX {
            let (tasks, sockets) = (sim::tasks() - tasks, sim::sockets());
            return Err(format!("at the end {tasks} tasks and {sockets} sockets are left"));
        }
        sleep(Duration::from_secs(1)).await;
        waited += Duration::from_secs(1);
    }
    score.origins_over_tls = origin::secured();
    Ok(Run { digest: sim::digest(), trace: sim::trace(), score })
}

/// Reloads and stops the server when it is time.
async fn follow(server: Rc<Server>, plan: Plan) {
    let start = nowait_runtime::now();
    for at in plan.reloads {
        nowait_runtime::time::sleep_until(start + at).await;
        if !server.is_stopped() {
            server.reload();
        }
    }
    if let Some(at) = plan.stop {
        nowait_runtime::time::sleep_until(start + at).await;
        server.stop();
    }
}

/// Runs a seed twice.
fn check(seed: u64) -> Result<Score, String> {
    let first = run(seed, false)?;
    let second = run(seed, false)?;
    if first.digest != second.digest {
        let mut lines = first.trace.iter().zip(&second.trace);
        let parts = lines.find(|(one, other)| one != other);
        let (one, other) = parts.map_or(("", ""), |(one, other)| (&one.0[..], &other.0[..]));
        return Err(format!("the second run differs from the first:\n  {one}\n  {other}"));
    }
    Ok(first.score)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect(name))
}

#[test]
fn workers_by_seed() {
    if let Some(seed) = number("NOWAIT_SIM_TRACE") {
        let ended = run(seed, true).map(|run| run.score);
        site::remove();
        eprintln!("{ended:?}");
        assert!(ended.is_ok());
        return;
    }
    let first = number("NOWAIT_SIM_SEED").unwrap_or(0);
    let count = number("NOWAIT_SIM_SEEDS").unwrap_or(SEEDS);
    let mut score = Score::default();
    let mut failed = Vec::new();
    for seed in first..first + count {
        match check(seed) {
            Ok(of_seed) => score.add(of_seed),
            Err(error) => failed
                .push(format!("seed {seed}: {error}\n  replay: cargo xtask sim --trace {seed}")),
        }
    }
    site::remove();
    eprintln!("{count} seeds from {first}: {score:?}");
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
    // A few seeds may have few clients.
    let says_enough = count < SEEDS
        || score.complete > count
            && score.hits > 0
            && score.over_http2 > count
            && score.over_tls > count
            && score.origins_over_tls > count
            && score.by_gateways > count / 2;
    assert!(says_enough, "the runs say too little: {score:?}");
}
