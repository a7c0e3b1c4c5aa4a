//! `health_check` and `match`: which servers of a group get requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;

use nowait_testkit::dns::{AAAA, DnsAnswer};
use nowait_testkit::{DnsServer, Driver, Server, wait};

use crate::stage::{ask, asks_nginx, on_each_driver, refused, server, site};

/// A server that checks another one of the same program, whose answers are files below `html`: `%%DIR%%`
/// is the test's, `check` the parameters, `rest` goes into `http`.
fn checked(check: &str, rest: &str) -> nowait_testkit::ServerBuilder {
    site(&format!(
        "upstream u {{ zone u 64k; server 127.0.0.1:%%PORT_1%%; }}\n{rest}\n\
         server {{ listen 127.0.0.1:%%PORT%%; location /status/ {{ status_api; }}\n\
         location / {{ proxy_pass http://u; health_check interval=20ms {check}; }} }}\n\
         server {{ listen 127.0.0.1:%%PORT_1%%; root %%DIR%%/html; default_type text/plain;\n\
         add_header X-Host $http_host; location = /asked {{ return 200 $http_user_agent; }} }}"
    ))
    .file("html/index.html", "page")
    .file("html/health", "all is well")
}

/// Waits until requests get this status.
fn wait_status(server: &Server, status: u16) {
    wait::until("another status", wait::PATIENCE, || {
        (ask(server, "/", &[]).status == status).then_some(())
    });
}

/// Runs a test on each driver; nginx has no health checks.
fn each(builder: &nowait_testkit::ServerBuilder, test: impl Fn(&mut Server)) {
    if !asks_nginx() {
        on_each_driver(builder, test);
    }
}

#[test]
fn a_server_that_fails_its_check_gets_no_requests() {
    each(&checked("uri=/health", ""), |server| {
        assert_eq!(ask(server, "/", &[]).text(), "page");
        std::fs::remove_file(server.dir().join("html/health")).unwrap();
        wait_status(server, 502);
        server.wait_log(
            "peer is unhealthy while checking status code, health check \"\" of peer 127.0.0.1:",
        );
        server.write("html/health", "again");
        wait_status(server, 200);
        server.wait_log("peer is healthy, health check \"\" of peer 127.0.0.1:");
        server.wait_log("in upstream \"u\"");
        server.allow_log("open()");
    });
}

/// A connection is enough, and nothing is sent on it.
#[test]
fn a_check_may_only_connect() {
    if asks_nginx() {
        return;
    }
    let (sent, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (counted, all) = (sent.clone(), connections.clone());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            all.fetch_add(1, SeqCst);
            let count = std::io::Read::read_to_end(&mut stream, &mut Vec::new()).unwrap_or(1);
            counted.fetch_add(count, SeqCst);
        }
    });
    let site = site(&format!(
        "upstream u {{ zone u 64k; server 127.0.0.1:{port}; }}\n\
         server {{ listen 127.0.0.1:%%PORT%%; location /status/ {{ status_api; }}\n\
         location / {{ proxy_pass http://u; health_check interval=10ms type=tcp mandatory; }} }}"
    ));
    each(&site, |server| {
        let before = connections.load(SeqCst);
        wait::until("checks", wait::PATIENCE, || {
            (connections.load(SeqCst) > before + 3).then_some(())
        });
        let part = "/status/upstreams/u/peers/0/health_checks/last_passed";
        wait::until("a passed check", wait::PATIENCE, || {
            (ask(server, part, &[]).text() == "true\n").then_some(())
        });
    });
    assert_eq!(sent.load(SeqCst), 0);
}

#[test]
fn every_test_of_a_match_has_to_pass() {
    for (tests, healthy) in [
        ("status 200;", true),
        ("status 300-399 204;", false),
        ("status ! 500-599;", true),
        ("status ! 200;", false),
        ("header Content-Type = text/plain;", true),
        ("header Content-Type != text/plain;", false),
        ("header Content-Type ~ ^text/;", true),
        ("header Content-Type !~ plain;", false),
        ("header content-type ~* PLAIN;", true),
        ("header X-Host;", true),
        ("header ! X-Host;", false),
        // $proxy_host
        ("header X-Host = u;", true),
        ("body ~ well;", true),
        ("body !~ well;", false),
        ("body !~* WELL;", false),
        ("status 200; body ~ nothing;", false),
        ("require $upstream_http_x_host;", true),
        ("require $upstream_http_x_host $upstream_http_x_none;", false),
        ("require $upstream_status;", true),
    ] {
        if asks_nginx() {
            return;
        }
        let rest = format!("match good {{ {tests} }}");
        let builder = checked("uri=/health match=good mandatory", &rest);
        let server = builder.driver(Driver::Epoll).start();
        let verdict = if healthy { "peer is healthy, " } else { "peer is unhealthy while " };
        eprintln!("tests: {tests}");
        server.wait_log(verdict);
        server.wait_log("health check \"good\" of peer");
        assert_eq!(ask(&server, "/", &[]).status, if healthy { 200 } else { 502 });
        server.stop();
    }
}

