//! `proxy_store`: responses that become files.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use nowait_testkit::origin::Step;
use nowait_testkit::{Driver, Origin, check_on, wait};

use super::wire;
use crate::stage::{server, wait_file};

#[test]
fn responses_become_files() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let reply = |text: &str| [Step::expect("\r\n\r\n"), Step::reply(wire(text))];
        let origin = Origin::start([
            reply(
                "HTTP/1.1 200 OK\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\n\
                 Content-Length: 5\n\nhello",
            ),
            reply("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3\r\nabc\r\n0\r\n\r\n"),
            reply("HTTP/1.1 404 Not Found\nContent-Length: 2\n\nno"),
            reply("HTTP/1.1 200 OK\nContent-Length: 0\n\n"),
        ]);
        let address = origin.addr();
        let server = server(&format!(
            "location / {{ proxy_pass http://{address}; proxy_store on; \
             proxy_store_access user:rw group:r all:r; }}\n\
             location /path/ {{ proxy_pass http://{address}; proxy_store %%DIR%%/kept$uri; }}"
        ))
        .driver(driver)
        .start();
        // The workers may have another user than the test.
        for directory in ["html", "kept"] {
            let directory = server.dir().join(directory);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
        }
        check_on(&server, "GET /a/b HTTP/1.1\nHost: a", "200\n\nhello");
        wait_file(&server, "html/a/b", "hello");
        let meta = std::fs::metadata(server.dir().join("html/a/b")).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o644);
        let modified = meta.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(modified.as_secs(), 784_111_777);
        check_on(&server, "GET /path/x HTTP/1.1\nHost: a", "200\n\nabc");
        wait_file(&server, "kept/path/x", "abc");
        check_on(&server, "GET /missing HTTP/1.1\nHost: a", "404\n\nno");
        check_on(&server, "GET /path/empty HTTP/1.1\nHost: a", "200\n\n");
        let empty = server.dir().join("kept/path/empty");
        wait::until("the empty file", wait::PATIENCE, || empty.exists().then_some(()));
        assert!(!server.dir().join("html/missing").exists());
        server.stop();
        origin.finish();
    }
}

#[test]
fn what_breaks_off_is_no_file() {
    let origin = Origin::start([[
        Step::expect("\r\n\r\n"),
        Step::reply(wire("HTTP/1.1 200 OK\nContent-Length: 10\n\nhello")),
    ]]);
    let address = origin.addr();
    let server =
        server(&format!("location / {{ proxy_pass http://{address}; proxy_store on; }}")).start();
    let mut client = server.client();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.try_response(false).is_err(), "cut short");
    server.stop();
    origin.finish();
}
