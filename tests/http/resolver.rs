//! Names of upstream servers: in variables, in groups, in `proxy_pass`; by name servers and by the
//! system.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};

use nowait_testkit::dns::{self, A, AAAA, DnsAnswer, Query, SRV};
use nowait_testkit::origin::Step;
use nowait_testkit::{DnsServer, Driver, Origin, Server, wait};

use crate::stage::{ask, asks_nginx, on_each_driver, refused, server, site};

/// An origin that answers so many requests, each on a connection of its own, with this body.
fn origin(body: &str, connections: usize) -> Origin {
    let text = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let script = || vec![Step::expect("\r\n\r\n"), Step::reply(&text)];
    Origin::start((0..connections).map(|_| script()).collect::<Vec<_>>())
}

/// A name server that knows IPv4 addresses only.
fn ipv4(answer: impl Fn(&Query) -> DnsAnswer + Send + Sync + 'static) -> DnsServer {
    DnsServer::start(move |query| {
        vec![if query.kind == AAAA { DnsAnswer::new() } else { answer(query) }]
    })
}

fn logged(server: &Server, text: &str) {
    server.wait_log(text);
}

#[test]
fn names_in_variables_are_resolved() {
    let dns = ipv4(|query| match query.name.as_str() {
        "good.example" => DnsAnswer::address(&query.name, 3600, "127.0.0.1"),
        "alias.example" => DnsAnswer::new().with_cname(&query.name, 3600, "good.example"),
        "failed.example" => DnsAnswer::failure(dns::SERVFAIL),
        _ => DnsAnswer::failure(dns::NXDOMAIN),
    });
    let origin = origin("found", 6);
    let port = origin.addr().port();
    let conf =
        format!("resolver {};\nlocation / {{ proxy_pass http://$arg_name:{port}; }}", dns.addr());
    on_each_driver(&server(&conf), |server| {
        for (name, expected) in [
            ("good.example", "found"),
            ("GOOD.example.", "found"),
            ("alias.example", "found"),
            ("failed.example", "502"),
            ("none.example", "502"),
        ] {
            let response = ask(server, &format!("/?name={name}"), &[]);
            assert!(response.text().contains(expected), "{name}: {}", response.text());
        }
        logged(server, "failed.example could not be resolved (2: Server failure)");
        logged(server, "none.example could not be resolved (3: Host not found)");
    });
    // Once for each driver's server.
    assert_eq!(dns.count("good.example", A) % 2, 0);
}

#[test]
fn a_name_server_that_is_silent_costs_no_more_than_the_timeout() {
    let dns = DnsServer::start(|_| vec![DnsAnswer::silence()]);
    let conf = format!(
        "resolver {} ipv6=off;\nresolver_timeout 50ms;\nlocation / {{ proxy_pass http://$arg_name; }}",
        dns.addr()
    );
    on_each_driver(&server(&conf), |server| {
        assert_eq!(ask(server, "/?name=quiet.example", &[]).status, 502);
        logged(server, "quiet.example could not be resolved (110: Operation timed out)");
    });
}

#[test]
fn the_start_does_not_wait_for_names_but_the_first_request_does() {
    let origin = origin("at last", 2);
    let port = origin.addr().port();
    let (asked, questions) = mpsc::channel();
    let (allow, allowed) = mpsc::channel::<()>();
    let (asked, allowed) = (Mutex::new(asked), Mutex::new(allowed));
    let dns = DnsServer::start(move |query| {
        let _ = asked.lock().unwrap().send(query.name.clone());
        let _ = allowed.lock().unwrap().recv();
        vec![DnsAnswer::address(&query.name, 3600, "127.0.0.1")]
    });
    let site = site(&format!(
        "upstream u {{ server late.example:{port} resolve; }}\nresolver {} ipv6=off;\n\
         server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u; }} }}",
        dns.addr()
    ));
    on_each_driver(&site, |server| {
        assert_eq!(questions.recv_timeout(wait::PATIENCE).unwrap(), "late.example");
        let mut client = server.client();
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        allow.send(()).unwrap();
        assert_eq!(client.response().text(), "at last");
    });
}

#[test]
fn names_of_a_group_follow_the_name_server() {
    let address = Arc::new(Mutex::new("127.0.0.1".to_owned()));
    let now = address.clone();
    let dns = ipv4(move |query| match now.lock().unwrap().as_str() {
        "gone" => DnsAnswer::failure(dns::NXDOMAIN),
        "failed" => DnsAnswer::failure(dns::SERVFAIL),
        address => DnsAnswer::address(&query.name, 1, address),
    });
    let site = site(&format!(
        "upstream u {{ zone u 64k; server moving.example:%%PORT%% resolve max_fails=0; }}\n\
         resolver {} valid=1s;\n\
         server {{ listen %%PORT%%; location / {{ proxy_pass http://u/me; add_header X-Addr $upstream_addr always; }}\n\
         location = /me {{ return 200 me; }} }}",
        dns.addr()
    ));
    on_each_driver(&site, |server| {
        let seen = |expected: &str| {
            wait::until(expected, wait::PATIENCE, || {
                let response = ask(server, "/", &[]);
                let address = response.header("x-addr").unwrap_or_default();
                address.starts_with(expected).then_some(response.status)
            })
        };
        let set = |text: &str| *address.lock().unwrap() = text.to_owned();
        set("127.0.0.1");
        assert_eq!(seen("127.0.0.1:"), 200);
        set("127.0.0.2");
        assert_eq!(seen("127.0.0.2:"), 200);
        // A failure changes nothing.
        set("failed");
        logged(server, "moving.example could not be resolved (2: Server failure)");
        assert_eq!(seen("127.0.0.2:"), 200);
        set("gone");
        assert_eq!(seen("u"), 502);
        logged(server, "moving.example could not be resolved (3: Host not found)");
        // The name server fails, and a reload keeps what is known.
        set("127.0.0.3");
        assert_eq!(seen("127.0.0.3:"), 200);
        set("failed");
        server.reload();
        assert_eq!(seen("127.0.0.3:"), 200);
    });
}

