//! Writing to a disk that does not answer: logs and request bodies.

use std::time::Duration;

use nowait_testkit::slow_disk::Ops;
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Client, skip};

use crate::stage::{Case, Running, Stage, on_every_case};

on_every_case!(access_log, error_log, reopened_log, request_body);

/// How long a server is given to begin to write a request body to a file, if it does at all.
const BODY_PATIENCE: Duration = Duration::from_secs(2);
/// Requests served while their log line can't be written.
const LOGGED: usize = 500;

fn writes() -> Ops {
    Ops::WRITE | Ops::CREATE | Ops::SETATTR | Ops::FSYNC
}

fn disk_text(run: &Running, relative: &str) -> String {
    let path = run.disk_root().join(relative);
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// Requests `path` until the disk has to write; then `LOGGED` more.
fn serve_while_log_is_stuck(run: &mut Running, path: &str, status: u16) {
    let gate = run.hold(writes());
    let mut client = run.server.client();
    until("the log to be written", PATIENCE, || {
        assert_eq!(client.get(path).status, status);
        (gate.waiting() > 0).then_some(())
    });
    for _ in 0..LOGGED {
        assert_eq!(client.get(path).status, status);
    }
    run.assert_hot_is_served();
    gate.open();
}

fn access_log(case: Case) {
    let Some(stage) = Stage::synchronous(case) else { return };
    stage.make_shared_dir("logs");
    let locations = "access_log %%DISK%%/logs/access.log;
                     location /logged { return 204; }";
    let Some(mut run) = stage.start(locations) else { return };
    serve_while_log_is_stuck(&mut run, "/logged", 204);
    // Logging goes on when the disk does.
    until("a line of a later request", PATIENCE, || {
        assert_eq!(run.server.get("/logged?later").status, 204);
        disk_text(&run, "logs/access.log").contains("GET /logged?later HTTP/1.1").then_some(())
    });
    run.finish();
}

fn error_log(case: Case) {
    let Some(stage) = Stage::synchronous(case) else { return };
    stage.make_shared_dir("logs");
    // Each request for what is not there writes a line.
    let locations = "error_log %%DISK%%/logs/error.log info;
                     location /absent { root %%DIR%%; }";
    let Some(mut run) = stage.start(locations) else { return };
    serve_while_log_is_stuck(&mut run, "/absent", 404);
    until("a line of a later request", PATIENCE, || {
        assert_eq!(run.server.get("/absent-later").status, 404);
        disk_text(&run, "logs/error.log").contains("/absent-later").then_some(())
    });
    run.finish();
}

/// Opening a log again (USR1) on a disk that hangs.
fn reopened_log(case: Case) {
    let Some(stage) = Stage::synchronous(case) else { return };
    stage.make_shared_dir("logs");
    let locations = "access_log %%DISK%%/logs/access.log;
                     location /logged { return 204; }";
    let Some(mut run) = stage.start(locations) else { return };
    assert_eq!(run.server.get("/logged?first").status, 204);
    until("the first line", PATIENCE, || {
        disk_text(&run, "logs/access.log").contains("/logged?first").then_some(())
    });
    let logs = run.disk_root().join("logs");
    std::fs::rename(logs.join("access.log"), logs.join("old.log")).unwrap();
    let gate = run.hold(Ops::ALL);
    run.server.signal(nowait_testkit::server::Signal::USR1);
    gate.wait_waiting(1);
    run.assert_hot_is_served();
    gate.open();
    until("a line in the new file", PATIENCE, || {
        assert_eq!(run.server.get("/logged?new").status, 204);
        disk_text(&run, "logs/access.log").contains("/logged?new").then_some(())
    });
    run.finish();
}

/// A request's content that is put into a file.
fn request_body(case: Case) {
    const SIZE: usize = 200_000;
    let Some(stage) = Stage::synchronous(case) else { return };
    stage.make_shared_dir("temp");
    let locations = "location /upload/ {
        client_body_temp_path %%DISK%%/temp; client_body_buffer_size 4k;
        client_body_in_file_only clean; client_max_body_size 1m;
        error_page 405 =200 @taken;
    }
    location @taken { return 200 taken; }";
    let Some(mut run) = stage.start(locations) else { return };
    let gate = run.disk().hold(writes());
    let mut clients: Vec<_> = (0..20).map(|_| run.server.client()).collect();
    for client in &mut clients {
        send_body(client, SIZE);
    }
    if !gate.comes_to_wait(1, BODY_PATIENCE) {
        skip("request_body", "no handler of this server puts request bodies into files");
        return;
    }
    run.assert_hot_is_served();
    gate.open();
    for mut client in clients {
        assert_eq!(client.response().status, 200);
    }
    run.finish();
}

fn send_body(client: &mut Client, size: usize) {
    client.send(format!("POST /upload/x HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n"));
    client.send(vec![b'b'; size]);
}
