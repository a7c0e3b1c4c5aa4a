//! Reload and shutdown while the disk does not answer.

use nowait_testkit::Client;
use nowait_testkit::server::Signal;
use nowait_testkit::slow_disk::Ops;
use nowait_testkit::wait::{PATIENCE, until};

use crate::stage::{Case, Running, Stage, content, on_every_case, paths};

on_every_case!(reload, quit, terminate, shutdown_timeout, leave);

/// A new configuration comes into force at once; requests under way end under the old one.
fn reload(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    let names = stage.write_cold_files();
    let Some(mut run) = stage.start("location /generation { return 200 old; }") else { return };
    assert_eq!(run.server.get("/generation").text(), "old");
    let gate = run.hold(Ops::ALL);
    let mut cold = run.request(paths(&names));
    gate.wait_waiting(1);
    let http = run.http.replace("return 200 old;", "return 200 new;");
    run.server.set_http(&http);
    run.server.reload();
    until("the new configuration", PATIENCE, || {
        (run.server.get("/generation").text() == "new").then_some(())
    });
    run.assert_hot_is_served();
    cold.assert_waits();
    gate.open();
    cold.assert_right();
    run.finish();
}

/// A graceful end waits for the disk, but takes no new connections and lets idle ones go.
fn quit(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    let names = stage.write_cold_files();
    let Some(run) = stage.start("") else { return };
    let mut idle = run.server.client();
    assert_eq!(idle.get("/hot/file").body, content("hot/file"));
    let gate = run.hold(Ops::ALL);
    let mut cold = run.request(paths(&names));
    gate.wait_waiting(1);
    let mut run = run;
    run.assert_hot_is_served();
    run.server.signal(Signal::QUIT);
    wait_until_closed(&run);
    idle.expect_closed();
    cold.assert_waits();
    gate.open();
    cold.assert_right();
    assert_ends(run);
}

/// A quick end cuts what waits; the process follows as soon as the disk lets it.
fn terminate(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    let names = stage.write_cold_files();
    let Some(run) = stage.start("") else { return };
    let gate = run.hold(Ops::ALL);
    let mut cold = run.request(paths(&names));
    gate.wait_waiting(1);
    run.server.signal(Signal::TERM);
    wait_until_closed(&run);
    for client in cold.clients() {
        client.expect_closed();
    }
    gate.open();
    assert_ends(run);
}

/// The master ends although the disk never answers, even if the server process then cannot end. A
/// successor's pid file survives it.
fn leave(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    let names = stage.write_cold_files();
    let Some(mut run) = stage.start("") else { return };
    let gate = run.hold(Ops::ALL);
    let cold = run.request(paths(&names));
    gate.wait_waiting(1);
    run.server.allow_log("exited on signal 9");
    run.server.allow_log("cannot end while a disk does not answer");
    run.server.signal(Signal::TERM);
    assert_eq!(run.server.wait_exit(PATIENCE).code(), Some(0));
    assert!(!run.server.dir().join("nginx.pid").exists());
    // The number is free only when the disk has let the process go, so nothing may need it.
    drop(cold);
    gate.open();
    run.server.check_logs();
}

/// A graceful end with a limit cuts what still waits when the limit is reached.
fn shutdown_timeout(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    let names = stage.write_cold_files();
    let Some(run) = stage.start_with("worker_shutdown_timeout 200ms;", "") else { return };
    let gate = run.hold(Ops::ALL);
    let mut cold = run.request(paths(&names));
    gate.wait_waiting(1);
    run.server.signal(Signal::QUIT);
    for client in cold.clients() {
        client.expect_closed();
    }
    gate.open();
    assert_ends(run);
}

/// Waits until nothing listens any more.
#[track_caller]
fn wait_until_closed(run: &Running) {
    until("the port to be closed", PATIENCE, || Client::try_to(run.server.addr()).err());
}

#[track_caller]
fn assert_ends(mut run: Running) {
    assert_eq!(run.server.wait_exit(PATIENCE).code(), Some(0));
    run.server.check_logs();
}
