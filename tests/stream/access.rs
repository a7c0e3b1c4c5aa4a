//! Who may come in, who a client is, and how many at once.

use nowait_testkit::client::Arrival;
use nowait_testkit::{Client, wait};

use crate::stage::{PATIENCE, Upstream, hear, on_each, stream, wait_file};

#[test]
fn rules_of_access() {
    let server = stream(
        "log_format main '$status'; access_log %%DIR%%/access.log main;
         deny 127.0.0.1;
         server { listen 127.0.0.1:%%PORT%%; return in; }
         server { listen 127.0.0.1:%%PORT_1%%; allow 127.0.0.0/8; deny all; return in; }",
    );
    on_each(&server, |server| {
        assert_eq!(hear(server.addr()), "");
        wait_file(server, "access.log", "403\n");
        server.wait_log("access forbidden by rule while initializing session, client: 127.0.0.1");
        assert_eq!(hear(([127, 0, 0, 1], server.port_n(1)).into()), "in");
    });
}

#[test]
fn a_trusted_proxy_says_who_the_client_is() {
    let server = stream(
        "server { listen 127.0.0.1:%%PORT%% proxy_protocol; set_real_ip_from 127.0.0.0/8;
                  deny 192.0.2.9; return '$remote_addr $remote_port $realip_remote_addr'; }
         server { listen 127.0.0.1:%%PORT_1%% proxy_protocol; set_real_ip_from 192.0.2.0/24;
                  return '$remote_addr $proxy_protocol_addr'; }",
    );
    on_each(&server, |server| {
        let ask = |port: u16, client: &str| {
            let mut connection = Client::to_port(port);
            connection.send(format!("PROXY TCP4 {client} 192.0.2.2 1234 80\r\n"));
            String::from_utf8_lossy(&connection.rest()).into_owned()
        };
        assert_eq!(ask(server.port(), "192.0.2.1"), "192.0.2.1 1234 127.0.0.1");
        assert_eq!(ask(server.port(), "192.0.2.9"), "", "rules are about the real client");
        assert_eq!(ask(server.port_n(1), "192.0.2.1"), "127.0.0.1 192.0.2.1");
    });
}

#[test]
fn so_many_sessions_at_once() {
    let up = Upstream::echo();
    let server = stream(
        "log_format main '$status $limit_conn_status'; access_log %%DIR%%/access.log main;
         limit_conn_zone $remote_addr zone=one:32k;
         server { listen 127.0.0.1:%%PORT%%; limit_conn one 1; proxy_pass %%UP%%; }
         server { listen 127.0.0.1:%%PORT_1%%; limit_conn one 1; limit_conn_dry_run on;
                  return in; }",
    );
    on_each(&server.variable("UP", up.addr()), |server| {
        // The connection that found out whether the server was there may still count.
        let first = wait::try_until(wait::PATIENCE, || {
            let mut client = server.client();
            client.send("x");
            (client.arrives_within(PATIENCE) == Arrival::Bytes(1)).then_some(client)
        });
        assert_eq!(hear(server.addr()), "");
        wait_file(server, "access.log", "503 REJECTED\n");
        server.wait_log("limiting connections by zone \"one\" while initializing session, client");
        assert_eq!(hear(([127, 0, 0, 1], server.port_n(1)).into()), "in");
        wait_file(server, "access.log", "200 REJECTED_DRY_RUN\n");
        server.wait_log("limiting connections, dry run, by zone \"one\"");
        drop(first);
        wait_file(server, "access.log", "200 PASSED\n");
        // It counts no more, once it is gone.
        let second = wait::try_until(wait::PATIENCE, || {
            let mut client = server.client();
            client.send("y");
            (client.arrives_within(PATIENCE) == Arrival::Bytes(1)).then_some(())
        });
        assert!(second.is_some());
    });
}

#[test]
fn a_zone_has_to_be_defined() {
    let server = stream("server { listen 127.0.0.1:%%PORT%%; limit_conn none 1; return x; }");
    let message = "zero size shared memory zone \"none\"";
    let Err(failure) = server.try_start() else { panic!("it has started") };
    assert!(failure.stderr.contains(message), "{}", failure.stderr);
}
