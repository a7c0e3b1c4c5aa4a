//! The disk with a state file does not answer: changes wait for it, and nothing else does.

use nowait_testkit::server::{Signal, signal};
use nowait_testkit::slow_disk::Ops;
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Client, Driver};

use crate::stage::{Case, Medium::Fuse, Setup, Stage};

const SERVERS: &str = "/api/9/http/upstreams/u/servers";

#[test]
fn a_server_process_is_replaced_without_its_state_file() {
    let Some(stage) = Stage::new(Case::new(Fuse, Driver::Epoll, 1)) else { return };
    stage.make_shared_dir("state");
    stage.write("state/u", "server 127.0.0.1:1;\n");
    let http = "upstream u { zone u 64k; state %%DISK%%/state/u; }";
    let locations = "location /api/ { api write=on; }";
    let Some(mut run) = stage.start_as(Setup { main: "", http, locations }) else { return };
    for text in ["its disk does not answer", "state files cannot be used", "exited on signal 9"] {
        run.server.allow_log(text);
    }
    let gate = run.hold(Ops::ALL);
    run.server.children().into_iter().for_each(|pid| signal(pid, Signal::KILL));
    run.server.wait_log("state files cannot be used");
    // What the file had when the configuration was read.
    let servers = until("a new server process", PATIENCE, || {
        let mut client = Client::try_to(run.server.addr()).ok()?;
        client.send_get(SERVERS);
        client.try_response(false).ok()
    });
    assert!(servers.text().contains("\"127.0.0.1:1\""), "{servers}");
    // A change is in use at once; only its response waits.
    let mut client = run.server.client();
    let body = r#"{"server":"127.0.0.1:2"}"#;
    let length = body.len();
    client.send(format!(
        "POST {SERVERS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
    ));
    until("the change", PATIENCE, || {
        run.server.get(SERVERS).text().contains("\"127.0.0.1:2\"").then_some(())
    });
    assert_eq!(run.server.get("/hot/file").status, 200);
    gate.open();
    assert_eq!(client.response().status, 201);
    run.server.stop();
}
