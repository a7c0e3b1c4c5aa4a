//! Command-line clients: curl, nghttp and h2load.

use crate::stage::{ca, http, https, on_each, program, succeed};

#[test]
fn curl() {
    if program("curl").is_none() {
        return;
    }
    on_each("", |server| {
        let tls = [https(server), "--cacert".into(), ca(server).display().to_string()];
        let plain = [http(server)];
        let ways: [(&[String], &str, &str); 4] = [
            (&tls, "--http1.1", "1.1"),
            (&tls, "--http2", "2"),
            (&plain, "--http1.1", "1.1"),
            (&plain, "--http2-prior-knowledge", "2"),
        ];
        for (way, version, expected) in ways {
            let ask = |arguments: &[&str], path: &str| {
                let Some(mut curl) = program("curl") else { return String::new() };
                curl.args(["--silent", "--show-error", "--fail", "--max-time", "60", version]);
                curl.args(&way[1..]).args(arguments);
                succeed(curl.arg(format!("{}{path}", way[0])))
            };
            let written = "%{http_version} %{http_code} %{size_download}";
            let get = ["--output", "/dev/null", "--write-out", written];
            assert_eq!(ask(&get, "/files/1000003"), format!("{expected} 200 1000003"));
            let upload = format!("@{}", server.dir().join("html/files/3000000").display());
            let post = [&get[..], &["--data-binary", &upload]].concat();
            assert_eq!(ask(&post, "/app/echo"), format!("{expected} 200 3000000"));
            let range = [&get[..], &["--range", "5-9"]].concat();
            assert_eq!(ask(&range, "/files/1000"), format!("{expected} 206 5"));
            let head = ask(&["--head"], "/files/16384").to_lowercase();
            assert!(head.contains("\r\ncontent-length: 16384\r\n"), "{head}");
            // Fifty at a time on one connection, or on several. curl 7.88 can't with prior knowledge.
            if version != "--http2-prior-knowledge" {
                let many = ["--parallel", "--parallel-max", "50", "--output", "/dev/null"];
                ask(&many, "/files/65536?[1-200]");
            }
        }
    });
}

#[test]
fn nghttp() {
    if program("nghttp").is_none() {
        return;
    }
    on_each("", |server| {
        for address in [https(server), http(server)] {
            let Some(mut nghttp) = program("nghttp") else { return };
            // With a dependency tree of old, and windows of 2^20 - 1 bytes.
            nghttp.args(["--null-out", "--stat", "--window-bits=20", "--multiply=30"]);
            nghttp.arg("--no-verify-peer").arg(format!("{address}/files/100000"));
            let said = succeed(&mut nghttp);
            let complete = said.lines().filter(|line| line.contains(" 200 ")).count();
            assert_eq!(complete, 30, "{said}");
        }
    });
}

#[test]
fn h2load() {
    if program("h2load").is_none() {
        return;
    }
    on_each("", |server| {
        for address in [https(server), http(server)] {
            for (path, requests, streams) in [("1000", "4000", "32"), ("1000003", "60", "8")] {
                let Some(mut h2load) = program("h2load") else { return };
                h2load.args(["-n", requests, "-c", "6", "-m", streams]);
                let said = succeed(h2load.arg(format!("{address}/files/{path}")));
                let succeeded = format!("{requests} succeeded, 0 failed, 0 errored, 0 timeout");
                assert!(said.contains(&succeeded), "{said}");
                assert!(said.contains(&format!("status codes: {requests} 2xx")), "{said}");
            }
        }
    });
}
