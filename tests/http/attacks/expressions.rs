//! Requests whose URIs, names and fields mean one thing to the configuration and another to what is served.

use std::fmt::Write as _;

use nowait_testkit::http2::Http2;
use nowait_testkit::origin::Step;
use nowait_testkit::{Client, Driver, Origin};

use crate::fastcgi::{self, FastCgiRequest};
use crate::stage::{ask, on_each_driver, server, site};

/// CVE-2026-9256: captures that overlap, and grow when they are escaped.
#[test]
fn captures_that_overlap() {
    let site = server(
        "location /redirect/ { rewrite ^/redirect/((.*))$ http://x.test/$1$2 redirect; }
         location /args/ { rewrite ^/args/((.*))$ http://x.test/?$1$2; }
         location /inside/ { rewrite ^/inside/((.*))$ /shown?$1$2; }
         location /shown { return 200 $args; }",
    );
    on_each_driver(&site, |server| {
        for length in [1, 30, 2000] {
            let sent = "+".repeat(length);
            // In arguments, plus signs are escaped.
            let escaped = "%2B".repeat(2 * length);
            let location = |path: &str| {
                let response = ask(server, &format!("{path}{sent}"), &[]);
                assert_eq!(response.status, 302);
                response.header("location").expect("a redirect").to_owned()
            };
            let target = location("/redirect/");
            let whole = format!("http://x.test/{}", "+".repeat(2 * length));
            assert!(target == whole || target == format!("http://x.test/{escaped}"), "{target}");
            assert_eq!(location("/args/"), format!("http://x.test/?{escaped}"));
            assert_eq!(ask(server, &format!("/inside/{sent}"), &[]).text(), escaped);
        }
    });
}

/// CVE-2026-42945: arguments of a replacement do not change what captures are afterwards.
#[test]
fn captures_after_a_replacement_with_arguments() {
    let site = server(
        "location / { rewrite ^(.*) /new?c=1; set $mine $1; return 200 $mine; }
         location /if/ { rewrite ^(.*) /other?c=1; if ($uri ~ ^(.*)$) { return 200 \"$1\"; } }",
    );
    on_each_driver(&site, |server| {
        let sent = "+%20%25&%3F".repeat(400);
        let text = "+ %&?".repeat(400);
        assert_eq!(ask(server, &format!("/{sent}"), &[]).text(), format!("/{text}"));
        assert_eq!(ask(server, &format!("/if/{sent}"), &[]).text(), "/other");
    });
}

/// CVE-2026-42533: a variable of a text changes another one of the same text while the text is made.
#[test]
fn variables_that_change_each_other() {
    let site = site(
        "map $uri $plain { ~(?<capture>.*) $capture; }
         map prefix:$capture $volatile { volatile; ~(?<capture>.*) $capture; }
         log_format both '[$capture][$volatile][$plain][$capture]';
         server {
             listen 127.0.0.1:%%PORT%%; access_log %%DIR%%/both.log both;
             location /plain { set $capture ''; set $temp \"$capture $plain\"; return 200 \"$temp\"; }
             location /volatile {
                 set $capture ''; set $temp \"$volatile$volatile\"; return 200 \"$temp\";
             }
             location /header {
                 set $capture ''; add_header X-A \"$capture$plain$volatile\"; return 204;
             }
             location /proxied {
                 set $capture ''; proxy_set_header X-A \"$capture$plain$volatile$capture\";
                 proxy_pass http://127.0.0.1:%%PORT%%/shown?$capture$volatile;
             }
             location /shown { return 200 $http_x_a; }
             location /tried { set $capture ''; root %%DIR%%; try_files $capture$plain$volatile =404; }
         }",
    );
    on_each_driver(&site, |server| {
        for length in [1, 100, 1000] {
            let rest = "a".repeat(length);
            let path = format!("/plain/{rest}");
            let text = ask(server, &path, &[]).text();
            assert!([format!(" {path}"), format!("{path} {path}")].contains(&text), "{text}");
            let text = ask(server, &format!("/volatile/{rest}"), &[]).text();
            // It grows by its prefix with each evaluation, or not at all.
            assert!(text.replace("prefix:", "").is_empty() && text.len() < 100, "{text}");
            assert_eq!(ask(server, &format!("/header/{rest}"), &[]).status, 204);
            assert_eq!(ask(server, &format!("/proxied/{rest}"), &[]).status, 200);
            assert_eq!(ask(server, &format!("/tried/{rest}"), &[]).status, 404);
        }
        server.wait_file("both.log", "[/tried/aaa");
    });
}

/// CVE-2026-60005: captures of a location in subrequests that had none of their own.
#[test]
fn captures_in_slices() {
    let site = site(
        "map test $mapped { volatile; ~mismatch(.*) 1; default ''; }
         proxy_cache_path %%DIR%%/cache keys_zone=zone:1m;
         log_format seen '$http_range [$http_x_test]';
         server {
             listen 127.0.0.1:%%PORT%%; access_log off;
             location ~(.*) {
                 slice 50; proxy_cache zone; proxy_cache_key $uri$slice_range; proxy_cache_valid 1h;
                 proxy_set_header X-Test $mapped$1; proxy_set_header Range $slice_range;
                 proxy_http_version 1.1; proxy_pass http://127.0.0.1:%%PORT_1%%;
             }
         }
         server {
             listen 127.0.0.1:%%PORT_1%%; root %%DIR%%/html; access_log %%DIR%%/seen.log seen;
         }",
    )
    .file("html/file", crate::stage::pattern(200));
    on_each_driver(&site, |server| {
        assert_eq!(ask(server, "/file", &[]).body, crate::stage::pattern(200));
        let seen = server.wait_file("seen.log", "bytes=150-199");
        for line in seen.lines() {
            // What the expression of the location has found, or nothing.
            assert!(
                line.ends_with("[/file]") || line.ends_with("[]") || line.ends_with("[-]"),
                "{line}"
            );
        }
    });
}

/// CVE-2024-38475: a question mark in a path is no beginning of arguments, and cuts nothing off.
#[test]
fn question_marks_in_paths() {
    let site = server(
        "location /page/ { rewrite ^/page/(.*)$ /$1.html last; }
         location /tried/ { rewrite ^/tried/(.*)$ /$1 break; try_files $uri.html =404; }
         location /behind/ { rewrite ^/behind/(.*)$ /$1.html break; proxy_pass http://127.0.0.1:%%PORT_1%%; }
         } server { listen 127.0.0.1:%%PORT_1%%; location / { return 200 \"$uri|$args\"; }",
    )
    .file("html/secret", "SECRET")
    .file("html/a.html", "A");
    on_each_driver(&site, |server| {
        for path in ["/page/a", "/tried/a"] {
            assert_eq!(ask(server, path, &[]).text(), "A", "{path}");
        }
        for path in ["/page/secret%3f", "/tried/secret%3f", "/page/secret%23", "/page/secret%00"] {
            let status = ask(server, path, &[]).status;
            assert!(matches!(status, 400 | 404), "{path}: {status}");
        }
        assert_eq!(ask(server, "/behind/secret%3f", &[]).text(), "/secret?.html|");
    });
}

/// CVE-2026-27588: however many names there are, capitals make no other host.
#[test]
fn names_among_many_in_capitals() {
    let mut names = String::new();
    for n in 0..150 {
        let _ = write!(names, " host{n}.example");
    }
    let site = site(&format!(
        "server_names_hash_bucket_size 128;
         server {{ listen 127.0.0.1:%%PORT%%; return 200 default; }}
         server {{ listen 127.0.0.1:%%PORT%%; http2 on; server_name {names} *.wild.example ~^re\\d+$;
             deny all; }}"
    ));
    on_each_driver(&site, |server| {
        for host in [
            "host149.example",
            "HOST149.Example",
            "Host0.EXAMPLE.",
            "A.WILD.example",
            "RE1",
            "HOST7.EXAMPLE:80",
        ] {
            let mut client = server.client();
            client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(client.response().status, 403, "{host}");
            let mut client = server.client();
            client.send(format!("GET http://{host}/ HTTP/1.1\r\nHost: other\r\n\r\n"));
            assert_eq!(client.response().status, 403, "{host}");
        }
        server.allow_log("access forbidden by rule");
    });
}

/// CVE-2026-73511: parameters of path segments are no way around a location.
#[test]
fn parameters_of_path_segments() {
    let site = server(
        "location /admin { deny all; }
         location / { proxy_pass http://127.0.0.1:%%PORT_1%%; }
         } server { listen 127.0.0.1:%%PORT_1%%; location / { return 200 $request_uri; }",
    )
    .allow_log("access forbidden by rule");
    on_each_driver(&site, |server| {
        for path in
            ["/x;/../admin", "/x;y/%2e%2e/admin", "/admin;x", "/./admin;/", "//admin", "/%61dmin"]
        {
            assert_eq!(ask(server, path, &[]).status, 403, "{path}");
        }
        // The server behind sees what the client sent, and so what was decided upon.
        for path in ["/..;/admin", "/x/..;/admin", "/%2e%2e;/admin", "/x%2f..%2fadmin/.."] {
            let response = ask(server, path, &[]);
            let same = response.status == 200 && response.text() == path;
            assert!(same || response.status == 400 || response.status == 403, "{path}: {response}");
        }
    });
}

/// CVE-2026-26310: addresses with a zone.
#[test]
fn addresses_with_a_zone() {
    let site = site(
        "server {
             listen 127.0.0.1:%%PORT%%;
             set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For;
             location / { return 200 $remote_addr; }
         }
         server {
             listen 127.0.0.1:%%PORT_1%% proxy_protocol;
             set_real_ip_from 127.0.0.1; real_ip_header proxy_protocol;
             location / { return 200 $remote_addr; }
         }",
    );
    on_each_driver(&site, |server| {
        for host in ["[fe80::1%eth0]", "[fe80::1%25eth0]", "[fe80::1%]", "[::1"] {
            let mut client = server.client();
            client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(client.response().status, 400, "{host}");
        }
        for address in ["fe80::1%eth0", "[fe80::1%25eth0]:80", "fe80::1%", "%"] {
            let line = format!("X-Forwarded-For: {address}");
            assert_eq!(ask(server, "/", &[&line]).text(), "127.0.0.1", "{address}");
            let mut client = Client::to_port(server.port_n(1));
            client.send(format!(
                "PROXY TCP6 {address} ::1 1 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"
            ));
            match client.try_response(false) {
                Ok(response) => assert_ne!(response.status, 200, "{address}"),
                Err(_) => client.expect_closed(),
            }
        }
        assert_eq!(ask(server, "/", &["X-Forwarded-For: fe80::1"]).text(), "fe80::1");
    });
}

/// GHSA-f59h-q822-g45g: a field with an underscore is not the one that the configuration sets.
#[test]
fn fields_that_become_the_same_parameter() {
    let conf = "http2 on; location / {
        fastcgi_pass u; fastcgi_param HTTP_REMOTE_USER trusted if_not_empty;
    }";
    for driver in [Driver::Epoll, Driver::IoUring] {
        let answer = || {
            let head = fastcgi::record(6, "Status: 200\r\n\r\nok");
            vec![
                Step::expect(fastcgi::ASKED),
                Step::reply([head, fastcgi::end()].concat()),
                Step::HalfClose,
            ]
        };
        let origin = Origin::start([answer(), answer()]);
        let server = site(&format!(
            "upstream u {{ server {}; }} server {{ listen 127.0.0.1:%%PORT%%; {conf} }}",
            origin.addr()
        ));
        let server = server.driver(driver).start();
        let lines = ["Remote_User: admin", "X_Forwarded_For: 1.2.3.4"];
        assert_eq!(ask(&server, "/", &lines).status, 200);
        let mut client = Http2::to_port(server.port());
        let stream = client.open("GET", "/", &[("remote_user", "admin")], true);
        assert_eq!(client.response(stream).status, 200);
        for received in origin.received() {
            let asked = FastCgiRequest::all(&received).pop().expect("a request");
            assert_eq!(asked.param("HTTP_REMOTE_USER"), Some("trusted"));
            assert_eq!(asked.param("HTTP_X_FORWARDED_FOR"), None);
        }
        server.stop();
        origin.finish();
    }
}

/// Web cache deception and poisoning by paths: what two servers read differently is stored apart.
#[test]
fn paths_that_look_alike_are_stored_apart() {
    let site = site(
        "proxy_cache_path %%DIR%%/cache keys_zone=zone:1m;
         server {
             listen 127.0.0.1:%%PORT%%;
             location / {
                 proxy_pass http://127.0.0.1:%%PORT_1%%; proxy_cache zone; proxy_cache_valid 1h;
             }
         }
         server { listen 127.0.0.1:%%PORT_1%%;
             location / { return 200 $request_uri; }
             location /account { add_header Set-Cookie id=1; return 200 $request_uri; }
             location ~ private { add_header Cache-Control private; return 200 $request_id; }
         }",
    );
    on_each_driver(&site, |server| {
        for path in [
            "/a/b.css",
            "/a%2fb.css",
            "/a%2Fb.css",
            "/a//b.css",
            "/a/./b.css",
            "/a/x/../b.css",
            "/a;/b.css",
            "/a%3fb.css",
            "/a?b.css",
            "/a%23b.css",
            "/A/b.css",
            "/a/b.css?",
            "/a/b%2ecss",
            "/a%00b",
        ] {
            for _ in 0..2 {
                let response = ask(server, path, &[]);
                let same = response.status == 200 && response.text() == path;
                assert!(same || response.status == 400, "{path}: {response}");
            }
        }
        for path in ["/private.css", "/x/private;a.css", "/private%2f"] {
            assert_ne!(ask(server, path, &[]).text(), ask(server, path, &[]).text(), "{path}");
        }
        let cookie =
            |response: &nowait_testkit::Response| response.header("set-cookie").map(str::to_owned);
        assert!(cookie(&ask(server, "/account.css", &[])).is_some());
    });
}

/// CVE-2026-27590: letters whose other case has another length do not shift the name of a script.
#[test]
fn scripts_behind_letters_that_shrink() {
    let conf = "location / {
        fastcgi_pass ORIGIN; fastcgi_split_path_info ^(.+\\.php)(/.+)$;
        fastcgi_param SCRIPT $fastcgi_script_name; fastcgi_param INFO $fastcgi_path_info;
    }";
    let head = fastcgi::record(6, "Status: 200\r\n\r\nok");
    let reply = [head, fastcgi::end()].concat();
    let scripts = || vec![vec![Step::expect(fastcgi::ASKED), Step::reply(&reply), Step::HalfClose]];
    let http = format!("server {{ listen 127.0.0.1:%%PORT%%; {conf} }}");
    super::with_origin(scripts, &http, |server, origin| {
        // "Ⱥ" has two bytes, "ⱥ" has three.
        let letters = "%C8%BA".repeat(20);
        let target = format!("/{letters}/a.php/{letters}.txt");
        assert_eq!(ask(server, &target, &[]).text(), "ok");
        let asked = FastCgiRequest::all(&origin.received()[0]).pop().expect("a request");
        let letters = "Ⱥ".repeat(20);
        assert_eq!(asked.param("SCRIPT"), Some(&*format!("/{letters}/a.php")));
        assert_eq!(asked.param("INFO"), Some(&*format!("/{letters}.txt")));
    });
}

/// CVE-2026-73547: a request without a path is allowed or refused like any other.
#[test]
fn tunnels_ask_for_permission() {
    let site = server(
        "http2 on; tunnel_pass; auth_request /auth; location = /auth { auth_request off; return 403; }",
    );
    on_each_driver(&site.allow_log("tunnel"), |server| {
        let port = server.port();
        let mut client = server.client();
        client.send(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"));
        assert_eq!(client.response().status, 403);
        let mut client = Http2::to_port(port);
        let stream = client.connect_to(&format!("127.0.0.1:{port}"), &[]);
        assert_eq!(client.response(stream).status, 403);
        let stream = client.send_get("/");
        assert_eq!(client.response(stream).status, 403);
    });
}
