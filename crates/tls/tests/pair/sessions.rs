//! What a working connection does.

use std::sync::Arc;
use std::time::Duration;

use nowait_tls::{
    Ciphers, ClientSettings, Groups, ServerSettings, Session, SessionCache, TicketKey, TicketKeys,
    TlsServer, Versions,
};

use crate::certificates::{ecdsa, rsa, verifier};
use crate::link::{LinkEnd, client, connect, connect_in, exchange, hello, server};

const TLS12: Versions = Versions { tls12: true, tls13: false };
const TLS13: Versions = Versions { tls12: false, tls13: true };

fn plain_server() -> TlsServer {
    server(ServerSettings { identities: vec![ecdsa()], ..ServerSettings::default() })
}

#[test]
fn sessions_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<Session>();
    is_send::<nowait_tls::Hello>();
}

#[test]
fn bytes_pass_in_both_directions_however_they_are_split() {
    for versions in [TLS12, TLS13] {
        for piece in [1, 7, 1000, usize::MAX] {
            let settings = ClientSettings {
                versions,
                verifier: Some(verifier(1)),
                sends_name: true,
                ..ClientSettings::default()
            };
            let (mut client, mut server) =
                connect_in(&client(settings), &plain_server(), piece).unwrap();
            assert_eq!(server.session.server_name(), Some("example.com"));
            let long: Vec<u8> = (0..50_000u32).map(|n| n as u8).collect();
            client.write(b"hello");
            server.write(&long);
            client.write(&long);
            exchange(&mut client, &mut server, piece).unwrap();
            assert!(client.read == long && server.read == [b"hello", &long[..]].concat());
            assert!(client.session.is_quiet() && client.input.is_empty());
        }
    }
}

#[test]
fn facts_are_in_the_words_of_openssl() {
    let (mut client, server) =
        connect(&client(ClientSettings::default()), &plain_server()).unwrap();
    for session in [&client.session, &server.session] {
        assert_eq!(session.protocol(), Some("TLSv1.3"));
        assert_eq!(session.cipher(), Some("TLS_AES_256_GCM_SHA384"));
        assert_eq!(session.curve(), Some("X25519MLKEM768"));
        assert!(!session.is_reused());
        assert_eq!((session.alpn(), session.session_id()), (None, None));
    }
    assert_eq!(client.session.peer_certificates().len(), 1);
    assert!(client.open().is_ok());
}

#[test]
fn ciphers_groups_and_key_types_are_chosen() {
    let identities = || vec![ecdsa(), rsa()];
    let check = |ciphers: &str, groups: &str, cipher: &str, curve: &str, slow: bool| {
        let server = server(ServerSettings { identities: identities(), ..Default::default() });
        let client = client(ClientSettings {
            versions: TLS12,
            ciphers: Ciphers::parse(ciphers),
            groups: Groups::parse(groups),
            ..ClientSettings::default()
        });
        let (_, server) = connect(&client, &server).unwrap();
        assert_eq!(server.session.protocol(), Some("TLSv1.2"));
        assert_eq!(server.session.cipher(), Some(cipher));
        assert_eq!(server.session.curve(), Some(curve));
        assert_eq!(server.slow_steps > 0, slow, "{ciphers}");
    };
    check("aRSA+AES128", "P-384", "ECDHE-RSA-AES128-GCM-SHA256", "secp384r1", true);
    check("aECDSA+CHACHA20", "X25519", "ECDHE-ECDSA-CHACHA20-POLY1305", "X25519", false);
    check("ALL:!aECDSA", "prime256v1", "ECDHE-RSA-AES256-GCM-SHA384", "prime256v1", true);
}

