//! The beginning of a server's connection: its ClientHello, by which the caller chooses a server.

use rustls::InvalidMessage;
use rustls::server::{Accepted, UnbufferedServerConnection};

use crate::client_offer::{ClientOffer, sigalg_name};
use crate::error::Error;
use crate::identity::{Identity, Offer};
use crate::ja4::{self, Transport};
use crate::server::TlsServer;
use crate::session::Session;
use crate::transcript::{self, MaskedHello};

/// Maximum size of a ClientHello. OpenSSL accepts 131,396 bytes. Hybrid key shares need less than 2 KB, and
/// tickets little more: no client that is known sends 4 KB.
pub const HELLO_BYTES_MAX: usize = 16 * 1024;

/// Maximum size of the headers of its records: it may be split into a few hundred.
const HEADERS_BYTES_MAX: usize = 2 * 1024;

/// The memory of an incomplete hello grows in steps of this many bytes.
const STEP_BYTES: usize = 2 * 1024;

/// `content_type` of handshake records.
const HANDSHAKE: u8 = 22;

/// The type of the message.
const CLIENT_HELLO: u8 = 1;

/// The first bit of a ClientHello in the format of SSL 2.
const SSL2: u8 = 0x80;

/// A fatal alert: no server of this name (RFC 6066, 3).
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// A fatal alert: none of the application protocols is spoken here (RFC 7301, 3.2).
const NO_APPLICATION_PROTOCOL: [u8; 7] = [21, 3, 3, 0, 2, 2, 120];

/// A fatal alert: this is no hello.
const UNEXPECTED_MESSAGE: [u8; 7] = [21, 3, 3, 0, 2, 2, 10];

/// A fatal alert: the hello is too long. As OpenSSL.
const ILLEGAL_PARAMETER: [u8; 7] = [21, 3, 3, 0, 2, 2, 47];

/// A fatal alert: the server's own fault.
const INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

/// The reason why a connection has no session.
#[derive(Debug)]
pub struct Refusal {
    /// The reason.
    pub error: Error,
    /// To be sent before closing; may be empty.
    pub alert: Vec<u8>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal { error, alert: Vec::new() }
    }
}

/// The received part of a hello.
enum Progress {
    /// The hello is incomplete.
    Partial,
    /// All of it, up to here; or a record that no version has, for rustls to refuse it.
    Whole(usize),
    /// Another message. It is refused here, so that the reason does not depend on how much has come.
    Other,
    /// More than is accepted is announced, or has come.
    TooLong,
}

/// Examines the records of a hello, each of them once.
#[derive(Default)]
struct Records {
    /// The start of the next record.
    at: usize,
    /// Bytes of the message in previous records.
    message: usize,
    /// The header of the message: its type and its length.
    head: [u8; 4],
}

impl Records {
    /// Examines the bytes added to `received`. The result does not depend on their splitting.
    fn look(&mut self, received: &[u8]) -> Progress {
        let received = &received[..received.len().min(HELLO_BYTES_MAX + HEADERS_BYTES_MAX)];
        loop {
            let Some([kind, _, _, high, low]) = received.get(self.at..self.at + 5) else {
                return self.partial(received);
            };
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            if *kind != HANDSHAKE && *kind & SSL2 == 0 {
                return Progress::Other;
            }
            if *kind != HANDSHAKE || len == 0 {
                return Progress::Whole(self.at + 5);
            }
            let begin = self.at + 5;
            let there = &received[begin..received.len().min(begin + len)];
            for (n, byte) in there.iter().enumerate().take(self.head.len()) {
                match self.head.get_mut(self.message + n) {
                    Some(place) => *place = *byte,
                    None => break,
                }
            }
            let message = self.message + there.len();
            if message > 0 && self.head[0] != CLIENT_HELLO {
                return Progress::Other;
            }
            if message >= self.head.len() {
                let wanted = self.head.len() + self.announced();
                if self.announced() > HELLO_BYTES_MAX {
                    return Progress::TooLong;
                }
                // The keys of what follows are others: a hello ends with its record (RFC 8446, 5.1).
                if self.message + len > wanted {
                    return Progress::Other;
                }
                if message == wanted {
                    return Progress::Whole(begin + len);
                }
            }
            if there.len() < len {
                return self.partial(received);
            }
            (self.at, self.message) = (begin + len, message);
        }
    }

