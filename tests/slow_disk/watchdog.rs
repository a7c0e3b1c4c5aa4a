//! The service manager's watchdog beside a disk that hangs: loops turn, so it is fed.
//!
//! That a loop which does not turn is not fed: `crates/server/tests/life/watchdog.rs`.

use std::os::unix::net::UnixDatagram;

use nowait_testkit::TempDir;
use nowait_testkit::slow_disk::{Gate, Ops};
use nowait_testkit::wait::PATIENCE;

use crate::stage::{Case, Running, Setup, Stage, on_every_case, paths};

/// The manager's interval. Nothing here depends on it but how long the tests take.
const INTERVAL_US: &str = "400000";

/// Messages to receive while the disk hangs: the first may belong to a round that began before.
const MESSAGES: usize = 4;

on_every_case!(requests_wait, logs_wait);

/// The socket of a service manager.
struct Manager {
    socket: UnixDatagram,
    _dir: TempDir,
}

impl Manager {
    /// Watches the server that will be started.
    fn of(stage: &mut Stage) -> Manager {
        let dir = TempDir::new("manager");
        let path = dir.path().join("notify.sock");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        stage.environment("NOTIFY_SOCKET", path);
        stage.environment("WATCHDOG_USEC", INTERVAL_US);
        Manager { socket, _dir: dir }
    }

    /// Waits for the end of the start.
    #[track_caller]
    fn is_told_of_the_start(&self) {
        let mut buffer = [0; 256];
        loop {
            let length = self.socket.recv(&mut buffer).expect("the server tells that it is ready");
            if buffer[..length].starts_with(b"READY=1\n") {
                return;
            }
        }
    }

    /// Demands messages that are sent from now on.
    #[track_caller]
    fn is_fed(&self) {
        let mut buffer = [0; 256];
        self.socket.set_nonblocking(true).unwrap();
        while self.socket.recv(&mut buffer).is_ok() {}
        self.socket.set_nonblocking(false).unwrap();
        for _ in 0..MESSAGES {
            let length = self.socket.recv(&mut buffer).expect("the watchdog is fed");
            assert_eq!(&buffer[..length], b"WATCHDOG=1\n");
        }
    }
}

#[track_caller]
fn assert_fed(run: &mut Running, manager: &Manager, gate: Gate) {
    // A busy machine may be slow, which is not the disk's fault.
    run.server.allow_log("has been stuck for");
    manager.is_fed();
    run.assert_hot_is_served();
    manager.is_fed();
    gate.open();
}

/// More requests wait for the disk than its pool has threads.
fn requests_wait(case: Case) {
    let Some(mut stage) = Stage::new(case) else { return };
    let names = stage.write_cold_files();
    let manager = Manager::of(&mut stage);
    let Some(mut run) = stage.start("") else { return };
    manager.is_told_of_the_start();
    let gate = run.hold(Ops::ALL);
    let mut cold = run.request(paths(&names));
    gate.wait_waiting(1);
    assert_fed(&mut run, &manager, gate);
    cold.assert_right();
    run.finish();
}

/// The disk with the logs hangs: neither loops nor the threads that ask them wait for it.
fn logs_wait(case: Case) {
    let Some(mut stage) = Stage::synchronous(case) else { return };
    stage.write("logs/keep", "");
    let manager = Manager::of(&mut stage);
    let setup = Setup {
        main: "error_log %%DISK%%/logs/error.log info;",
        http: "access_log %%DISK%%/logs/access.log;",
        locations: "location /logged { return 200; }",
    };
    let Some(mut run) = stage.start_as(setup) else { return };
    manager.is_told_of_the_start();
    let gate = run.hold(Ops::ALL);
    assert_eq!(run.server.get("/logged").status, 200);
    gate.wait_waiting(1);
    assert_fed(&mut run, &manager, gate);
    run.finish();
}
