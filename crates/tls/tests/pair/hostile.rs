//! Peers that break the rules.

use nowait_tls::{
    Acceptor, Ciphers, ClientSettings, Error, Fault, HELLO_BYTES_MAX, ServerSettings, Versions,
};

use crate::certificates::{CertificateSpec, ecdsa, intermediate, root, verifier};
use crate::link::{LinkEnd, client, connect, exchange, server};

fn pair() -> (LinkEnd, LinkEnd) {
    let server = server(ServerSettings { identities: vec![ecdsa()], ..Default::default() });
    connect(&client(ClientSettings::default()), &server).unwrap()
}

#[test]
fn plain_http_is_recognized() {
    let mut acceptor = Acceptor::default();
    assert!(acceptor.receive(b"").unwrap().is_none());
    let refusal = acceptor.receive(b"GET / HTTP/1.1\r\n").err().unwrap();
    assert_eq!(refusal.error, Error::PlainHttp);
    assert_eq!(acceptor.received(), b"GET / HTTP/1.1\r\n");
    assert!(refusal.alert.is_empty());
}

#[test]
fn hellos_are_bounded() {
    // Records of one byte.
    let refused = |len: usize| {
        let mut acceptor = Acceptor::default();
        let mut message = vec![1, 0, (len >> 8) as u8, len as u8];
        message.resize(len + 4, 0);
        let mut sent = 0;
        let refused = message.iter().find_map(|byte| {
            sent += 6;
            acceptor.receive(&[22, 3, 1, 0, 1, *byte]).err()
        });
        let refused = refused.unwrap();
        assert_eq!(refused.error, Error::TooLong);
        assert_eq!(refused.alert, [21, 3, 3, 0, 2, 2, 47]);
        sent
    };
    // What is announced is enough.
    assert_eq!(refused(60_000), 4 * 6);
    assert_eq!(refused(HELLO_BYTES_MAX + 1), 4 * 6);
    assert!(refused(HELLO_BYTES_MAX) <= HELLO_BYTES_MAX + 4096);
}

#[test]
fn nothing_else_may_stand_in_a_hello() {
    let part = [22, 3, 1, 0, 2, 1, 0];
    for other in [
        // A warning, a change of ciphers, data, an empty fragment; each time more of the hello follows.
        &[21, 3, 3, 0, 2, 1, 0][..],
        &[20, 3, 3, 0, 1, 1],
        &[23, 3, 3, 0, 1, 1],
        &[22, 3, 1, 0, 0],
    ] {
        for behind in [&part[..], &[]] {
            let mut acceptor = Acceptor::default();
            let sent = [behind, other].concat();
            let refusal = acceptor.receive(&sent).err().expect("it is refused at once");
            assert_eq!(refusal.error.fault(), Fault::Peer);
        }
    }
}

/// RFC 8446, 5.1: a message before a change of keys ends with its record.
#[test]
fn a_hello_ends_with_its_record() {
    for len in [0, 1, 101, 300] {
        let hello = [&[1, 0, (len >> 8) as u8, len as u8][..], &vec![0; len]].concat();
        for behind in [&[1][..], &[2, 0x68, 0x32, 8], &[20, 0, 0, 12, 0, 0]] {
            let message = [&hello[..], behind].concat();
            let mut sent = vec![22, 3, 1];
            sent.extend_from_slice(&(message.len() as u16).to_be_bytes());
            sent.extend_from_slice(&message);
            for piece in 1..=sent.len() {
                let mut acceptor = Acceptor::default();
                let refused = sent.chunks(piece).find_map(|part| acceptor.receive(part).err());
                let refusal = refused.expect("what follows is refused");
                assert_eq!(refusal.alert, [21, 3, 3, 0, 2, 2, 10], "{len} {piece}");
                assert_eq!(refusal.error.fault(), Fault::Peer);
            }
        }
    }
}

