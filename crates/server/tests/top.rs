//! `nowait top`: its text and its JSON of a running server, and what it says where there is none.

use std::process::Output;

use nowait_testkit::{Binary, Driver, Server};

fn top(arguments: &[&str]) -> Output {
    let mut command = Binary::nowait(env!("CARGO_BIN_EXE_nowait")).command();
    command.arg("top").args(arguments).output().unwrap()
}

/// The exit code, and what went to standard output and standard error.
fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn server() -> Server {
    Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait")))
        .driver(Driver::Epoll)
        .main("thread_pool media threads=3;")
        .http(
            "upstream app { server 127.0.0.1:9; }
            server {
                listen 127.0.0.1:%%PORT%%;
                status_zone www;
                location /status/ { status_api; }
                location /inside/ { auth_basic x; auth_basic_user_file %%DIR%%/users; status_api; }
                location /text { return 200 text; }
            }
            server {
                listen unix:%%DIR%%/status.sock;
                location /status/ { status_api; }
            }",
        )
        .file("users", "a:{PLAIN}b@c\n")
        .start()
}

#[test]
fn the_tables_of_a_server() {
    let server = server();
    let url = format!("http://127.0.0.1:{}/status/", server.port());
    let socket = format!("unix:{}:/status/", server.dir().join("status.sock").display());
    let inside = format!("http://a:b%40c@127.0.0.1:{}/inside/", server.port());
    for url in [url, socket, inside] {
        let (code, out, error) = said(&top(&["--once", "--interval", "0.2", &url]));
        assert_eq!((code, &*error), (Some(0), ""), "{out}");
        for part in [
            "Overview\n",
            "nothing calls for attention",
            "\nDisks\n",
            "\nPools\n",
            "  media       0        3        0",
            "\nZones\n",
            "  www   server",
            "\nCaches\n  there are no caches\n",
            "  127.0.0.1:9  app       up",
            "\nLoops\n",
            "epoll",
            "\nCertificates\n",
            "configuration 1 is in use",
        ] {
            assert!(out.contains(part), "{part:?} is not in\n{out}");
        }
    }
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn the_report_as_json() {
    let server = server();
    let url = format!("http://127.0.0.1:{}/status/", server.port());
    let (code, out, error) = said(&top(&["--json", &url]));
    assert_eq!((code, &*error), (Some(0), ""));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["generation"], 1);
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn errors_say_where_a_status_is_enabled() {
    let server = server();
    let port = server.port();
    for (target, expected) in [
        ("none", "there is no such page (404)"),
        ("text", "that page is not the one of status_api"),
        ("status/thread_pools", "only a part of a status"),
        ("inside/", "http://USER:PASSWORD@HOST/PATH/"),
    ] {
        let url = format!("http://127.0.0.1:{port}/{target}");
        let (code, out, error) = said(&top(&["--once", &url]));
        assert_eq!((code, &*out), (Some(2), ""), "{error}");
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert_eq!(server.stop().code(), Some(0));
    // Nobody listens there now.
    let (code, _, error) = said(&top(&["--json", &format!("http://127.0.0.1:{port}/status/")]));
    assert_eq!(code, Some(2));
    assert!(error.contains("no server listens there") && error.contains("status_api;"), "{error}");
    let (code, _, error) = said(&top(&["--once", "https://a/"]));
    assert_eq!(code, Some(2));
    assert!(error.contains("https is not supported"), "{error}");
    let (code, _, error) = said(&top(&["--interval", "0", "--once"]));
    assert_eq!(code, Some(2));
    assert!(error.contains("0.2 to 60"), "{error}");
    // Standard output is no terminal here.
    let (code, _, error) = said(&top(&[]));
    assert_eq!(code, Some(2));
    assert!(error.contains("--once prints the tables"), "{error}");
}
