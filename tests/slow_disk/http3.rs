//! Content that is not in memory, over HTTP/3: streams that need the disk hold up neither others of their connection nor
//! other connections.

use nowait_testkit::http3::Http3;
use nowait_testkit::slow_disk::Ops;

use crate::stage::{Case, Medium, Setup, Stage, content, on_every_case};

on_every_case!(streams);

/// Operations that are surely at the disk when many cold requests are.
const AT_DISK: usize = 4;

/// Connections; each has one worker.
const CONNECTIONS: usize = 6;

fn streams(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    let names = stage.write_cold_files();
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let hot_root = match case.medium {
        Medium::Fuse => "%%DIR%%/elsewhere",
        Medium::Ext4 | Medium::Xfs => "%%DISK%%",
    };
    let http = format!(
        "server {{ listen 127.0.0.1:%%PORT_1%% quic; ssl_certificate 'data:{}';
         ssl_certificate_key 'data:{}'; root %%DISK%%; location /hot/ {{ root {hot_root}; }} }}",
        own.cert.pem(),
        own.signing_key.serialize_pem()
    );
    let Some(mut run) = stage.start_as(Setup { main: "", http: &http, locations: "" }) else {
        return;
    };
    run.know(&names);
    let port = run.server.port_n(1);
    let mut clients: Vec<Http3> = (0..CONNECTIONS).map(|_| Http3::to_port(port)).collect();
    let hot = content("hot/file");
    for client in &mut clients {
        assert!(client.get("/hot/file").body == hot);
    }
    let gate = run.hold(Ops::READ);
    let mut cold = Vec::new();
    for (n, name) in names.iter().enumerate() {
        let client = n % CONNECTIONS;
        cold.push((client, clients[client].open("GET", &format!("/{name}"), &[], true), name));
    }
    gate.wait_waiting(AT_DISK);
    run.assert_hot_is_served();
    for _ in 0..3 {
        for client in &mut clients {
            assert!(client.get("/hot/file").body == hot);
        }
        assert!(Http3::to_port(port).get("/hot/file").body == hot);
    }
    for (client, id, name) in &cold {
        assert!(!clients[*client].exchange(*id).ended, "{name} is there while the disk is held");
    }
    gate.open();
    for (client, id, name) in cold {
        let response = clients[client].response(id);
        assert!(response.status == 200 && response.body == content(name), "{name}");
    }
    drop(clients);
    run.finish();
}
