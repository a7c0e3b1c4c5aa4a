//! Reload and shutdown while the NFS server does not answer.

use std::fs::File;
use std::process::Stdio;

use nowait_testkit::server::Signal;
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Client, Driver};

use crate::stage::{Cold, NfsStage, RECOVERY, Setup, on_every_loop};

on_every_loop!(reload, quit, shutdown_timeout, terminate);

/// `-s reload` comes back, and the new configuration answers; requests under way end under the old
/// one.
fn reload(driver: Driver, workers: usize) {
    let Some(mut stage) = NfsStage::start(driver, workers, Setup::default()) else { return };
    assert_eq!(stage.server.get("/generation").text(), "old");
    let mut cold = stage.freeze_under_load();
    let http = stage.http.replace("return 200 old;", "return 200 new;");
    stage.server.set_http(&http);
    reload_by_command(&stage);
    assert_eq!(stage.server.get("/generation").text(), "new");
    stage.assert_others_are_served();
    cold.assert_waits();
    stage.nfs.thaw();
    cold.assert_right();
    stage.finish();
}

#[track_caller]
pub fn reload_by_command(stage: &NfsStage) {
    let stderr = stage.server.dir().join("reload.stderr");
    let mut command = stage.server.binary().command();
    command.arg("-p").arg(stage.server.dir()).args(["-c", "nginx.conf", "-s", "reload"]);
    command.stdout(Stdio::null()).stderr(File::create(&stderr).unwrap());
    let mut child = command.spawn().unwrap();
    let status = until("the result of the reload", PATIENCE, || child.try_wait().unwrap());
    assert!(status.success(), "{}", std::fs::read_to_string(stderr).unwrap());
}

/// A graceful end waits for the NFS server, but takes no new connections and lets idle ones go.
fn quit(driver: Driver, workers: usize) {
    let Some(mut stage) = NfsStage::start(driver, workers, Setup::default()) else { return };
    let mut idle = stage.server.client();
    assert_eq!(idle.get("/local/hot").status, 200);
    let mut cold = stage.freeze_under_load();
    stage.assert_others_are_served();
    stage.server.signal(Signal::QUIT);
    wait_until_closed(&stage);
    idle.expect_closed();
    cold.assert_waits();
    stage.nfs.thaw();
    cold.assert_right();
    assert_eq!(stage.server.wait_exit(RECOVERY).code(), Some(0));
    stage.server.check_logs();
}

/// A graceful end with a limit ends although the NFS server never answers.
fn shutdown_timeout(driver: Driver, workers: usize) {
    let setup = Setup { main: "worker_shutdown_timeout 200ms;", ..Setup::default() };
    let Some(mut stage) = NfsStage::start(driver, workers, setup) else { return };
    let cold = stage.freeze_under_load();
    stage.assert_others_are_served();
    end_without_nfs(stage, Signal::QUIT, cold);
}

/// A quick end cuts what waits, and ends although the NFS server never answers.
fn terminate(driver: Driver, workers: usize) {
    let Some(mut stage) = NfsStage::start(driver, workers, Setup::default()) else { return };
    let cold = stage.freeze_under_load();
    stage.assert_others_are_served();
    end_without_nfs(stage, Signal::TERM, cold);
}

/// Ends the server while the NFS server is cut off. All processes go: waits to open or read a file
/// on NFS, unlike those for a local disk, can be killed.
#[track_caller]
fn end_without_nfs(mut stage: NfsStage, signal: Signal, cold: Cold) {
    let children = stage.server.children();
    assert!(!children.is_empty(), "no server process");
    end_master_without_nfs(&mut stage, signal, cold);
    for pid in children {
        until(&format!("the end of process {pid}"), PATIENCE, || has_ended(pid).then_some(()));
    }
    stage.nfs.thaw();
}

/// Ends the server while the NFS server is cut off; the master goes, and with it the pid file.
#[track_caller]
pub fn end_master_without_nfs(stage: &mut NfsStage, signal: Signal, mut cold: Cold) {
    stage.server.allow_log("exited on signal 9");
    stage.server.allow_log("cannot end while a disk does not answer");
    stage.server.signal(signal);
    wait_until_closed(stage);
    for client in cold.clients() {
        client.expect_closed();
    }
    assert_eq!(stage.server.wait_exit(PATIENCE).code(), Some(0));
    assert!(!stage.server.dir().join("nginx.pid").exists());
    stage.server.check_logs();
}

/// Whether a process is gone, or only its exit status is left (proc(5)).
fn has_ended(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_none_or(|state| state.trim_start().starts_with(['Z', 'X']))
}

/// Waits until nothing listens any more.
#[track_caller]
fn wait_until_closed(stage: &NfsStage) {
    until("the port to be closed", PATIENCE, || Client::try_to(stage.server.addr()).err());
}
