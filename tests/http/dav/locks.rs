//! LOCK, UNLOCK, and what locks forbid.

use nowait_testkit::{Response, Server, ServerBuilder};

use super::{put, request, status, www};
use crate::stage::on_each_driver;

fn site(zone: &str) -> ServerBuilder {
    crate::stage::site(&format!(
        "dav_ext_lock_zone {zone};
         server {{
             listen 127.0.0.1:%%PORT%%;
             root %%DIR%%/html;
             dav_methods PUT DELETE MKCOL COPY MOVE;
             dav_ext_methods PROPFIND PROPPATCH OPTIONS LOCK UNLOCK;
             dav_ext_lock zone=locks;
             location /alias/ {{ alias %%DIR%%/html/; }}
         }}"
    ))
    .file("html/.keep", "")
    .allow_log("failed (")
}

fn body(scope: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?><D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:{scope}/></D:lockscope>\
         <D:locktype><D:write/></D:locktype><D:owner>me &amp; you</D:owner></D:lockinfo>"
    )
}

#[track_caller]
fn lock(server: &Server, target: &str, scope: &str, lines: &[&str]) -> Response {
    request(server, "LOCK", target, lines, body(scope))
}

/// The token of a new lock, in angle brackets.
#[track_caller]
fn token(response: &Response) -> String {
    assert!(matches!(response.status, 200 | 201), "{response}");
    response.header("Lock-Token").expect("a token").to_owned()
}

