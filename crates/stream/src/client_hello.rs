//! A passive parser of a TLS client's first message, the ClientHello: the requested server name,
//! the offered protocols and the highest supported version. nginx:
//! `ngx_stream_ssl_preread_parse_record`.
//!
//! Sans-IO. Called by the preread phase with everything the client has sent so far; each byte is
//! examined once, however the data is split. The message may span several records (RFC 8446, 5.1).
//!
//! Nothing is verified: that is up to the upstream server. Unreadable input counts as no TLS.

/// Length of a record header.
const RECORD_HEAD: usize = 5;

/// Length of a handshake message header.
const MESSAGE_HEAD: usize = 4;

/// Content type of handshake records.
const HANDSHAKE: u8 = 22;

/// Message type of a ClientHello.
const CLIENT_HELLO: u8 = 1;

/// `server_name`, RFC 6066.
const SERVER_NAME: u16 = 0;

/// `application_layer_protocol_negotiation`, RFC 7301.
const ALPN: u16 = 16;

/// `supported_versions`, RFC 8446.
const SUPPORTED_VERSIONS: u16 = 43;

/// TLS 1.3.
const TLS_1_3: u16 = 0x0304;

/// The relevant parts of a ClientHello.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// The highest version the client supports, as on the wire.
    pub version: u16,
    /// The requested server name, as sent; empty: none.
    pub server_name: Vec<u8>,
    /// The offered protocols, separated by commas.
    pub alpn: Vec<u8>,
}

impl ClientHello {
    /// OpenSSL's name of the version; empty if unknown.
    pub fn version_name(&self) -> &'static str {
        match self.version {
            0x0002 => "SSLv2",
            0x0300 => "SSLv3",
            0x0301 => "TLSv1",
            0x0302 => "TLSv1.1",
            0x0303 => "TLSv1.2",
            TLS_1_3 => "TLSv1.3",
            _ => "",
        }
    }
}

/// The state of parsing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseStep {
    /// More input is needed.
    More,
    /// Not TLS, or malformed.
    Other,
    /// The message is complete.
    Done(ClientHello),
}

/// Parses the ClientHello of one client.
#[derive(Debug, Default)]
pub struct HelloReader {
    /// Bytes of the input that were parsed.
    at: usize,
    /// The message so far, without record headers.
    message: Vec<u8>,
}

impl HelloReader {
    /// Continues parsing. `input` is everything the client has sent so far; the part parsed earlier
    /// must not have changed.
    pub fn read(&mut self, input: &[u8]) -> ParseStep {
        while let Some(rest) = input.get(self.at..)
            && let Some(head) = rest.first_chunk::<RECORD_HEAD>()
        {
            // An SSL 2 message has no record header: its length and type come first.
            if let [0x80..=0xff, _, CLIENT_HELLO, major @ (0 | 3), minor] = *head {
                let version = u16::from_be_bytes([major, minor]);
                return ParseStep::Done(ClientHello { version, ..ClientHello::default() });
            }
            let [HANDSHAKE, 3, _, high, low] = *head else { return ParseStep::Other };
            let length = usize::from(u16::from_be_bytes([high, low]));
            let Some(content) = rest.get(RECORD_HEAD..RECORD_HEAD + length) else { break };
            self.at += RECORD_HEAD + length;
            self.message.extend_from_slice(content);
            if let Some(step) = self.message() {
                return step;
            }
        }
        ParseStep::More
    }

    /// The result, once the message is complete.
    fn message(&self) -> Option<ParseStep> {
        let [kind, a, b, c] = *self.message.first_chunk::<MESSAGE_HEAD>()?;
        if kind != CLIENT_HELLO {
            return Some(ParseStep::Other);
        }
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let content = self.message.get(MESSAGE_HEAD..)?.get(..length)?;
        Some(hello(&mut Bytes(content)).map_or(ParseStep::Other, ParseStep::Done))
    }
}

