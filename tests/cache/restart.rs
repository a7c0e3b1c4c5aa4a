//! Purges as soon as the server listens again, however it ended before.

use nowait_testkit::server::Signal;
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Driver, Server, TempDir};

use crate::binary;
use crate::crash::HTTP;
use crate::objects::{OBJECTS, path};
use crate::origin::VersionedOrigin;

#[test]
fn after_a_graceful_end() {
    purge_after(Signal::QUIT, true);
}

#[test]
fn after_a_fast_end() {
    purge_after(Signal::TERM, true);
}

#[test]
fn after_the_master_was_killed() {
    purge_after(Signal::KILL, true);
}

#[test]
fn after_the_only_process_was_killed() {
    purge_after(Signal::KILL, false);
}

/// Fills the cache, ends the server, starts another one, and purges at once.
fn purge_after(signal: Signal, master: bool) {
    let dir = TempDir::new("restart");
    let origin = VersionedOrigin::start();
    let builder = Server::of(binary())
        .driver(Driver::Epoll)
        .workers(2)
        .http(HTTP)
        .master_process(master)
        .variable("CACHE", dir.path().display())
        .variable("MORE", "")
        .variable("ORIGIN", origin.addr())
        .allow_log("the master process has gone");
    let mut server = builder.clone().start();
    for round in 1..=3 {
        for object in 0..OBJECTS {
            until("the object to be stored", PATIENCE, || {
                (server.get(&path(object)).header("X-Cache") == Some("HIT")).then_some(())
            });
        }
        let before: Vec<u64> = (0..OBJECTS).map(|object| origin.newest(object)).collect();
        server.signal(signal);
        server.wait_exit(PATIENCE);
        server = builder.clone().start();
        // The purges: an object, everything below a directory, and from the command line everything
        // below another.
        assert_eq!(purge(&server, &path(round)), 204, "round {round}");
        assert_eq!(purge(&server, "/0/*"), 204);
        assert_eq!(purge_by_command(&server, "localhost/3/"), Some(0));
        let is_purged = |object: usize| object == round || [0, 3].contains(&(object % 5));
        for object in (0..OBJECTS).filter(|object| is_purged(*object)) {
            server.get(&path(object));
            assert!(origin.newest(object) > before[object], "object {object} was not purged");
        }
    }
    server.stop();
}

fn purge(server: &Server, path: &str) -> u16 {
    let mut client = server.client();
    client.send(format!("PURGE {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    client.response().status
}

fn purge_by_command(server: &Server, prefix: &str) -> Option<i32> {
    let mut command = server.binary().command();
    command.args(["cache", "purge", "-p"]).arg(server.dir());
    command.arg("-c").arg(server.dir().join("nginx.conf"));
    command.args(["objects", "--prefix", prefix]).status().expect("it runs").code()
}
