//! ClientHellos with server names that rustls does not accept, such as `-x.example.com`.
//!
//! rustls ends the handshake at such a name; OpenSSL, and so nginx, does not. So before the hello is passed
//! to rustls, the type of the extension is replaced by an unassigned one, which rustls skips ([`hide`]);
//! the name is read here. What both sides hash is the hello as it was sent (RFC 8446, 4.4.1). That is why
//! the hash functions of servers ([`restoring`]) put the two bytes back wherever rustls hashes this hello.
//! If that ever failed, the hashes of the two sides would differ, and with them all that is derived from
//! them: the handshake fails then. It cannot succeed with two views of a hello.
//!
//! Used by [`Acceptor`](crate::Acceptor) and [`Session`](crate::Session).

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::LazyLock;

use aws_lc_rs::digest;
use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::hash::{Context, Hash, HashAlgorithm, Output};
use rustls::crypto::tls13::Hkdf;
use rustls::pki_types::ServerName;
use rustls::{SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite};

use crate::field_reader::FieldReader;
use crate::{ciphers, derivation};

/// Type, length, version and random number of a hello: no other message begins like this.
const HEAD_BYTES: usize = 4 + 2 + 32;

/// The position of the random number.
const RANDOM: std::ops::Range<usize> = 6..HEAD_BYTES;

/// `handshake_type`
const CLIENT_HELLO: u8 = 1;

/// The type of the extension `server_name`, and of names of hosts in it (RFC 6066, 3).
const SERVER_NAME: [u8; 2] = [0, 0];
const HOST_NAME: u8 = 0;

/// The longest name of OpenSSL (`TLSEXT_MAXLEN_host_name`).
const NAME_BYTES_MAX: usize = 255;

/// Types of extensions for private use (RFC 8447, 7). `ff01` is `renegotiation_info`.
const PRIVATE: std::ops::Range<u16> = 0xff40..0xffff;

/// A hello whose extension is hidden.
#[derive(Clone, Debug)]
pub(crate) struct MaskedHello {
    head: [u8; HEAD_BYTES],
    /// The position of the extension's type.
    at: usize,
}

/// The extension of a hello, with a name that rustls does not accept.
struct NameExtension {
    at: usize,
    unused: [u8; 2],
    /// `None`: no server can have this name.
    name: Option<String>,
}

/// Searches for the extension in a complete message. `None`: the message can be passed to rustls unchanged.
fn find(message: &[u8]) -> Option<NameExtension> {
    let mut fields = FieldReader(message);
    let head = fields.take(HEAD_BYTES)?;
    let len = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
    if head[0] != CLIENT_HELLO || message.len() != len + 4 {
        return None;
    }
    fields.short()?;
    fields.long()?;
    fields.short()?;
    let mut extensions = FieldReader(fields.long()?);
    let begin = message.len() - extensions.0.len();
    if !fields.0.is_empty() {
        return None;
    }
    let (mut kinds, mut found) = (Vec::new(), None);
    let all = extensions.0.len();
    while !extensions.0.is_empty() {
        let at = begin + all - extensions.0.len();
        let kind: [u8; 2] = extensions.take(2)?.try_into().ok()?;
        let contents = extensions.long()?;
        if kind == SERVER_NAME {
            match found {
                None => found = Some((at, contents)),
                Some(_) => return None,
            }
        }
        kinds.push(kind);
    }
    let (at, contents) = found?;
    let name = host_name(contents).filter(|name| ServerName::try_from(*name).is_err())?;
    let unused = PRIVATE.map(u16::to_be_bytes).find(|kind| !kinds.contains(kind))?;
    let name = std::str::from_utf8(name).ok().filter(|name| is_host(name));
    Some(NameExtension { at, unused, name: name.map(str::to_ascii_lowercase) })
}

