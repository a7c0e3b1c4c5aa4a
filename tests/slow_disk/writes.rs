//! Writing to a disk that does not answer: logs and request bodies.

use std::io::Read;
use std::time::Duration;

use nowait_testkit::origin::Step;
use nowait_testkit::slow_disk::Ops;
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Client, Origin};

use crate::stage::{Case, Running, Stage, on_every_case};

on_every_case!(
    access_log,
    error_log,
    reopened_log,
    request_body,
    response_body,
    response_body_after_a_stall
);

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

/// Requests whose content is put into files on its way to a server behind this one.
fn request_body(case: Case) {
    const CLIENTS: usize = 20;
    let Some(stage) = Stage::synchronous(case) else { return };
    stage.make_shared_dir("temp");
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\ntaken";
    let script = || vec![Step::expect(END), Step::reply(answer)];
    let origin = Origin::start((0..CLIENTS).map(|_| script()));
    let locations = format!(
        "location /upload/ {{
            client_body_temp_path %%DISK%%/temp; client_body_buffer_size 4k;
            client_max_body_size 1m; proxy_pass http://{};
        }}",
        origin.addr()
    );
    let Some(mut run) = stage.start(&locations) else { return };
    let gate = run.disk().hold(writes());
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| run.server.client()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        send_body(client, n);
    }
    gate.wait_waiting(1);
    run.assert_hot_is_served();
    assert!(origin.received().is_empty(), "the content has not come whole");
    gate.open();
    for client in &mut clients {
        let response = client.response();
        assert_eq!((response.status, response.text()), (200, "taken".into()));
    }
    for n in 0..CLIENTS {
        let body = body(n);
        assert!(origin.received().iter().any(|received| received.ends_with(&body)), "{n}");
    }
    drop(clients);
    run.finish();
    origin.finish();
}

/// What no other content has in it.
const END: &str = "the end";

fn body(n: usize) -> Vec<u8> {
    const SIZE: usize = 200_000;
    [format!("{n}|").repeat(SIZE / 3).as_bytes(), END.as_bytes()].concat()
}

fn send_body(client: &mut Client, n: usize) {
    let body = body(n);
    let size = body.len();
    client.send(format!("POST /upload/x HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n"));
    client.send(body);
}

/// A response that is read ahead of a slow client, into a file that can't be written: when the client
/// is fast again, it gets everything and the disk is not waited for.
fn response_body(case: Case) {
    const LINES: usize = 2_500_000;
    let Some(stage) = Stage::synchronous(case) else { return };
    stage.make_shared_dir("temp");
    let content: String = (0..LINES).map(|n| format!("{n:09}|")).collect();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        content.len()
    );
    let origin =
        Origin::start([[Step::expect("\r\n\r\n"), Step::reply(head), Step::reply(&content)]]);
    let locations = format!(
        "location /large {{ proxy_temp_path %%DISK%%/temp; proxy_pass http://{}; }}",
        origin.addr()
    );
    let Some(mut run) = stage.start(&locations) else { return };
    let gate = run.disk().hold(writes());
    let mut client = run.server.client();
    client.send_get("/large");
    // As long as it reads nothing, more comes than may be in memory.
    gate.wait_waiting(1);
    run.assert_hot_is_served();
    let response = client.response();
    assert_eq!(response.status, 200);
    assert!(response.body == content.as_bytes(), "{} bytes", response.body.len());
    gate.open();
    drop(client);
    run.finish();
    origin.finish();
}

/// Like [`response_body`], but the client has overtaken what is being written, and stops then: as soon
/// as the disk answers, the file takes the rest, and the origin is free without the client.
fn response_body_after_a_stall(case: Case) {
    const LINES: usize = 2_500_000;
    let Some(stage) = Stage::synchronous(case) else { return };
    stage.make_shared_dir("temp");
    let half: String = (0..LINES).map(|n| format!("{n:09}|")).collect();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        2 * half.len()
    );
    let (go, wait) = std::sync::mpsc::channel();
    let origin = Origin::start([[
        Step::expect("\r\n\r\n"),
        Step::reply(head),
        Step::reply(&half),
        Step::Wait(wait),
        Step::reply(&half),
        Step::Closed,
    ]]);
    let locations = format!(
        "location /large {{ proxy_temp_path %%DISK%%/temp; proxy_pass http://{}; }}",
        origin.addr()
    );
    let Some(run) = stage.start(&locations) else { return };
    let gate = run.disk().hold(writes());
    let mut client = run.server.client();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    gate.wait_waiting(1);
    let mut received = vec![0; half.len()];
    client.read_exact(&mut received).expect("more than that comes");
    go.send(()).expect("the origin waits");
    // Time for as much to come as may be in memory. Were it too short, the test would see less.
    std::thread::sleep(Duration::from_millis(200));
    gate.open();
    origin.wait_played(1);
    origin.finish();
    client.read_to_end(&mut received).expect("the rest");
    let start = received.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
    let (first, second) = received[start..].split_at(half.len());
    assert!(first == half.as_bytes() && second == half.as_bytes());
    drop(client);
    run.finish();
}
