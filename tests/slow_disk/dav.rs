//! WebDAV on a disk that does not answer: uploads, and trees that are removed or copied.

use nowait_testkit::slow_disk::Ops;

use crate::stage::{Case, Stage, on_every_case};

on_every_case!(put, delete, copy);

const LOCATION: &str = "location /dav/ {
    dav_methods PUT DELETE COPY; client_body_temp_path %%DISK%%/temp; alias %%DISK%%/dav/;
}";

/// What changes the names of a file system, and what asks for them.
fn names() -> Ops {
    Ops::RENAME | Ops::UNLINK | Ops::MKDIR | Ops::CREATE | Ops::READDIR
}

fn stage(case: Case) -> Option<Stage> {
    let stage = Stage::synchronous(case)?;
    stage.make_shared_dir("temp");
    stage.make_shared_dir("dav/tree/deep");
    stage.make_shared_dir("dav/tree");
    stage.make_shared_dir("dav");
    for n in 0..300 {
        stage.write(&format!("dav/tree/deep/{n}"), format!("{n}"));
    }
    Some(stage)
}

/// The file has its temporary name already when the disk stops.
fn put(case: Case) {
    let Some(stage) = stage(case) else { return };
    let Some(mut run) = stage.start(LOCATION) else { return };
    // On a local disk the first write waits; otherwise the renaming.
    let gate = run.hold(Ops::RENAME);
    let mut client = run.server.client();
    client.send("PUT /dav/new HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    gate.wait_waiting(1);
    run.assert_hot_is_served();
    gate.open();
    assert_eq!(client.response().status, 201);
    assert_eq!(std::fs::read(run.disk_root().join("dav/new")).unwrap(), b"abc");
    drop(client);
    run.finish();
}

fn delete(case: Case) {
    let Some(stage) = stage(case) else { return };
    let Some(mut run) = stage.start(LOCATION) else { return };
    let gate = run.hold(names());
    let mut client = run.server.client();
    client.send("DELETE /dav/tree/ HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.wait_waiting(1);
    run.assert_hot_is_served();
    gate.open();
    assert_eq!(client.response().status, 204);
    assert!(!run.disk_root().join("dav/tree").exists());
    drop(client);
    run.finish();
}

/// The client leaves meanwhile: what was begun is finished.
fn copy(case: Case) {
    let Some(stage) = stage(case) else { return };
    let Some(mut run) = stage.start(LOCATION) else { return };
    let gate = run.hold(names());
    let mut client = run.server.client();
    client.send("COPY /dav/tree/ HTTP/1.1\r\nHost: a\r\nDestination: /dav/other/\r\n\r\n");
    gate.wait_waiting(1);
    drop(client);
    run.assert_hot_is_served();
    gate.open();
    let last = run.disk_root().join("dav/other/deep");
    nowait_testkit::wait::until("the copy", nowait_testkit::wait::PATIENCE, || {
        (std::fs::read_dir(&last).ok()?.count() == 300).then_some(())
    });
    run.finish();
}