/// The only name in the extension, of a length that OpenSSL accepts.
fn host_name(contents: &[u8]) -> Option<&[u8]> {
    let mut fields = FieldReader(contents);
    let mut names = FieldReader(fields.long()?);
    let kind = *names.take(1)?.first()?;
    let name = names.long()?;
    let is_only = kind == HOST_NAME && names.0.is_empty() && fields.0.is_empty();
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(&0);
    (is_only && is_name).then_some(name)
}

/// Whether nginx searches for a server of this name (`ngx_http_validate_host`).
fn is_host(name: &str) -> bool {
    let is_allowed = |byte: u8| byte > b' ' && !matches!(byte, b'/' | b':' | 0x7f);
    name.bytes().all(is_allowed) && !name.contains("..")
}

/// Hides the extension of a hello at the beginning of `received`, if rustls would not accept its name.
/// Returns the name, if a server can have it.
pub(crate) fn hide(received: &mut [u8]) -> Option<(MaskedHello, Option<String>)> {
    let (message, records) = message(received)?;
    let NameExtension { at, unused, name } = find(&message)?;
    let head = message.first_chunk().copied()?;
    let places = [at, at + 1].map(|at| place(&records, at));
    for (place, byte) in places.into_iter().zip(unused) {
        *received.get_mut(place?)? = byte;
    }
    Some((MaskedHello { head, at }, name))
}

/// The same for the second hello of a client, which the server has requested.
pub(crate) fn hide_second(received: &mut [u8], first: &MaskedHello) -> Option<MaskedHello> {
    let is_second = received.get(5..5 + HEAD_BYTES)?.get(RANDOM) == first.head.get(RANDOM);
    if is_second { hide(received).map(|(hidden, _)| hidden) } else { None }
}

/// The hello in these records as the client sent it: with its name.
pub(crate) fn sent<'r>(received: &'r [u8], hidden: Option<&MaskedHello>) -> Option<Cow<'r, [u8]>> {
    let (mut message, _) = message(received)?;
    if let Some(MaskedHello { at, .. }) = hidden {
        message.to_mut().get_mut(*at..at + SERVER_NAME.len())?.copy_from_slice(&SERVER_NAME);
    }
    Some(message)
}

/// The start and length of each piece of a message.
type Pieces = Vec<(usize, usize)>;

/// The first message in records, and where it is in them.
fn message(received: &[u8]) -> Option<(Cow<'_, [u8]>, Pieces)> {
    const HANDSHAKE: u8 = 22;
    let mut fields = FieldReader(received);
    let (mut joined, mut records) = (Cow::Borrowed(&[][..]), Vec::new());
    loop {
        let kind = *fields.take(3)?.first()?;
        let part = fields.long().filter(|part| kind == HANDSHAKE && !part.is_empty())?;
        records.push((received.len() - fields.0.len() - part.len(), part.len()));
        match joined.is_empty() {
            true => joined = Cow::Borrowed(part),
            false => joined.to_mut().extend_from_slice(part),
        }
        if let Some([_, high, middle, low]) = joined.first_chunk().copied() {
            let len = 4 + u32::from_be_bytes([0, high, middle, low]) as usize;
            if joined.len() >= len {
                return (joined.len() == len).then_some((joined, records));
            }
        }
    }
}

/// The position of a byte of the message.
fn place(records: &[(usize, usize)], mut at: usize) -> Option<usize> {
    for (begin, len) in records {
        match at.checked_sub(*len) {
            None => return Some(begin + at),
            Some(rest) => at = rest,
        }
    }
    None
}

thread_local! {
    /// The hellos of the session that is at work on this thread.
    static AT_WORK: RefCell<Vec<MaskedHello>> = const { RefCell::new(Vec::new()) };
}

/// Runs a step of a session with these hellos.
pub(crate) fn with<T>(hidden: &[MaskedHello], step: impl FnOnce() -> T) -> T {
    if hidden.is_empty() {
        return step();
    }
    AT_WORK.set(hidden.to_vec());
    let result = step();
    AT_WORK.take();
    result
}

