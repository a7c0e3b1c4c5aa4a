//! The queue alone, in virtual time.

use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;
const START: Duration = Duration::ZERO;

fn client(client: u64) -> Owner {
    Owner { client, file: 0 }
}

/// The order of service by one thread, if tasks take no time.
fn drain_order(fair: &mut Fair<u32>) -> Vec<u32> {
    let mut order = Vec::new();
    while let Some((share, task)) = fair.pop(START) {
        fair.done(share, Duration::ZERO, START);
        order.push(task);
    }
    order
}

#[test]
fn clients_take_turns() {
    let mut fair = Fair::new(QueueLimits::shared(4));
    for task in 0..4 {
        fair.push(Class::Bulk, client(1), task, START);
    }
    fair.push(Class::Bulk, client(2), 10, START);
    fair.push(Class::Bulk, client(3), 20, START);
    assert_eq!(drain_order(&mut fair), [0, 10, 20, 1, 2, 3]);
    assert!(fair.clients.is_empty(), "no client is kept without tasks");
}

#[test]
fn path_goes_first_without_starving_bulk() {
    let mut fair = Fair::new(QueueLimits::shared(4));
    for task in 0..6 {
        fair.push(Class::Path, client(u64::from(task) + 1), task, START);
    }
    fair.push(Class::Bulk, client(1), 100, START);
    assert_eq!(drain_order(&mut fair), [0, 1, 2, 3, 100, 4, 5]);
}

#[test]
fn limits_leave_threads_to_others() {
    assert_eq!(QueueLimits::shared(1).bulk, 1);
    assert_eq!(QueueLimits::shared(32).bulk, 28);
    assert_eq!(QueueLimits::shared(32).per_client, 25);
    let mut fair = Fair::new(QueueLimits::shared(4));
    for task in 0..10 {
        fair.push(Class::Bulk, client(1), task, START);
    }
    let first = fair.pop(START).unwrap();
    let _second = fair.pop(START).unwrap();
    assert!(fair.pop(START).is_none(), "one client runs two of the three bulk tasks");
    fair.push(Class::Bulk, client(2), 20, START);
    assert_eq!(fair.pop(START).unwrap().1, 20);
    fair.push(Class::Bulk, client(3), 30, START);
    assert!(fair.pop(START).is_none(), "the last thread is not for bulk tasks");
    fair.push(Class::Path, client(4), 40, START);
    assert_eq!(fair.pop(START).unwrap().1, 40);
    fair.done(first.0, Duration::ZERO, START);
    assert_eq!(fair.pop(START).unwrap().1, 30, "the place goes to the client that waited longer");
}

#[test]
fn who_waits_or_has_its_share_has_no_turn() {
    let mut fair = Fair::new(QueueLimits::shared(4));
    assert!(fair.has_turn(1));
    fair.push(Class::Bulk, client(1), 0, START);
    assert!(!fair.has_turn(1) && fair.has_turn(2));
    let (first, _) = fair.pop(START).unwrap();
    assert!(fair.has_turn(1), "one task runs, two may");
    fair.push(Class::Bulk, client(1), 1, START);
    let _second = fair.pop(START).unwrap();
    assert!(!fair.has_turn(1));
    fair.done(first, Duration::ZERO, START);
    assert!(fair.has_turn(1));
}

#[test]
fn removal_forgets_empty_clients() {
    let mut fair = Fair::new(QueueLimits::shared(2));
    let push =
        |fair: &mut Fair<u32>, n| fair.push(Class::Bulk, client(u64::from(n) % 2 + 1), n, START);
    let tickets: Vec<_> = (0..5).map(|n| push(&mut fair, n)).collect();
    assert_eq!(fair.remove(tickets[2]), Some(2));
    assert_eq!(fair.remove(tickets[2]), None);
    assert_eq!(fair.waiting(), 4);
    assert_eq!(drain_order(&mut fair), [0, 1, 4, 3]);
    assert_eq!(fair.remove(tickets[4]), None);
    let ticket = fair.push(Class::Path, client(9), 9, START);
    fair.remove(ticket);
    assert!(fair.clients.is_empty() && !fair.is_ready());
    assert!(fair.rings.iter().all(|ring| ring.by_age.is_empty()));
}

/// One thread of a pool, and the time it has spent.
struct SimulatedThread {
    fair: Fair<u64>,
    now: Duration,
}

impl SimulatedThread {
    fn new() -> SimulatedThread {
        SimulatedThread { fair: Fair::new(QueueLimits::shared(1)), now: START }
    }

