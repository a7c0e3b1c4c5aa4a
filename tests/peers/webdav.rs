//! WebDAV clients: litmus, which tests servers, and cadaver.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;

use nowait_testkit::{Binary, Server, TempDir};

use crate::stage::{DRIVERS, program, succeed};

/// Runs a test on each driver, with everything that clients need.
fn on_each(test: impl Fn(&Server)) {
    for driver in DRIVERS {
        eprintln!("driver: {driver:?}");
        let http = "dav_ext_lock_zone zone=locks:1m timeout=10m;
            server {
                listen 127.0.0.1:%%PORT%%;
                root %%DIR%%/dav;
                client_max_body_size 0;
                location / {
                    autoindex on;
                    dav_methods PUT DELETE MKCOL COPY MOVE;
                    dav_ext_methods PROPFIND PROPPATCH OPTIONS LOCK UNLOCK;
                    dav_ext_lock zone=locks;
                }
            }";
        let server = Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait")))
            .http(http)
            .driver(driver)
            .file("dav/there", "1")
            .start();
        let root = server.dir().join("dav");
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o777)).unwrap();
        test(&server);
        server.stop();
    }
}

#[test]
fn litmus() {
    if program("litmus").is_none() {
        return;
    }
    on_each(|server| {
        let Some(mut litmus) = program("litmus") else { return };
        // It writes its logs where it runs.
        let dir = TempDir::new("litmus");
        litmus.current_dir(dir.path()).env("TESTS", "basic copymove props locks http");
        let said = succeed(litmus.arg("-k").arg(format!("http://127.0.0.1:{}/", server.port())));
        for suite in ["basic", "copymove", "props", "locks", "http"] {
            let summary =
                said.lines().find(|line| line.contains(&format!("summary for `{suite}'")));
            assert!(summary.is_some_and(|line| line.ends_with("0 failed. 100.0%")), "{said}");
        }
    });
}

#[test]
fn cadaver() {
    if program("cadaver").is_none() {
        return;
    }
    on_each(|server| {
        let Some(mut cadaver) = program("cadaver") else { return };
        let home = TempDir::new("cadaver");
        home.write("file", "content");
        let commands = "mkcol a\ncd a\nput file\nlock file\ndiscover file\npropset file colour red\n\
                        propget file colour\nunlock file\ncopy file other\nmove other last\nls\n\
                        get last copied\ndelete file\ncd ..\nrmcol a\nls\nquit\n";
        let script = home.write("script", commands);
        cadaver.current_dir(home.path()).env("HOME", home.path());
        cadaver.stdin(File::open(script).unwrap());
        let said = succeed(cadaver.arg(format!("http://127.0.0.1:{}/", server.port())));
        for text in ["Locking `file': succeeded", "Value of colour is: red", "last", "there"] {
            assert!(said.contains(text), "{text}: {said}");
        }
        assert!(!said.contains("failed"), "{said}");
        assert_eq!(std::fs::read(home.path().join("copied")).unwrap(), b"content");
        assert!(!server.dir().join("dav/a").exists());
    });
}
