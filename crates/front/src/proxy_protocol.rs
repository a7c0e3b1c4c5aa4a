//! The PROXY protocol, versions 1 and 2: a proxy in front sends the client's address as the first bytes.
//! Specification: haproxy's `doc/proxy-protocol.txt`. nginx: `ngx_proxy_protocol.c`.
//!
//! Used by the connection task where `listen` has `proxy_protocol`. Pure: bytes in, header out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum accepted length of a header, in bytes: more than any proxy sends. nginx:
/// `NGX_PROXY_PROTOCOL_MAX_HEADER`.
pub const HEADER_BYTES_MAX: usize = 4096;

/// Longest header of version 1, line end included.
const LINE_BYTES_MAX: usize = 107;

/// The address family after `PROXY ` in version 1.
const FAMILIES: [&[u8]; 3] = [b"TCP4 ", b"TCP6 ", b"UNKNOWN"];

/// The signature of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of version 2 before the addresses.
const FIXED_BYTES: usize = 16;

/// Type of the TLV that describes the proxy's own TLS connection (`PP2_TYPE_SSL`).
const TLV_SSL: u8 = 0x20;

/// Type of the TLV with a checksum of the header (`PP2_TYPE_CRC32C`).
const TLV_CRC32C: u8 = 3;

/// Length of that TLV.
const CHECKSUM_BYTES: u16 = 7;

/// Names of TLVs in variables. nginx: `ngx_proxy_protocol_tlv_entries`.
const NAMES: &[(&[u8], u8)] =
    &[(b"alpn", 1), (b"authority", 2), (b"unique_id", 5), (b"ssl", TLV_SSL), (b"netns", 0x30)];

/// Names of TLVs inside of [`TLV_SSL`].
const SSL_NAMES: &[(&[u8], u8)] =
    &[(b"version", 0x21), (b"cn", 0x22), (b"cipher", 0x23), (b"sig_alg", 0x24), (b"key_alg", 0x25)];

/// The data of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyProtocol {
    /// The client.
    pub source: SocketAddr,
    /// The address that the client connected to.
    pub destination: SocketAddr,
    /// Further facts as type-length-value records (version 2).
    tlvs: Box<[u8]>,
}

/// A header and its length in bytes. No header: the proxy connects on its own behalf (a health
/// check), or states addresses that are not IP addresses.
pub type Parsed = (Option<ProxyProtocol>, usize);

/// The bytes are not a valid header. The proxy's fault; the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

/// Reads a header from the start of `bytes`; `Ok(None)`: it is incomplete.
///
/// # Errors
/// [`Broken`].
pub fn parse(bytes: &[u8]) -> Result<Option<Parsed>, Broken> {
    let begins = |start: &[u8]| {
        let len = start.len().min(bytes.len());
        bytes[..len] == start[..len]
    };
    if bytes.is_empty() {
        Ok(None)
    } else if begins(SIGNATURE) {
        version_2(bytes)
    } else if begins(b"PROXY ") {
        version_1(bytes)
    } else {
        Err(Broken)
    }
}

/// `PROXY TCP4 192.0.2.1 192.0.2.2 5678 80`
fn version_1(bytes: &[u8]) -> Result<Option<Parsed>, Broken> {
    let line = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = line.windows(2).position(|two| two == b"\r\n") else {
        // If the bytes can't become a header, do not wait for more.
        let family = line.get(b"PROXY ".len()..).unwrap_or_default();
        let begins = |start: &[u8]| {
            let length = start.len().min(family.len());
            family[..length] == start[..length]
        };
        let possible = FAMILIES.iter().any(|family| begins(family));
        return if possible && bytes.len() < LINE_BYTES_MAX { Ok(None) } else { Err(Broken) };
    };
    let text = std::str::from_utf8(&line[..end]).map_err(|_| Broken)?;
    let mut words = text.split(' ').skip(1);
    let family = words.next().ok_or(Broken)?;
    if family == "UNKNOWN" {
        // "the receiver must ignore anything presented before the CRLF"
        return Ok(Some((None, end + 2)));
    }
    let mut ip = || -> Result<IpAddr, Broken> {
        let ip: IpAddr = words.next().and_then(|word| word.parse().ok()).ok_or(Broken)?;
        (ip.is_ipv4() == (family == "TCP4")).then_some(ip).ok_or(Broken)
    };
    if !matches!(family, "TCP4" | "TCP6") {
        return Err(Broken);
    }
    let (source, destination) = (ip()?, ip()?);
    let mut port = || -> Result<u16, Broken> {
        let digits = words.next().filter(|word| word.bytes().all(|b| b.is_ascii_digit()));
        digits.and_then(|digits| digits.parse().ok()).ok_or(Broken)
    };
    let header = ProxyProtocol {
        source: SocketAddr::new(source, port()?),
        destination: SocketAddr::new(destination, port()?),
        tlvs: Box::default(),
    };
    if words.next().is_some() {
        return Err(Broken);
    }
    Ok(Some((Some(header), end + 2)))
}