/// Passes on what rustls hashes or verifies, as it was sent.
pub(crate) fn restored(bytes: &[u8], mut pass: impl FnMut(&[u8])) {
    AT_WORK.with_borrow(|hidden| {
        let is_it = |hidden: &&MaskedHello| {
            bytes.len() >= hidden.at + SERVER_NAME.len() && bytes.starts_with(&hidden.head)
        };
        match hidden.iter().find(is_it) {
            None => pass(bytes),
            Some(MaskedHello { at, .. }) => {
                pass(&bytes[..*at]);
                pass(&SERVER_NAME);
                pass(&bytes[at + SERVER_NAME.len()..]);
            }
        }
    });
}

/// A hash function that restores hellos.
struct RestoringHash {
    algorithm: &'static digest::Algorithm,
    name: HashAlgorithm,
}

static SHA256: RestoringHash =
    RestoringHash { algorithm: &digest::SHA256, name: HashAlgorithm::SHA256 };
static SHA384: RestoringHash =
    RestoringHash { algorithm: &digest::SHA384, name: HashAlgorithm::SHA384 };

impl Hash for RestoringHash {
    fn start(&self) -> Box<dyn Context> {
        Box::new(RunningHash(digest::Context::new(self.algorithm)))
    }

    fn hash(&self, data: &[u8]) -> Output {
        let mut context = self.start();
        context.update(data);
        context.finish()
    }

    fn output_len(&self) -> usize {
        self.algorithm.output_len()
    }

    fn algorithm(&self) -> HashAlgorithm {
        self.name
    }
}

/// A hash in progress.
struct RunningHash(digest::Context);

impl Context for RunningHash {
    fn fork_finish(&self) -> Output {
        Output::new(self.0.clone().finish().as_ref())
    }

    fn fork(&self) -> Box<dyn Context> {
        Box::new(RunningHash(self.0.clone()))
    }

    fn finish(self: Box<Self>) -> Output {
        Output::new(self.0.finish().as_ref())
    }

    fn update(&mut self, data: &[u8]) {
        restored(data, |part| self.0.update(part));
    }
}

/// The suites, with hash functions that restore hellos, and our own derivation of keys.
static SUITES: LazyLock<Vec<SupportedCipherSuite>> =
    LazyLock::new(|| ciphers::all().map(with_own_hash).collect());

/// A suite for servers.
pub(crate) fn restoring(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let known = SUITES.iter().find(|known| known.suite() == suite.suite());
    known.copied().unwrap_or(suite)
}

