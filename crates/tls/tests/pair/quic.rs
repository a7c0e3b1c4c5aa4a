//! Sessions within QUIC, whose messages a test passes from one side to the other.

use std::sync::Arc;

use nowait_tls::quic::{QuicFailure, QuicSession, hello_records};
use nowait_tls::{
    Acceptor, ClientCertificates, ServerSettings, Session, TicketKeys, TlsServer, Versions,
};
use rustls::ClientConfig;
use rustls::quic::{ClientConnection, Version};

use crate::certificates::{ecdsa, rsa, verifier};
use crate::names::{ODD, client, renamed};

fn settings() -> ServerSettings {
    ServerSettings {
        identities: vec![ecdsa()],
        groups: nowait_tls::Groups::parse("X25519"),
        quic_alpn: vec![b"h3".to_vec()],
        ..ServerSettings::default()
    }
}

/// A client with a name that rustls does not accept, and the server's session for it.
struct Exchange {
    client: ClientConnection,
    server: QuicSession,
    session: Session,
    /// The hello as it was sent.
    hello: Vec<u8>,
}

impl Exchange {
    fn new(config: &Arc<ClientConfig>, on: &TlsServer) -> Exchange {
        let mut config = ClientConfig::clone(config);
        config.alpn_protocols = vec![b"h3".to_vec()];
        let name = "example.com".try_into().unwrap();
        let params = b"client".to_vec();
        let mut client =
            ClientConnection::new(Arc::new(config), Version::V1, name, params).unwrap();
        let mut hello = Vec::new();
        assert!(client.write_hs(&mut hello).is_none());
        let hello = renamed(&hello);
        let greeting = Acceptor::quic().receive(&hello_records(&hello)).unwrap().unwrap();
        assert_eq!(greeting.alpn(), [b"h3"]);
        let (start, session) = greeting.begin_quic(on).unwrap();
        let server = start.session(b"server".to_vec()).unwrap();
        Exchange { client, server, session, hello }
    }

    /// The server reads a message in pieces of this size.
    fn tell(&mut self, message: &[u8], piece: usize) -> Result<(), QuicFailure> {
        message.chunks(piece).try_for_each(|part| self.server.read(part))
    }

    /// Makes the rest of the handshake.
    fn complete(&mut self, piece: usize) {
        let hello = self.hello.clone();
        self.tell(&hello, piece).unwrap();
        for _ in 0..6 {
            let mut answer = Vec::new();
            while self.server.write(&mut answer).is_some() {
                // The next level begins.
                self.client.read_hs(&std::mem::take(&mut answer)).unwrap();
            }
            self.client.read_hs(&answer).unwrap();
            let mut message = Vec::new();
            while self.client.write_hs(&mut message).is_some() {
                let sent = renamed(&std::mem::take(&mut message));
                self.tell(&sent, piece).unwrap();
            }
            let sent = renamed(&message);
            self.tell(&sent, piece).unwrap();
        }
        assert!(!self.client.is_handshaking() && !self.server.is_handshaking());
        assert_eq!(self.server.peer_params(), Some(&b"client"[..]));
        assert_eq!(self.client.quic_transport_parameters(), Some(&b"server"[..]));
    }
}

#[test]
fn sessions_show_what_those_over_tcp_do() {
    for (certified, guesses_wrong) in [(false, false), (true, false), (true, true)] {
        let client_certificates = certified.then(|| ClientCertificates {
            verifier: verifier(5),
            named: Vec::new(),
            keeps_path: true,
        });
        let tickets = Some(Arc::new(TicketKeys::generated().unwrap()));
        let settings = ServerSettings { client_certificates, tickets, ..settings() };
        let on = TlsServer::new(settings).unwrap();
        let config = client(Versions { tls12: false, tls13: true }, certified, guesses_wrong);
        for (piece, resumed) in [(usize::MAX, false), (100, true), (1, true)] {
            let mut exchange = Exchange::new(&config, &on);
            assert!(exchange.session.is_handshaking());
            assert_eq!(exchange.session.protocol(), None);
            exchange.complete(piece);
            let session = exchange.session;
            assert!(!session.is_handshaking());
            assert_eq!(session.server_name().unwrap().as_bytes(), &ODD[3..]);
            assert_eq!(session.is_reused(), resumed, "{certified} {piece}");
            assert_eq!(session.protocol(), Some("TLSv1.3"));
            assert_eq!(session.alpn(), Some(&b"h3"[..]));
            assert_eq!(session.trust(), certified.then_some(Ok(())));
            assert_eq!(session.peer_certificates().is_empty(), !certified);
            assert_eq!(session.sigalg().is_some(), !resumed);
        }
    }
}

#[test]
fn the_handshake_goes_on_with_the_hello_that_chose_the_server() {
    let on = TlsServer::new(settings()).unwrap();
    let config = client(Versions { tls12: false, tls13: true }, false, false);
    let mut exchange = Exchange::new(&config, &on);
    let mut other = exchange.hello.clone();
    let at = other.windows(ODD.len()).position(|part| part == ODD).unwrap();
    other[at + 5] ^= 1;
    let failure = exchange.tell(&other, 50).unwrap_err();
    assert_eq!(failure.alert, 47);
}

#[test]
fn steps_with_large_keys_are_slow() {
    for (identity, slow) in [(ecdsa(), false), (rsa(), true)] {
        let on = TlsServer::new(ServerSettings { identities: vec![identity], ..settings() });
        let config = client(Versions { tls12: false, tls13: true }, false, false);
        let mut exchange = Exchange::new(&config, &on.unwrap());
        assert_eq!(exchange.server.is_slow(), slow);
        exchange.complete(usize::MAX);
        assert!(!exchange.server.is_slow());
    }
}

#[test]
fn servers_without_tls_13_or_a_protocol_do_not_speak_quic() {
    let old = Versions { tls12: true, tls13: false };
    let hello = |on: &TlsServer| {
        let config = client(Versions { tls12: false, tls13: true }, false, false);
        let name = "example.com".try_into().unwrap();
        let mut client = ClientConnection::new(config, Version::V1, name, Vec::new()).unwrap();
        let mut hello = Vec::new();
        let _ = client.write_hs(&mut hello);
        let greeting = Acceptor::quic().receive(&hello_records(&hello)).unwrap().unwrap();
        greeting.begin_quic(on).is_ok()
    };
    assert!(hello(&TlsServer::new(settings()).unwrap()));
    assert!(!hello(&TlsServer::new(ServerSettings { versions: old, ..settings() }).unwrap()));
    let none = ServerSettings { quic_alpn: Vec::new(), ..settings() };
    assert!(!hello(&TlsServer::new(none).unwrap()));
}
