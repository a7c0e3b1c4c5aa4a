//! Key updates and alerts of clients, while the kernel seals.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use nowait_testkit::{Server, wait};

use crate::stage::{
    ALWAYS, Authority, LARGE, TlsClient, assert_same, ca, content, counters, has_ktls, on_each,
    program, site,
};

/// Whether the kernel can replace keys.
fn kernel_rekeys() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok()).unwrap();
    (next(), next()) >= (6, 14)
}

/// An `s_client` whose commands are read: `K` and `k` at the beginning of a line.
struct Typed {
    child: std::process::Child,
    /// What it reports, too.
    output: BufReader<std::io::PipeReader>,
}

impl Typed {
    fn new(server: &Server, arguments: &[&str]) -> Option<Typed> {
        let mut openssl = program("openssl")?;
        openssl.args(["s_client", "-connect", &format!("127.0.0.1:{}", server.port())]);
        openssl.args(["-servername", "localhost", "-CAfile"]).arg(ca(server)).args(arguments);
        let (output, input) = std::io::pipe().unwrap();
        openssl.stdin(Stdio::piped()).stdout(input.try_clone().unwrap()).stderr(input);
        let child = openssl.spawn().unwrap();
        Some(Typed { child, output: BufReader::new(output) })
    }

    fn write(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Asks for the number of the request on its connection.
    fn ask(&mut self, number: u32) {
        self.write("GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.wait_for("Content-Length: ");
        self.wait_for_bytes(format!("\r\n\r\n{number}").as_bytes());
    }

    fn wait_for(&mut self, text: &str) {
        let mut line = Vec::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_until(b'\n', &mut line).unwrap(), 0, "no {text}");
            if line.starts_with(text.as_bytes()) {
                return;
            }
        }
    }

    fn wait_for_bytes(&mut self, text: &[u8]) {
        let mut received = Vec::from(&b"\r\n"[..]);
        while !received.ends_with(text) {
            let mut byte = [0];
            self.output.read_exact(&mut byte).expect("the end of a response");
            received.push(byte[0]);
        }
    }

    /// Everything until the server ends the connection.
    fn rest(mut self) -> String {
        let mut rest = Vec::new();
        self.output.read_to_end(&mut rest).unwrap();
        self.child.wait().unwrap();
        String::from_utf8_lossy(&rest).into_owned()
    }
}

#[test]
fn openssl_replaces_its_own_keys() {
    if !has_ktls() {
        return;
    }
    let authority = Authority::new("CA");
    on_each(&site(&authority, &[], ALWAYS), |server| {
        let Some(mut client) = Typed::new(server, &["-tls1_3"]) else { return };
        for number in 1..5 {
            client.ask(number);
            client.write("k\n");
            client.wait_for("KEYUPDATE");
        }
        client.write("GET /small HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let rest = client.rest();
        assert!(rest.contains("\r\n\r\n5"), "{rest}");
        assert_eq!(counters(server), [1, 0, 0]);
    });
}

#[test]
fn openssl_asks_for_new_keys() {
    if !has_ktls() {
        return;
    }
    let authority = Authority::new("CA");
    on_each(&site(&authority, &[], ALWAYS), |server| {
        let Some(mut client) = Typed::new(server, &["-tls1_3"]) else { return };
        client.ask(1);
        client.write("K\n");
        client.wait_for("KEYUPDATE");
        if kernel_rekeys() {
            client.ask(2);
            client.write("K\n");
            client.wait_for("KEYUPDATE");
            client.ask(3);
            assert_eq!(counters(server), [1, 0, 0]);
        } else {
            // The connection ends in an orderly way.
            let rest = client.rest();
            assert!(!rest.contains("unexpected eof") && !rest.contains("error"), "{rest}");
            assert_eq!(counters(server), [1, 0, 1]);
        }
    });
}

#[test]
fn a_key_update_between_large_files() {
    if !has_ktls() {
        return;
    }
    let authority = Authority::new("CA");
    on_each(&site(&authority, &[LARGE], ""), |server| {
        let mut client = TlsClient::new(server, &authority.client(None), "localhost");
        let target = format!("/files/{LARGE}");
        assert_same(&client.get(&target).1, &content(LARGE), "before");
        // rustls asks the server for new keys, too.
        client.refresh_keys();
        if kernel_rekeys() {
            for _ in 0..3 {
                assert_same(&client.get(&target).1, &content(LARGE), "after");
                client.refresh_keys();
            }
            assert_eq!(client.text("/small"), "5");
            assert_eq!(counters(server), [1, 0, 0]);
        } else {
            client.flush();
            client.expect_end();
            assert_eq!(counters(server), [1, 0, 1]);
        }
    });
}

/// Before the kernel seals, rustls replaces the keys of this side; the kernel gets the last ones.
#[test]
fn keys_that_were_replaced_before() {
    if !has_ktls() {
        return;
    }
    let authority = Authority::new("CA");
    on_each(&site(&authority, &[LARGE], ""), |server| {
        let mut client = TlsClient::new(server, &authority.client(None), "localhost");
        for n in 1..4 {
            assert_eq!(client.text("/small"), n.to_string());
            client.refresh_keys();
        }
        let received = client.get(&format!("/files/{LARGE}")).1;
        assert_same(&received, &content(LARGE), "after key updates");
        assert_eq!(counters(server), [1, 0, 0]);
    });
}

#[test]
fn alerts_end_connections() {
    if !has_ktls() {
        return;
    }
    let authority = Authority::new("CA");
    on_each(&site(&authority, &[LARGE], ALWAYS), |server| {
        // The client ends its side: what it asked for before is answered, and the server ends, too.
        let mut client = TlsClient::new(server, &authority.client(None), "localhost");
        assert_eq!(client.text("/small"), "1");
        client.end();
        client.expect_end();
        // What is no record of this session is answered by an alert that the client can open.
        let mut client = TlsClient::new(server, &authority.client(None), "localhost");
        assert_eq!(client.text("/small"), "1");
        client.send_raw(b"\x17\x03\x03\x00\x20no record of this session at all");
        let mut rest = Vec::new();
        let error = client.reader().read_to_end(&mut rest).unwrap_err().to_string();
        assert!(error.contains("BadRecordMac"), "{error}");
        // A client that goes away in the middle of a file.
        let mut client = TlsClient::new(server, &authority.client(None), "localhost");
        client.send(format!("GET /files/{LARGE} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let mut begin = [0; 1000];
        client.reader().read_exact(&mut begin).unwrap();
        drop(client);
        let idle = || {
            let mut client = nowait_testkit::Client::to_port(server.port_n(1));
            (client.get("/status/connections/active").text().trim() == "1").then_some(())
        };
        wait::until("the connections to be closed", wait::PATIENCE, idle);
        assert_eq!(counters(server), [3, 0, 0]);
    });
}