#[test]
fn large_hellos_are_accepted_in_any_pieces() {
    let plain = {
        let settings = ClientSettings { sends_name: true, ..ClientSettings::default() };
        let mut client = LinkEnd::new(client(settings).connect("example.com").unwrap(), Vec::new());
        client.open().unwrap();
        client.output
    };
    // With padding (RFC 7685), as the last extension but for none.
    let message = &plain[5..];
    let session_id = 4 + 2 + 32;
    let suites = session_id + 1 + usize::from(message[session_id]);
    let suites_len = usize::from(u16::from_be_bytes([message[suites], message[suites + 1]]));
    let methods = suites + 2 + suites_len;
    let extensions = methods + 1 + usize::from(message[methods]);
    let of_len = |bytes: &[u8]| (bytes.len() as u16).to_be_bytes();
    for size in [5_000, 12_000, HELLO_BYTES_MAX] {
        let padding = vec![0; size + 4 - message.len() - 4];
        let padding = [&[0, 21][..], &of_len(&padding), &padding].concat();
        let all = [&padding, &message[extensions + 2..]].concat();
        let body = [&message[4..extensions], &of_len(&all), &all].concat();
        assert_eq!(body.len(), size);
        let message = [&[1, 0][..], &of_len(&body), &body].concat();
        for record in [100, 1_400, 16_384] {
            let mut sent = Vec::new();
            for part in message.chunks(record) {
                sent.extend_from_slice(&[22, 3, 1]);
                sent.extend_from_slice(&of_len(part));
                sent.extend_from_slice(part);
            }
            // What follows the hello does not count.
            sent.extend_from_slice(&[23, 3, 3, 0x40, 0]);
            sent.extend_from_slice(&[0; 3_000]);
            for piece in [7, 1_460, 16_384] {
                let mut acceptor = Acceptor::default();
                let hello = sent.chunks(piece).find_map(|part| acceptor.receive(part).unwrap());
                assert_eq!(hello.unwrap().server_name().as_deref(), Some("example.com"));
            }
        }
    }
}

#[test]
fn garbage_is_refused_with_an_alert() {
    let mut client =
        LinkEnd::new(client(ClientSettings::default()).connect("example.com").unwrap(), Vec::new());
    client.open().unwrap();
    let hello = client.output;
    // Every single changed byte leads to a hello, to more input, or to an error; never to a panic.
    for at in 0..hello.len().min(400) {
        for change in [1, 0x80, 0xff] {
            let mut bad = hello.clone();
            bad[at] ^= change;
            let mut acceptor = Acceptor::default();
            match acceptor.receive(&bad) {
                Ok(Some(hello)) => {
                    let settings =
                        ServerSettings { identities: vec![ecdsa()], ..Default::default() };
                    let (session, input) = hello.begin(&server(settings)).unwrap();
                    let mut server = LinkEnd::new(session, input);
                    if let Err(error) = server.open() {
                        assert_eq!(error.fault(), Fault::Peer, "{error}");
                        assert!(!server.output.is_empty());
                    }
                }
                Ok(None) => {}
                Err(refusal) => assert_eq!(refusal.error.fault(), Fault::Peer),
            }
        }
    }
}

#[test]
fn nothing_in_common_is_told_to_both() {
    let tls12 = Versions { tls12: true, tls13: false };
    let tls13 = Versions { tls12: false, tls13: true };
    let check = |server_settings: ServerSettings, client_settings: ClientSettings, ours, theirs| {
        let server = server(ServerSettings { identities: vec![ecdsa()], ..server_settings });
        let (told, error) =
            connect(&client(client_settings), &server).err().map(|failed| *failed).unwrap();
        assert!(error.to_string().contains(ours), "{error}");
        assert!(told.to_string().contains(theirs), "{told}");
        assert_eq!(error.fault(), Fault::Peer);
    };
    check(
        ServerSettings { versions: tls13, ..Default::default() },
        ClientSettings { versions: tls12, ..Default::default() },
        "unsupported protocol",
        "alert protocol version",
    );
    check(
        ServerSettings {
            ciphers: Ciphers::parse("CHACHA20"),
            versions: tls12,
            ..Default::default()
        },
        ClientSettings { ciphers: Ciphers::parse("AES"), versions: tls12, ..Default::default() },
        "no shared cipher",
        "alert handshake failure",
    );
}