/// Made once for each suite, and kept until the process ends.
fn with_own_hash(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let common = |common: &CipherSuiteCommon| {
        let hash_provider: &'static dyn Hash = match common.hash_provider.algorithm() {
            HashAlgorithm::SHA256 => &SHA256,
            HashAlgorithm::SHA384 => &SHA384,
            _ => common.hash_provider,
        };
        let confidentiality_limit = common.confidentiality_limit;
        CipherSuiteCommon { suite: common.suite, hash_provider, confidentiality_limit }
    };
    match suite {
        SupportedCipherSuite::Tls12(suite) => {
            let Tls12CipherSuite { prf_provider, kx, sign, aead_alg, .. } = *suite;
            let common = common(&suite.common);
            let own = Tls12CipherSuite { common, prf_provider, kx, sign, aead_alg };
            SupportedCipherSuite::Tls12(Box::leak(Box::new(own)))
        }
        SupportedCipherSuite::Tls13(suite) => {
            let Tls13CipherSuite { hkdf_provider, aead_alg, quic, .. } = *suite;
            let hkdf_provider: &'static dyn Hkdf = match suite.common.hash_provider.algorithm() {
                HashAlgorithm::SHA256 => &derivation::SHA256,
                HashAlgorithm::SHA384 => &derivation::SHA384,
                _ => hkdf_provider,
            };
            let own =
                Tls13CipherSuite { common: common(&suite.common), hkdf_provider, aead_alg, quic };
            SupportedCipherSuite::Tls13(Box::leak(Box::new(own)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hello with these extensions.
    fn hello(extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let long = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
        let all: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, contents)| [&kind.to_be_bytes()[..], &long(contents)].concat())
            .collect();
        let body = [&[3, 3][..], &[7; 32], &[0], &long(&[0x13, 1]), &[1, 0], &long(&all)].concat();
        [&[1, 0][..], &long(&body)].concat()
    }

    fn named(name: &[u8]) -> Vec<u8> {
        let long = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
        long(&[&[0][..], &long(name)].concat())
    }

    fn records(message: &[u8], record: usize) -> Vec<u8> {
        let in_one =
            |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
        message.chunks(record).flat_map(in_one).collect()
    }

    #[test]
    fn names_are_hidden_and_restored() {
        let sni = named(b"-X.example.com");
        let message = hello(&[(0xff40, b""), (0, &sni), (43, &[2, 3, 4])]);
        for record in [1, 2, 3, 50, 1000] {
            let sent = records(&message, record);
            let mut received = [&sent[..], b"\x14\x03\x03\0\x01\x01"].concat();
            let (hidden, name) = hide(&mut received).unwrap();
            assert_eq!(name.as_deref(), Some("-x.example.com"));
            assert_eq!(received.len(), sent.len() + 6);
            let (changed, _) = super::message(&received[..sent.len()]).unwrap();
            assert_ne!(*changed, message[..]);
            assert_eq!(changed.len(), message.len());
            // An extension of this type is there already.
            assert_eq!(changed[hidden.at..hidden.at + 2], [0xff, 0x41]);
            let whole = |bytes: &[u8]| {
                let mut all = Vec::new();
                restored(bytes, |part| all.extend_from_slice(part));
                all
            };
            with(std::slice::from_ref(&hidden), || {
                assert_eq!(whole(&changed), message);
                // Without its end, as for a binder, or with what follows it.
                assert_eq!(whole(&changed[..message.len() - 3]), message[..message.len() - 3]);
                assert_eq!(whole(&[&changed[..], b"more"].concat())[..message.len()], message);
                assert_eq!(whole(b"other"), b"other");
            });
            assert_eq!(whole(&changed), *changed);
            // Once is enough.
            assert!(hide(&mut received).is_none());
        }
    }

    #[test]
    fn what_rustls_can_judge_is_left_to_it() {
        let (good, bad) = (named(b"example.com"), named(b"-x"));
        let two = [&[0, 10][..], &bad[2..], &bad[2..]].concat();
        let long = named(&[b'-'; 256]);
        for extensions in [
            &[(0u16, &good[..])][..],
            &[(0, &named(b"192.0.2.1"))],
            &[(0, &named(b""))],
            &[(0, &named(b"a\0b"))],
            &[(0, &two)],
            &[(0, &long)],
            &[(0, &bad), (0, &bad)],
            &[(0, &bad[..4])],
            &[],
        ] {
            assert!(hide(&mut records(&hello(extensions), 1000)).is_none(), "{extensions:?}");
        }
        // Nor what is no hello, whole, or alone.
        let message = hello(&[(0, &bad)]);
        assert!(hide(&mut records(&message, 1000)).is_some());
        for at in 0..message.len() {
            assert!(hide(&mut records(&message[..at], 20)).is_none());
        }
        let mut other = message.clone();
        other[0] = 2;
        assert!(hide(&mut records(&other, 1000)).is_none());
        assert!(hide(&mut records(&[&message[..], b"x"].concat(), 1000)).is_none());
        for name in [&b"a b"[..], b"a/b", b"a..b", b"a:1", b"caf\xe9"] {
            let (_, name) = hide(&mut records(&hello(&[(0, &named(name))]), 1000)).unwrap();
            assert_eq!(name, None);
        }
    }
}