#[test]
fn the_servers_order_counts_if_it_prefers_it() {
    for (prefers, cipher) in [(true, "CHACHA20-POLY1305"), (false, "AES128-GCM-SHA256")] {
        let server = server(ServerSettings {
            identities: vec![ecdsa()],
            ciphers: Ciphers::parse("CHACHA20:AES128"),
            prefers_own_ciphers: prefers,
            ..ServerSettings::default()
        });
        let client = client(ClientSettings {
            versions: TLS12,
            ciphers: Ciphers::parse("AES128:CHACHA20"),
            ..ClientSettings::default()
        });
        let (_, server) = connect(&client, &server).unwrap();
        assert_eq!(server.session.cipher().unwrap(), format!("ECDHE-ECDSA-{cipher}"));
    }
}

#[test]
fn application_protocols_are_negotiated() {
    let alpn = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
    let server = server(ServerSettings {
        identities: vec![ecdsa()],
        alpn: alpn(&["h2", "http/1.1"]),
        ..ServerSettings::default()
    });
    let offer = |names: &[&str]| client(ClientSettings { alpn: alpn(names), ..Default::default() });
    let (one, other) = connect(&offer(&["http/1.1", "h2"]), &server).unwrap();
    assert_eq!((one.session.alpn(), other.session.alpn()), (Some(&b"h2"[..]), Some(&b"h2"[..])));
    let (_, other) = connect(&offer(&[]), &server).unwrap();
    assert_eq!(other.session.alpn(), None);
    let (told, error) = connect(&offer(&["foo"]), &server).err().map(|failed| *failed).unwrap();
    assert!(error.to_string().contains("no application protocol"), "{error}");
    assert!(told.to_string().contains("alert no application protocol"), "{told}");
}

/// Whether a second connection resumes the session of the first.
fn resumes(versions: Versions, first: &TlsServer, second: &TlsServer) -> bool {
    let client = client(ClientSettings { versions, ..ClientSettings::default() });
    let (mut one, mut other) = connect(&client, first).unwrap();
    assert!(!other.session.is_reused());
    // Tickets follow the handshake.
    exchange(&mut one, &mut other, usize::MAX).unwrap();
    let (mut one, mut other) = connect(&client, second).unwrap();
    one.write(b"data");
    exchange(&mut one, &mut other, usize::MAX).unwrap();
    assert_eq!(other.read, b"data");
    assert_eq!(one.session.is_reused(), other.session.is_reused());
    other.session.is_reused()
}

#[test]
fn sessions_are_resumed_by_tickets_and_from_the_cache() {
    let keys = Arc::new(TicketKeys::generated().unwrap());
    let cache = Arc::new(SessionCache::new(1 << 20, Duration::from_secs(60)));
    let make = |identity: nowait_tls::Identity, tickets, cached: bool| {
        server(ServerSettings {
            identities: vec![identity],
            tickets,
            cache: cached.then(|| cache.clone()),
            ..ServerSettings::default()
        })
    };
    for versions in [TLS12, TLS13] {
        let none = make(ecdsa(), None, false);
        assert!(!resumes(versions, &none, &none));
        let tickets = make(ecdsa(), Some(keys.clone()), false);
        assert!(resumes(versions, &tickets, &tickets));
        // Another server with the same keys, as after a reload.
        assert!(resumes(versions, &tickets, &make(ecdsa(), Some(keys.clone()), false)));
        assert!(!resumes(versions, &tickets, &make(rsa(), Some(keys.clone()), false)));
        let other = Arc::new(TicketKeys::generated().unwrap());
        assert!(!resumes(versions, &tickets, &make(ecdsa(), Some(other), false)));
        let cached = make(ecdsa(), None, true);
        assert!(resumes(versions, &cached, &make(ecdsa(), None, true)));
        assert!(!resumes(versions, &cached, &make(rsa(), None, true)));
    }
    assert!(!cache.is_empty());
}