    /// The judgement where the message is known to go on.
    fn partial(&self, received: &[u8]) -> Progress {
        match received.len() >= HELLO_BYTES_MAX + HEADERS_BYTES_MAX {
            true => Progress::TooLong,
            false => Progress::Partial,
        }
    }

    fn announced(&self) -> usize {
        let [_, high, middle, low] = self.head;
        u32::from_be_bytes([0, high, middle, low]) as usize
    }
}

/// Collects a ClientHello. It is kept once: rustls gets it when it is complete.
#[derive(Default)]
pub struct Acceptor {
    records: Records,
    received: Vec<u8>,
    transport: Transport,
}

impl Acceptor {
    /// For a hello that comes over QUIC, as [`hello_records`](crate::quic::hello_records).
    pub fn quic() -> Acceptor {
        Acceptor { transport: Transport::Quic, ..Acceptor::default() }
    }

    /// Takes received bytes. `None`: more are needed.
    ///
    /// # Errors
    /// [`Error::PlainHttp`]: the first byte is not TLS; the received bytes are in
    /// [`received`](Self::received). Otherwise the client's hello is malformed or too long.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<Hello>, Refusal> {
        let first = self.received.first().or(bytes.first()).copied();
        let wanted = self.received.len() + bytes.len();
        if wanted > self.received.capacity() {
            let steps = wanted.next_multiple_of(STEP_BYTES);
            self.received.reserve_exact(steps - self.received.len());
        }
        self.received.extend_from_slice(bytes);
        // The same rule as nginx's.
        if first.is_some_and(|first| first != HANDSHAKE && first & SSL2 == 0) {
            return Err(Error::PlainHttp.into());
        }
        let end = match self.records.look(&self.received) {
            Progress::Partial => return Ok(None),
            Progress::Whole(end) => end,
            Progress::Other => return Err(unexpected()),
            Progress::TooLong => {
                let alert = ILLEGAL_PARAMETER.to_vec();
                return Err(Refusal { error: Error::TooLong, alert });
            }
        };
        let hidden = transcript::hide(&mut self.received);
        let mut inner = rustls::server::Acceptor::default();
        let mut rest = &self.received[..end];
        while !rest.is_empty() {
            // Fails if its buffer is full, which is for a hello of the size above.
            inner.read_tls(&mut rest).map_err(|_| unexpected())?;
            match inner.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    let received = std::mem::take(&mut self.received);
                    return Ok(Some(Hello {
                        accepted,
                        received,
                        hidden,
                        transport: self.transport,
                    }));
                }
                Err((error, mut alert)) => {
                    let mut bytes = Vec::new();
                    // Writing to memory does not fail.
                    let _ = alert.write_all(&mut bytes);
                    return Err(Refusal { error: error.into(), alert: bytes });
                }
            }
        }
        // Another record stands in place of the hello, or in the middle of it.
        Err(unexpected())
    }

    /// All bytes received so far.
    pub fn received(&self) -> &[u8] {
        &self.received
    }
}

/// A message other than a hello.
fn unexpected() -> Refusal {
    let error = rustls::Error::InvalidMessage(InvalidMessage::UnexpectedMessage("ClientHello"));
    Refusal { error: error.into(), alert: UNEXPECTED_MESSAGE.to_vec() }
}

