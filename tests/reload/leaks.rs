//! Workers that a reload has replaced take everything with them.

use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Driver, Server};

use crate::echo::Echo;
use crate::site;

/// Pairs of reloads: to one worker, and back to three.
const ROUNDS: usize = 30;

/// Requests after each reload, each on a connection of its own, so that several workers serve.
const REQUESTS: usize = 8;

/// What the allocator may keep differs from run to run.
const GROWTH_KB_MAX: u64 = 16 << 10;

const HTTP: &str = "upstream origin { server %%ORIGIN%%; keepalive 8; }
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ''; }
    }";

#[test]
fn workers_that_end_leave_nothing_behind_on_epoll() {
    nothing_is_left(Driver::Epoll);
}

#[test]
fn workers_that_end_leave_nothing_behind_on_io_uring() {
    nothing_is_left(Driver::IoUring);
}

fn nothing_is_left(driver: Driver) {
    let origin = Echo::start();
    let mut server = site(HTTP).driver(driver).workers(3).variable("ORIGIN", origin.addr()).start();
    let round = |server: &mut Server| {
        for workers in [1, 3] {
            server.set_workers(workers);
            server.reload();
            let mut clients: Vec<_> = (0..REQUESTS).map(|_| server.client()).collect();
            for client in &mut clients {
                assert_eq!(client.get("/").status, 200);
            }
        }
    };
    // Workers of the last reload may still be ending: what is seen then is only too much by their
    // few descriptors.
    round(&mut server);
    let Some(before) = server.usage() else { return };
    for _ in 0..ROUNDS {
        round(&mut server);
    }
    // At either time the origin is connected to by as many as requests took, at most.
    until("descriptors, threads and memory to be what they were", PATIENCE, || {
        let now = server.usage()?;
        let same = now.descriptors <= before.descriptors + REQUESTS
            && now.threads <= before.threads
            && now.memory_kb <= before.memory_kb + GROWTH_KB_MAX;
        same.then_some(())
    });
    server.stop();
}
