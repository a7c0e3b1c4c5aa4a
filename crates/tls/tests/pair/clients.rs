//! A client after its handshake. What its server sends then is made by this test: anything that a server might send.

use nowait_tls::{
    ClientSettings, Error, PLAINTEXT_BYTES_MAX, ServerSettings, Versions, split_record,
};
use rustls::{AlertDescription, PeerMisbehaved};

use crate::certificates::ecdsa;
use crate::established::Kernel;
use crate::link::{LinkEnd, client, connect, server};

const DATA: u8 = 23;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
const KEY_UPDATE_REQUESTED: [u8; 5] = [24, 0, 0, 1, 1];

/// A client, and a server whose records the test seals.
struct KernelPair {
    client: LinkEnd,
    server: LinkEnd,
    kernel: Kernel,
}

fn versions(tls13: bool) -> Versions {
    Versions { tls12: !tls13, tls13 }
}

fn pair(tls13: bool) -> KernelPair {
    let settings =
        ServerSettings { identities: vec![ecdsa()], offloads: true, ..Default::default() };
    let client = client(ClientSettings { versions: versions(tls13), ..Default::default() });
    let (client, mut server) = connect(&client, &server(settings)).unwrap();
    let kernel = Kernel::new(&server.session.offload(true).unwrap());
    KernelPair { client, server, kernel }
}

impl KernelPair {
    /// The client gets a record.
    fn tell(&mut self, kind: u8, content: &[u8]) -> Result<(), Error> {
        self.client.input.extend(self.kernel.seal(kind, content));
        self.client.open()
    }

    /// The server gets what the client has sent.
    fn receive(&mut self) -> Result<(), Error> {
        self.server.input.append(&mut self.client.output);
        self.server.open()
    }

    #[track_caller]
    fn ask(&mut self) {
        self.client.write(b"question");
        self.receive().unwrap();
        assert_eq!(std::mem::take(&mut self.server.read), b"question");
        self.tell(DATA, b"answer").unwrap();
        assert_eq!(std::mem::take(&mut self.client.read), b"answer");
    }

    /// The client refuses what it gets, and says so.
    #[track_caller]
    fn refused(&mut self, kind: u8, content: &[u8], alert: AlertDescription) -> Error {
        let error = self.tell(kind, content).unwrap_err();
        let told = self.receive().unwrap_err();
        let expected = rustls::Error::AlertReceived(alert);
        assert!(matches!(&told, Error::Connection(told) if *told == expected), "{told}");
        assert!(self.client.session.seal(&[b"more"], &mut Vec::new()).is_err());
        error
    }
}

/// A NewSessionTicket (RFC 8446, 4.6.1) with a ticket of this length.
fn ticket(len: u16) -> Vec<u8> {
    let lifetime_and_age = [[0, 0, 0, 99], [1, 2, 3, 4]].concat();
    let [high, low] = len.to_be_bytes();
    let nonce = [1, 7];
    let content =
        [&lifetime_and_age[..], &nonce, &[high, low], &vec![9; usize::from(len)], &[0, 0]].concat();
    let size = u32::try_from(content.len()).unwrap().to_be_bytes();
    [&[4], &size[1..], &content].concat()
}

#[test]
fn tickets_come_whole_in_parts_and_together() {
    let mut pair = pair(true);
    pair.ask();
    pair.tell(HANDSHAKE, &ticket(100)).unwrap();
    pair.tell(HANDSHAKE, &[ticket(10), ticket(1000), ticket(1)].concat()).unwrap();
    assert!(pair.client.session.is_quiet());
    pair.ask();
    let (long, after) = (ticket(40_000), ticket(3));
    for (at, part) in [long, after].concat().chunks(PLAINTEXT_BYTES_MAX - 1).enumerate() {
        pair.tell(HANDSHAKE, part).unwrap();
        assert_eq!(pair.client.session.is_quiet(), at == 2, "{at}");
    }
    // Byte by byte, with a key update behind.
    for byte in [&ticket(5)[..], &KEY_UPDATE].concat() {
        pair.tell(HANDSHAKE, &[byte]).unwrap();
    }
    pair.client.write(b"question");
    pair.receive().unwrap();
    assert!(pair.client.read.is_empty() && pair.client.session.is_quiet());
}

