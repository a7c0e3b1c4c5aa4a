//! The program itself lies on the disk that does not answer, and memory is short.

use std::os::unix::fs::PermissionsExt;

use nowait_testkit::slow_disk::{DiskImage, Gate, ImageOptions, quiet};
use nowait_testkit::{Binary, Cgroup, Client, Driver, Server, TempDir, skip};

use crate::stage::on_every_loop;

on_every_loop!(locked_program_needs_no_disk, unlocked_program_waits_for_its_disk);

/// Requests of several kinds, each asked once while the disk still answers.
const PATHS: [&str; 4] = ["/tiny", "/file", "/missing", "/rewritten"];

/// A server whose program is on a slow disk, in a control group of its own.
///
/// Fields are dropped in order: the server goes before its disk.
struct ProgramStage {
    server: Server,
    client: Client,
    cgroup: Cgroup,
    disk: DiskImage,
    _script: TempDir,
}

impl ProgramStage {
    fn new(driver: Driver, workers: usize, main: &str) -> Option<ProgramStage> {
        let cgroup = Cgroup::make(8 << 30)?;
        let mut disk = DiskImage::or_skip(ImageOptions::default())?;
        let program = Binary::nowait(env!("CARGO_BIN_EXE_nowait"));
        let path = disk.write("nowait", std::fs::read(program.path()).unwrap());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        disk.make_cold();
        // Its pages count for the group of the process that reads them first.
        let script = TempDir::new("program");
        let text = format!(
            "#!/bin/sh\necho $$ > {}\nexec {} \"$@\"\n",
            cgroup.members().display(),
            path.display()
        );
        let starter = script.path().join("start");
        std::fs::write(&starter, text).unwrap();
        std::fs::set_permissions(&starter, std::fs::Permissions::from_mode(0o755)).unwrap();
        let server = Server::of(Binary::exactly(starter))
            .driver(driver)
            .workers(workers)
            .main(main)
            .file("www/file", "from a file")
            .http(
                "server {
                    listen 127.0.0.1:%%PORT%%;
                    root %%DIR%%/www;
                    location = /tiny { return 200 tiny; }
                    location = /rewritten { rewrite ^ /tiny last; }
                }",
            )
            .start();
        let client = server.client();
        let mut stage = ProgramStage { server, client, cgroup, disk, _script: script };
        // More than once: after the first time, the server may still have things to learn.
        for _ in 0..3 {
            stage.ask_for_all();
        }
        Some(stage)
    }

    /// Asks for everything, on the connection that stays and on one more.
    #[track_caller]
    fn ask_for_all(&mut self) {
        let mut other = self.server.client();
        for client in [&mut self.client, &mut other] {
            for path in PATHS {
                let response = client.get(path);
                match path {
                    "/missing" => assert_eq!(response.status, 404),
                    "/file" => assert_eq!(response.text(), "from a file"),
                    _ => assert_eq!(response.text(), "tiny"),
                }
            }
        }
    }

    /// The kernel drops what it can of the program, and the disk stops.
    fn lose_program(&self) -> Gate {
        let gate = self.disk.hold();
        self.cgroup.reclaim();
        gate
    }
}

/// Everything that has run once is locked, so that nothing waits for the disk.
fn locked_program_needs_no_disk(driver: Driver, workers: usize) {
    let _quiet = quiet();
    let Some(mut stage) = ProgramStage::new(driver, workers, "") else { return };
    if !stage.server.log().contains("the program is locked in memory:") {
        skip("mlock", "RLIMIT_MEMLOCK is lower than the program needs");
        return;
    }
    let gate = stage.lose_program();
    stage.ask_for_all();
    gate.open();
}

/// Without the lock, the same makes requests wait, so the test above can fail.
fn unlocked_program_waits_for_its_disk(driver: Driver, workers: usize) {
    let _quiet = quiet();
    let Some(mut stage) = ProgramStage::new(driver, workers, "lock_program off;") else { return };
    let gate = stage.lose_program();
    let mut client = stage.server.client();
    client.send_get("/tiny");
    gate.wait_waiting(1);
    gate.open();
    assert_eq!(client.response().text(), "tiny");
    stage.ask_for_all();
}