#[test]
fn mandatory_servers_wait_for_their_first_check() {
    let (tell, told) = mpsc::channel();
    let (allow, allowed) = mpsc::channel::<()>();
    let answering = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = answering.local_addr().unwrap().port();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for (number, stream) in answering.incoming().flatten().enumerate() {
            let mut stream = stream;
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            if number == 0 {
                let _ = tell.send(());
                let _ = allowed.recv();
            }
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        }
    });
    if asks_nginx() {
        return;
    }
    let site = site(&format!(
        "upstream u {{ zone u 64k; server 127.0.0.1:{port}; }}\n\
         server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u; health_check interval=20ms mandatory persistent; }} }}",
    ));
    let server = site.driver(Driver::Epoll).start();
    told.recv().unwrap();
    assert_eq!(ask(&server, "/", &[]).status, 502);
    allow.send(()).unwrap();
    wait_status(&server, 200);
    server.reload();
    assert_eq!(ask(&server, "/", &[]).text(), "ok");
    server.stop();
}

#[test]
fn a_server_that_is_not_there_is_unhealthy() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let builder = checked(&format!("port={free} fails=3 passes=2 jitter=5ms"), "");
    each(&builder, |server| {
        server.wait_log("connect() failed (111: Connection refused) while connecting to upstream, health check \"\" of peer 127.0.0.1:");
        server.wait_log("peer is unhealthy while connecting to upstream");
        assert_eq!(ask(server, "/", &[]).status, 502);
        let part =
            |part: &str| ask(server, &format!("/status/upstreams/u/peers/0/{part}"), &[]).text();
        assert_eq!(part("state"), "\"unhealthy\"\n");
        assert_eq!(part("health_checks/unhealthy"), "1\n");
        assert_eq!(part("health_checks/last_passed"), "false\n");
    });
}

#[test]
fn one_healthy_server_of_two_gets_all_requests() {
    let builder = site(
        "upstream u { zone u 64k; server 127.0.0.1:%%PORT_1%%; server 127.0.0.1:%%PORT_2%%; }\n\
         server { listen 127.0.0.1:%%PORT%%; location / { proxy_pass http://u; health_check interval=20ms uri=/health; } }\n\
         server { listen 127.0.0.1:%%PORT_1%%; location / { return 200 one; } }\n\
         server { listen 127.0.0.1:%%PORT_2%%; location / { return 200 two; } location = /health { return 500; } }",
    );
    each(&builder, |server| {
        server.wait_log("peer is unhealthy while checking status code");
        for _ in 0..6 {
            assert_eq!(ask(server, "/", &[]).text(), "one");
        }
    });
}

/// One check that passes does not outweigh another one that fails.
#[test]
fn all_checks_of_a_group_have_to_pass() {
    let builder = site(
        "upstream u { zone u 64k; server 127.0.0.1:%%PORT_1%%; }\n\
         server { listen 127.0.0.1:%%PORT%%;\n\
         location / { proxy_pass http://u; health_check interval=10ms uri=/one; }\n\
         location /x/ { proxy_pass http://u/; health_check interval=10ms uri=/two mandatory; }\n\
         location /status/ { status_api; } }\n\
         server { listen 127.0.0.1:%%PORT_1%%; root %%DIR%%/html; }",
    )
    .file("html/index.html", "page")
    .file("html/one", "1")
    .file("html/two", "2");
    each(&builder, |server| {
        server.allow_log("open()");
        server.allow_log("is unhealthy");
        let counted = |server: &Server| {
            let target = "/status/upstreams/u/peers/0/health_checks/checks";
            ask(server, target, &[]).text().trim().parse::<u64>().unwrap()
        };
        for file in ["html/two", "html/one"] {
            wait_status(server, 200);
            std::fs::remove_file(server.dir().join(file)).unwrap();
            wait_status(server, 502);
            // The other check has passed many times since.
            let before = counted(server);
            wait::until("checks", wait::PATIENCE, || (counted(server) > before + 6).then_some(()));
            assert_eq!(ask(server, "/", &[]).status, 502);
            server.write(file, "again");
        }
        wait_status(server, 200);
    });
}

