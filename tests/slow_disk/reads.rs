//! Content that is not in memory: whole files, ranges, fragmented files, in every way to send them.

use std::time::Duration;

use nowait_testkit::Driver;
use nowait_testkit::client::Arrival;
use nowait_testkit::slow_disk::Ops;

use crate::stage::{COLD_REQUESTS, Case, Medium, Stage, content, on_every_case, paths};

on_every_case!(whole_files, ranges, ways_to_send, large_files);

/// Operations that are surely at the disk when many cold requests are: pools have more threads,
/// and no disk is so well read ahead that one operation serves many files.
const AT_DISK: usize = 8;

/// Many times the threads of the default pool.
const MANY: usize = 300;

fn whole_files(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    let names = stage.write_many_cold_files(MANY);
    let Some(mut run) = stage.start("") else { return };
    run.know(&names);
    let gate = run.hold(Ops::READ);
    let mut cold = run.request(paths(&names));
    gate.wait_waiting(AT_DISK);
    run.assert_hot_is_served();
    cold.assert_waits();
    gate.open();
    cold.assert_right();
    run.finish();
}

fn ranges(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    let names = stage.write_cold_files();
    let Some(mut run) = stage.start("") else { return };
    run.know(&names);
    let gate = run.hold(Ops::READ);
    let (some, others) = names.split_at(COLD_REQUESTS / 2);
    let mut single = run.request_with(paths(some), "Range: bytes=50000-50099\r\n");
    let mut several = run.request_with(paths(others), "Range: bytes=0-9,70000-70009\r\n");
    gate.wait_waiting(AT_DISK);
    run.assert_hot_is_served();
    single.assert_waits();
    several.assert_waits();
    gate.open();
    for (path, response) in single.responses() {
        let right = &content(path.trim_start_matches('/'))[50_000..50_100];
        assert_eq!((response.status, &response.body[..]), (206, right), "{path}");
    }
    for (path, response) in several.responses() {
        assert_eq!(response.status, 206, "{path}: {response}");
        let right = &content(path.trim_start_matches('/'))[70_000..70_010];
        let text = response.text();
        assert!(text.contains(&String::from_utf8_lossy(right).into_owned()), "{path}: {text}");
    }
    run.finish();
}

/// No matter what the configuration says about how files are read: the loop does not wait.
fn ways_to_send(case: Case) {
    const WAYS: [(&str, &str); 7] = [
        ("plain", "sendfile off;"),
        ("sendfile", "sendfile on;"),
        ("chunks", "sendfile on; sendfile_max_chunk 16k;"),
        ("threads", "aio threads; sendfile on; tcp_nopush on;"),
        ("named", "aio threads=named; output_buffers 2 16k;"),
        ("direct", "aio threads; directio 32k;"),
        ("off", "aio off; aio_write off;"),
    ];
    let Some(stage) = Stage::new(case) else { return };
    let mut names = Vec::new();
    let mut locations = String::new();
    for (way, directives) in WAYS {
        locations.push_str(&format!("location /{way}/ {{ {directives} }}\n"));
        for n in 0..4 {
            let name = format!("{way}/{n}");
            stage.write(&name, content(&name));
            names.push(name);
        }
    }
    let Some(mut run) = stage.start_with("thread_pool named threads=4;", &locations) else {
        return;
    };
    run.know(&names);
    let gate = run.hold(Ops::READ);
    let mut cold = run.request(paths(&names));
    gate.wait_waiting(AT_DISK);
    run.assert_hot_is_served();
    cold.assert_waits();
    gate.open();
    cold.assert_right();
    run.finish();
}

/// Files of which the start is in memory, and that many steps long that one step's luck is not
/// another's.
fn large_files(case: Case) {
    const FILES: usize = 8;
    const SIZE: usize = 3 << 20;
    let Some(stage) = Stage::new(case) else { return };
    let names: Vec<_> = (0..FILES).map(|n| format!("large/{n}")).collect();
    let right = |name: &str| -> Vec<u8> { content(name).into_iter().cycle().take(SIZE).collect() };
    for name in &names {
        stage.write(name, right(name));
    }
    let Some(mut run) = stage.start("location /large/ { sendfile on; }") else { return };
    run.know(&names);
    for name in &names {
        let mut head = run.request_with([format!("/{name}")], "Range: bytes=0-99\r\n");
        assert_eq!(head.responses()[0].1.status, 206);
    }
    let gate = run.hold(Ops::READ);
    let mut cold = run.request(paths(&names));
    gate.wait_waiting(1);
    run.assert_hot_is_served();
    gate.open();
    for (path, response) in cold.responses() {
        assert!(response.body == right(path.trim_start_matches('/')), "{path}: wrong content");
    }
    run.finish();
}

mod far_extents {
    use super::*;
    use nowait_testkit::Driver::{Epoll, IoUring};

    #[test]
    fn epoll() {
        far_extents(Case::new(Medium::Ext4, Epoll, 1));
    }

    #[test]
    fn io_uring() {
        far_extents(Case::new(Medium::Ext4, IoUring, 1));
    }

    #[test]
    fn xfs() {
        far_extents(Case::new(Medium::Xfs, IoUring, 1));
    }
}

/// A file that is known, but whose map of extents is in memory only in part: asking for a far block
/// without wanting to wait (`RWF_NOWAIT`) waits for the map nevertheless.
fn far_extents(case: Case) {
    const BLOCKS: usize = 2000;
    let Some(stage) = Stage::new(case) else { return };
    let Some(image) = stage.local_disk() else { return };
    image.write_fragmented("cold/fragments", &vec![b'x'; BLOCKS * 4096]);
    let Some(mut run) = stage.start("") else { return };
    let range = |from: usize| format!("Range: bytes={from}-{}\r\n", from + 99);
    let mut near = run.request_with(["/cold/fragments"], &range(0));
    assert_eq!(near.responses()[0].1.body, vec![b'x'; 100]);
    let gate = run.hold(Ops::READ);
    let mut far = run.request_with(["/cold/fragments"], &range(2 * (BLOCKS - 1) * 4096));
    gate.wait_waiting(1);
    run.assert_hot_is_served();
    far.assert_waits();
    gate.open();
    assert_eq!(far.responses()[0].1.body, vec![b'x'; 100]);
    run.finish();
}

/// The opposite, to show that these tests can fail: `aio blocking` asks for a loop that waits, and
/// what is in memory waits with it.
#[test]
fn aio_blocking_blocks() {
    /// How long a blocked loop is given to prove that it is not.
    const SILENCE: Duration = Duration::from_millis(300);
    let Some(stage) = Stage::new(Case::new(Medium::Ext4, Driver::Epoll, 1)) else { return };
    stage.write("cold/file", content("cold/file"));
    let Some(run) = stage.start("location /cold/ { aio blocking; }") else { return };
    let mut hot = run.server.client();
    assert_eq!(hot.get("/hot/file").status, 200);
    let gate = run.hold(Ops::READ);
    let mut cold = run.request(["/cold/file"]);
    gate.wait_waiting(1);
    hot.send_get("/hot/file");
    assert_eq!(hot.arrives_within(SILENCE), Arrival::Nothing);
    gate.open();
    assert_eq!(hot.response().status, 200);
    cold.assert_right();
    run.finish();
}