    /// The task's name is its client.
    fn push(&mut self, client: u64, file: u64) {
        self.fair.push(Class::Bulk, Owner { client, file }, client, self.now);
    }

    /// Serves one task, which takes `time`; returns its client.
    fn serve(&mut self, time: Duration) -> u64 {
        let (share, client) = self.fair.pop(self.now).expect("something waits");
        self.now += time;
        self.fair.done(share, time, self.now);
        client
    }

    /// Serves clients that submit again at once, `times` times.
    fn serve_busy(&mut self, times: usize, time: Duration) {
        for _ in 0..times {
            let client = self.serve(time);
            self.push(client, 1000 + client);
        }
    }
}

const BUSY: u64 = 200;
const HOT: u64 = 999;

/// Hundreds of clients that read cold files, each as fast as the pool serves it.
fn busy_pool() -> SimulatedThread {
    let mut pool = SimulatedThread::new();
    for client in 1..=BUSY {
        pool.push(client, 1000 + client);
    }
    pool.serve_busy(20 * BUSY as usize, MS(5));
    pool
}

/// Number of tasks served before the single task of `client`; the served clients submit again.
fn served_before(pool: &mut SimulatedThread, client: u64) -> usize {
    let is_it = |_: &usize| {
        let served = pool.serve(MS(5));
        if served != client {
            pool.push(served, 1000 + served);
        }
        served == client
    };
    (0..).find(is_it).unwrap_or(usize::MAX)
}

#[test]
fn who_rarely_needs_the_pool_goes_before_who_keeps_it_busy() {
    let mut pool = busy_pool();
    // It may need the pool for several pages in a row.
    for miss in 0..3 {
        pool.push(HOT, 7);
        let before = served_before(&mut pool, HOT);
        assert!(before <= 1, "miss {miss}: {before} others went before it");
    }
}

#[test]
fn a_file_that_rarely_needs_the_pool_goes_before_files_that_keep_it_busy() {
    let mut pool = busy_pool();
    // All new connections, as of clients that submit once.
    for n in 1..=50 {
        pool.push(5000 + n, 1000 + n);
    }
    pool.push(HOT, 7);
    let before = served_before(&mut pool, HOT);
    assert!(before <= 1, "{before} others went before it");
}

#[test]
fn many_readers_of_one_page_count_once_for_the_file() {
    let mut fair = Fair::new(QueueLimits::none());
    for client in 1..=64 {
        fair.push(Class::Bulk, Owner { client, file: 7 }, (), START);
    }
    let shares: Vec<_> = std::iter::from_fn(|| fair.pop(START)).map(|(share, ())| share).collect();
    assert_eq!(shares.len(), 64);
    for share in shares {
        fair.done(share, MS(100), MS(100));
    }
    let level = |payer| fair.accounts.level(payer, MS(100));
    assert_eq!(level(Payer::Client(1)), 7);
    assert!(level(Payer::File(7)) <= 9, "some 0.5 s and not 6.4 s");
    assert!(fair.running_files.is_empty());
}

/// The bound promised by the module, against an endless stream of newcomers.
#[test]
fn the_busy_do_not_starve() {
    let mut pool = busy_pool();
    let waiting = pool.fair.waiting();
    let last = pool.fair.rings[Class::Bulk as usize].by_age.last_key_value().unwrap();
    let last = Turn { rank: *last.1, number: *last.0 };
    let last = pool.fair.rings[Class::Bulk as usize].by_rank[&last];
    let bound = (OVERTAKERS_MAX as usize + 1) * waiting;
    let mut newcomers = 10_000..;
    let starts = (1..=bound).find(|_| {
        for _ in 0..3 {
            let new = newcomers.next().unwrap_or(0);
            pool.push(new, new);
        }
        pool.serve(MS(5)) == last
    });
    let starts = starts.unwrap_or_else(|| panic!("not served within {bound} starts"));
    assert!(starts > waiting, "newcomers went before it, or the test shows nothing: {starts}");
}

/// A client that was busy long ago is treated like everyone else.
#[test]
fn busyness_is_forgiven() {
    let mut pool = SimulatedThread::new();
    pool.push(1, 1);
    pool.serve(MS(1000));
    pool.push(2, 2);
    pool.serve(MS(10));
    for client in [1, 2] {
        pool.push(client, client);
    }
    assert_eq!(pool.serve(MS(1)), 2);
    assert_eq!(pool.serve(MS(1)), 1);
    pool.now += Duration::from_secs(120);
    for client in [1, 2] {
        pool.push(client, client);
    }
    assert_eq!(pool.serve(MS(1)), 1);
}
