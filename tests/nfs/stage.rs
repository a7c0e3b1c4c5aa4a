//! What the tests share: an NFS mount with files, a server on it, clients of both kinds.

use std::time::Duration;

use nowait_testkit::client::Arrival;
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Binary, Client, Driver, NfsMount, Response, Server, skip};

/// Connections that ask for the hot file. More than workers, so that each worker has some.
const HOT_CONNECTIONS: usize = 8;
/// Rounds of requests on them.
const HOT_ROUNDS: usize = 3;
/// Threads of the pool `nfs`.
pub const THREADS: u64 = 8;
/// Requests that wait: more than threads.
pub const COLD_REQUESTS: usize = 24;
/// How long the NFS client may take to recover when its server is back: it sends again after
/// seconds, and reconnects after up to a minute.
pub const RECOVERY: Duration = Duration::from_secs(300);

/// Makes one test per driver and number of workers of each function `fn(Driver, usize)`.
macro_rules! on_every_loop {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            use nowait_testkit::Driver::{Epoll, IoUring};

            #[test]
            fn epoll_1_worker() {
                super::$name(Epoll, 1);
            }
            #[test]
            fn epoll_2_workers() {
                super::$name(Epoll, 2);
            }
            #[test]
            fn io_uring_1_worker() {
                super::$name(IoUring, 1);
            }
            #[test]
            fn io_uring_2_workers() {
                super::$name(IoUring, 2);
            }
        })*
    };
}
pub(crate) use on_every_loop;

/// Directives of a test.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup<'a> {
    pub main: &'a str,
    pub http: &'a str,
    /// In the server that clients talk to.
    pub locations: &'a str,
}

/// A server with some connections whose every request is for what is in memory.
///
/// Fields are dropped in order: the server goes before the mount.
pub struct NfsStage {
    hot: Vec<Client>,
    pub server: Server,
    pub nfs: NfsMount,
    pub http: String,
    workers: usize,
}

