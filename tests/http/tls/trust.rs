//! A verdict on a client's certificate belongs to the verifier that gave it: reloads withdraw it, and
//! other servers do not inherit it.

use std::net::TcpStream;
use std::sync::Arc;

use nowait_testkit::http2::{Http2, Limits};
use nowait_testkit::{Server, ServerBuilder};
use rcgen::{
    CertificateParams, CertificateRevocationListParams, DnType, KeyIdMethod, KeyPair,
    RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::ClientConfig;

use super::client::Issued;
use super::{Authority, TlsClient};
use crate::stage::{on_each_driver, site};
use crate::transport;

/// The serial number of the client's certificate.
const SERIAL: u64 = 77;

/// A server to begin with.
const BARE: &str = "server { listen 127.0.0.1:%%PORT%% ssl; }";

/// A name that no server has.
const UNKNOWN: &str = "unknown.example";

/// A connection with one of the protocols.
enum TrustClient {
    Http1(Box<TlsClient>),
    Http2(Box<Http2>),
}

impl TrustClient {
    /// One of each protocol.
    fn both(server: &Server, config: &Arc<ClientConfig>, name: &str) -> [TrustClient; 2] {
        let http2 = Http2::over(relay(server, config, name), Limits::default());
        [
            TrustClient::Http1(Box::new(TlsClient::new(server, config, name))),
            TrustClient::Http2(Box::new(http2)),
        ]
    }

    /// The status and the body of a response.
    fn get(&mut self, host: &str) -> String {
        match self {
            TrustClient::Http1(client) => {
                client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
                let (head, body) = client.response();
                let status = head.split(' ').nth(1).unwrap();
                shown(status.parse().unwrap(), &body)
            }
            TrustClient::Http2(client) => {
                let stream = client.send_get_of(host, "/");
                let response = client.response(stream);
                shown(response.status, &response.body)
            }
        }
    }
}

fn shown(status: u16, body: &[u8]) -> String {
    match status {
        200 => String::from_utf8(body.to_vec()).unwrap(),
        status => status.to_string(),
    }
}

/// A plain connection that leads to the server by TLS, for HTTP/2.
fn relay(server: &Server, config: &Arc<ClientConfig>, name: &str) -> TcpStream {
    let mut config = ClientConfig::clone(config);
    config.alpn_protocols = vec![b"h2".to_vec()];
    transport::relay(TcpStream::connect(server.addr()).unwrap(), config, name)
}

/// A certificate of a client that a list can name.
fn numbered(authority: &Authority) -> Issued {
    let mut params = CertificateParams::new(vec!["client".to_owned()]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "client");
    params.serial_number = Some(SerialNumber::from(SERIAL));
    authority.sign(params, KeyPair::generate().unwrap())
}

/// A revocation list.
fn list(authority: &Authority, serials: &[u64]) -> String {
    list_until(authority, serials, 2090)
}

/// One that expires in this year.
pub fn list_until(authority: &Authority, serials: &[u64], year: i32) -> String {
    let revoked = |serial: &u64| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: date_time_ymd(2021, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2021, 1, 1),
        next_update: date_time_ymd(year, 1, 1),
        crl_number: SerialNumber::from(1u64),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(revoked).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    authority.list(params)
}

/// A site whose certificate is for all names, with `ca.pem` and an empty list `ca.crl`.
fn trusting(authority: &Authority, servers: &str) -> ServerBuilder {
    let names = ["localhost", "a.example", "b.example", UNKNOWN, "127.0.0.1"];
    let names = names.map(str::to_owned);
    let own = authority
        .sign(CertificateParams::new(names.to_vec()).unwrap(), KeyPair::generate().unwrap());
    let http =
        format!("http2 on; ssl_certificate own.pem; ssl_certificate_key own.key;\n{servers}");
    let site = site(&http).file("own.pem", own.chain).file("own.key", own.key);
    site.file("ca.pem", &authority.pem).file("ca.crl", list(authority, &[]))
}

#[test]
fn a_reload_with_a_new_list_withdraws_trust() {
    let authority = Authority::new("CA");
    let own = numbered(&authority);
    for mode in ["on", "optional", "optional_no_ca"] {
        let site = trusting(
            &authority,
            &format!(
                "server {{ listen 127.0.0.1:%%PORT%% ssl; ssl_verify_client {mode};\n\
                 ssl_client_certificate ca.pem; ssl_crl ca.crl;\n\
                 location / {{ return 200 \"$ssl_client_verify $ssl_client_s_dn\"; }} }}"
            ),
        );
        on_each_driver(&site, |server| {
            let config = authority.client(Some(&own));
            let mut connections = TrustClient::both(server, &config, "localhost");
            let mut each = |expected: &str| {
                for connection in &mut connections {
                    assert_eq!(connection.get("localhost"), expected, "{mode}");
                }
            };
            each("SUCCESS CN=client");
            server.reload();
            each("SUCCESS CN=client");
            server.write("ca.crl", list(&authority, &[SERIAL]));
            server.reload();
            each("421");
            each("421");
            // A new connection resumes the session, or not: the list holds for it all the same.
            for mut connection in TrustClient::both(server, &config, "localhost") {
                assert_eq!(connection.get("localhost"), "400", "{mode}");
            }
            server.write("ca.crl", list(&authority, &[SERIAL + 1]));
            server.reload();
            each("SUCCESS CN=client");
        });
    }
}

#[test]
fn a_reload_with_other_authorities_withdraws_trust() {
    let (authority, other) = (Authority::new("CA"), Authority::new("other CA"));
    let own = authority.issue("client");
    for mode in ["on", "optional", "optional_no_ca"] {
        for directive in ["ssl_client_certificate", "ssl_trusted_certificate"] {
            let site = trusting(
                &authority,
                &format!(
                    "server {{ listen 127.0.0.1:%%PORT%% ssl; ssl_verify_client {mode};\n\
                     {directive} ca.pem;\n\
                     location / {{ return 200 \"$ssl_client_verify\"; }} }}"
                ),
            );
            on_each_driver(&site, |server| {
                let config = authority.client(Some(&own));
                let mut connections = TrustClient::both(server, &config, "localhost");
                let mut each = |expected: &str| {
                    for connection in &mut connections {
                        assert_eq!(connection.get("localhost"), expected, "{mode} {directive}");
                    }
                };
                each("SUCCESS");
                server.write("ca.pem", &other.pem);
                server.reload();
                match mode {
                    // The issuer need not be known; but who looks sees that it is not.
                    "optional_no_ca" => each("FAILED:unable to verify the first certificate"),
                    _ => each("421"),
                }
                server.write("ca.pem", format!("{}{}", other.pem, authority.pem));
                server.reload();
                each("SUCCESS");
            });
        }
    }
}

#[test]
fn a_reload_that_demands_certificates_is_heard() {
    let authority = Authority::new("CA");
    let own = authority.issue("client");
    let with = |verify: &str| {
        format!(
            "http2 on; ssl_certificate own.pem; ssl_certificate_key own.key;\n\
             server {{ listen 127.0.0.1:%%PORT%% ssl; {verify}\n\
             location / {{ return 200 \"$ssl_client_verify $ssl_client_s_dn\"; }} }}"
        )
    };
    let demand = "ssl_verify_client on; ssl_client_certificate ca.pem;";
    on_each_driver(&trusting(&authority, BARE), |server| {
        server.set_http(&with(""));
        server.reload();
        let config = authority.client(Some(&own));
        let mut before = TrustClient::both(server, &config, "localhost");
        for connection in &mut before {
            assert_eq!(connection.get("localhost"), "NONE ");
        }
        server.set_http(&with(demand));
        server.reload();
        for connection in &mut before {
            assert_eq!(connection.get("localhost"), "421");
        }
        let mut after = TrustClient::both(server, &config, "localhost");
        for connection in &mut after {
            assert_eq!(connection.get("localhost"), "SUCCESS CN=client");
        }
        // A server that asks for no certificates knows of none.
        server.set_http(&with(""));
        server.reload();
        for connection in &mut after {
            assert_eq!(connection.get("localhost"), "NONE ");
        }
    });
}

#[test]
fn servers_do_not_share_verdicts() {
    let (authority, other) = (Authority::new("CA"), Authority::new("other CA"));
    let (own, foreign) = (authority.issue("client"), other.issue("client"));
    let mut servers = String::from(
        "server { listen 127.0.0.1:%%PORT%% ssl default_server; server_name localhost;\n\
         ssl_verify_client optional; ssl_client_certificate ca.pem;\n\
         location / { return 200 \"$ssl_client_verify\"; } }\n",
    );
    for (name, settings) in [
        ("a.example", "ssl_verify_client on; ssl_client_certificate other.pem;"),
        ("b.example", "ssl_verify_client on; ssl_client_certificate both.pem;"),
        ("same.example", "ssl_verify_client on; ssl_client_certificate ca.pem;"),
        ("none.example", ""),
    ] {
        servers.push_str(&format!(
            "server {{ listen 127.0.0.1:%%PORT%% ssl; server_name {name}; {settings}\n\
             location / {{ return 200 \"{name} $ssl_client_verify $ssl_client_s_dn\"; }} }}\n"
        ));
    }
    let site = trusting(&authority, &servers).file("other.pem", &other.pem);
    let site = site.file("both.pem", format!("{}{}", other.pem, authority.pem));
    on_each_driver(&site, |server| {
        let config = authority.client(Some(&own));
        // Without a name in the handshake, and with an unknown one.
        for name in ["127.0.0.1", UNKNOWN] {
            for mut client in TrustClient::both(server, &config, name) {
                for _ in 0..2 {
                    assert_eq!(client.get(UNKNOWN), "SUCCESS");
                    assert_eq!(client.get("a.example"), "421");
                    assert_eq!(client.get("b.example"), "b.example SUCCESS CN=client");
                    assert_eq!(client.get("same.example"), "same.example SUCCESS CN=client");
                    assert_eq!(client.get("none.example"), "none.example NONE ");
                }
            }
            let anonymous = authority.client(None);
            for mut client in TrustClient::both(server, &anonymous, name) {
                assert_eq!(client.get(UNKNOWN), "NONE");
                assert_eq!(client.get("a.example"), "421");
                assert_eq!(client.get("same.example"), "400");
            }
        }
        // The default server does not trust this client, another one does.
        let config = authority.client(Some(&foreign));
        for mut client in TrustClient::both(server, &config, UNKNOWN) {
            assert_eq!(client.get("a.example"), "a.example SUCCESS CN=client");
            assert_eq!(client.get("b.example"), "b.example SUCCESS CN=client");
            assert_eq!(client.get("same.example"), "400");
        }
    });
}

#[test]
fn a_server_without_a_certificate_has_its_own_authorities() {
    let (authority, other) = (Authority::new("CA"), Authority::new("other CA"));
    let own = authority.issue("client");
    let servers = "server { listen 127.0.0.1:%%PORT%% ssl; server_name localhost;\n\
         ssl_verify_client on; ssl_client_certificate ca.pem;\n\
         location / { return 200 \"$ssl_client_verify\"; } }\n\
         server { listen 127.0.0.1:%%PORT%% ssl; server_name a.example;\n\
         ssl_verify_client on; ssl_client_certificate other.pem;\n\
         location / { return 200 \"$ssl_client_verify\"; } }\n\
         server { listen 127.0.0.1:%%PORT%% ssl; server_name b.example;\n\
         location / { return 200 \"$ssl_client_verify\"; } }\n";
    let certificate = "ssl_certificate own.pem; ssl_certificate_key own.key;";
    let site = trusting(&authority, BARE).file("other.pem", &other.pem);
    on_each_driver(&site, |server| {
        let servers = servers.replacen("server_name", &format!("{certificate} server_name"), 1);
        server.set_http(&format!("http2 on;\n{servers}"));
        server.reload();
        let config = authority.client(Some(&own));
        for name in ["a.example", UNKNOWN] {
            for mut client in TrustClient::both(server, &config, name) {
                assert_eq!(client.get("a.example"), "421");
            }
        }
        for mut client in TrustClient::both(server, &config, "b.example") {
            assert_eq!(client.get("b.example"), "SUCCESS");
        }
    });
}