/// `struct { … } ClientHello` of RFC 8446, 4.1.2; `None` if malformed.
fn hello(content: &mut Bytes<'_>) -> Option<ClientHello> {
    let mut hello = ClientHello { version: content.u16()?, ..ClientHello::default() };
    content.take(32)?; // random
    let session = content.u8()?;
    content.take(usize::from(session))?;
    let suites = content.u16()?;
    content.take(usize::from(suites))?;
    let compression = content.u8()?;
    content.take(usize::from(compression))?;
    if content.is_empty() {
        return Some(hello);
    }
    content.u16()?; // length of the extensions: the rest of the message
    let (mut names, mut protocols) = (false, false);
    while !content.is_empty() {
        // As in nginx, the length of these extensions is that of their content; the length field
        // counts only for others.
        match (content.u16()?, content.u16()?) {
            (SERVER_NAME, _) if !names => {
                names = true;
                hello.server_name = server_name(content)?;
            }
            (ALPN, _) if !protocols => {
                protocols = true;
                hello.alpn = alpn(content)?;
            }
            (SUPPORTED_VERSIONS, _) => hello.version = versions(content)?.max(hello.version),
            (_, length) => {
                content.take(usize::from(length))?;
            }
        }
    }
    Some(hello)
}

/// The first name of the list, which must be a host name.
fn server_name(content: &mut Bytes<'_>) -> Option<Vec<u8>> {
    let length = content.u16()?;
    let mut list = Bytes(content.take(usize::from(length))?);
    let kind = list.u8()?;
    let length = list.u16()?;
    (kind == 0).then_some(list.take(usize::from(length))?.to_vec())
}

/// The protocols, separated by commas.
fn alpn(content: &mut Bytes<'_>) -> Option<Vec<u8>> {
    let length = content.u16()?;
    let mut list = Bytes(content.take(usize::from(length))?);
    let mut protocols = Vec::new();
    loop {
        let length = list.u8().filter(|length| *length > 0)?;
        protocols.extend_from_slice(list.take(usize::from(length))?);
        if list.is_empty() {
            return Some(protocols);
        }
        protocols.push(b',');
    }
}

/// The highest known version; drafts of 1.3 count as 1.3.
// nginx differs: the mere presence of the extension means 1.3.
fn versions(content: &mut Bytes<'_>) -> Option<u16> {
    let length = content.u8()?;
    let list = content.take(usize::from(length))?;
    let known = list.chunks_exact(2).filter_map(|version| match *version {
        [0x7f, _] => Some(TLS_1_3),
        [3, minor @ ..=4] => Some(u16::from_be_bytes([3, minor])),
        _ => None,
    });
    Some(known.max().unwrap_or_default())
}

