//! COPY and MOVE to other locations, and trees that reach into them.

use std::os::unix::fs::symlink;

use nowait_testkit::ServerBuilder;
use nowait_testkit::http2::Http2;

use super::{put, request, status, www};
use crate::stage::on_each_driver;
use crate::transport::{self, AUTHORITY, TestRequest, Transport, on_each};

const ALL: &str = "dav_methods PUT DELETE MKCOL COPY MOVE;";

fn site() -> ServerBuilder {
    super::site(&format!(
        r#"
        http2 on;
        dav_access user:rw group:r all:r;
        location / {{ {ALL} }}
        location /denied/ {{ {ALL} deny all; }}
        location /password/ {{ {ALL} auth_basic x; auth_basic_user_file %%DIR%%/users; }}
        location /asked/ {{ {ALL} auth_request /auth; }}
        location = /auth {{
            internal;
            if ($request_uri !~ ^/asked/may) {{ return 403; }}
            if ($request_method != PUT) {{ return 403; }}
            return 204;
        }}
        location /internal/ {{ {ALL} internal; }}
        location /read/ {{ }}
        location /put/ {{ dav_methods PUT; }}
        location /own/ {{ dav_methods COPY MOVE; limit_except GET COPY MOVE {{ deny all; }} }}
        location /limited/ {{ {ALL} limit_except GET {{ deny all; }} }}
        location /redirected/ {{ return 301 /; }}
        location /forged/ {{ return 204; }}
        location /moved/ {{ rewrite ^/moved/(.*)$ /denied/$1 last; }}
        location /any/ {{ {ALL} satisfy any; allow 127.0.0.1; auth_basic x;
                          auth_basic_user_file %%DIR%%/users; }}
        location /else/ {{ alias %%DIR%%/html/elsewhere/; {ALL} }}
        location ~ [.]php$ {{ deny all; }}
        location /tree/closed/ {{ {ALL} deny all; }}
        location /target/closed/ {{ {ALL} deny all; }}
        "#
    ))
    .file("users", "me:{PLAIN}secret\n")
    .allow_log("access")
}

/// (destination, status of COPY, where a file is then)
const CASES: [(&str, u16, &str); 25] = [
    ("/x", 204, "x"),
    ("/denied/x", 403, "denied/x"),
    ("/password/x", 401, "password/x"),
    ("/asked/may", 204, "asked/may"),
    ("/asked/not", 403, "asked/not"),
    ("/internal/x", 404, "internal/x"),
    ("/auth", 404, "auth"),
    ("/read/x", 403, "read/x"),
    ("/put/x", 204, "put/x"),
    ("/own/x", 204, "own/x"),
    ("/limited/x", 403, "limited/x"),
    ("/redirected/x", 403, "redirected/x"),
    ("/forged/x", 403, "forged/x"),
    ("/moved/x", 403, "denied/x"),
    ("/any/x", 204, "any/x"),
    ("/else/x", 204, "elsewhere/x"),
    ("/x.php", 403, "x.php"),
    ("/%64enied/x", 403, "denied/x"),
    ("//denied/x", 403, "denied/x"),
    ("/./denied/x", 403, "denied/x"),
    ("/%2e/denied/x", 403, "denied/x"),
    ("/%2fdenied/x", 403, "denied/x"),
    ("/put/../denied/x", 400, "denied/x"),
    ("http://localhost/denied/x", 403, "denied/x"),
    ("HTTPS://LOCALHOST/put/y", 204, "put/y"),
];

const DIRECTORIES: [&str; 12] = [
    "denied",
    "password",
    "asked",
    "internal",
    "read",
    "put",
    "own",
    "limited",
    "redirected",
    "forged",
    "any",
    "elsewhere",
];

