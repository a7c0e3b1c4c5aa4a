//! A client that sends early data: rustls' buffered one.

use std::io::Write;
use std::sync::Arc;

use nowait_tls::{Acceptor, TlsServer};
use rustls::{ClientConfig, ClientConnection};

use crate::certificates::root;
use crate::link::LinkEnd;

pub struct Peer {
    config: Arc<ClientConfig>,
    /// What the last connection sent first.
    flight: Vec<u8>,
    pub accepted: bool,
}

impl Peer {
    pub fn new() -> Peer {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(root().certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.enable_early_data = true;
        Peer { config: Arc::new(config), flight: Vec::new(), accepted: false }
    }

    /// Connects, with early data if there is any.
    pub fn connect(&mut self, server: &TlsServer, early: &[u8]) -> LinkEnd {
        let name = "example.com".try_into().unwrap();
        let mut client = ClientConnection::new(self.config.clone(), name).unwrap();
        if !early.is_empty() {
            client.early_data().expect("a session to resume").write_all(early).unwrap();
        }
        self.flight.clear();
        while client.wants_write() {
            client.write_tls(&mut self.flight).unwrap();
        }
        let mut end = begin(server, &self.flight);
        assert_eq!(end.read, early);
        assert!(end.session.is_handshaking());
        if !early.is_empty() {
            end.write(b"an answer, before the handshake is complete");
        }
        while !end.output.is_empty() || client.wants_write() {
            client.read_tls(&mut &std::mem::take(&mut end.output)[..]).unwrap();
            client.process_new_packets().unwrap();
            while client.wants_write() {
                client.write_tls(&mut end.input).unwrap();
            }
            end.open().unwrap();
        }
        self.accepted = client.is_early_data_accepted();
        end
    }

    /// Sends the first flight of the last connection again.
    pub fn replay(&mut self, server: &TlsServer) -> LinkEnd {
        begin(server, &self.flight)
    }
}

fn begin(server: &TlsServer, flight: &[u8]) -> LinkEnd {
    let hello = Acceptor::default().receive(flight).unwrap().unwrap();
    let (session, input) = hello.begin(server).unwrap();
    let mut end = LinkEnd::new(session, input);
    end.open().unwrap();
    end
}