#[test]
fn locked_files_are_changed_by_those_who_know_the_token() {
    on_each_driver(&site("zone=locks:64k timeout=1h"), |server| {
        let www = www(server);
        assert_eq!(put(server, "/a", "1"), 201);
        let locked = lock(server, "/a", "exclusive", &["Depth: 0", "Timeout: Second-100"]);
        let token = token(&locked);
        let text = locked.text();
        for part in [
            "<D:exclusive/>",
            "<D:depth>0</D:depth>",
            "<D:owner>me &amp; you</D:owner>",
            "<D:timeout>Second-",
            "<D:lockroot><D:href>/a</D:href></D:lockroot>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let found = request(server, "PROPFIND", "/a", &["Depth: 0"], "").text();
        assert!(found.contains("<D:activelock>") && found.contains(&token[1..10]), "{found}");

        let refused = request(server, "PUT", "/a", &[], "2");
        assert_eq!(refused.status, 423);
        assert!(refused.text().contains("<D:lock-token-submitted><D:href>/a<"), "{refused}");
        // All URIs of a file have the same locks.
        assert_eq!(put(server, "/alias/a", "2"), 423);
        assert_eq!(lock(server, "/a", "exclusive", &[]).status, 423);
        assert_eq!(lock(server, "/a", "shared", &[]).status, 423);
        assert_eq!(lock(server, "/", "exclusive", &[]).status, 423);
        assert_eq!(put(server, "/b", "1"), 201);
        for (method, target, lines) in [
            ("DELETE", "/a", &[][..]),
            ("MOVE", "/a", &["Destination: /c"]),
            ("COPY", "/b", &["Destination: /a"]),
            ("MOVE", "/b", &["Destination: /a"]),
        ] {
            assert_eq!(status(server, method, target, lines), 423, "{method} {target}");
        }
        assert_eq!(std::fs::read(www.join("a")).unwrap(), b"1");
        assert_eq!(status(server, "COPY", "/a", &["Destination: /c"]), 201);

        let tag = server.get("/a").header("ETag").unwrap().to_owned();
        for (condition, expected) in [
            (format!("({token} [{tag}])"), 204),
            (format!("({token} [\"other\"])"), 412),
            (format!("({token})"), 204),
            (format!("(Not <DAV:no-lock>) ({token})"), 204),
            ("(<urn:uuid:00000000-0000-4000-8000-000000000000>)".to_owned(), 412),
            ("(Not <DAV:no-lock>)".to_owned(), 423),
            (format!("</b> ({token})"), 412),
            (format!("</a> ({token})"), 204),
            (format!("<http://localhost/a> ({token})"), 204),
            (format!("<http://other/a> ({token})"), 412),
            ("(".to_owned(), 400),
        ] {
            let line = format!("If: {condition}");
            let time = "Date: Thu, 01 Jan 2026 00:00:00 GMT";
            let response = request(server, "PUT", "/a", &[&line, time], "1");
            assert_eq!(response.status, expected, "{condition}");
        }

        let refreshed = request(server, "LOCK", "/a", &[&format!("If: ({token})")], "");
        assert_eq!(refreshed.status, 200);
        assert_eq!(request(server, "LOCK", "/b", &[&format!("If: ({token})")], "").status, 412);
        assert_eq!(request(server, "LOCK", "/a", &[], "").status, 412);
        let line = format!("Lock-Token: {token}");
        assert_eq!(status(server, "UNLOCK", "/b", &[&line]), 409);
        assert_eq!(status(server, "UNLOCK", "/a", &[]), 400);
        assert_eq!(status(server, "UNLOCK", "/a", &["Lock-Token: <x>"]), 409);
        assert_eq!(status(server, "UNLOCK", "/a", &[&line]), 204);
        assert_eq!(put(server, "/a", "2"), 204);
        let options = request(server, "OPTIONS", "/", &[], "");
        assert_eq!(options.header("DAV"), Some("1, 2"));
    });
}

#[test]
fn locks_on_directories() {
    on_each_driver(&site("zone=locks:64k"), |server| {
        let www = www(server);
        for path in ["/d/", "/d/e/"] {
            assert_eq!(status(server, "MKCOL", path, &[]), 201);
        }
        // Of depth 0: names in it can't be added or removed, but what is there can be changed.
        assert_eq!(put(server, "/d/a", "1"), 201);
        let outer = token(&lock(server, "/d/", "exclusive", &["Depth: 0"]));
        assert_eq!(put(server, "/d/a", "2"), 204);
        assert_eq!(put(server, "/d/b", "2"), 423);
        assert_eq!(status(server, "MKCOL", "/d/f/", &[]), 423);
        assert_eq!(status(server, "DELETE", "/d/a", &[]), 423);
        assert_eq!(put(server, "/d/e/b", "2"), 201);
        let condition = format!("If: </d/> ({outer})");
        assert_eq!(request(server, "PUT", "/d/b", &[&condition], "2").status, 201);
        // A tree is removed with the tokens of all locks in it.
        let inner = token(&lock(server, "/d/e/b", "exclusive", &[]));
        assert_eq!(status(server, "DELETE", "/d/", &[&condition]), 423);
        let both = format!("If: </d/> ({outer}) </d/e/b> ({inner})");
        assert_eq!(status(server, "MOVE", "/d/", &["Destination: /g/", &both]), 201);
        // The locks did not move.
        assert_eq!(put(server, "/g/e/b", "3"), 204);
        assert_eq!(status(server, "MKCOL", "/d/", &[]), 201);
        assert_eq!(put(server, "/d/a", "1"), 201);
        // Of depth infinity.
        let whole = token(&lock(server, "/g/", "exclusive", &[]));
        assert_eq!(put(server, "/g/e/b", "4"), 423);
        assert_eq!(lock(server, "/g/e/b", "shared", &[]).status, 423);
        assert_eq!(request(server, "LOCK", "/g/e/b", &[&format!("If: ({whole})")], "").status, 200);
        let line = format!("Lock-Token: {whole}");
        assert_eq!(status(server, "UNLOCK", "/g/e/b", &[&line]), 204);
        // Shared ones.
        let first = token(&lock(server, "/g/a", "shared", &[]));
        let second = token(&lock(server, "/g/a", "shared", &[]));
        assert_ne!(first, second);
        assert_eq!(lock(server, "/g/a", "exclusive", &[]).status, 423);
        assert_eq!(put(server, "/g/a", "x"), 423);
        let condition = format!("If: ({second})");
        assert_eq!(request(server, "PUT", "/g/a", &[&condition], "x").status, 204);
        // What is missing is created.
        assert_eq!(lock(server, "/new", "exclusive", &[]).status, 201);
        assert_eq!(std::fs::read(www.join("new")).unwrap(), b"");
        assert_eq!(lock(server, "/none/new", "exclusive", &[]).status, 409);
        assert_eq!(lock(server, "/none/", "exclusive", &[]).status, 409);
        assert_eq!(lock(server, "/new", "exclusive", &["Depth: 1"]).status, 400);
        assert_eq!(request(server, "LOCK", "/new", &[], "<x/>").status, 400);
    });
}

/// A client that locks everything it can does not cost more than the zone, and not for ever.
#[test]
fn zones_are_bounded_and_outlive_reloads() {
    on_each_driver(&site("zone=locks:32k timeout=1h"), |server| {
        www(server);
        let mut taken = Vec::new();
        let refused = loop {
            let target = format!("/{}", taken.len());
            let response = lock(server, &target, "exclusive", &[]);
            if response.status != 201 {
                break response.status;
            }
            taken.push(token(&response));
            assert!(taken.len() < 1000);
        };
        assert_eq!(refused, 507);
        assert!(taken.len() > 30, "{}", taken.len());
        server.wait_log("lock zone \"locks\" is full");
        server.reload();
        assert_eq!(put(server, "/0", "1"), 423);
        assert_eq!(status(server, "UNLOCK", "/0", &[&format!("Lock-Token: {}", taken[0])]), 204);
        assert_eq!(put(server, "/0", "1"), 204);
        assert_eq!(lock(server, "/0", "exclusive", &["Timeout: Second-1"]).status, 200);
        nowait_testkit::wait::until("the lock to expire", nowait_testkit::wait::PATIENCE, || {
            (put(server, "/0", "1") == 204).then_some(())
        });
    });
}