/// A cursor over the unread rest of a message.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&kind.to_be_bytes()[..], &length, content].concat()
    }

    fn sized(content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&length[..], content].concat()
    }

    fn name(host: &[u8]) -> Vec<u8> {
        extension(SERVER_NAME, &sized(&[&[0][..], &sized(host)].concat()))
    }

    fn protocols(list: &[&[u8]]) -> Vec<u8> {
        let list: Vec<u8> =
            list.iter().flat_map(|one| [&[one.len() as u8][..], one].concat()).collect();
        extension(ALPN, &sized(&list))
    }

    /// A message without record headers.
    fn message(version: u16, extensions: Option<&[Vec<u8>]>) -> Vec<u8> {
        let mut content = version.to_be_bytes().to_vec();
        content.extend_from_slice(&[7; 32]);
        content.extend_from_slice(&[2, 9, 9]); // session
        content.extend_from_slice(&[0, 2, 0x13, 1]); // suites
        content.extend_from_slice(&[1, 0]); // compression
        if let Some(extensions) = extensions {
            content.extend_from_slice(&sized(&extensions.concat()));
        }
        let length = u32::try_from(content.len()).unwrap().to_be_bytes();
        [&[CLIENT_HELLO][..], &length[1..], &content].concat()
    }

    fn record(content: &[u8]) -> Vec<u8> {
        [&[HANDSHAKE, 3, 1][..], &sized(content)].concat()
    }

    fn read(input: &[u8]) -> ParseStep {
        HelloReader::default().read(input)
    }

    fn done(input: &[u8]) -> ClientHello {
        match read(input) {
            ParseStep::Done(hello) => hello,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_a_client_says() {
        let versions = extension(SUPPORTED_VERSIONS, &[6, 0x1a, 0x1a, 3, 4, 3, 3]);
        let extensions = [extension(10, &[0; 4]), name(b"a.example"), versions];
        let extensions = [&extensions[..], &[protocols(&[b"h2", b"http/1.1"])]].concat();
        let hello = done(&record(&message(0x0303, Some(&extensions))));
        assert_eq!(hello.server_name, b"a.example");
        assert_eq!(hello.alpn, b"h2,http/1.1");
        assert_eq!(hello.version_name(), "TLSv1.3");
    }

    #[test]
    fn versions() {
        for (version, name) in
            [(0x0300, "SSLv3"), (0x0301, "TLSv1"), (0x0302, "TLSv1.1"), (0x0303, "TLSv1.2")]
        {
            assert_eq!(done(&record(&message(version, None))).version_name(), name);
            assert_eq!(done(&record(&message(version, Some(&[])))).version_name(), name);
        }
        let with = |list: &[u8]| {
            let extension = extension(SUPPORTED_VERSIONS, list);
            done(&record(&message(0x0303, Some(&[extension])))).version_name()
        };
        assert_eq!(with(&[2, 0x7f, 0x1c]), "TLSv1.3");
        assert_eq!(with(&[2, 3, 3]), "TLSv1.2");
        assert_eq!(with(&[2, 0x2a, 0x2a]), "TLSv1.2");
        let old = [0x80, 0x1c, 1, 0, 2, 0, 3];
        assert_eq!(done(&old).version_name(), "SSLv2");
        assert_eq!(done(&[0x80, 0x1c, 1, 3, 1]).version_name(), "TLSv1");
    }

    #[test]
    fn it_may_come_in_any_pieces() {
        let message = message(0x0303, Some(&[name(b"a.example")]));
        for size in [1, 3, 50, message.len()] {
            let input: Vec<u8> = message.chunks(size).flat_map(record).collect();
            let mut reader = HelloReader::default();
            for end in 0..input.len() {
                assert_eq!(reader.read(&input[..end]), ParseStep::More, "{size} {end}");
            }
            let ParseStep::Done(hello) = reader.read(&input) else { panic!("{size}") };
            assert_eq!(hello.server_name, b"a.example");
        }
    }

    #[test]
    fn what_is_none() {
        assert_eq!(read(b"GET / HTTP/1.1\r\n"), ParseStep::Other);
        assert_eq!(read(b"GET "), ParseStep::More);
        assert_eq!(read(&[HANDSHAKE, 2, 0, 0, 0]), ParseStep::Other);
        // Another handshake message.
        assert_eq!(read(&record(&[2, 0, 0, 0])), ParseStep::Other);
        // The stated length of the message is less than its content.
        let mut short = message(0x0303, Some(&[name(b"a.example")]));
        short[3] -= 1;
        assert_eq!(read(&record(&short)), ParseStep::Other);
        let malformed = [
            extension(SERVER_NAME, &sized(&[1, 0, 1, b'a'])),
            extension(SERVER_NAME, &sized(&[0, 0, 9, b'a'])),
            extension(ALPN, &sized(&[])),
            extension(ALPN, &sized(&[0])),
            extension(ALPN, &sized(&[3, b'a'])),
            extension(10, &[])[..3].to_vec(),
        ];
        for extension in malformed {
            assert_eq!(read(&record(&message(0x0303, Some(&[extension])))), ParseStep::Other);
        }
    }

    #[test]
    fn the_first_of_two_names_counts() {
        let hello = done(&record(&message(0x0303, Some(&[name(b"a")]))));
        assert_eq!(hello.server_name, b"a");
        let twice = [name(b"a"), name(b"b")];
        assert_eq!(done(&record(&message(0x0303, Some(&twice)))).server_name, b"a");
    }
}