#[test]
fn tickets_survive_a_rotation_of_key_files() {
    let make = |files: &[u8]| {
        let keys = files.iter().map(|seed| TicketKey::from_file(&[*seed; 80]).unwrap()).collect();
        server(ServerSettings {
            identities: vec![ecdsa()],
            tickets: Some(Arc::new(TicketKeys::fixed(keys).unwrap())),
            ..ServerSettings::default()
        })
    };
    assert!(resumes(TLS13, &make(&[1]), &make(&[2, 1])));
    assert!(!resumes(TLS13, &make(&[1]), &make(&[2])));
}

#[test]
fn tls12_has_session_identifiers() {
    let cache = Arc::new(SessionCache::new(1 << 20, Duration::from_secs(60)));
    let settings = ServerSettings {
        identities: vec![ecdsa()],
        cache: Some(cache),
        ..ServerSettings::default()
    };
    let server = server(settings);
    let client = client(ClientSettings { versions: TLS12, ..ClientSettings::default() });
    let (_, one) = connect(&client, &server).unwrap();
    let (_, other) = connect(&client, &server).unwrap();
    assert_eq!(one.session.session_id().unwrap().len(), 32);
    assert!(other.session.is_reused());
    assert_eq!(one.session.session_id(), other.session.session_id());
}

#[test]
fn each_side_ends_on_its_own() {
    for versions in [TLS12, TLS13] {
        let client = client(ClientSettings { versions, ..ClientSettings::default() });
        let (mut client, mut server) = connect(&client, &plain_server()).unwrap();
        client.write(b"last");
        client.session.end(&mut client.output);
        client.session.end(&mut client.output);
        assert!(client.session.seal(&[b"more"], &mut client.output).is_err());
        exchange(&mut client, &mut server, usize::MAX).unwrap();
        assert!(server.ended && server.session.has_ended() && !client.ended);
        assert_eq!(server.read, b"last");
        // The other direction goes on.
        server.write(b"answer");
        server.session.end(&mut server.output);
        exchange(&mut client, &mut server, usize::MAX).unwrap();
        assert!(client.ended);
        assert_eq!(client.read, b"answer");
    }
}

#[test]
fn a_rejected_client_is_told_so() {
    let mut client =
        LinkEnd::new(client(ClientSettings::default()).connect("example.com").unwrap(), Vec::new());
    let refusal = hello(&mut client, usize::MAX).unwrap().reject();
    client.input = refusal.alert;
    let error = client.open().unwrap_err();
    assert!(error.to_string().contains("unrecognized name"), "{error}");
}

#[test]
fn records_are_as_small_as_wanted() {
    let server = server(ServerSettings {
        identities: vec![ecdsa()],
        record_bytes: 4096,
        ..ServerSettings::default()
    });
    let (_, mut server) = connect(&client(ClientSettings::default()), &server).unwrap();
    server.write(&[0; 16384]);
    let mut records = Vec::new();
    let mut rest = &server.output[..];
    while !rest.is_empty() {
        let len = usize::from(u16::from_be_bytes([rest[3], rest[4]]));
        records.push(len);
        rest = &rest[5 + len..];
    }
    assert_eq!(records, [4096 + 17; 4]);
}

#[test]
fn early_data_arrives_before_the_handshake_is_complete() {
    // The sessions of this crate do not send early data, but rustls' own do.
    let cache = Arc::new(SessionCache::new(1 << 20, Duration::from_secs(60)));
    let server = server(ServerSettings {
        identities: vec![ecdsa()],
        cache: Some(cache),
        early_data_bytes_max: 1000,
        ..ServerSettings::default()
    });
    let mut peer = crate::early::Peer::new();
    let mut first = peer.connect(&server, b"");
    assert!(first.read.is_empty() && !first.session.is_handshaking());
    first.write(b"x");
    let second = peer.connect(&server, b"early");
    assert!(second.session.is_reused());
    assert_eq!(second.read, b"early");
    assert!(peer.accepted);
    // Each session serves once: a replay is a full handshake.
    let third = peer.replay(&server);
    assert!(third.read.is_empty());
}
