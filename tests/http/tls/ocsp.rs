//! `ssl_stapling` by responders, and `ssl_ocsp`.

use std::sync::{Arc, Mutex};

use nowait_testkit::{Server, wait};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use super::responder::{Responder, Says};
use super::{Authority, TlsClient, beside, secured};
use crate::stage::on_each_driver;

/// Trusts everybody, and remembers the stapled response.
#[derive(Debug, Default)]
struct Remembering(Mutex<Vec<u8>>);

impl ServerCertVerifier for Remembering {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp_response: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.0.lock().unwrap() = ocsp_response.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// The response that a client gets with the certificate.
fn stapled(server: &Server, name: &str) -> Vec<u8> {
    let verifier = Arc::new(Remembering::default());
    let config = ClientConfig::builder().dangerous();
    let config = config.with_custom_certificate_verifier(verifier.clone());
    let config = Arc::new(config.with_no_client_auth());
    TlsClient::new(server, &config, name).get("/");
    verifier.0.lock().unwrap().clone()
}

#[test]
fn responses_of_responders_are_stapled() {
    let authority = Authority::new("CA");
    let (other, foreign) = (authority.issue("other.example"), Authority::new("CA"));
    let (responder, wrong) = (Responder::new(authority.key()), Responder::new(foreign.key()));
    let content = format!(
        "ssl_stapling on; ssl_stapling_verify on; ssl_trusted_certificate ca.pem;\n\
         ssl_stapling_responder http://{};",
        responder.addr
    );
    let more = format!(
        "server {{ listen 127.0.0.1:%%PORT%% ssl; server_name other.example;\n\
         ssl_certificate other.pem; ssl_certificate_key other.key;\n\
         ssl_stapling on; ssl_stapling_verify on; ssl_trusted_certificate ca.pem;\n\
         ssl_stapling_responder http://{}/path/; }}",
        wrong.addr
    );
    let site = beside(&authority, &content, &more).file("ca.pem", &authority.pem);
    let site = site.file("other.pem", &other.chain).file("other.key", &other.key);
    on_each_driver(&site, |server| {
        let before = responder.paths().len();
        // No handshake waits for the responder, not even the first.
        assert_eq!(stapled(server, "localhost"), b"");
        let response = wait::try_until(wait::PATIENCE, || {
            Some(stapled(server, "localhost")).filter(|response| !response.is_empty())
        });
        assert_eq!(response.expect("a response")[0], 0x30);
        assert_eq!(responder.paths().len(), before + 1, "it is kept");

        stapled(server, "other.example");
        server.wait_log("OCSP_basic_verify() failed (SSL: signer certificate not found)");
        assert_eq!(stapled(server, "other.example"), b"");
        assert!(wrong.paths().iter().all(|path| path.starts_with("/path/M")));
    });
}

#[test]
fn a_revoked_certificate_is_not_stapled() {
    let authority = Authority::new("CA");
    let responder = Responder::new(authority.key());
    let content = format!(
        "ssl_stapling on; ssl_trusted_certificate ca.pem; ssl_stapling_responder http://{};",
        responder.addr
    );
    responder.says(Some(Says::Revoked));
    let site = secured(&authority, &content).file("ca.pem", &authority.pem);
    on_each_driver(&site, |server| {
        stapled(server, "localhost");
        server.wait_log("certificate status \"revoked\" in the OCSP response");
        assert_eq!(stapled(server, "localhost"), b"");
    });
}

#[test]
fn responders_are_asked_about_certificates_of_clients() {
    let authority = Authority::new("CA");
    let responder = Responder::new(authority.key());
    let own = authority.issue("client");
    let settings = format!(
        "ssl_verify_client optional; ssl_client_certificate ca.pem; ssl_ocsp leaf;\n\
         ssl_ocsp_responder http://{};\n\
         error_page 495 =200 /wrong; location = /wrong {{ return 200 \"$ssl_client_verify\"; }}\n\
         location / {{ return 200 \"$ssl_client_verify\"; }}",
        responder.addr
    );
    let keeps = authority.issue("keeps.example");
    let more = format!(
        "server {{ listen 127.0.0.1:%%PORT%% ssl; server_name keeps.example;\n\
         ssl_certificate keeps.pem; ssl_certificate_key keeps.key;\n\
         ssl_ocsp_cache shared:statuses:32k; {settings} }}"
    );
    let site = beside(&authority, &settings, &more).file("ca.pem", &authority.pem);
    let site = site.file("keeps.pem", &keeps.chain).file("keeps.key", &keeps.key);
    on_each_driver(&site, |server| {
        let config = authority.client(Some(&own));
        let ask_of = |name: &str, config: &Arc<ClientConfig>| {
            let mut client = TlsClient::new(server, config, name);
            client.send(format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n"));
            String::from_utf8(client.response().1).unwrap()
        };
        let ask = || ask_of("localhost", &config);
        responder.says(Some(Says::Good));
        assert_eq!(ask(), "SUCCESS");
        assert_eq!(ask(), "SUCCESS");
        assert_eq!(ask_of("localhost", &authority.client(None)), "NONE");
        // A resumed session proves nothing.
        responder.says(Some(Says::Revoked));
        assert_eq!(ask(), "FAILED:certificate revoked");
        responder.says(Some(Says::Unknown));
        assert_eq!(ask(), "FAILED:certificate status unknown");
        responder.says(None);
        assert_eq!(ask(), "FAILED:certificate status request failed");
        server.wait_log("OCSP responder sent status 500");

        let before = responder.paths().len();
        responder.says(Some(Says::Good));
        assert_eq!(ask_of("keeps.example", &config), "SUCCESS");
        responder.says(Some(Says::Revoked));
        server.reload();
        assert_eq!(ask_of("keeps.example", &config), "SUCCESS");
        assert_eq!(responder.paths().len(), before + 1);
    });
}
