//! What the tests share: a disk with hot and cold files, a server on it, clients of both kinds.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use nowait_testkit::client::Arrival;
use nowait_testkit::slow_disk::{
    DiskImage, DiskOptions, Gate, ImageFormat, ImageOptions, Ops, PinnedFile, Quiet, SlowDisk, pin,
    quiet,
};
use nowait_testkit::{Binary, Client, Driver, Response, Server, skip};

/// Connections that ask for the hot file. More than workers, so that each worker has some.
const HOT_CONNECTIONS: usize = 8;
/// Rounds of requests on them while the disk is held.
const HOT_ROUNDS: usize = 3;
/// Requests for cold files where a test does not say otherwise.
pub const COLD_REQUESTS: usize = 64;

/// What the disk is to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A local disk.
    Ext4,
    /// A local disk as media servers have it.
    Xfs,
    /// A file system that answers when it likes, like a network's.
    Fuse,
}

/// One combination of the matrix.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub medium: Medium,
    pub driver: Driver,
    pub workers: usize,
}

impl Case {
    pub const fn new(medium: Medium, driver: Driver, workers: usize) -> Case {
        Case { medium, driver, workers }
    }
}

/// Makes one test per combination of each function `fn(Case)`; of xfs two, as it behaves like ext4. Half of
/// them, in which each medium, driver and number of workers occurs, always run; the others only with
/// `cargo xtask disks`.
macro_rules! on_every_case {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            use crate::stage::{Case, Medium::{Ext4, Fuse, Xfs}};
            use nowait_testkit::Driver::{Epoll, IoUring};

            #[test]
            fn ext4_epoll_1_worker() {
                super::$name(Case::new(Ext4, Epoll, 1));
            }
            #[test]
            #[ignore = "of the full matrix: cargo xtask disks"]
            fn ext4_epoll_2_workers() {
                super::$name(Case::new(Ext4, Epoll, 2));
            }
            #[test]
            #[ignore = "of the full matrix: cargo xtask disks"]
            fn ext4_io_uring_1_worker() {
                super::$name(Case::new(Ext4, IoUring, 1));
            }
            #[test]
            fn ext4_io_uring_2_workers() {
                super::$name(Case::new(Ext4, IoUring, 2));
            }
            #[test]
            fn xfs_epoll_2_workers() {
                super::$name(Case::new(Xfs, Epoll, 2));
            }
            #[test]
            #[ignore = "of the full matrix: cargo xtask disks"]
            fn xfs_io_uring_1_worker() {
                super::$name(Case::new(Xfs, IoUring, 1));
            }
            #[test]
            #[ignore = "of the full matrix: cargo xtask disks"]
            fn fuse_epoll_1_worker() {
                super::$name(Case::new(Fuse, Epoll, 1));
            }
            #[test]
            fn fuse_epoll_2_workers() {
                super::$name(Case::new(Fuse, Epoll, 2));
            }
            #[test]
            fn fuse_io_uring_1_worker() {
                super::$name(Case::new(Fuse, IoUring, 1));
            }
            #[test]
            #[ignore = "of the full matrix: cargo xtask disks"]
            fn fuse_io_uring_2_workers() {
                super::$name(Case::new(Fuse, IoUring, 2));
            }
        })*
    };
}
pub(crate) use on_every_case;

/// Makes one test per driver and number of workers of each function `fn(Driver, usize)`.
macro_rules! on_every_loop {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            use nowait_testkit::Driver;

            #[test]
            fn epoll_2_workers() {
                super::$name(Driver::Epoll, 2);
            }
            #[test]
            fn io_uring_1_worker() {
                super::$name(Driver::IoUring, 1);
            }
        })*
    };
}
pub(crate) use on_every_loop;

enum StageDisk {
    Local(Box<DiskImage>),
    Fuse(SlowDisk),
}

/// Directives of a test.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    pub main: &'a str,
    pub http: &'a str,
    /// In the only server.
    pub locations: &'a str,
}

/// The disk before the server runs.
pub struct Stage {
    case: Case,
    disk: StageDisk,
    environment: Vec<(&'static str, OsString)>,
}

impl Stage {
    /// A disk with the hot file on it; nothing where the machine can't have one.
    pub fn new(case: Case) -> Option<Stage> {
        Stage::with(case, false)
    }

    /// One on which a write waits for the disk, on a local one too.
    pub fn synchronous(case: Case) -> Option<Stage> {
        Stage::with(case, true)
    }

    fn with(case: Case, synchronous: bool) -> Option<Stage> {
        let disk = match case.medium {
            Medium::Ext4 => Stage::local(ImageFormat::Ext4, synchronous)?,
            Medium::Xfs => Stage::local(ImageFormat::Xfs, synchronous)?,
            Medium::Fuse => StageDisk::Fuse(SlowDisk::or_skip(DiskOptions::default())?),
        };
        let stage = Stage { case, disk, environment: Vec::new() };
        stage.write("hot/file", content("hot/file"));
        Some(stage)
    }

