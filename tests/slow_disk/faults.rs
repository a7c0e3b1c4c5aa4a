//! Disks that fail, and clients that do not wait for them.

use nowait_testkit::slow_disk::{EIO, Ops};
use nowait_testkit::wait::{PATIENCE, until};

use crate::stage::{Case, Setup, Stage, content, on_every_case, paths};

on_every_case!(broken_names, broken_reads, hang_and_leave, cancelled);

/// The disk fails while the name is looked for: an error page, not a wrong one.
fn broken_names(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    let names = stage.write_cold_files();
    let Some(mut run) = stage.start("") else { return };
    allow_disk_errors(&mut run.server);
    run.disk().fail(Ops::ALL, EIO);
    for (path, response) in run.request(paths(&names)).responses() {
        assert_eq!(response.status, 500, "{path}: {response}");
    }
    run.assert_hot_is_served();
    run.disk().heal();
    if !run.is_local() {
        // An ext4 whose disk has failed may refuse to go on.
        run.request(paths(&names)).assert_right();
    }
    run.finish();
}

/// The disk fails while content is read: an error page or a cut connection, never wrong bytes.
fn broken_reads(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    let names = stage.write_cold_files();
    let Some(mut run) = stage.start("") else { return };
    allow_disk_errors(&mut run.server);
    run.know(&names);
    run.disk().fail(Ops::READ, EIO);
    let mut cold = run.request(paths(&names));
    for client in cold.clients() {
        match client.try_response(false) {
            Ok(response) => assert_eq!(response.status, 500, "{response}"),
            Err(why) => assert!(why.contains("closed") || why.contains("reset"), "{why}"),
        }
    }
    run.assert_hot_is_served();
    run.finish();
}

fn allow_disk_errors(server: &mut nowait_testkit::Server) {
    server.allow_log("(5: Input/output error)");
}

/// The disk hangs for good and the clients give up: the server is as good as before.
fn hang_and_leave(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    let names = stage.write_cold_files();
    let Some(mut run) = stage.start("") else { return };
    let gate = run.hold(Ops::ALL);
    for _ in 0..3 {
        let cold = run.request(paths(&names));
        gate.wait_waiting(1);
        run.assert_hot_is_served();
        cold.leave();
        run.assert_hot_is_served();
    }
    gate.open();
    run.request(paths(&names)).assert_right();
    run.finish();
}

/// Work for clients that have left and that has not begun is never done.
fn cancelled(case: Case) {
    /// As in the configuration.
    const THREADS: usize = 2;
    let Some(stage) = Stage::new(case) else { return };
    let names = stage.write_cold_files();
    stage.write("other/file", content("other/file"));
    let locations = "location /cold/ { aio threads=tiny; access_log %%DIR%%/status.log status; }
                     location /other/ { aio threads=tiny; }";
    let setup = Setup {
        main: "thread_pool tiny threads=2;",
        http: "log_format status $status;",
        locations,
    };
    let Some(mut run) = stage.start_as(setup) else { return };
    let gate = run.hold(Ops::ALL);
    let cold = run.request(paths(&names));
    gate.wait_waiting(1);
    run.assert_hot_is_served();
    cold.leave();
    // nginx's code for a client that did not wait.
    until("the server to notice that the clients have left", PATIENCE, || {
        let log = run.server.read("status.log");
        (log.lines().filter(|line| *line == "499").count() >= names.len() - THREADS).then_some(())
    });
    let opened = run.disk().seen(Ops::OPEN);
    gate.open();
    run.request(["/other/file"]).assert_right();
    if !run.is_local() {
        // Those under way when the clients left, and the one of this request.
        let opened = run.disk().seen(Ops::OPEN) - opened;
        assert!(opened <= THREADS as u64 + 1, "{opened} files were opened without a reader");
    }
    run.finish();
}