#[test]
fn a_destination_has_the_rules_of_its_location() {
    on_each_driver(&site(), |server| {
        let www = www(server);
        for name in DIRECTORIES {
            super::open_to_all(&www.join(name));
        }
        for method in ["COPY", "MOVE"] {
            for (destination, expected, path) in CASES {
                assert_eq!(put(server, "/a", "content") / 100, 2);
                let _ = std::fs::remove_file(www.join(path));
                let line = format!("Destination: {destination}");
                let response = request(server, method, "/a", &[&line], "");
                assert_eq!(response.status, expected, "{method} {destination}");
                let asks = response.header("WWW-Authenticate").is_some();
                assert_eq!(asks, expected == 401, "{response}");
                assert_eq!(www.join(path).is_file(), expected == 204, "{method} {destination}");
                let stays = method == "COPY" || expected != 204;
                assert_eq!(www.join("a").is_file(), stays, "{method} {destination}");
            }
        }
        // With the password, and by PUT, which has the same rules.
        let lines = ["Destination: /password/x", "Authorization: Basic bWU6c2VjcmV0"];
        assert_eq!(put(server, "/a", "content") / 100, 2);
        assert_eq!(status(server, "COPY", "/a", &lines), 204);
        assert_eq!(put(server, "/limited/x", "1"), 403);
        let mut client = Http2::to_port(server.port());
        for (destination, expected) in [("/put/z", 204), ("/denied/z", 403)] {
            let stream = client.open("COPY", "/a", &[("destination", destination)], true);
            assert_eq!(client.response(stream).status, expected, "{destination}");
        }
        assert!(www.join("put/z").is_file() && !www.join("denied/z").exists());
    });
}

/// What the rules of a destination see of the client is the connection of the request, no matter what it is.
#[test]
fn a_destination_has_its_rules_over_each_transport() {
    let site = transport::site(&format!(
        "map $ssl_client_verify $unverified {{ default 1; SUCCESS ''; }}
         server {{
             %%LISTEN%%
             server_name localhost;
             root %%DIR%%/html;
             ssl_verify_client optional;
             ssl_client_certificate ca.pem;
             location / {{ {ALL} }}
             location /denied/ {{ {ALL} deny all; }}
             location /verified/ {{ {ALL} if ($unverified) {{ return 403; }} }}
             location /asked/ {{ {ALL} auth_request /auth; }}
             location = /auth {{ internal; if ($unverified) {{ return 403; }} return 204; }}
             location /secure/ {{ {ALL} if ($scheme != https) {{ return 403; }} }}
             location /second/ {{ {ALL} if ($server_protocol != HTTP/2.0) {{ return 403; }} }}
         }}"
    ))
    .file("html/.keep", "")
    .allow_log("access");
    let own = AUTHORITY.issue("client");
    on_each(&Transport::ALL, &site, |server, transport| {
        let www = www(server);
        for name in ["denied", "verified", "asked", "secure", "second"] {
            super::open_to_all(&www.join(name));
        }
        for own in [None, Some(&own)] {
            let verified = own.is_some() && transport.is_secure();
            for (place, allowed) in [
                ("", true),
                ("denied/", false),
                ("verified/", verified),
                ("asked/", verified),
                ("secure/", transport.is_secure()),
                ("second/", transport.is_http2()),
            ] {
                for start in ["", "http://localhost", "https://localhost", "https://localhost:8443"]
                {
                    for method in ["COPY", "MOVE"] {
                        let destination = format!("{start}/{place}x");
                        let fields = [("destination", &*destination)];
                        let ask = |method, target, fields, content| {
                            let request = TestRequest {
                                method,
                                target,
                                fields,
                                content,
                                own,
                                ..TestRequest::default()
                            };
                            transport.ask(server, &request).status
                        };
                        assert_eq!(ask("PUT", "/a", &[], &b"content"[..]) / 100, 2);
                        let _ = std::fs::remove_file(www.join(place).join("x"));
                        let status = ask(method, "/a", &fields, b"");
                        let expected = if allowed { 204 } else { 403 };
                        assert_eq!(status, expected, "{method} {destination}, {verified}");
                        assert_eq!(www.join(place).join("x").is_file(), allowed);
                        assert_eq!(www.join("a").is_file(), method == "COPY" || !allowed);
                    }
                }
            }
        }
    });
}