/// The certificate that a server chooses for a hello, and the algorithm of its signature. rustls makes the same choice.
pub(crate) fn offer_of<'s>(
    hello: &Hello,
    server: &'s TlsServer,
) -> (Option<&'s Identity>, Option<&'static str>) {
    let hello = hello.accepted.client_hello();
    let offer = Offer { schemes: hello.signature_schemes(), suites: hello.cipher_suites() };
    let identity = server.identities.choose(&offer);
    let signer = identity.and_then(|identity| identity.key.key.choose_scheme(offer.schemes));
    (identity, signer.and_then(|signer| sigalg_name(signer.scheme())))
}

/// A client's hello.
pub struct Hello {
    accepted: Accepted,
    received: Vec<u8>,
    /// The server name, if it is hidden from rustls, and its position.
    hidden: Option<(MaskedHello, Option<String>)>,
    transport: Transport,
}

impl Hello {
    /// The server name that the client asks for (SNI), in lower case.
    pub fn server_name(&self) -> Option<String> {
        match &self.hidden {
            Some((_, name)) => name.clone(),
            None => self.accepted.client_hello().server_name().map(str::to_ascii_lowercase),
        }
    }

    /// The application protocols that it offers.
    pub fn alpn(&self) -> Vec<Vec<u8>> {
        let hello = self.accepted.client_hello();
        hello.alpn().into_iter().flatten().map(<[u8]>::to_vec).collect()
    }

    /// Whether it offers this application protocol and no other.
    pub fn offers_only(&self, protocol: &[u8]) -> bool {
        let hello = self.accepted.client_hello();
        let mut offered = hello.alpn().into_iter().flatten();
        offered.next() == Some(protocol) && offered.next().is_none()
    }

    /// All that it offers.
    pub fn offered(&self) -> ClientOffer {
        let (received, hidden) = self.parts();
        let sent = transcript::sent(received, hidden);
        let ja4 = sent.and_then(|sent| ja4::fingerprint(&sent, self.transport));
        ClientOffer::of(&self.accepted.client_hello(), ja4.unwrap_or_default())
    }

    /// A session with a server that never begins, but shows the properties known so far.
    ///
    /// # Errors
    /// The server's settings exclude each other.
    pub fn expected(&self, server: &TlsServer) -> Result<Session, Error> {
        let connection = UnbufferedServerConnection::new(server.config.clone())?;
        Ok(Session::server(connection, server, self.server_name(), None, None))
    }

    /// Begins a session with a server. Also returns the received bytes to open first.
    ///
    /// # Errors
    /// The server's settings exclude each other.
    pub fn begin(self, server: &TlsServer) -> Result<(Session, Vec<u8>), Error> {
        let server_name = self.server_name();
        let (identity, sigalg) = offer_of(&self, server);
        let connection = UnbufferedServerConnection::new(server.config.clone())?;
        let mut session = Session::server(connection, server, server_name, identity, sigalg);
        session.hide(self.hidden.map(|(hidden, _)| hidden));
        Ok((session, self.received))
    }

    /// The received bytes, and what is hidden in them.
    pub(crate) fn parts(&self) -> (&[u8], Option<&MaskedHello>) {
        (&self.received, self.hidden.as_ref().map(|(hidden, _)| hidden))
    }

    /// Refuses the client, because no server answers to the name (`ssl_reject_handshake`).
    pub fn reject(self) -> Refusal {
        let error = Error::Settings("handshake rejected".to_owned());
        Refusal { error, alert: UNRECOGNIZED_NAME.to_vec() }
    }

    /// Refuses the client, because none of its application protocols is spoken.
    pub fn refuse_protocols(self) -> Refusal {
        let error = Error::Settings("no application protocol".to_owned());
        Refusal { error, alert: NO_APPLICATION_PROTOCOL.to_vec() }
    }

    /// Refuses the client, because its server has no usable certificate.
    pub fn fail(self) -> Refusal {
        let error = Error::Settings("no certificate".to_owned());
        Refusal { error, alert: INTERNAL_ERROR.to_vec() }
    }
}