fn version_2(bytes: &[u8]) -> Result<Option<Parsed>, Broken> {
    let Some(fixed) = bytes.get(..FIXED_BYTES) else { return Ok(None) };
    let (version, command) = (fixed[12] >> 4, fixed[12] & 15);
    let (family, transport) = (fixed[13] >> 4, fixed[13] & 15);
    let end = FIXED_BYTES + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if version != 2 || end > HEADER_BYTES_MAX {
        return Err(Broken);
    }
    let Some(rest) = bytes.get(FIXED_BYTES..end) else { return Ok(None) };
    // LOCAL, or a protocol other than TCP: the connection's own addresses apply.
    if command != 1 || transport != 1 {
        return Ok(Some((None, end)));
    }
    let ip_bytes = match family {
        1 => 4,
        2 => 16,
        _ => return Ok(Some((None, end))),
    };
    let addresses = rest.get(..2 * ip_bytes + 4).ok_or(Broken)?;
    let (ips, ports) = addresses.split_at(2 * ip_bytes);
    let (source, destination) = ips.split_at(ip_bytes);
    let header = ProxyProtocol {
        source: SocketAddr::new(
            ip(source).ok_or(Broken)?,
            u16::from_be_bytes([ports[0], ports[1]]),
        ),
        destination: SocketAddr::new(
            ip(destination).ok_or(Broken)?,
            u16::from_be_bytes([ports[2], ports[3]]),
        ),
        tlvs: rest[addresses.len()..].into(),
    };
    Ok(Some((Some(header), end)))
}

/// A header of version 1 for a connection from one address to another; `None` if they are not IP
/// addresses.
pub fn encode_1(ends: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let Some((source, destination)) = ends else { return b"PROXY UNKNOWN\r\n".to_vec() };
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let (from, to) = (source.ip(), destination.ip());
    format!("PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port()).into_bytes()
}

/// A header of version 2, with a checksum (`PP2_TYPE_CRC32C`). Where one of the addresses is of IPv6,
/// both are written so.
pub fn encode_2(ends: Option<(SocketAddr, SocketAddr)>, datagrams: bool) -> Vec<u8> {
    let mut out = SIGNATURE.to_vec();
    let transport = if datagrams { 2 } else { 1 };
    // Mapped addresses on both sides are those of IPv4.
    let ips = ends.map(|(a, b)| (a.ip().to_canonical(), b.ip().to_canonical()));
    let ips = ips.map(|ips| match ips {
        (IpAddr::V4(a), IpAddr::V4(b)) => (1, a.octets().to_vec(), b.octets().to_vec()),
        (a, b) => (2, v6(a).octets().to_vec(), v6(b).octets().to_vec()),
    });
    match (ips, ends) {
        (Some((family, source, destination)), Some((a, b))) => {
            let addresses = source.len() as u16 * 2 + 4;
            out.extend_from_slice(&[0x21, family << 4 | transport]);
            out.extend_from_slice(&(addresses + CHECKSUM_BYTES).to_be_bytes());
            out.extend_from_slice(&source);
            out.extend_from_slice(&destination);
            out.extend_from_slice(&a.port().to_be_bytes());
            out.extend_from_slice(&b.port().to_be_bytes());
        }
        // LOCAL, of no family.
        _ => {
            out.extend_from_slice(&[0x20, 0]);
            out.extend_from_slice(&CHECKSUM_BYTES.to_be_bytes());
        }
    }
    out.extend_from_slice(&[TLV_CRC32C, 0, 4, 0, 0, 0, 0]);
    let checksum = crc32c(&out);
    let at = out.len() - 4;
    out[at..].copy_from_slice(&checksum.to_be_bytes());
    out
}

fn v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// The checksum of Castagnoli (RFC 3720 appendix B.4), bit by bit: headers are short.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(|four| IpAddr::V4(Ipv4Addr::from(four))).ok();
    four.or_else(|| <[u8; 16]>::try_from(bytes).map(|all| IpAddr::V6(Ipv6Addr::from(all))).ok())
}

