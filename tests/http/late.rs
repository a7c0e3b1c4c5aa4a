//! Requests to upstream servers that depend on the content of the client's: it is read first, whether requests
//! are buffered or not.
//!
//! nginx differs: with `proxy_request_buffering off`, it has what came with the head, or nothing; and an address
//! never has any of it.

use nowait_testkit::origin::Step;
use nowait_testkit::{Origin, Response, Server};

use crate::fastcgi;
use crate::transport::{Transport, on_each, site};

/// Sends the content when the server has the head.
#[track_caller]
fn post(server: &Server, transport: Transport, target: &str, content: &str) -> Response {
    if transport.is_http2() {
        let mut client = transport.http2(server);
        let length = content.len().to_string();
        let stream = client.open("POST", target, &[("content-length", &length)], false);
        client.round_trip();
        client.data(stream, content.as_bytes(), true);
        return client.response(stream);
    }
    let mut client = transport.client(server);
    client.send(format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nExpect: 100-continue\r\n\
         Content-Length: {}\r\n\r\n",
        content.len()
    ));
    assert_eq!(client.response().status, 100);
    client.send(content);
    client.response()
}

#[test]
fn addresses_fields_and_peers() {
    let mut locations = String::new();
    for buffering in ["on", "off"] {
        for (name, settings) in [
            ("address", "proxy_pass http://127.0.0.1:%%PORT_2%%/to/$request_body;"),
            (
                "field",
                "proxy_set_header X-B $request_body; proxy_pass http://127.0.0.1:%%PORT_2%%;",
            ),
            (
                "capture",
                "proxy_set_header X-B $named$part; proxy_pass http://127.0.0.1:%%PORT_2%%;",
            ),
            (
                "host",
                "proxy_set_header Host $request_body; proxy_pass http://127.0.0.1:%%PORT_2%%;",
            ),
            ("method", "proxy_method $request_body; proxy_pass http://127.0.0.1:%%PORT_2%%;"),
            ("peer", "proxy_pass http://peers;"),
            ("named", "set $to peers; proxy_pass http://$to;"),
            ("route", "proxy_pass http://routes;"),
            ("session", "proxy_pass http://sessions;"),
            ("bind", "proxy_bind 127.0.0.$request_body; proxy_pass http://127.0.0.1:%%PORT_2%%;"),
        ] {
            locations.push_str(&format!(
                "location /{buffering}/{name} {{ proxy_request_buffering {buffering}; {settings} }}\n"
            ));
        }
    }
    let builder = site(&format!(
        "map $request_body $named {{ default no; ~^(?<part>.*)$ 'part '; }}
         map $request_body $route {{ ~^content.(?<number>[0-9])$ $number; }}
         upstream peers {{
             hash $request_body;
             server 127.0.0.1:%%PORT_2%%;
             server 127.0.0.1:%%PORT_3%%;
             server 127.0.0.1:%%PORT_4%%;
         }}
         upstream routes {{
             zone routes 64k;
             sticky route $route;
             server 127.0.0.1:%%PORT_2%% route=0;
             server 127.0.0.1:%%PORT_3%% route=1;
             server 127.0.0.1:%%PORT_4%% route=2;
         }}
         upstream sessions {{
             zone sessions 64k;
             sticky learn create=$upstream_http_x_session lookup=$request_body zone=learnt:1m header;
             server 127.0.0.1:%%PORT_2%%;
             server 127.0.0.1:%%PORT_3%%;
             server 127.0.0.1:%%PORT_4%%;
         }}
         server {{
             %%LISTEN%%
             proxy_http_version 1.1;
             {locations}
         }}
         server {{
             listen 127.0.0.1:%%PORT_2%%;
             listen 127.0.0.1:%%PORT_3%%;
             listen 127.0.0.1:%%PORT_4%%;
             add_header X-Port $server_port;
             add_header X-Session a-$server_port;
             add_header X-From $remote_addr;
             return 200 \"$request_method $request_uri $host <$http_x_b>\";
         }}"
    ));
    on_each(&Transport::ALL, &builder, |server, transport| {
        let ask = |target: &str, content: &str| post(server, transport, target, content);
        for buffering in ["on", "off"] {
            for (name, expected) in [
                ("address", "POST /to/PUT 127.0.0.1 <>".to_owned()),
                ("field", format!("POST /{buffering}/field 127.0.0.1 <PUT>")),
                ("capture", format!("POST /{buffering}/capture 127.0.0.1 <part PUT>")),
                ("host", format!("POST /{buffering}/host put <>")),
                ("method", format!("PUT /{buffering}/method 127.0.0.1 <>")),
            ] {
                let response = ask(&format!("/{buffering}/{name}"), "PUT");
                assert_eq!(response.text(), expected);
            }
        }
        let ports = |location: &str| -> Vec<String> {
            let port =
                |n: u8| ask(location, &format!("content {n}")).header("X-Port").map(str::to_owned);
            (0..8).map(|n| port(n).unwrap()).collect()
        };
        let peers = ports("/on/peer");
        assert!(peers.iter().any(|port| *port != peers[0]), "{peers:?}");
        for location in ["/off/peer", "/on/named", "/off/named"] {
            assert_eq!(ports(location), peers, "{location}");
        }
        let port =
            |target: &str, content: &str| ask(target, content).header("X-Port").map(str::to_owned);
        for buffering in ["on", "off"] {
            let bound = ask(&format!("/{buffering}/bind"), "9");
            assert_eq!(bound.header("X-From"), Some("127.0.0.9"), "{buffering}");
            for (number, listening) in [2, 3, 4].into_iter().enumerate() {
                let expected = Some(server.port_n(listening).to_string());
                for _ in 0..2 {
                    let target = format!("/{buffering}/route");
                    assert_eq!(port(&target, &format!("content {number}")), expected, "{target}");
                }
            }
            let target = format!("/{buffering}/session");
            // Each server has made the session that it names.
            (0..3).for_each(|_| drop(port(&target, "new")));
            for listening in [2, 3, 4] {
                let expected = server.port_n(listening).to_string();
                for _ in 0..2 {
                    let got = port(&target, &format!("a-{expected}"));
                    assert_eq!(got.as_ref(), Some(&expected), "{target}");
                }
            }
        }
    });
}

#[test]
fn parameters() {
    for (module, until, response) in [
        ("fastcgi", fastcgi::ASKED, [fastcgi::record(6, "\r\nok"), fastcgi::end()].concat()),
        ("uwsgi", b"once more", b"\r\nok".to_vec()),
        ("scgi", b"once more", b"\r\nok".to_vec()),
    ] {
        for buffering in ["on", "off"] {
            let scripts = [(); 8]
                .map(|()| vec![Step::expect(until), Step::reply(&response), Step::HalfClose]);
            let origin = Origin::start(scripts);
            let builder = site(&format!(
                "server {{
                     %%LISTEN%%
                     {module}_request_buffering {buffering};
                     location / {{ {module}_pass {}; {module}_param BODY <$request_body>; }}
                 }}",
                origin.addr()
            ));
            on_each(&Transport::ALL, &builder, |server, transport| {
                assert_eq!(post(server, transport, "/", "once more").text(), "ok");
            });
            for received in origin.received() {
                let text = String::from_utf8_lossy(&received);
                assert!(text.contains("<once more>"), "{module} {buffering} {text}");
            }
            origin.finish();
        }
    }
}
