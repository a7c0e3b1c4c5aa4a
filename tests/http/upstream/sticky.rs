//! `sticky`: requests that are bound to a server.

use super::{group, letters};
use crate::stage::{ask, on_each_driver};

#[test]
fn a_cookie_binds() {
    let block = "server A route=one; server B route=two; server C; \
                 sticky cookie srv expires=1h domain=.example.com httponly secure path=/ samesite=lax;";
    on_each_driver(&group(block, ""), |server| {
        let first = ask(server, "/", &[]);
        let cookie = first.header("set-cookie").unwrap();
        let (start, rest) = cookie.split_once("; expires=").unwrap();
        assert_eq!((first.text().as_str(), start), ("a", "srv=one"));
        let (_, rest) = rest.split_once("; max-age=").unwrap();
        let attributes = "3600; domain=.example.com; httponly; secure; samesite=lax; path=/";
        assert_eq!(rest, attributes);
        assert_eq!(letters(server, 3, "/", &["Cookie: srv=two"]), "bbb");
        // An unknown one leads anywhere, and is replaced.
        let lost = ask(server, "/", &["Cookie: srv=none"]);
        assert!(lost.header("set-cookie").unwrap().starts_with("srv="));
        // Servers without a route go by a hash of their address.
        let third = (0..3).map(|_| ask(server, "/", &[])).find(|r| r.text() == "c").unwrap();
        let cookie = third.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        assert_eq!(cookie.len(), "srv=".len() + 32);
        assert_eq!(letters(server, 3, "/", &[&format!("Cookie: {cookie}")]), "ccc");
    });
}

#[test]
fn the_cookie_comes_with_errors_too() {
    let block = "server DEAD route=dead; sticky cookie srv;";
    on_each_driver(&group(block, ""), |server| {
        let response = ask(server, "/", &[]);
        assert_eq!((response.status, response.header("set-cookie")), (502, Some("srv=dead")));
    });
}

#[test]
fn a_route_binds() {
    let block = "server A route=one; server B route=two; sticky route $arg_r $http_x_route;";
    on_each_driver(&group(block, ""), |server| {
        assert_eq!(letters(server, 3, "/?r=two", &["X-Route: one"]), "bbb");
        assert_eq!(letters(server, 3, "/", &["X-Route: one"]), "aaa");
        assert!(ask(server, "/?r=two", &[]).header("set-cookie").is_none());
    });
}

#[test]
fn sessions_are_learnt() {
    let block = "server A; server B; \
                 sticky learn create=$upstream_http_x_seen lookup=$arg_s zone=s:64k;";
    for header in ["", " header"] {
        let block = block.replace(":64k", &format!(":64k{header}"));
        let more = "proxy_set_header X-Name $http_x_name;";
        on_each_driver(&group(&block, more), |server| {
            // Both servers create a session.
            let first = letters(server, 1, "/", &["X-Name: first"]);
            let second = letters(server, 1, "/", &["X-Name: second"]);
            assert_ne!(first, second);
            assert_eq!(letters(server, 3, "/?s=first", &[]), first.repeat(3));
            assert_eq!(letters(server, 3, "/?s=second", &[]), second.repeat(3));
            // A reload forgets none.
            server.reload();
            assert_eq!(letters(server, 3, "/?s=second", &[]), second.repeat(3));
        });
    }
}

#[test]
fn a_draining_server_serves_its_own_only() {
    let block = "server A route=one drain; server B; sticky route $arg_r;";
    on_each_driver(&group(block, ""), |server| {
        assert_eq!(letters(server, 3, "/", &[]), "bbb");
        assert_eq!(letters(server, 3, "/?r=one", &[]), "aaa");
    });
}