impl ProxyProtocol {
    /// The value of a TLV by the name that variables use: `alpn`, `0xae`, `ssl_cn`, `ssl_0x21`.
    pub fn tlv(&self, name: &[u8]) -> Option<Vec<u8>> {
        if let Some(inner) = name.strip_prefix(b"ssl_") {
            let ssl = find(&self.tlvs, TLV_SSL)?;
            // One byte of flags, then the result of the verification, then TLVs.
            let (verify, tlvs) = (ssl.get(1..5)?, ssl.get(5..)?);
            if inner == b"verify" {
                let verify = u32::from_be_bytes(verify.try_into().ok()?);
                return Some(verify.to_string().into_bytes());
            }
            return find(tlvs, kind(inner, SSL_NAMES)?).map(<[u8]>::to_vec);
        }
        find(&self.tlvs, kind(name, NAMES)?).map(<[u8]>::to_vec)
    }
}

/// The type that a name or a number such as `0xae` means.
fn kind(name: &[u8], names: &[(&[u8], u8)]) -> Option<u8> {
    if let Some(digits) = name.strip_prefix(b"0x") {
        return u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    }
    names.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
}

/// The value of the first TLV of a type; malformed data ends the search.
fn find(mut tlvs: &[u8], wanted: u8) -> Option<&[u8]> {
    while let [kind, high, low, rest @ ..] = tlvs {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let value = rest.get(..len)?;
        if *kind == wanted {
            return Some(value);
        }
        tlvs = &rest[len..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(bytes: &[u8]) -> (ProxyProtocol, usize) {
        let (header, length) = parse(bytes).expect("a header").expect("a whole one");
        (header.expect("with addresses"), length)
    }

    fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
        let len = u16::try_from(value.len()).unwrap().to_be_bytes();
        [&[kind][..], &len, value].concat()
    }

    fn version_2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let len = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[0x20 | command, family], &len, rest].concat()
    }

    #[test]
    fn lines() {
        let (four, length) = header(b"PROXY TCP4 192.0.2.1 192.0.2.2 1234 80\r\nGET");
        assert_eq!(length, 40);
        assert_eq!(four.source, "192.0.2.1:1234".parse().unwrap());
        assert_eq!(four.destination, "192.0.2.2:80".parse().unwrap());
        let (six, _) = header(b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n");
        assert_eq!(six.source, "[2001:db8::1]:1".parse().unwrap());
        assert_eq!(parse(b"PROXY UNKNOWN what ever\r\nx"), Ok(Some((None, 25))));
        assert_eq!(parse(b"PROXY UNKNOWN\r\n"), Ok(Some((None, 15))));
    }

    #[test]
    fn every_start_of_a_header_waits_for_the_rest() {
        let two = version_2(1, 0x11, &[0; 12]);
        for whole in [&b"PROXY TCP4 192.0.2.1 192.0.2.2 1234 80\r\n"[..], &two] {
            for cut in 0..whole.len() {
                assert_eq!(parse(&whole[..cut]), Ok(None), "{cut}");
            }
        }
    }

    #[test]
    fn what_is_no_header() {
        for text in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"PROXY TCP5 192.0.2.1 192.0.2.2 1234 80\r\n",
            b"PROXY TCP4 2001:db8::1 192.0.2.2 1234 80\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1234 65536\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1234 +80\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1234\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1234 80 x\r\n",
            b"PROXY \r\n",
            b"PROXY IN",
            b"PROXY TCP46",
            &[b"PROXY UNKNOWN ".as_slice(), &[b'x'; 100]].concat(),
            b"\r\n\r\n\0\r\nQUIT\n\x11\x11\0\0",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x01x",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
        ] {
            assert_eq!(parse(text), Err(Broken), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn binary_headers() {
        let four = [&[192, 0, 2, 1, 192, 0, 2, 2, 0, 123, 0x16, 0x2e][..]].concat();
        let (found, length) = header(&[version_2(1, 0x11, &four), b"GET".to_vec()].concat());
        assert_eq!(length, 28);
        assert_eq!(found.source, "192.0.2.1:123".parse().unwrap());
        assert_eq!(found.destination, "192.0.2.2:5678".parse().unwrap());
        let (six, _) = header(&version_2(1, 0x21, &[0; 36]));
        assert_eq!(six.source, "[::]:0".parse().unwrap());
        // A health check, a datagram, a Unix socket.
        for (command, family) in [(0, 0x11), (1, 0x12), (1, 0x31)] {
            assert_eq!(parse(&version_2(command, family, &four)), Ok(Some((None, 28))));
        }
    }

    #[test]
    fn what_is_encoded_is_read_again() {
        let inet = |text: &str| text.parse::<SocketAddr>().unwrap();
        let four = (inet("192.0.2.1:1234"), inet("192.0.2.2:80"));
        let text = encode_1(Some(four));
        assert_eq!(text, b"PROXY TCP4 192.0.2.1 192.0.2.2 1234 80\r\n");
        assert_eq!(encode_1(None), b"PROXY UNKNOWN\r\n");
        for ends in [four, (inet("[2001:db8::1]:1"), inet("[2001:db8::2]:2"))] {
            for header in [encode_1(Some(ends)), encode_2(Some(ends), false)] {
                let (read, length) = super::tests::header(&header);
                assert_eq!((read.source, read.destination, length), (ends.0, ends.1, header.len()));
            }
        }
        let both = encode_2(Some((inet("192.0.2.1:1"), inet("[2001:db8::2]:2"))), true);
        assert_eq!(both[12..16], [0x21, 0x22, 0, 43]);
        let mapped =
            encode_2(Some((inet("[::ffff:192.0.2.1]:1"), inet("[::ffff:192.0.2.2]:2"))), false);
        assert_eq!(mapped[12..16], [0x21, 0x11, 0, 19]);
        let local = encode_2(None, false);
        assert_eq!(parse(&local), Ok(Some((None, local.len()))));
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn records() {
        let inner = [tlv(0x21, b"TLSv1.2"), tlv(0x22, b"cn")].concat();
        let ssl = [&[1, 0, 0, 0, 255][..], &inner].concat();
        let rest = [
            vec![0; 12],
            tlv(1, b"h2"),
            tlv(2, b"name"),
            tlv(TLV_SSL, &ssl),
            tlv(0xae, b"own"),
            vec![5, 0xff, 0xff, 1],
        ]
        .concat();
        let (found, _) = header(&version_2(1, 0x11, &rest));
        let value = |name: &str| found.tlv(name.as_bytes()).map(|v| String::from_utf8(v).unwrap());
        assert_eq!(value("alpn").as_deref(), Some("h2"));
        assert_eq!(value("0x1").as_deref(), Some("h2"));
        assert_eq!(value("authority").as_deref(), Some("name"));
        assert_eq!(value("0xae").as_deref(), Some("own"));
        assert_eq!(value("ssl_version").as_deref(), Some("TLSv1.2"));
        assert_eq!(value("ssl_0x22").as_deref(), Some("cn"));
        assert_eq!(value("ssl_verify").as_deref(), Some("255"));
        assert_eq!(value("ssl_cipher"), None);
        assert_eq!(value("unique_id"), None, "cut off");
        assert_eq!(value("nonsense"), None);
    }
}
