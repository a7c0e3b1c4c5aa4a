//! Input that is meant to do harm, beyond what the parsers see: line ends that variables carry into
//! heads, texts on which regular expressions toil, and senders with forged identities.

use std::io::Write;

use nowait_testkit::Server;

use crate::stage::{ask, on_each_driver, site};

/// What would be a header of its own, if line ends got through.
const INJECTED: &str = "%0d%0aX-Injected:%20yes%0d%0a%0d%0abody";

/// All that the server sends.
fn raw(server: &Server, target: &str) -> String {
    let mut client = server.client();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    String::from_utf8_lossy(&client.rest()).into_owned()
}

#[test]
fn variables_end_no_line_of_a_response() {
    if crate::stage::asks_nginx() {
        return; // it sends what the client wrote
    }
    let site = site(
        r#"
        map $uri $mapped { volatile; "~^(?<all>(?s:.*))$" "m$all"; }
        server {
            listen 127.0.0.1:%%PORT%%;
            root %%DIR%%/html;
            location /add {
                add_header X-A "a$uri" always;
                add_header Set-Cookie "c=$uri";
                return 200;
            }
            location /known {
                add_header Last-Modified $uri;
                add_header Cache-Control $uri;
                return 200;
            }
            location ~ "(?s)^/trailer" { add_trailer X-T "t$uri"; alias %%DIR%%/html/file; }
            location /return { return 301 http://x.test$uri; }
            location /relative { return 307 $uri; }
            location /rewrite { rewrite "^((?s:.*))$" http://x.test$1 redirect; }
            location /permanent { rewrite ^ /new$uri permanent; }
            location /page { error_page 404 =302 http://x.test$uri; return 404; }
            location /realm { auth_basic "realm $uri"; auth_basic_user_file html/file; }
            location /set { set $v "v$uri"; add_header X-V $v; return 204; }
            location ~ "^/group(?<rest>(?s:.*))$" { add_header X-R "$rest$1"; return 204; }
            location /map { add_header X-M $mapped; return 204; }
        }
        "#,
    )
    .file("html/file", "file");
    on_each_driver(&site, |server| {
        for (path, status) in [
            ("/add", 200),
            ("/known", 200),
            ("/trailer", 200),
            ("/return", 301),
            ("/relative", 307),
            ("/rewrite", 302),
            ("/permanent", 301),
            ("/page", 302),
            ("/realm", 401),
            ("/set", 204),
            ("/group", 204),
            ("/map", 204),
        ] {
            let said = raw(server, &format!("{path}{INJECTED}"));
            assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {said}");
            assert!(said.contains("X-Injected:"), "{path} is no test: {said}");
            let line = said.lines().find(|line| line.starts_with("X-Injected"));
            assert_eq!(line, None, "{path}: {said}");
            assert!(!said.contains("\n\nbody") && !said.contains("\r\n\r\nbody"), "{path}: {said}");
        }
    });
}

#[test]
fn variables_end_no_line_of_a_request() {
    if crate::stage::asks_nginx() {
        return; // it sends what the client wrote
    }
    let site = site(
        r#"
        server {
            listen 127.0.0.1:%%PORT%%;
            location /header { proxy_pass http://127.0.0.1:%%PORT_1%%/; proxy_set_header X-P "p$uri"; }
            location /host { proxy_pass http://127.0.0.1:%%PORT_1%%/; proxy_set_header Host "h$uri"; }
            location /url { proxy_pass http://127.0.0.1:%%PORT_1%%$uri; }
            location /args { proxy_pass http://127.0.0.1:%%PORT_1%%/?$uri; }
            location /method { proxy_pass http://127.0.0.1:%%PORT_1%%/; proxy_method "GET$uri"; }
            location /cookie {
                proxy_pass http://127.0.0.1:%%PORT_1%%/;
                proxy_cookie_path / $uri;
                proxy_redirect / http://x.test$uri;
            }
        }
        server {
            listen 127.0.0.1:%%PORT_1%%;
            add_header Set-Cookie "a=b; Path=/";
            add_header Location /moved;
            return 200 "injected: $http_x_injected";
        }
        "#,
    )
    .allow_log("upstream");
    on_each_driver(&site, |server| {
        for path in ["/header", "/host", "/url", "/args", "/method", "/cookie"] {
            let said = raw(server, &format!("{path}{INJECTED}"));
            // It is refused, or passed without the line ends.
            let line = said.lines().find(|line| line.starts_with("X-Injected"));
            assert_eq!(line, None, "{path}: {said}");
            assert!(!said.contains("injected: yes"), "{path}: {said}");
            assert!(said.starts_with("HTTP/1.1 "), "{path}: {said}");
        }
    });
}

#[test]
fn expressions_give_up() {
    const EVIL: &str = "^/?(?:[a-z]+/)?(a+)+$";
    let site = site(&format!(
        r#"
        map $arg_m $mapped {{ default none; "~{EVIL}" some; }}
        server {{
            listen 127.0.0.1:%%PORT%%;
            location /if {{ if ($arg_m ~ "{EVIL}") {{ return 200; }} return 204; }}
            location /not {{ if ($arg_m !~ "{EVIL}") {{ return 200; }} return 204; }}
            location /rewrite/ {{ rewrite "{EVIL}" /done break; return 204; }}
            location /map {{ return 200 $mapped; }}
            location ^~ /good {{ return 200 good; }}
            location ~ "{EVIL}" {{ return 200; }}
        }}
        server {{
            listen 127.0.0.1:%%PORT%%;
            server_name "~^(a+)+$";
            return 200 named;
        }}
        "#
    ))
    .allow_log("effort limit reached");
    on_each_driver(&site, |server| {
        let long = format!("{}b0", "a".repeat(60));
        for (target, status) in [
            (format!("/if?m={long}"), 500),
            (format!("/not?m={long}"), 500),
            (format!("/rewrite/{long}"), 500),
            (format!("/{long}"), 500),
            ("/good".to_owned(), 200),
            ("/if?m=aaa".to_owned(), 200),
        ] {
            assert_eq!(server.get(&target).status, status, "{target}");
        }
        // A map takes its default, as for anything that does not match.
        assert_eq!(server.get(&format!("/map?m={long}")).text(), "none");
        assert_eq!(server.get("/map?m=aaa").text(), "some");
        let mut client = server.client();
        client.send(format!("GET / HTTP/1.1\r\nHost: {long}\r\n\r\n"));
        assert_ne!(client.response().text(), "named");
        server.wait_log("effort limit reached");
    });
}

#[test]
fn only_those_who_are_trusted_speak_for_others() {
    let site = site(
        "server {
             listen 127.0.0.1:%%PORT%% proxy_protocol;
             set_real_ip_from 192.0.2.0/24;
             real_ip_header proxy_protocol;
             allow 198.51.100.1;
             deny all;
         }
         server {
             listen 127.0.0.1:%%PORT_1%%;
             set_real_ip_from 192.0.2.0/24;
             real_ip_header X-Forwarded-For;
             real_ip_recursive on;
             allow 198.51.100.1;
             deny all;
         }",
    )
    .allow_log("access forbidden by rule");
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send("PROXY TCP4 198.51.100.1 192.0.2.1 1 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().status, 403);
        let mut client = nowait_testkit::Client::to_port(server.port_n(1));
        client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.1\r\n\r\n");
        assert_eq!(client.response().status, 403);
        // Without the directive the header of the PROXY protocol is no valid request.
        let mut client = nowait_testkit::Client::to_port(server.port_n(1));
        client.send("PROXY TCP4 198.51.100.1 192.0.2.1 1 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().status, 400);
    });
}

#[test]
fn a_bomb_of_an_upstream_is_taken_piece_by_piece() {
    // A megabyte, 64 times.
    let member = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&vec![0; 1 << 20]).unwrap();
        encoder.finish().unwrap()
    };
    let site = site(
        "server {
             listen 127.0.0.1:%%PORT%%;
             location / { proxy_pass http://127.0.0.1:%%PORT_1%%; gunzip on; sub_filter a b; sub_filter_types *; }
         }
         server { listen 127.0.0.1:%%PORT_1%%; root %%DIR%%/html; gzip_static always; }",
    )
    .file("html/bomb.gz", member.repeat(64))
    .file("html/small", "small");
    on_each_driver(&site, |server| {
        let mut slow = server.client();
        slow.send_get("/bomb");
        assert!(!slow.read_some(1000).is_empty());
        // Nothing else waits for it, and it is not made faster than it is taken.
        assert_eq!(ask(server, "/none", &[]).status, 404);
        // The program itself is locked in memory, and does not count.
        let resident = |pid: u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
            line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0)
        };
        for pid in server.children() {
            assert!(resident(pid) < 48 * 1024, "{} kB", resident(pid));
        }
        drop(slow);
    });
}
