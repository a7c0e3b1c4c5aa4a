//! Runs plans against a server, several at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nowait_testkit::Driver;

use crate::client::{self, Score};
use crate::origin;
use crate::plan::{ConnectionPlan, Task};
use crate::site::Site;

/// Connections at a time: their contents must not mix.
const CLIENTS: usize = 4;

/// How often a long run tells of its progress.
const PROGRESS: Duration = Duration::from_secs(60);

/// No run goes on after so many failures.
const FAILURES_MAX: usize = 10;

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After so many seeds.
    Count(u64),
    Time(Duration),
}

/// Carries out what a seed decides.
pub fn seed(site: &Site, driver: Driver, seed: u64) -> Result<Score, String> {
    let plan = ConnectionPlan::draw(seed);
    for ask in plan.rounds.iter().flatten() {
        if ask.task == Task::File {
            let len = ask.target.rsplit('/').next().and_then(|name| name.parse().ok());
            site.make_file(len.expect("names of files are their lengths"));
        }
    }
    let run = || client::run(&plan, site);
    let ended =
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(origin::text(&*panic)));
    ended.map_err(|why| {
        let faults = site.faults.take().join("\n  ");
        let tasks: Vec<_> = plan.rounds.iter().flatten().map(|ask| ask.task).collect();
        let name = name(driver);
        let log = site.log_tail();
        format!(
            "seed {seed}, {name}, {:?}, {tasks:?}: {why}\n  {faults}\n{log}\n  \
             replay: cargo xtask transports --seed {seed} --count 1 --driver {name}",
            plan.transport
        )
    })
}

/// The name of a driver in `use`.
pub fn name(driver: Driver) -> &'static str {
    match driver {
        Driver::Epoll => "epoll",
        Driver::IoUring => "io_uring",
        Driver::Default => "default",
    }
}

/// Runs seeds from `first` on.
///
/// # Panics
/// With all failures.
pub fn seeds(driver: Driver, first: u64, until: Until) -> Score {
    let site = Site::start(driver);
    let (next, over) = (AtomicU64::new(first), AtomicBool::new(false));
    let (score, failures) = (Mutex::new(Score::default()), Mutex::new(Vec::new()));
    let begin = Instant::now();
    let client = || {
        while !over.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let ends = match until {
                Until::Count(count) => number - first >= count,
                Until::Time(time) => begin.elapsed() >= time,
            };
            if ends {
                return;
            }
            match seed(&site, driver, number) {
                Ok(of_seed) => score.lock().expect("no panic").add(of_seed),
                Err(why) => {
                    eprintln!("{why}\n");
                    let mut failures = failures.lock().expect("no panic");
                    failures.push(why);
                    if failures.len() >= FAILURES_MAX {
                        over.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        let mut told = Instant::now();
        while !clients.iter().all(|client| client.is_finished()) {
            std::thread::sleep(Duration::from_millis(50));
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                let seed = next.load(Ordering::Relaxed);
                eprintln!("{}, seed {seed}: {:?}", name(driver), score.lock().expect("no panic"));
            }
        }
    });
    let failures = failures.into_inner().expect("no panic");
    let score = score.into_inner().expect("no panic");
    eprintln!("{}, from seed {first}: {score:?}", name(driver));
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let faults = site.faults.take();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    site.stop();
    score
}
