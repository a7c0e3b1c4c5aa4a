//! `status_zone` in `stream`, and what `status_api`, `metrics` and `api` say of its sessions.

use serde_json::{Value, json};

use nowait_testkit::{Binary, Client, Server, ServerBuilder, client_hello, wait};

use crate::stage::{PATIENCE, Upstream, hear, on_each, say, stream};

const STREAM: &str =
    "server { listen 127.0.0.1:%%PORT_1%%; status_zone passed; proxy_pass %%UP%%; }
    server { listen 127.0.0.1:%%PORT_2%%; status_zone passed; deny all; proxy_pass %%UP%%; }
    server { listen 127.0.0.1:%%PORT_3%%; status_zone failing; proxy_pass 127.0.0.1:1; }
    server { listen 127.0.0.1:%%PORT_4%%; status_zone handing; pass 127.0.0.1:%%PORT_5%%; }
    server { listen 127.0.0.1:%%PORT_5%%; status_zone taking; return text; }
    server { listen 127.0.0.1:%%PORT_6%% udp; status_zone datagrams; return text; }
    server { listen 127.0.0.1:%%PORT_7%%; return text; }";

fn site(up: &Upstream) -> ServerBuilder {
    let text = format!(
        "%%MAIN%% events {{ %%EVENTS%% }}
         http {{ %%HTTP%% server {{ listen 127.0.0.1:%%PORT%%; location /status/ {{ status_api; }}
             location = /metrics {{ metrics; }} location /api/ {{ api write=on; }} }} }}
         stream {{ {STREAM} }}"
    );
    stream("")
        .config(&text)
        .variable("UP", up.addr())
        .allow_log("access forbidden")
        .allow_log("connect() failed")
}

fn is_nginx() -> bool {
    Binary::under_test(env!("CARGO_BIN_EXE_nowait")).is_nginx()
}

fn get(server: &Server, path: &str) -> Value {
    serde_json::from_str(&server.get(path).text()).expect("JSON")
}

/// A zone, once this many sessions have ended there.
fn ended(server: &Server, name: &str, expected: u64) -> Value {
    wait::until("the end of sessions", PATIENCE, || {
        let zone = get(server, "/api/9/stream/server_zones")[name].clone();
        let number = |key: &str| zone[key].as_u64().expect(key);
        (number("connections") - number("processing") == expected).then_some(zone)
    })
}

fn to(server: &Server, number: usize) -> std::net::SocketAddr {
    ([127, 0, 0, 1], server.port_n(number)).into()
}

#[test]
fn sessions_are_counted_by_their_server() {
    if is_nginx() {
        return;
    }
    let up = Upstream::echo();
    on_each(&site(&up), |server| {
        let mut client = Client::to(to(server, 1));
        say(&mut client, "hello", "hello");
        let zone = get(server, "/api/9/stream/server_zones/passed");
        assert_eq!((&zone["processing"], &zone["connections"]), (&json!(1), &json!(1)));
        server.reload();
        let zone = get(server, "/status/stream/zones/passed");
        assert_eq!((&zone["processing"], &zone["connections"]), (&json!(1), &json!(1)));
        drop(client);
        let of = |number: usize| hear(to(server, number));
        assert_eq!([of(2), of(3), of(4), of(7)], ["", "", "text", "text"]);
        let zone = ended(server, "passed", 2);
        let sessions = json!({ "2xx": 1, "4xx": 1, "5xx": 0, "total": 2 });
        let expected = json!({ "processing": 0, "connections": 2, "sessions": sessions, "discarded": 0, "received": 5, "sent": 5 });
        assert_eq!(zone, expected);
        assert_eq!(ended(server, "failing", 1)["sessions"]["5xx"], 1);
        let zone = ended(server, "handing", 1);
        assert_eq!((&zone["discarded"], &zone["sessions"]["total"]), (&json!(1), &json!(0)));
        assert_eq!(ended(server, "taking", 1)["sent"], 4);
        let own = get(server, "/status/stream/zones/passed/sessions");
        assert_eq!(own, json!({ "2xx": 1, "4xx": 1, "5xx": 0, "codes": { "200": 1, "403": 1 } }));
        assert_eq!(get(server, "/status/stream/zones/handing/passed"), 1);
        let text = server.get("/metrics").text();
        for line in [
            "nowait_stream_zone_processing{zone=\"passed\"} 0\n",
            "nowait_stream_zone_connections_total{zone=\"passed\"} 2\n",
            "nowait_stream_zone_sessions_total{zone=\"passed\",status=\"403\"} 1\n",
            "nowait_stream_zone_sessions_total{zone=\"failing\",status=\"502\"} 1\n",
            "nowait_stream_zone_passed_total{zone=\"handing\"} 1\n",
            "nowait_stream_zone_received_bytes_total{zone=\"passed\"} 5\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        let mut client = server.client();
        client.send("DELETE /api/9/stream/server_zones/passed HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().status, 204);
        let zone = get(server, "/api/9/stream/server_zones/passed");
        assert_eq!((&zone["connections"], &zone["received"]), (&json!(0), &json!(0)));
        assert_eq!(server.get("/api/9/stream/server_zones/none").status, 404);
    });
}

#[test]
fn sessions_over_udp() {
    if is_nginx() {
        return;
    }
    let up = Upstream::echo();
    on_each(&site(&up), |server| {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        socket.send_to(b"hello", to(server, 6)).expect("it is sent");
        let mut answer = [0; 16];
        assert_eq!(socket.recv(&mut answer).expect("an answer"), 4);
        let zone = ended(server, "datagrams", 1);
        assert_eq!((&zone["received"], &zone["sent"]), (&json!(5), &json!(4)));
        assert_eq!(zone["sessions"]["2xx"], 1);
    });
}

#[test]
fn the_name_in_the_handshake_selects_the_zone() {
    if is_nginx() {
        return;
    }
    let text = "%%MAIN%% events { %%EVENTS%% }
        http { %%HTTP%% server { listen 127.0.0.1:%%PORT%%; location /status/ { status_api; } location /api/ { api; } } }
        stream { ssl_preread on;
            server { listen 127.0.0.1:%%PORT_1%%; status_zone first; return text; }
            server { listen 127.0.0.1:%%PORT_1%%; server_name b.example; status_zone named; return text; }
            server { listen 127.0.0.1:%%PORT_1%%; server_name c.example; return text; } }";
    on_each(&stream("").config(text), |server| {
        for name in ["a.example", "b.example", "c.example"] {
            let mut client = Client::to(to(server, 1));
            client.send(client_hello(name, &[], 16000));
            assert_eq!(client.rest(), b"text", "{name}");
        }
        ended(server, "first", 1);
        ended(server, "named", 1);
    });
}
