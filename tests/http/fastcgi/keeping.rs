//! What is kept: connections, responses in a cache, responses as files.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use nowait_testkit::origin::Step;

use super::{ASKED, FastCgiRequest, answer, on_each, whole};
use crate::stage::{ask, wait_file};

/// A script that answers several requests on one connection.
fn answers(responses: &[&str]) -> Vec<Step> {
    let steps = responses.iter().flat_map(|text| [Step::expect(ASKED), Step::reply(whole(text))]);
    steps.chain([Step::Closed]).collect()
}

#[test]
fn connections_are_kept() {
    let two = || vec![answers(&["A: b\r\n\r\none", "Content-Length: 3\r\n\r\ntwo"])];
    on_each(two, "fastcgi_keep_conn on;", |server, origin| {
        let mut client = server.client();
        assert_eq!(client.get("/1").text(), "one");
        assert_eq!(client.get("/2").text(), "two");
        let asked = FastCgiRequest::all(&origin.received()[0]);
        assert!(asked.len() == 2 && asked.iter().all(|one| one.keep));
    });
}

/// A response to HEAD may have content, which is no part of the next response.
#[test]
fn a_kept_connection_after_a_head() {
    let two = || vec![answers(&["Content-Length: 3\r\n\r\none", "A: b\r\n\r\ntwo"])];
    on_each(two, "fastcgi_keep_conn on;", |server, _| {
        let mut client = server.client();
        client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response_to_head().header("content-length"), Some("3"));
        assert_eq!(client.get("/2").text(), "two");
    });
}

/// Excess bytes of a server belong to no response.
#[test]
fn a_connection_with_leftovers_is_not_kept() {
    let first = || {
        let too_much = [whole("A: b\r\n\r\none"), whole("A: b\r\n\r\nevil")].concat();
        vec![Step::expect(ASKED), Step::reply(too_much), Step::Closed]
    };
    let scripts = || vec![first(), answer(whole("A: b\r\n\r\ntwo"))];
    on_each(scripts, "fastcgi_keep_conn on;", |server, _| {
        let mut client = server.client();
        assert_eq!(client.get("/1").text(), "one");
        assert_eq!(client.get("/2").text(), "two");
    });
}

#[test]
fn responses_are_cached() {
    let conf = "fastcgi_cache z; fastcgi_cache_key $request_uri; fastcgi_cache_valid 1m;
                fastcgi_param REQUEST_METHOD $request_method;
                add_header X-Cache $upstream_cache_status always;";
    let script = || vec![answer(whole("Content-Type: a/b\r\nETag: \"e\"\r\n\r\nbody"))];
    on_each(script, conf, |server, origin| {
        let fields = ["If-None-Match: \"x\"", "Range: bytes=0-1", "X-Own: 1"];
        let response = ask(server, "/", &fields);
        assert_eq!(response.header("x-cache"), Some("MISS"));
        let asked = super::asked(origin);
        assert_eq!(asked.param("HTTP_IF_NONE_MATCH"), None);
        assert_eq!((asked.param("HTTP_RANGE"), asked.param("HTTP_X_OWN")), (None, Some("1")));
        let response = server.get("/");
        assert_eq!((response.header("x-cache"), response.text()), (Some("HIT"), "body".to_owned()));
        assert_eq!(ask(server, "/", &["If-None-Match: \"e\""]).status, 304);
    });
}

/// A HEAD fills the cache with the response to a GET, and the application must know.
#[test]
fn a_head_is_a_get_for_a_cache() {
    let conf = "fastcgi_cache z; fastcgi_cache_key $request_uri; fastcgi_cache_valid 1m;
                fastcgi_param REQUEST_METHOD $request_method;";
    on_each(
        || vec![answer(whole("A: b\r\n\r\nbody"))],
        conf,
        |server, origin| {
            if server.binary().is_nginx() {
                server.get("/");
                return;
            }
            let mut client = server.client();
            client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.response_to_head().status, 200);
            assert_eq!(super::asked(origin).param("REQUEST_METHOD"), Some("GET"));
            assert_eq!(server.get("/").text(), "body");
        },
    );
}

#[test]
fn stale_responses_are_revalidated_and_purged() {
    let conf = "fastcgi_cache z; fastcgi_cache_key $uri; fastcgi_cache_revalidate on;
                fastcgi_cache_purge $arg_purge; add_header X-Cache $upstream_cache_status always;";
    let scripts = || {
        let first = "Cache-Control: max-age=0, stale-while-revalidate=0\r\nX-Accel-Expires: @1\r\n\
                     ETag: \"e\"\r\n\r\nbody";
        let scripts = [first, "X-Accel-Expires: 60\r\nETag: \"e\"\r\n\r\nbody", "A: b\r\n\r\nnew"];
        scripts.into_iter().map(|text| answer(whole(text))).collect()
    };
    on_each(scripts, conf, |server, _| {
        if server.binary().is_nginx() {
            return;
        }
        server.get("/");
        assert_eq!(server.get("/").text(), "body");
        assert_eq!(server.get("/").header("x-cache"), Some("HIT"));
        assert_eq!(server.get("/?purge=1").status, 204);
        assert_eq!(server.get("/").text(), "new");
    });
}

#[test]
fn a_cache_without_a_key() {
    let conf = "fastcgi_cache z; fastcgi_cache_valid 1m;";
    let scripts = || vec![answer(whole("A: b\r\n\r\none")), answer(whole("A: b\r\n\r\ntwo"))];
    on_each(scripts, conf, |server, _| {
        server.allow_log("no \"fastcgi_cache_key\"");
        if server.binary().is_nginx() {
            return;
        }
        assert_eq!(server.get("/1").text(), "one");
        assert_eq!(server.get("/2").text(), "two");
        assert_eq!(server.get("/1").text(), "one");
        assert!(
            (server.log() + &server.stderr())
                .contains("no \"fastcgi_cache_key\" for \"fastcgi_cache\"")
        );
    });
}

#[test]
fn responses_are_stored() {
    on_each(
        || vec![answer(whole("A: b\r\n\r\nbody"))],
        "fastcgi_store on;",
        |server, _| {
            // The workers may have another user than the test.
            let directory = server.dir().join("html");
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
            assert_eq!(server.get("/file").text(), "body");
            wait_file(server, "html/file", "body");
        },
    );
}
