//! `set_real_ip_from`, `real_ip_header`, `real_ip_recursive`.

use crate::stage::{ask, exchanges, on_each_driver, server, site, wait_file};

const SHOW: &str = "return 200 \"$remote_addr|$realip_remote_addr\";";

#[test]
fn a_trusted_proxy_says_who_the_client_is() {
    let site = server(&format!(
        "set_real_ip_from 127.0.0.0/8; set_real_ip_from 10.0.0.0/8; set_real_ip_from unix:;
         location / {{ {SHOW} }}
         location /xff {{ real_ip_header X-Forwarded-For; error_page 403 =200 /x; deny 192.0.2.0/24; }}"
    ))
    .file("html/xff", "");
    exchanges(
        &site,
        &[
            ("GET / HTTP/1.1\nHost: x\nX-Real-IP: 192.0.2.1", "200\n\n192.0.2.1|127.0.0.1"),
            ("GET / HTTP/1.1\nHost: x\nX-Real-IP: 192.0.2.1:80", "200\n\n192.0.2.1|127.0.0.1"),
            ("GET / HTTP/1.1\nHost: x\nX-Real-IP: 2001:db8::1", "200\n\n2001:db8::1|127.0.0.1"),
            ("GET / HTTP/1.1\nHost: x\nX-Real-IP: nonsense", "200\n\n127.0.0.1|127.0.0.1"),
            ("GET / HTTP/1.1\nHost: x", "200\n\n127.0.0.1|127.0.0.1"),
            // The location's own settings, in time for its access rules.
            ("GET /xff HTTP/1.1\nHost: x\nX-Forwarded-For: 1.2.3.4", "200\nContent-Length: 0"),
            (
                "GET /xff HTTP/1.1\nHost: x\nX-Forwarded-For: 192.0.2.7",
                "200\n\n192.0.2.7|127.0.0.1",
            ),
            // The next request of a connection starts over.
            (
                "GET / HTTP/1.1\nHost: x\nX-Real-IP: 192.0.2.1\n---\nGET / HTTP/1.1\nHost: x",
                "200\n\n192.0.2.1|127.0.0.1\n---\n200\n\n127.0.0.1|127.0.0.1",
            ),
        ],
    );
}

#[test]
fn several_proxies() {
    let site = site(&format!(
        "real_ip_header X-Forwarded-For; set_real_ip_from 127.0.0.1; set_real_ip_from 10.0.0.0/8;
         server {{ listen 127.0.0.1:%%PORT%%; server_name one; {SHOW} }}
         server {{ listen 127.0.0.1:%%PORT%%; server_name all; real_ip_recursive on; {SHOW} }}"
    ));
    let ask = |host: &str, line: &str| format!("GET / HTTP/1.1\nHost: {host}\n{line}");
    let lines = "X-Forwarded-For: 6.6.6.6, 192.0.2.1\nX-Forwarded-For: 10.0.0.2, 10.0.0.1";
    exchanges(
        &site,
        &[
            (&ask("one", lines), "200\n\n10.0.0.1|127.0.0.1"),
            (&ask("all", lines), "200\n\n192.0.2.1|127.0.0.1"),
            (&ask("all", "X-Forwarded-For: 10.0.0.3"), "200\n\n10.0.0.3|127.0.0.1"),
        ],
    );
}

#[test]
fn who_is_not_trusted_is_not_believed() {
    let site = server(&format!("set_real_ip_from 192.0.2.0/24; {SHOW}"));
    exchanges(
        &site,
        &[("GET / HTTP/1.1\nHost: x\nX-Real-IP: 192.0.2.1", "200\n\n127.0.0.1|127.0.0.1")],
    );
}

#[test]
fn logs_show_the_client() {
    let site = server("set_real_ip_from 127.0.0.1; real_ip_header X-Client;").file("html/a", "A");
    on_each_driver(&site, |server| {
        ask(server, "/none", &["x-client: 192.0.2.5"]);
        assert!(wait_file(server, "access.log", "/none").starts_with("192.0.2.5 - - ["));
        wait_file(server, "error.log", "client: 192.0.2.5, ");
    });
}

#[test]
fn the_proxy_protocol_is_a_source() {
    let site = site(
        "server { listen 127.0.0.1:%%PORT%% proxy_protocol; set_real_ip_from 127.0.0.1;
                  real_ip_header proxy_protocol; return 200 \"$remote_addr:$remote_port\"; }",
    );
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send("PROXY TCP4 192.0.2.1 192.0.2.2 123 80\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.response().text(), "192.0.2.1:123");
    });
}

#[test]
fn wrong_proxies_are_refused() {
    let failure = server("set_real_ip_from 1.2.3.4/99;").try_start().expect_err("no network");
    let said = failure.stderr + &failure.log;
    assert!(said.contains("invalid parameter \"1.2.3.4/99\""), "{said}");
}