    fn local(format: ImageFormat, synchronous: bool) -> Option<StageDisk> {
        let options = ImageOptions { format, synchronous, ..ImageOptions::default() };
        Some(StageDisk::Local(Box::new(DiskImage::or_skip(options)?)))
    }

    /// Sets a variable of the server's environment.
    pub fn environment(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.environment.push((name, value.into()));
    }

    /// Puts a file on the disk. Its content is [`content`] of its name unless given.
    pub fn write(&self, relative: &str, content: impl AsRef<[u8]>) {
        match &self.disk {
            StageDisk::Local(image) => image.write(relative, content),
            StageDisk::Fuse(disk) => disk.write_cold(relative, content),
        };
    }

    /// Puts `COLD_REQUESTS` files below `cold/` and returns their names.
    pub fn write_cold_files(&self) -> Vec<String> {
        self.write_many_cold_files(COLD_REQUESTS)
    }

    /// Puts `count` files below `cold/` and returns their names.
    pub fn write_many_cold_files(&self, count: usize) -> Vec<String> {
        let names: Vec<_> = (0..count).map(|n| format!("cold/{n}")).collect();
        for name in &names {
            self.write(name, content(name));
        }
        names
    }

    /// Creates a directory on the disk that is writable for everyone.
    pub fn make_shared_dir(&self, relative: &str) {
        use std::os::unix::fs::PermissionsExt;
        let root = match &self.disk {
            StageDisk::Local(image) => image.path().to_owned(),
            StageDisk::Fuse(disk) => disk.backing(),
        };
        let path = root.join(relative);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }

    pub fn local_disk(&self) -> Option<&DiskImage> {
        match &self.disk {
            StageDisk::Local(image) => Some(image),
            StageDisk::Fuse(_) => None,
        }
    }

    /// Starts a server with `locations` and with the disk at `location /`; see [`Running`].
    ///
    /// Nothing of the disk is in memory then but the hot file.
    #[track_caller]
    pub fn start(self, locations: &str) -> Option<Running> {
        self.start_with("", locations)
    }

    /// Like [`Stage::start`] with directives for the main level.
    #[track_caller]
    pub fn start_with(self, main: &str, locations: &str) -> Option<Running> {
        self.start_as(Setup { main, locations, http: "" })
    }

    /// Like [`Stage::start`] with directives for each level.
    #[track_caller]
    pub fn start_as(mut self, setup: Setup<'_>) -> Option<Running> {
        // On FUSE every open asks the file system, so files served from memory are on another one.
        let hot_root = match &mut self.disk {
            StageDisk::Local(image) => {
                image.make_cold();
                "%%DISK%%"
            }
            StageDisk::Fuse(_) => "%%DIR%%/elsewhere",
        };
        let http = format!(
            "{}
            server {{
                listen 127.0.0.1:%%PORT%%;
                root %%DISK%%;
                location /hot/ {{ root {hot_root}; }}
                location / {{ }}
                {}
            }}",
            setup.http, setup.locations
        );
        let quiet = quiet();
        let mut server = Server::of(Binary::under_test(env!("CARGO_BIN_EXE_nowait")));
        for (name, value) in std::mem::take(&mut self.environment) {
            server = server.environment(name, value);
        }
        let server = server
            .driver(self.case.driver)
            .workers(self.case.workers)
            .main(setup.main)
            .variable("DISK", self.path().display())
            .file("elsewhere/hot/file", content("hot/file"))
            .http(&http)
            .start();
        if self.case.driver == Driver::IoUring && !server.log().contains("\"io_uring\"") {
            skip("io_uring", "the server does not use io_uring here");
            return None;
        }
        let mut running =
            Running { hot: Vec::new(), pinned: None, server, quiet, stage: self, http };
        running.warm_up();
        let hot_dir = match running.stage.case.medium {
            Medium::Ext4 | Medium::Xfs => running.disk_root(),
            Medium::Fuse => running.server.dir().join("elsewhere"),
        };
        running.pinned = Some(pin(&hot_dir.join("hot/file")));
        Some(running)
    }

    fn path(&self) -> PathBuf {
        match &self.disk {
            StageDisk::Local(image) => image.path().to_owned(),
            StageDisk::Fuse(disk) => disk.path(),
        }
    }

    /// Holds `ops`; on a local disk, which sees blocks only, every read and write.
    pub fn hold(&self, ops: Ops) -> Gate {
        match &self.disk {
            StageDisk::Local(image) => image.hold(),
            StageDisk::Fuse(disk) => disk.hold(ops),
        }
    }
}

/// A server with some connections whose every request is for what is in memory.
///
/// Fields are dropped in order: the server goes before its disk.
pub struct Running {
    hot: Vec<Client>,
    /// The hot file.
    pinned: Option<PinnedFile>,
    pub server: Server,
    quiet: Quiet,
    pub stage: Stage,
    pub http: String,
}

impl Running {
    #[track_caller]
    fn warm_up(&mut self) {
        self.hot = (0..HOT_CONNECTIONS).map(|_| self.server.client()).collect();
        // More than once: after the first touch, the server may still have things to learn.
        for _ in 0..HOT_ROUNDS {
            self.hot_round();
        }
    }