#[test]
fn changed_records_are_refused() {
    for at in [3, 5, 20] {
        let (mut client, mut server) = pair();
        client.write(b"hello");
        client.output[at] ^= 1;
        let result = exchange(&mut client, &mut server, usize::MAX);
        // A changed length may lack bytes.
        if let Err((_, error)) = result.map_err(|failed| *failed) {
            assert_eq!(error.fault(), Fault::Peer);
            assert_eq!(server.open().unwrap_err(), error, "it stays failed");
            assert!(server.session.seal(&[b"x"], &mut Vec::new()).is_err());
        } else {
            assert_eq!(at, 3);
        }
        assert!(server.read.is_empty());
    }
}

#[test]
fn wrong_servers_are_refused() {
    let check = |identity, depth, name: &str, reason: &str| {
        let server = server(ServerSettings { identities: vec![identity], ..Default::default() });
        let settings = ClientSettings { verifier: Some(verifier(depth)), ..Default::default() };
        let client = client(settings);
        let mut client = LinkEnd::new(client.connect(name).unwrap(), Vec::new());
        let hello = crate::link::hello(&mut client, usize::MAX).unwrap();
        let (session, input) = hello.begin(&server).unwrap();
        let mut server = LinkEnd::new(session, input);
        server.open().unwrap();
        let result = exchange(&mut client, &mut server, usize::MAX);
        match reason.is_empty() {
            true => assert!(result.is_ok(), "{result:?}"),
            false => {
                let error = format!("{:?}", result.unwrap_err().0);
                assert!(error.contains(reason), "{error}");
            }
        }
    };
    check(ecdsa(), 1, "example.com", "");
    check(ecdsa(), 1, "example.org", "NotValidForName");
    let below = || CertificateSpec::default().identity(intermediate(), &[intermediate(), root()]);
    check(below(), 1, "example.com", "");
    check(below(), 0, "example.com", "certificate chain too long");
    let alone = CertificateSpec::default().identity(intermediate(), &[]);
    check(alone, 1, "example.com", "unable to verify the first certificate");
    let old =
        CertificateSpec { years: (2000, 2001), ..CertificateSpec::default() }.identity(root(), &[]);
    check(old, 1, "example.com", "certificate has expired");
}

#[test]
fn key_types_without_a_certificate_are_told_apart() {
    let server = server(ServerSettings { identities: vec![ecdsa()], ..Default::default() });
    let tls12 = Versions { tls12: true, tls13: false };
    let ciphers = Ciphers::parse("aRSA");
    let settings = ClientSettings { versions: tls12, ciphers, ..Default::default() };
    let (told, error) = connect(&client(settings), &server).err().map(|failed| *failed).unwrap();
    assert!(error.to_string().contains("no suitable signature algorithm"), "{error}");
    assert!(told.to_string().contains("alert handshake failure"), "{told}");
}

#[test]
fn parts_of_handshake_messages_keep_nothing_else_from_working() {
    // Plaintext handshake records are not possible any more; so a peer that knows the keys sends
    // them: a client whose hello is cut into records of one byte.
    let mut one =
        LinkEnd::new(client(ClientSettings::default()).connect("example.com").unwrap(), Vec::new());
    one.open().unwrap();
    let hello = std::mem::take(&mut one.output);
    let cut: Vec<u8> = hello[5..].iter().flat_map(|byte| [22, 3, 1, 0, 1, *byte]).collect();
    let mut acceptor = Acceptor::default();
    let hello = acceptor.receive(&cut).unwrap().expect("a whole hello");
    let settings = ServerSettings { identities: vec![ecdsa()], ..Default::default() };
    let (session, input) = hello.begin(&server(settings)).unwrap();
    let mut other = LinkEnd::new(session, Vec::new());
    // Record by record: the session keeps what rustls joins.
    for record in input.chunks(6) {
        other.input.extend_from_slice(record);
        other.open().unwrap();
        assert!(other.input.is_empty());
    }
    assert!(other.session.is_quiet());
    exchange(&mut one, &mut other, 100).unwrap();
    one.write(b"data");
    exchange(&mut one, &mut other, 100).unwrap();
    assert_eq!(other.read, b"data");
}