impl NfsStage {
    /// A server with [`COLD_REQUESTS`] files on NFS; nothing where the machine can't have one.
    ///
    /// The client has no name of the NFS mount in memory, and no data.
    #[track_caller]
    pub fn start(driver: Driver, workers: usize, setup: Setup<'_>) -> Option<NfsStage> {
        let nfs = NfsMount::or_skip()?;
        for name in cold_names().iter().chain(&[String::from("known")]) {
            nfs.write_cold(name, content(name));
        }
        let http = format!(
            "keepalive_timeout 1h; send_timeout 1h; proxy_read_timeout 1h;
            {}
            server {{
                listen 127.0.0.1:%%PORT%%;
                root %%NFS%%;
                aio threads=nfs;
                location /local/ {{ root %%DIR%%; aio off; }}
                location /proxied/ {{ proxy_pass http://127.0.0.1:%%PORT_1%%/local/; }}
                location = /generation {{ return 200 old; }}
                location /status/ {{ status_api; }}
                {}
            }}
            server {{ listen 127.0.0.1:%%PORT_1%%; root %%DIR%%; }}",
            setup.http, setup.locations
        );
        let server = Server::of(Binary::under_test(env!("CARGO_BIN_EXE_nowait")))
            .driver(driver)
            .workers(workers)
            .main(&format!("thread_pool nfs threads={THREADS};\n{}", setup.main))
            .variable("NFS", nfs.path().display())
            .file("local/hot", content("local/hot"))
            .file("local/untouched", content("local/untouched"))
            .http(&http)
            .start();
        if driver == Driver::IoUring && !server.log().contains("\"io_uring\"") {
            skip("io_uring", "the server does not use io_uring here");
            return None;
        }
        let mut stage = NfsStage { hot: Vec::new(), server, nfs, http, workers };
        // NFS works, and the server has met this mount.
        assert!(stage.server.get("/known").body == content("known"), "wrong content");
        stage.hot = (0..HOT_CONNECTIONS).map(|_| stage.server.client()).collect();
        // More than once: after the first touch, the server may still have things to learn.
        for _ in 0..HOT_ROUNDS {
            stage.hot_round();
        }
        Some(stage)
    }

    #[track_caller]
    fn hot_round(&mut self) {
        // Sent on all before the first is awaited: they wait for each other only in the server.
        for client in &mut self.hot {
            client.send_get("/local/hot");
        }
        for client in &mut self.hot {
            match client.try_response(false) {
                Ok(response) => {
                    assert!(response.body == content("local/hot"), "wrong: {response}");
                }
                Err(why) => panic!("a request for what is in memory has no answer: {why}"),
            }
        }
    }

    /// Demands answers from every worker for everything that does not need NFS, on old connections
    /// and new ones.
    #[track_caller]
    pub fn assert_others_are_served(&mut self) {
        let before = self.turns();
        assert_eq!(before.len(), self.workers);
        for _ in 0..HOT_ROUNDS {
            self.hot_round();
            for path in ["/local/hot", "/proxied/hot", "/local/untouched"] {
                let name = path.replace("proxied", "local");
                assert!(self.server.get(path).body == content(&name[1..]), "{path}");
            }
        }
        for (worker, (before, after)) in before.into_iter().zip(self.turns()).enumerate() {
            assert!(before < after, "worker {worker} does nothing: {before} turns, then {after}");
        }
    }

    /// The number of turns that each worker's loop has made.
    #[track_caller]
    fn turns(&self) -> Vec<u64> {
        let workers = self.status("workers");
        let workers = workers.as_array().expect("a list");
        let turns = workers.iter().map(|worker| worker["event_loop_blocked"]["turns"].as_u64());
        turns.map(|turns| turns.expect("a number")).collect()
    }

    #[track_caller]
    fn status(&self, part: &str) -> serde_json::Value {
        let text = self.server.get(&format!("/status/{part}")).text();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{part}: {e}: {text}"))
    }

    /// Waits until this many threads of a pool are at work. While the NFS server is cut off, those
    /// of a pool that nothing else uses can only wait for it.
    #[track_caller]
    pub fn wait_stuck(&self, pool: &str, threads: u64) {
        until(&format!("{threads} threads waiting for NFS"), PATIENCE, || {
            let busy = self.status(&format!("thread_pools/{pool}/busy")).as_u64();
            (busy.expect("a number") >= threads).then_some(())
        });
    }

    /// Sends a GET for each path, each on a connection of its own.
    #[track_caller]
    pub fn request(&self, paths: impl IntoIterator<Item = impl Into<String>>) -> Cold {
        let clients = paths.into_iter().map(|path| {
            let path = path.into();
            let mut client = self.server.client();
            client.send_get(&path);
            (path, client)
        });
        Cold { clients: clients.collect() }
    }

    /// Freezes the NFS server and sends requests for its files, which then wait.
    #[track_caller]
    pub fn freeze_under_load(&mut self) -> Cold {
        self.nfs.freeze();
        let cold = self.request(cold_names().iter().map(|name| format!("/{name}")));
        self.wait_stuck("nfs", THREADS);
        cold
    }

    /// Stops the server, which must be sound to the end. In its own time: emulated, it may need more
    /// than a quick end allows.
    #[track_caller]
    pub fn finish(self) {
        let NfsStage { hot, server, nfs, .. } = self;
        drop(hot);
        assert_eq!(server.quit().code(), Some(0));
        drop(nfs);
    }
}

/// Requests that wait for NFS.
pub struct Cold {
    clients: Vec<(String, Client)>,
}

impl Cold {
    /// Asserts that none was answered. Called while the NFS server is cut off.
    #[track_caller]
    pub fn assert_waits(&mut self) {
        for (path, client) in &mut self.clients {
            let arrival = client.arrives_within(Duration::from_millis(1));
            assert!(arrival == Arrival::Nothing, "{path} was answered without NFS: {arrival:?}");
        }
    }

    /// Takes each answer with the path that it is for, once the NFS server is back.
    #[track_caller]
    pub fn responses(&mut self) -> Vec<(String, Response)> {
        let clients = self.clients.iter_mut();
        clients
            .map(|(path, client)| {
                client.set_patience(RECOVERY);
                (path.clone(), client.response())
            })
            .collect()
    }

    /// Asserts that each is answered by 200 and the right content of the file of its path.
    #[track_caller]
    pub fn assert_right(&mut self) {
        for (path, response) in self.responses() {
            assert_eq!(response.status, 200, "{path}: {response}");
            assert!(response.body == content(&path[1..]), "{path}: wrong content");
        }
    }

    pub fn clients(&mut self) -> impl Iterator<Item = &mut Client> {
        self.clients.iter_mut().map(|(_, client)| client)
    }
}

/// Files on NFS that nothing has asked for.
pub fn cold_names() -> Vec<String> {
    (0..COLD_REQUESTS).map(|n| format!("cold/{n}")).collect()
}

/// What a file of this name contains: some 100 KB (small for local ones) that no other file has.
pub fn content(name: &str) -> Vec<u8> {
    filled(name, if name.starts_with("local/") { 3000 } else { 100_000 })
}

/// So many bytes that tell one name from another.
pub fn filled(name: &str, size: usize) -> Vec<u8> {
    let pattern = format!("{name}|").into_bytes();
    // Copied as a whole: emulated, a loop over bytes takes many seconds.
    let mut bytes = pattern.repeat(size.div_ceil(pattern.len()));
    bytes.truncate(size);
    bytes
}
