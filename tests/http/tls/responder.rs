//! An OCSP responder that says what a test wants. Its responses also serve the tests of
//! `crates/tls`.
#![allow(dead_code, reason = "only some of the tests that include this file use all of it")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, SigningKey};

/// What a response says about each certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    Good,
    Revoked,
    Unknown,
}

/// A response to be made.
pub struct OcspSpec<'a> {
    pub says: Says,
    pub this_update: &'a str,
    pub next_update: Option<&'a str>,
    /// Certificates that are sent along, in DER.
    pub certificates: &'a [&'a [u8]],
}

impl OcspSpec<'_> {
    pub fn new(says: Says) -> OcspSpec<'static> {
        let (this_update, next_update) = ("20200101000000Z", Some("20900101000000Z"));
        OcspSpec { says, this_update, next_update, certificates: &[] }
    }

    /// The response to a request about one certificate, signed with a key on P-256.
    pub fn respond(&self, request: &[u8], key: &KeyPair) -> Vec<u8> {
        const SEQUENCE: u8 = 0x30;
        const TIME: u8 = 0x18;
        // Behind the headers of four sequences.
        let id = &request[8..];
        let status = match self.says {
            Says::Good => tagged(0x80, &[]),
            Says::Revoked => tagged(0xa1, &tagged(TIME, b"20210101000000Z")),
            Says::Unknown => tagged(0x82, &[]),
        };
        let next_update = self.next_update.map(|next| tagged(0xa0, &tagged(TIME, next.as_bytes())));
        let single = [
            id.to_vec(),
            status,
            tagged(TIME, self.this_update.as_bytes()),
            next_update.unwrap_or_default(),
        ];
        let data = [
            tagged(0xa2, &tagged(4, &[7; 20])),
            tagged(TIME, b"20200101000000Z"),
            tagged(SEQUENCE, &tagged(SEQUENCE, &single.concat())),
        ];
        let data = tagged(SEQUENCE, &data.concat());
        let mut signature = vec![0];
        signature.extend(key.sign(&data).unwrap());
        // ecdsa-with-SHA256
        let algorithm = tagged(6, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]);
        let mut basic = [data, tagged(SEQUENCE, &algorithm), tagged(3, &signature)].concat();
        if !self.certificates.is_empty() {
            basic.extend(tagged(0xa0, &tagged(SEQUENCE, &self.certificates.concat())));
        }
        let typed =
            [tagged(6, &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1]), tagged(4, &tagged(SEQUENCE, &basic))];
        let typed = tagged(0xa0, &tagged(SEQUENCE, &typed.concat()));
        tagged(SEQUENCE, &[tagged(0x0a, &[0]), typed].concat())
    }
}

fn tagged(tag: u8, contents: &[u8]) -> Vec<u8> {
    let len = contents.len();
    let mut bytes = match len {
        0..128 => vec![tag, len as u8],
        _ => vec![tag, 0x82, (len >> 8) as u8, len as u8],
    };
    bytes.extend_from_slice(contents);
    bytes
}

/// A responder for the certificates of one authority.
pub struct Responder {
    pub addr: SocketAddr,
    state: Arc<Mutex<ResponderState>>,
}

struct ResponderState {
    says: Option<Says>,
    paths: Vec<String>,
}

impl Responder {
    /// One that signs with this key.
    pub fn new(key: KeyPair) -> Responder {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let state =
            Arc::new(Mutex::new(ResponderState { says: Some(Says::Good), paths: Vec::new() }));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client may have gone.
                let _ = serve(stream, &key, &shared);
            }
        });
        Responder { addr, state }
    }

    /// What it says from now on; `None`: it responds with 500.
    pub fn says(&self, says: Option<Says>) {
        self.state.lock().unwrap().says = says;
    }

    /// The paths that it was asked for so far.
    pub fn paths(&self) -> Vec<String> {
        self.state.lock().unwrap().paths.clone()
    }
}

fn serve(
    mut stream: TcpStream,
    key: &KeyPair,
    state: &Mutex<ResponderState>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let request = decode(path.rsplit('/').next().unwrap());
    let says = {
        let mut state = state.lock().unwrap();
        state.paths.push(path);
        state.says
    };
    let Some(says) = says else {
        return stream.write_all(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
    };
    let body = OcspSpec::new(says).respond(&request, key);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/ocsp-response\r\nContent-Length:";
    stream.write_all(format!("{head} {}\r\n\r\n", body.len()).as_bytes())?;
    stream.write_all(&body)
}

/// Base64, escaped for a URI.
fn decode(text: &str) -> Vec<u8> {
    let text = text.replace("%2B", "+").replace("%2F", "/").replace("%3D", "=");
    STANDARD.decode(text).expect("base64")
}