/// What a location below a directory forbids is not read, removed or written by way of the directory.
#[test]
fn trees_respect_the_locations_below() {
    on_each_driver(&site(), |server| {
        let www = www(server);
        let make = || {
            for name in ["tree", "tree/closed", "plain", "plain/closed", "target"] {
                super::open_to_all(&www.join(name));
            }
            std::fs::write(www.join("tree/closed/secret"), "x").unwrap();
            std::fs::write(www.join("plain/closed/file"), "x").unwrap();
        };
        make();
        for (method, target, lines, expected) in [
            ("COPY", "/tree/", &["Destination: /copied/"][..], 403),
            ("MOVE", "/tree/", &["Destination: /copied/"], 403),
            ("DELETE", "/tree/", &[], 403),
            ("COPY", "/plain/", &["Destination: /target/"], 403),
            ("COPY", "/plain/", &["Destination: /copied/"], 201),
            ("COPY", "/tree/", &["Destination: /empty/", "Depth: 0"], 201),
        ] {
            assert_eq!(status(server, method, target, lines), expected, "{method} {target}");
            assert!(www.join("tree/closed/secret").is_file(), "{method}");
        }
        // Without anything there, no rule is broken.
        std::fs::remove_dir_all(www.join("tree/closed")).unwrap();
        assert_eq!(status(server, "DELETE", "/tree/", &[]), 204);
    });
}

/// A lock is on a file, regardless of the links by which requests come to it.
#[test]
fn locks_are_seen_through_linked_directories() {
    let site = crate::stage::site(
        "dav_ext_lock_zone zone=locks:64k;
         server {
             listen 127.0.0.1:%%PORT%%;
             root %%DIR%%/html;
             dav_methods PUT DELETE MKCOL COPY MOVE;
             dav_ext_methods PROPFIND LOCK UNLOCK;
             dav_ext_lock zone=locks;
         }",
    )
    .file("html/.keep", "")
    .allow_log("failed (");
    on_each_driver(&site, |server| {
        let www = www(server);
        super::open_to_all(&www.join("real/deep"));
        super::open_to_all(&www.join("real"));
        symlink("real", www.join("link")).unwrap();
        symlink("link/deep", www.join("link2")).unwrap();
        assert_eq!(put(server, "/real/deep/a", "1"), 201);
        let lock = |target: &str| {
            let body = "<D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:exclusive/></D:lockscope>\
                        <D:locktype><D:write/></D:locktype></D:lockinfo>";
            let response = request(server, "LOCK", target, &[], body);
            (response.status, response.header("Lock-Token").unwrap_or_default().to_owned())
        };
        // The file, by one way; the directory, by its link.
        for locked in ["/link/deep/a", "/real/deep/a", "/link2/a", "/link2", "/link", "/real/deep"]
        {
            let (status_of_lock, token) = lock(locked);
            assert_eq!(status_of_lock, 200, "{locked}");
            for path in ["/real/deep/a", "/link/deep/a", "/link2/a"] {
                assert_eq!(put(server, path, "2"), 423, "{locked} {path}");
                assert_eq!(status(server, "DELETE", path, &[]), 423, "{locked} {path}");
                let found = request(server, "PROPFIND", path, &["Depth: 0"], "").text();
                assert!(found.contains("activelock"), "{locked} {path} {found}");
                let line = format!("If: ({token})");
                assert_eq!(request(server, "PUT", path, &[&line], "1").status, 204, "{path}");
            }
            assert_eq!(lock("/real/deep/a").0, 423);
            let line = format!("Lock-Token: {token}");
            assert_eq!(status(server, "UNLOCK", "/real/deep/a", &[&line]), 204, "{locked}");
        }
        assert_eq!(put(server, "/link2/a", "3"), 204);
    });
}
