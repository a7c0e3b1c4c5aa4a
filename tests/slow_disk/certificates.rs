//! The disk with the certificates does not answer: the master goes on, and so does what runs.

use std::process::{ExitStatus, Stdio};

use nowait_testkit::server::{Signal, signal};
use nowait_testkit::slow_disk::Ops;
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Client, Driver};

use crate::stage::{Case, Medium::Fuse, Running, Setup, Stage};

/// A server with a certificate on a disk of its own kind.
fn start(main: &str) -> Option<Running> {
    let stage = Stage::new(Case::new(Fuse, Driver::Epoll, 1))?;
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    stage.write("tls/own.pem", own.cert.pem());
    stage.write("tls/own.key", own.signing_key.serialize_pem());
    let http = "server { listen 127.0.0.1:%%PORT_1%% ssl;
        ssl_certificate %%DISK%%/tls/own.pem; ssl_certificate_key %%DISK%%/tls/own.key; }";
    let locations = "location /generation { return 200 old; }";
    stage.start_as(Setup { main, http, locations })
}

/// Runs `nowait -s` and returns its exit status and standard error.
#[track_caller]
fn command(run: &Running, name: &str) -> (ExitStatus, String) {
    let stderr = run.server.dir().join("command.stderr");
    let mut command = run.server.binary().command();
    command.arg("-p").arg(run.server.dir()).args(["-c", "nginx.conf", "-s", name]);
    command.stdout(Stdio::null()).stderr(std::fs::File::create(&stderr).unwrap());
    let mut child = command.spawn().unwrap();
    let status = until("the result of the command", PATIENCE, || child.try_wait().unwrap());
    (status, std::fs::read_to_string(stderr).unwrap())
}

#[test]
fn a_reload_fails_in_time_and_the_master_hears() {
    let Some(mut run) = start("") else { return };
    for text in ["its disk does not answer", "another disk does not answer", "exited on signal 9"] {
        run.server.allow_log(text);
    }
    let gate = run.hold(Ops::ALL);
    let http = run.http.replace("return 200 old;", "return 200 new;");
    run.server.set_http(&http);
    let (status, stderr) = command(&run, "reload");
    assert_eq!(status.code(), Some(1), "{stderr}");
    let expected = "/tls/own.pem\": open() failed (its disk does not answer)";
    assert!(stderr.contains(expected), "{stderr}");
    assert_eq!(run.server.get("/generation").text(), "old");
    run.assert_hot_is_served();
    // A signal to reload, and the server process is killed: it is replaced all the same.
    run.server.signal(Signal::HUP);
    let before = run.server.children();
    before.iter().for_each(|pid| signal(*pid, Signal::KILL));
    let port = run.server.port();
    until("a new server process", PATIENCE, || {
        let client = Client::try_to(run.server.addr()).ok();
        client.map(drop).filter(|()| run.server.children() != before)
    });
    assert_eq!(Client::to_port(port).get("/generation").text(), "old");
    gate.open();
    let (status, stderr) = command(&run, "reload");
    assert!(status.success(), "{stderr}");
    assert_eq!(run.server.get("/generation").text(), "new");
    run.server.stop();
}

#[test]
fn the_master_ends_when_asked_to() {
    for (main, by_command) in [("", false), ("ssl_certificate_watch on;", false), ("", true)] {
        let Some(mut run) = start(main) else { return };
        for text in ["its disk does not answer", "the disk of a certificate does not answer"] {
            run.server.allow_log(text);
        }
        let gate = run.hold(Ops::ALL);
        run.server.signal(Signal::HUP);
        match by_command {
            false => run.server.signal(Signal::TERM),
            true => {
                let (status, stderr) = command(&run, "stop");
                assert!(status.success(), "{stderr}");
            }
        }
        assert_eq!(run.server.wait_exit(PATIENCE).code(), Some(0));
        gate.open();
    }
}
