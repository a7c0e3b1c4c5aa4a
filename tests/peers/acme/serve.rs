//! `nowait serve --domain`: a public site by one command.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use nowait_testkit::ports::free_port;
use nowait_testkit::{Binary, Client, TempDir, skip, wait};

use super::issuer::Issuer;
use super::pebble::{AcmeStage, presented_at};
use crate::stage::{Background, program, said, succeed};

/// The command for a site at `port`, with further arguments.
fn serve(stage: &AcmeStage, port: u16, more: &[&str]) -> Command {
    stage.dir.write("site/index.html", "hello");
    stage.dir.write("ca.pem", &stage.authority.pem);
    let mut command = Binary::nowait(env!("CARGO_BIN_EXE_nowait")).command();
    command.current_dir(stage.dir.path());
    command.args(["serve", "--domain", "localhost", "--issuer"]);
    command.arg(format!("https://localhost:{}/dir", stage.port));
    command.args(["--issuer-ca", "ca.pem", "--email", "you@example.test", "--state", "a/b/state"]);
    command.args(["--listen", &format!("127.0.0.1:{port}")]);
    command.args(["--http-port", &stage.http_port.to_string()]).args(more).arg("site");
    command
}

/// Starts it; its output is in `output`, in a directory.
fn start(dir: &TempDir, command: &mut Command) -> Background {
    let output = File::create(dir.path().join("output")).unwrap();
    Background::start(command.stdout(output.try_clone().unwrap()).stderr(output))
}

fn output(dir: &TempDir) -> String {
    std::fs::read_to_string(dir.path().join("output")).unwrap()
}

/// Waits for a text in the output.
#[track_caller]
fn wait_for(dir: &TempDir, text: &str) {
    let found = wait::try_until(wait::PATIENCE, || output(dir).contains(text).then_some(()));
    assert!(found.is_some(), "no \"{text}\" in:\n{}", output(dir));
}

#[test]
fn one_command_makes_a_site() {
    let Some(stage) = AcmeStage::new() else { return };
    let _issuer = stage.start();
    let port = free_port();
    {
        // The terms have to be agreed to, and the message says how.
        let _running = start(&stage.dir, &mut serve(&stage, port, &[]));
        wait_for(
            &stage.dir,
            "the issuer would refuse the account: its terms of service (data:text/",
        );
        wait_for(&stage.dir, "--accept-terms");
    }
    let _running = start(&stage.dir, &mut serve(&stage, port, &["--accept-terms"]));
    wait_for(&stage.dir, "Press Ctrl-C to stop.");
    let greeting = output(&stage.dir);
    assert!(greeting.contains(&format!("/site/ at https://localhost:{port}/\n")), "{greeting}");
    wait::until("a certificate", wait::PATIENCE, || presented_at(port));
    let mut curl = program("curl").expect("it was found");
    curl.args(["-sk", "-w", " %{http_version} %{response_code}"]);
    assert_eq!(succeed(curl.arg(format!("https://localhost:{port}/"))), "hello 2 200");
    for (host, expected) in [("localhost", "localhost"), ("evil.test", "localhost")] {
        let request = format!("GET /a?b HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let mut plain = Client::to_port(stage.http_port);
        plain.send(request);
        let response = plain.response();
        assert_eq!(response.status, 301);
        let location = format!("https://{expected}:{port}/a?b");
        assert_eq!(response.header("Location"), Some(&location[..]));
    }
    // Handshakes for other names are refused.
    let mut openssl = program("openssl").expect("it was found");
    openssl.args(["s_client", "-servername", "other.test", "-connect"]);
    let said = said(&openssl.arg(format!("127.0.0.1:{port}")).output().unwrap());
    assert!(said.contains("unrecognized name"), "{said}");
    let state = stage.dir.path().join("a/b/state");
    assert_eq!(state.metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

/// The server requests what an issuer would, from port 80 of the name.
#[test]
fn names_that_lead_elsewhere_are_reported() {
    let Some(issuer) = Issuer::start(&["honest"]) else { return };
    let dir = TempDir::new("serve");
    let warning = "http://localhost/ does not seem to reach this server (";
    // It is no reason not to order. With a certificate, there is nothing to check.
    for is_first in [true, false] {
        let port = free_port();
        let _running = start(&dir, &mut issuer.serve("kept", port, free_port()));
        wait::until("a certificate", wait::PATIENCE, || presented_at(port));
        assert_eq!(output(&dir).contains(warning), is_first, "{}", output(&dir));
        // It is used before it is stored, and a server that is killed in between has to order another.
        wait::until("a stored certificate", wait::PATIENCE, || issuer.has_stored("kept"));
        // The terminal says what becomes of the certificate.
        let lines = match is_first {
            true => &[
                "ordering a certificate for localhost,",
                "new certificate for localhost, valid for",
            ][..],
            false => &["certificate for localhost valid until"],
        };
        lines.iter().for_each(|line| wait_for(&dir, line));
    }
    if TcpListener::bind("127.0.0.1:80").is_err() {
        skip::skip("port-80", "port 80 is in use, or needs rights");
        return;
    }
    let port = free_port();
    let _running = start(&dir, &mut issuer.serve("other", port, 80));
    wait::until("a certificate", wait::PATIENCE, || presented_at(port));
    assert!(!output(&dir).contains("does not seem"), "{}", output(&dir));
}

#[test]
fn a_port_in_use_is_reported() {
    let Some(stage) = AcmeStage::new() else { return };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = serve(&stage, port, &["--accept-terms"]).output().unwrap();
    let said = said(&output);
    assert!(!output.status.success());
    assert!(said.contains(&format!("bind() to 127.0.0.1:{port} failed (98: ")), "{said}");
    assert!(said.contains("another program, or another nowait, listens there"), "{said}");
}
