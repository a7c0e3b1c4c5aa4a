//! testssl.sh: what the site in `docs/tls.md` offers, as an auditor sees it.

use nowait_testkit::{Binary, Server};

use crate::stage::{Authority, DRIVERS, program, said};

/// What it rates by the certificate, which is the test's own, and by the name, which only this machine
/// has.
const OF_THE_CERTIFICATE: &[&str] = &[
    "cert_extlifeSpan",
    "cert_expirationStatus",
    "cert_revocation",
    "cert_validityPeriod",
    "DNS_CAArecord",
];

/// The first configuration of the page, for this machine.
fn site() -> String {
    let page = include_str!("../../docs/tls.md");
    let (_, rest) = page.split_once("```nginx\n").expect("a configuration");
    let (text, _) = rest.split_once("```").expect("its end");
    let lines = text.lines().filter(|line| !line.contains("listen [::]"));
    let text = lines.map(|line| format!("{line}\n")).collect::<String>();
    text.replace("events {}", "%%MAIN%%\nevents {\n%%EVENTS%%\n}")
        .replace("http {\n", "http {\n%%HTTP%%\n")
        .replace("listen 80", "listen 127.0.0.1:%%PORT_1%%")
        .replace("listen 443", "listen 127.0.0.1:%%PORT%%")
        .replace("example.com www.example.com", "localhost")
        .replace("/etc/ssl/example.com", "%%DIR%%")
        .replace("/srv/www", "%%DIR%%/html")
}

#[test]
fn testssl() {
    if program("testssl").is_none() {
        return;
    }
    for driver in DRIVERS {
        let authority = Authority::new("Test CA");
        let own = authority.issue("localhost");
        let server = Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait")))
            .config(&site())
            .file("fullchain.pem", own.chain)
            .file("privkey.pem", own.key)
            .file("ca.pem", &authority.pem)
            .file("html/index.html", "It works.")
            .driver(driver)
            .start();
        let Some(mut testssl) = program("testssl") else { return };
        let report = server.dir().join("report.csv");
        testssl.args(["--quiet", "--color", "0", "--warnings", "off", "--nodns", "min"]);
        testssl.arg("--add-ca").arg(server.dir().join("ca.pem")).arg("--csvfile").arg(&report);
        testssl.args(["--ip", "127.0.0.1"]).arg(format!("localhost:{}", server.port()));
        let said = said(&testssl.output().unwrap());
        let report = std::fs::read_to_string(report).unwrap_or_default();
        let is_bad = |row: &&str| {
            let columns: Vec<&str> = row.split("\",\"").collect();
            let severity = columns.get(3).copied().unwrap_or_default();
            let id = columns[0].trim_start_matches('"').split(' ').next().unwrap_or_default();
            // "WARN" is what it could not find out: it does not always send a name.
            matches!(severity, "MEDIUM" | "HIGH" | "CRITICAL" | "FATAL")
                && !OF_THE_CERTIFICATE.contains(&id)
        };
        let findings: Vec<&str> = report.lines().filter(is_bad).collect();
        assert!(findings.is_empty(), "{findings:#?}\n{said}");
        // It went through to its last checks.
        for row in ["\"TLS1_3", "\"HSTS", "\"RC4"] {
            assert!(report.contains(row), "no {row}:\n{said}");
        }
        server.stop();
    }
}