    #[track_caller]
    fn hot_round(&mut self) {
        let right = content("hot/file");
        // Sent on all before the first is awaited: they wait for each other only in the server.
        for client in &mut self.hot {
            client.send_get("/hot/file");
        }
        for client in &mut self.hot {
            match client.try_response(false) {
                Ok(response) => assert!(response.body == right, "wrong: {response}"),
                Err(why) => panic!("a request for what is in memory has no answer: {why}"),
            }
        }
    }

    /// Demands answers for what is in memory, on old connections and new ones. Called while a gate
    /// is closed.
    #[track_caller]
    pub fn assert_hot_is_served(&mut self) {
        for _ in 0..HOT_ROUNDS {
            self.hot_round();
            assert_eq!(self.server.get("/hot/file").status, 200);
        }
    }

    /// The disk that holds and counts.
    pub fn disk(&self) -> &SlowDisk {
        match &self.stage.disk {
            StageDisk::Local(image) => image.disk(),
            StageDisk::Fuse(disk) => disk,
        }
    }

    /// Where the disk is mounted.
    pub fn disk_root(&self) -> PathBuf {
        self.stage.path()
    }

    /// Whether the disk is a local one, which knows blocks only.
    pub fn is_local(&self) -> bool {
        matches!(self.stage.disk, StageDisk::Local(_))
    }

    /// Lets the kernel learn names and inodes, so that on a local disk only data is cold.
    pub fn know(&self, names: &[String]) {
        if self.is_local() {
            for name in names {
                std::fs::metadata(self.stage.path().join(name)).unwrap();
            }
        }
    }

    /// Holds `ops`; on a local one, whose disk sees blocks only, every read and write.
    pub fn hold(&self, ops: Ops) -> Gate {
        self.stage.hold(ops)
    }

    /// Sends a GET for each path, each on a connection of its own.
    #[track_caller]
    pub fn request(&self, paths: impl IntoIterator<Item = impl Into<String>>) -> Cold {
        self.request_with(paths, "")
    }

    /// Like [`Running::request`] with more header lines.
    #[track_caller]
    pub fn request_with(
        &self,
        paths: impl IntoIterator<Item = impl Into<String>>,
        headers: &str,
    ) -> Cold {
        let clients = paths.into_iter().map(|path| {
            let path = path.into();
            let mut client = self.server.client();
            client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"));
            (path, client)
        });
        Cold { clients: clients.collect() }
    }

    /// Stops the server, which must be sound to the end.
    #[track_caller]
    pub fn finish(self) {
        let Running { hot, pinned, server, quiet, stage, .. } = self;
        drop((hot, pinned));
        assert_eq!(server.stop().code(), Some(0));
        drop(quiet);
        drop(stage);
    }
}

/// Requests that wait for the disk.
pub struct Cold {
    clients: Vec<(String, Client)>,
}

impl Cold {
    /// Asserts that none was answered. Called while a gate is closed.
    ///
    /// The head of a response may have come: the kernel keeps it back for the beginning of the
    /// file, but for 200 ms at most.
    #[track_caller]
    pub fn assert_waits(&mut self) {
        for (path, client) in &mut self.clients {
            let arrival = client.arrives_within(Duration::from_millis(1));
            let is_head = client.pending().ends_with(b"\r\n\r\n");
            assert!(
                arrival == Arrival::Nothing || matches!(arrival, Arrival::Bytes(_)) && is_head,
                "{path} was answered by a disk that is held: {arrival:?}"
            );
        }
    }

    /// Takes each answer with the path that it is for.
    #[track_caller]
    pub fn responses(&mut self) -> Vec<(String, Response)> {
        let clients = self.clients.iter_mut();
        clients.map(|(path, client)| (path.clone(), client.response())).collect()
    }

    /// Asserts that each is answered by 200 and the right content of the file of its path.
    #[track_caller]
    pub fn assert_right(&mut self) {
        for (path, response) in self.responses() {
            assert_eq!(response.status, 200, "{path}: {response}");
            assert!(
                response.body == content(path.trim_start_matches('/')),
                "{path}: wrong content"
            );
        }
    }

    /// Cuts all connections.
    pub fn leave(self) {
        for (_, client) in self.clients {
            client.reset();
        }
    }

    pub fn clients(&mut self) -> impl Iterator<Item = &mut Client> {
        self.clients.iter_mut().map(|(_, client)| client)
    }
}

/// The paths of files.
pub fn paths(names: &[String]) -> Vec<String> {
    names.iter().map(|name| format!("/{name}")).collect()
}

/// What a file of this name contains: some 100 KB (small for the hot one) that no other file has.
pub fn content(name: &str) -> Vec<u8> {
    let size = if name.starts_with("hot/") { 3000 } else { 100_000 };
    let pattern = format!("{name}|");
    pattern.bytes().cycle().take(size).collect()
}
