//! Settings of HTTP/3 and QUIC. nginx: `ngx_http_v3_module`.
//!
//! They apply to addresses with `listen … quic`. Properties of an address, such as `quic_retry`, are those of
//! its default server: QUIC needs them before a client has named a server.

use nowait_conf::{Cx, Diagnostic, Node, Setting, Size, Value, ValueError, arity};
use nowait_front::listen::ListenDirective;
use nowait_front::tls::files::{self, FileName};

nowait_conf::directives! {
    /// HTTP/3 towards clients, for a server.
    #[derive(Debug)]
    module "v3";
    pub struct Http3Conf with Http3ConfLayer;

    /// Enables or disables HTTP/3 on the server's addresses with `listen … quic`.
    http3: bool = "on", in HTTP | SERVER, args "on | off";
    /// Enables or disables HTTP/0.9 over QUIC (`hq-interop`), which interoperability tests use.
    http3_hq: bool = "off", in HTTP | SERVER, args "on | off";
    /// Maximum number of request streams that a client may have open on a connection. That of the address's
    /// default server applies.
    http3_max_concurrent_streams: StreamsMax = "128", in HTTP | SERVER, args "number";
    /// How much of each request's body a client may send before it is read, as a bound on memory. That of the
    /// address's default server applies.
    // nginx differs: it also bounds the data in flight towards the client, which limits a stream to this size
    // per round trip. Here the send window follows the path.
    http3_stream_buffer_size: Size = "64k", in HTTP | SERVER, args "size";
    /// Sends `Alt-Svc: h3=":port"; ma=86400` with responses over TLS and TCP if an address with `listen … quic`
    /// serves the same name on the same port, so that browsers change to HTTP/3. Not if the response has an
    /// `Alt-Svc` field already, by `add_header` or from an upstream server. There is no such directive in nginx.
    http3_advertise: bool = "on", in HTTP | SERVER, args "on | off";
    /// How many connection IDs of a client are stored per connection, at most: 2 to 5; other numbers count as the
    /// nearest of them. That of the address's default server applies.
    // nginx differs: it stores any number.
    quic_active_connection_id_limit: ConnectionIds = "2", in HTTP | SERVER, args "number";
    /// Sends several packets by one call (segmentation offload), if the kernel supports it. That of the
    /// address's default server applies.
    // nginx differs: off, which costs several times the CPU for a large response.
    quic_gso: bool = "on", in HTTP | SERVER, args "on | off";
    /// A file with a secret of 32 bytes or more, from which the keys of address validation tokens and stateless
    /// resets are derived. By default, one is generated at the start, and kept by reloads and binary upgrades.
    /// Servers behind one address need the same file. That of the first address whose default server has one
    /// applies to all.
    quic_host_key: Option<HostKey>, in HTTP | SERVER, args "file";
    /// Has every client prove its address by a Retry packet before its handshake, which takes one more round
    /// trip. Regardless of this, that happens while many handshakes are in progress. That of the address's
    /// default server applies.
    quic_retry: bool = "off", in HTTP | SERVER, args "on | off";
}

/// The ports of the server that is being resolved whose responses over TCP advertise HTTP/3: those with a `listen … ssl`
/// and a `listen … quic`.
#[derive(Default)]
pub struct AdvertisedPorts(pub Vec<u16>);

impl Http3Conf {
    /// The ports on which a server with these addresses advertises HTTP/3.
    pub fn advertised(&self, listens: &[ListenDirective]) -> AdvertisedPorts {
        if !self.http3 || !self.http3_advertise {
            return AdvertisedPorts::default();
        }
        let quic = listens.iter().filter(|listen| listen.has_quic());
        let mut ports: Vec<u16> = quic.filter_map(ListenDirective::port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports.retain(|port| listens.iter().any(|l| !l.has_quic() && l.port() == Some(*port)));
        AdvertisedPorts(ports)
    }
}

/// The largest number of streams that the protocol knows (RFC 9000, section 4.6), bounded by what a connection
/// may cost: each stream that a client may open takes memory.
const STREAMS_MAX: u32 = 65_535;

/// The smallest `active_connection_id_limit` (RFC 9000, section 18.2).
const CONNECTION_IDS_MIN: u32 = 2;

/// The largest one: more IDs of a client serve nobody.
const CONNECTION_IDS_MAX: u32 = 5;

/// Bytes of `quic_host_key`, at least.
const KEY_BYTES_MIN: usize = 32;

/// `http3_max_concurrent_streams`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamsMax(pub u32);

impl Value for StreamsMax {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        // More would only be memory: a client may open further ones as earlier ones end.
        Ok(Self(u32::from_word(text)?.min(STREAMS_MAX)))
    }
}

/// `quic_active_connection_id_limit`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionIds(pub u32);

impl Value for ConnectionIds {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        Ok(Self(u32::from_word(text)?.clamp(CONNECTION_IDS_MIN, CONNECTION_IDS_MAX)))
    }
}

/// `quic_host_key`: the content of the file.
#[derive(Clone, PartialEq, Eq)]
pub struct HostKey(pub Vec<u8>);

impl std::fmt::Debug for HostKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HostKey")
    }
}

impl Setting for HostKey {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let FileName(word) = FileName::parse(node, cx)?;
        let key = files::der(cx, &word)?;
        let hint = "make one: openssl rand 32 > quic.key";
        if key.is_empty() {
            return Err(word.error(format!("\"{word}\" zero key size")).hint(hint));
        }
        // nginx differs: it takes any key. Tokens and resets under a short one could be forged.
        if key.len() < KEY_BYTES_MIN {
            let text = format!("\"{word}\" has only {} bytes, not {KEY_BYTES_MIN}", key.len());
            return Err(word.error(text).hint(hint));
        }
        Ok(Self(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_that_the_protocol_knows() {
        assert_eq!(StreamsMax::from_word(b"64").unwrap(), StreamsMax(64));
        assert_eq!(StreamsMax::from_word(b"100000").unwrap(), StreamsMax(STREAMS_MAX));
        assert_eq!(ConnectionIds::from_word(b"1").unwrap(), ConnectionIds(2));
        assert_eq!(ConnectionIds::from_word(b"4").unwrap(), ConnectionIds(4));
        assert_eq!(ConnectionIds::from_word(b"7").unwrap(), ConnectionIds(5));
    }
}