#[test]
fn services_bring_ports_weights_and_backups() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        // It closes the third connection at once.
        let (first, spare) = (origin("first", 2), origin("spare", 1));
        let ports = (first.addr().port(), spare.addr().port());
        let dns = ipv4(move |query| match (query.name.as_str(), query.kind) {
            ("_http._tcp.example", SRV) => DnsAnswer::new()
                .with_srv(&query.name, 3600, [20, 1, ports.1], "b.example")
                .with_srv(&query.name, 3600, [10, 1, ports.0], "a.example")
                .with_srv(&query.name, 3600, [10, 1, 1], "none.example"),
            ("a.example" | "b.example", A) => DnsAnswer::address(&query.name, 3600, "127.0.0.1"),
            _ => DnsAnswer::failure(dns::NXDOMAIN),
        });
        let site = site(&format!(
            "upstream u {{ zone u 64k; server example service=http resolve; }}\n\
             resolver {};\n\
             server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u; }} }}",
            dns.addr()
        ));
        let server = site.driver(driver).start();
        for body in ["first", "first", "spare"] {
            assert_eq!(ask(&server, "/", &[]).text(), body);
        }
        let line = "none.example could not be resolved (3: Host not found) \
                    while resolving service http of example";
        logged(&server, line);
        server.stop();
    }
}

#[test]
fn literal_names_are_resolved_as_the_system_does() {
    let origin = origin("local", 2);
    let port = origin.addr().port();
    let dns = DnsServer::start(|_| vec![DnsAnswer::failure(dns::NXDOMAIN)]);
    let conf = format!(
        "resolver {};\nlocation / {{ proxy_pass http://localhost:{port}; proxy_next_upstream error; }}\n\
         location /unknown/ {{ proxy_pass http://no-such-name.invalid:{port}; }}",
        dns.addr()
    );
    on_each_driver(&server(&conf), |server| {
        assert_eq!(ask(server, "/", &[]).text(), "local");
    });
    assert_eq!(dns.queries(), []);
}

#[test]
fn the_resolver_of_a_group_comes_before_that_of_http() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let wrong = DnsServer::start(move |_| {
        count.fetch_add(1, SeqCst);
        vec![DnsAnswer::failure(dns::NXDOMAIN)]
    });
    let right = ipv4(|query| DnsAnswer::address(&query.name, 3600, "127.0.0.1"));
    let origin = origin("right", 2);
    let site = site(&format!(
        "upstream u {{ zone u 64k; server a.example:{} resolve; resolver {}; resolver_timeout 20s; }}\n\
         resolver {};\n\
         server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u; }} }}",
        origin.addr().port(),
        right.addr(),
        wrong.addr()
    ));
    on_each_driver(&site, |server| assert_eq!(ask(server, "/", &[]).text(), "right"));
    assert_eq!(asked.load(SeqCst), 0);
}

#[test]
fn what_is_wrong_with_resolvers_is_said_in_nginx_s_words() {
    for (directive, reason) in [
        ("resolver 127.0.0.1 valid=x;", "invalid parameter: valid=x"),
        ("resolver 127.0.0.1 ipv4=yes;", "invalid parameter: ipv4=yes"),
        ("resolver 127.0.0.1 ipv4=off ipv6=off;", "\"ipv4\" and \"ipv6\" cannot both be \"off\""),
        ("resolver valid=5s;", "no name servers defined"),
        ("resolver 127.0.0.1:0;", "invalid port in resolver \"127.0.0.1:0\""),
        ("resolver 127.0.0.1; resolver 127.0.0.2;", "\"resolver\" directive is duplicate"),
    ] {
        refused(&server(directive), reason);
    }
}

#[test]
fn status_pages_show_what_resolvers_did() {
    let dns = ipv4(|query| match query.name.as_str() {
        "a.example" => DnsAnswer::address(&query.name, 3600, "127.0.0.1"),
        _ => DnsAnswer::failure(dns::NXDOMAIN),
    });
    if asks_nginx() {
        return;
    }
    let conf = format!(
        "resolver {} ipv6=off status_zone=inside;\nlocation /status/ {{ status_api; }}\n\
         location = /metrics {{ metrics; }}\nlocation /x {{ proxy_pass http://$arg_name:%%PORT%%/status/; }}",
        dns.addr()
    );
    on_each_driver(&server(&conf), |server| {
        for name in ["a.example", "a.example", "b.example"] {
            ask(server, &format!("/x?name={name}"), &[]);
        }
        let part =
            |part: &str| ask(server, &format!("/status/resolvers/inside/{part}"), &[]).text();
        assert_eq!(part("requests/name"), "2\n");
        assert_eq!(part("responses/noerror"), "1\n");
        assert_eq!(part("responses/nxdomain"), "1\n");
        let metrics = ask(server, "/metrics", &[]).text();
        let line = "nowait_resolver_responses_total{resolver=\"inside\",result=\"nxdomain\"} 1\n";
        assert!(metrics.contains(line), "{metrics}");
    });
}
