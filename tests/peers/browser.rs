//! Chromium, without a window: many files, an upload, server-sent events, and a WebSocket.

use std::process::Stdio;
use std::time::Duration;

use nowait_testkit::{TempDir, wait};

use crate::stage::{Background, ca, https, on_each, program, source, succeed};

#[test]
fn chromium() {
    if program("chromium").is_none() || program("certutil").is_none() {
        return;
    }
    let page = std::fs::read_to_string(source("page.html")).unwrap();
    on_each("location = /report { return 204; }", |server| {
        server.write("html/page.html", &page);
        // The authority of the test is trusted in this home alone.
        let home = TempDir::new("peers-chromium");
        let database = home.path().join(".pki/nssdb");
        std::fs::create_dir_all(&database).unwrap();
        let database = format!("sql:{}", database.display());
        let (Some(mut certutil), Some(mut chromium)) = (program("certutil"), program("chromium"))
        else {
            return;
        };
        certutil.args(["-A", "-d", &database, "-n", "test", "-t", "C,,", "-i"]);
        succeed(certutil.arg(ca(server)).args(["--empty-password"]));
        chromium.env("HOME", home.path()).current_dir(home.path());
        // As root it has no sandbox.
        chromium.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-proxy-server"]);
        chromium.args(["--disable-background-networking", "--remote-debugging-port=0"]);
        chromium.arg(format!("--user-data-dir={}", home.path().join("profile").display()));
        chromium.arg(format!("{}/page.html", https(server)));
        let running = Background::start(chromium.stdout(Stdio::null()).stderr(Stdio::null()));
        let report = wait::try_until(Duration::from_secs(120), || {
            let log = server.read("access.log");
            let line = log.lines().find(|line| line.contains("GET /report?"))?;
            line.contains("HTTP/2.0").then(|| line.replace("%22", "\"").replace("%20", " "))
        });
        drop(running);
        let report = report.unwrap_or_else(|| panic!("no report:\n{}", server.read("access.log")));
        eprintln!("{report}");
        let findings = [
            ("files", "ok"),
            ("protocol", "h2"),
            ("upload", "ok"),
            ("events", "0 1 2 3 4"),
            ("socket", "7 1000"),
        ];
        let log = server.read("access.log");
        assert!(
            log.contains("\"GET /app/socket HTTP/2.0\" 200"),
            "no WebSocket over HTTP/2: {log}"
        );
        for (name, expected) in findings {
            let finding = format!("\"{name}\"%3A\"{expected}\"");
            assert!(report.contains(&finding), "not {finding}: {report}");
        }
    });
}