#[test]
fn connections_of_checks_may_be_kept() {
    if asks_nginx() {
        return;
    }
    let connections = Arc::new(AtomicUsize::new(0));
    let requests = Arc::new(AtomicUsize::new(0));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (opened, asked) = (connections.clone(), requests.clone());
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for mut stream in listener.incoming().flatten() {
            opened.fetch_add(1, SeqCst);
            let asked = asked.clone();
            std::thread::spawn(move || {
                let mut request = [0; 1024];
                while stream.read(&mut request).is_ok_and(|count| count > 0) {
                    asked.fetch_add(1, SeqCst);
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                }
            });
        }
    });
    let site = site(&format!(
        "upstream u {{ zone u 64k; server 127.0.0.1:{port}; }}\n\
         server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u; health_check interval=10ms keepalive_time=1h; }} }}",
    ));
    let server = site.driver(Driver::Epoll).start();
    wait::until("checks", wait::PATIENCE, || (requests.load(SeqCst) >= 10).then_some(()));
    assert_eq!(connections.load(SeqCst), 1);
    server.stop();
}

#[test]
fn servers_that_names_bring_are_checked_too() {
    let dns = DnsServer::start(|query| {
        vec![match query.kind {
            AAAA => DnsAnswer::new(),
            _ => DnsAnswer::address(&query.name, 3600, "127.0.0.1"),
        }]
    });
    let builder = site(&format!(
        "resolver {};\nupstream u {{ zone u 64k; server a.example:%%PORT_1%% resolve; }}\n\
         server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u; health_check interval=20ms mandatory uri=/health; }} }}\n\
         server {{ listen 127.0.0.1:%%PORT_1%%; location / {{ return 200 one; }} }}",
        dns.addr()
    ));
    each(&builder, |server| {
        server.wait_log("peer is healthy, ");
        assert_eq!(ask(server, "/", &[]).text(), "one");
    });
}

#[test]
fn what_is_wrong_with_checks_is_said() {
    if asks_nginx() {
        return;
    }
    let location = |text: &str| {
        server(&format!("location /x/ {{ proxy_pass http://127.0.0.1:1; health_check {text}; }}"))
    };
    for (text, reason) in [
        ("interval=0", "invalid parameter \"interval=0\""),
        ("fails=0", "invalid parameter \"fails=0\""),
        ("port=65536", "invalid parameter \"port=65536\""),
        ("uri=x", "invalid parameter \"uri=x\""),
        ("what", "invalid parameter \"what\""),
        ("match=none", "unknown match \"none\""),
        ("type=x", "unsupported type in \"type=x\""),
        ("type=tcp uri=/", "\"uri=/\" is incompatible with \"type=tcp\""),
        ("keepalive_time=1s type=tcp", "\"keepalive_time=1s\" is incompatible"),
        ("persistent", "\"persistent\" requires \"mandatory\""),
        ("; health_check", "\"health_check\" directive is duplicate"),
    ] {
        refused(&location(text), reason);
    }
    refused(
        &server("location / { health_check; }"),
        "\"health_check\" needs a \"proxy_pass\" or \"grpc_pass\" without variables",
    );
    for (tests, reason) in [
        ("status 99;", "invalid status \"99\""),
        ("status 300-200;", "invalid status \"300-200\""),
        ("header a ? b;", "invalid operator \"?\""),
        ("body ! x;", "invalid operator \"!\""),
        ("require x;", "invalid variable name \"x\""),
        ("what x;", "unknown directive \"what\" in \"match\""),
    ] {
        refused(&site(&format!("match m {{ {tests} }}\nserver {{ listen %%PORT%%; }}")), reason);
    }
    refused(
        &site("match m { }\nmatch m { }\nserver { listen %%PORT%%; }"),
        "duplicate match \"m\"",
    );
}