#[test]
fn what_a_server_must_not_send_is_refused() {
    let unexpected = AlertDescription::UnexpectedMessage;
    let with_data = [&KEY_UPDATE[..], &ticket(1)].concat();
    for (content, alert) in [
        // CertificateRequest, which this client has not offered; ClientHello; Finished.
        (&[13, 0, 0, 3, 0, 0, 0][..], unexpected),
        (&[1, 0, 0, 0], unexpected),
        (&[20], unexpected),
        // Tickets without sense, or too long.
        (&[4, 0, 0, 1, 0], AlertDescription::DecodeError),
        (&[4, 1, 0, 0], AlertDescription::DecodeError),
        // Key updates.
        (&[24, 0, 0, 1, 2], unexpected),
        (&[24, 0, 0, 0], unexpected),
        (&[24, 0, 0, 2], AlertDescription::DecodeError),
        (&with_data, unexpected),
    ] {
        let mut pair = pair(true);
        pair.ask();
        pair.refused(HANDSHAKE, content, alert);
    }
    // Data within a message.
    let mut pair = pair(true);
    pair.tell(HANDSHAKE, &ticket(100)[..50]).unwrap();
    pair.refused(DATA, b"data", unexpected);
}

#[test]
fn the_server_replaces_its_keys() {
    let mut pair = pair(true);
    pair.ask();
    // The client answers with a key update of its own: what it sends then has new keys, which the
    // server's session follows.
    pair.tell(HANDSHAKE, &KEY_UPDATE_REQUESTED).unwrap();
    assert!(!pair.client.output.is_empty());
    pair.client.write(b"question");
    pair.receive().unwrap();
    assert_eq!(pair.server.read, b"question");
    // The client expects new keys of the server, which has used the old ones.
    let error = pair.tell(DATA, b"answer").unwrap_err();
    assert!(matches!(error, Error::Connection(rustls::Error::DecryptError)), "{error}");
}

#[test]
fn renegotiation_is_refused_once_and_ends_the_connection_then() {
    let mut pair = pair(false);
    pair.ask();
    let hello_request = [0, 0, 0, 0];
    pair.tell(HANDSHAKE, &hello_request).unwrap();
    assert!(!pair.client.output.is_empty(), "a warning");
    pair.receive().unwrap();
    pair.ask();
    let error = pair.refused(HANDSHAKE, &hello_request, AlertDescription::UnexpectedMessage);
    let why = PeerMisbehaved::TooManyRenegotiationRequests;
    assert!(matches!(error, Error::Connection(rustls::Error::PeerMisbehaved(it)) if it == why));
}

#[test]
fn parts_share_records_and_the_end_is_sealed() {
    for tls13 in [true, false] {
        let mut pair = pair(tls13);
        let parts = [vec![b'a'; 9], vec![b'b'; PLAINTEXT_BYTES_MAX - 9], vec![b'c'; 20_000]];
        let plain: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        pair.client.session.seal(&plain, &mut pair.client.output).unwrap();
        let (mut rest, mut records) = (&pair.client.output[..], 0);
        while let Some((kind, _, len)) = split_record(rest) {
            assert_eq!(kind, DATA);
            (records, rest) = (records + 1, &rest[len..]);
        }
        assert_eq!(records, 3);
        pair.receive().unwrap();
        assert!(pair.server.read == parts.concat());
        pair.client.session.end(&mut pair.client.output);
        pair.receive().unwrap();
        assert!(pair.server.ended);
        pair.tell(ALERT, &[1, 0]).unwrap();
        assert!(pair.client.ended);
    }
}
