//! `server` in an `upstream` block.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use nowait_conf::{Context, Cx, Diagnostic, Node, Seconds, Value, Word, number};
use nowait_runtime::net::Address;

use super::UpstreamLayer;

/// The default port.
const PORT: u16 = 80;

/// Maximum length of a Unix-domain socket path.
const UNIX_PATH_MAX: usize = 107;

/// Maximum length of a `route`, in bytes.
pub const ROUTE_MAX: usize = 32;

/// A server of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConf {
    /// The name in the configuration: `backend.example:8080`.
    pub text: Bytes,
    /// The location.
    pub target: ServerLocation,
    /// The weight.
    pub weight: u32,
    /// Maximum number of connections; 0: no limit.
    pub max_conns: u32,
    /// Number of failures that make it unavailable; 0: never.
    pub max_fails: u32,
    /// The time within which failures are counted, and for which it is then unavailable.
    pub fail_timeout: Seconds,
    /// The time in which it regains its weight after that.
    pub slow_start: Seconds,
    /// Used only if the others are unavailable.
    pub backup: bool,
    /// `down` and `drain`
    pub down: ServerMode,
    /// The name for `sticky`.
    pub route: Option<Bytes>,
}

/// Whether a server is used at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerMode {
    /// The server is down.
    #[default]
    Up,
    /// `drain`: only for requests that `sticky` binds to it.
    Draining,
    /// `down`: it is not.
    Down,
}

/// The location of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerLocation {
    /// Known addresses.
    Addresses(Vec<Address>),
    /// A name to be resolved.
    Name {
        /// The name.
        host: Box<str>,
        /// The port of its addresses; SRV records bring their own.
        port: u16,
        /// `service`: SRV records are queried.
        service: Option<Box<str>>,
        /// Whether `resolve` was given.
        resolve: bool,
    },
}

impl ServerLocation {
    /// Whether a port is missing: the default was 0.
    pub fn has_no_port(&self) -> bool {
        match self {
            Self::Addresses(all) => {
                all.iter().any(|address| address.inet().is_some_and(|inet| inet.port() == 0))
            }
            Self::Name { port, .. } => *port == 0,
        }
    }
}

impl ServerConf {
    /// With nginx's defaults.
    pub fn new(text: impl Into<Bytes>, target: ServerLocation) -> ServerConf {
        ServerConf {
            text: text.into(),
            target,
            weight: 1,
            max_conns: 0,
            max_fails: 1,
            fail_timeout: Seconds(10),
            slow_start: Seconds(0),
            backup: false,
            down: ServerMode::Up,
            route: None,
        }
    }
}

/// The parameters that the method named before a `server` supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Supports {
    /// Every parameter.
    #[default]
    All,
    /// All but `backup` and `slow_start`.
    NoBackup,
}

/// The error for a text that [`target`] refuses.
pub fn target_error(problem: &str, word: &Word, shown: &str) -> Diagnostic {
    let error = word.error(format!("{problem} in upstream \"{shown}\""));
    match problem {
        _ if shown.contains("://") => error.expected("HOST:PORT or unix:PATH, without a scheme"),
        "invalid port" => error.expected("a port from 1 to 65535"),
        _ => error,
    }
}

/// Reads `HOST[:PORT]`, `[IPV6][:PORT]` or `unix:PATH`. nginx: `ngx_parse_url`.
///
/// # Errors
/// The error in nginx's words, to be followed by `in upstream "TEXT"`.
pub fn target(text: &[u8], default_port: u16) -> Result<ServerLocation, &'static str> {
    if text.len() >= 5 && text[..5].eq_ignore_ascii_case(b"unix:") {
        let path = &text[5..];
        return match path.len() {
            0 => Err("no path in the unix domain socket"),
            1..=UNIX_PATH_MAX => Ok(ServerLocation::Addresses(vec![Address::Unix(path.into())])),
            _ => Err("too long path in the unix domain socket"),
        };
    }
    let text = std::str::from_utf8(text).map_err(|_| "invalid host")?;
    let port_of = |text: Option<&str>| match text {
        None => Ok(default_port),
        Some(text) => match number(text.as_bytes()) {
            Some(port @ 1..=65535) => Ok(port as u16),
            _ => Err("invalid port"),
        },
    };
    let inet = |ip: IpAddr, port| {
        Ok(ServerLocation::Addresses(vec![Address::Inet(SocketAddr::new(ip, port))]))
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (ip, rest) = rest.split_once(']').ok_or("invalid host")?;
        let port = match rest.strip_prefix(':') {
            Some(port) => port_of(Some(port))?,
            None if rest.is_empty() => default_port,
            None => return Err("invalid port"),
        };
        let ip: Ipv6Addr = ip.parse().map_err(|_| "invalid IPv6 address")?;
        return inet(ip.into(), port);
    }
    if text.contains(['/', '?']) {
        return Err("invalid host");
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, port_of(Some(port))?),
        None => (text, default_port),
    };
    if host.is_empty() {
        return Err("no host");
    }
    match host.parse::<Ipv4Addr>() {
        Ok(ip) => inet(ip.into(), port),
        Err(_) => {
            Ok(ServerLocation::Name { host: host.into(), port, service: None, resolve: false })
        }
    }
}

pub(super) fn server(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let (address, parameters) = node.args.split_first().ok_or_else(|| node.arity_error())?;
    let layer = cx.layer::<UpstreamLayer>();
    if layer.state.is_some() {
        return Err(super::state::exclusive(&node.name));
    }
    let supports = layer.supports;
    let text = Bytes::copy_from_slice(&address.text);
    let mut server = ServerConf::new(text, ServerLocation::Addresses(Vec::new()));
    let mut named = NameOptions::default();
    for word in parameters {
        server.parameter(node, word, supports, &mut named)?;
    }
    if let Some(service) = &named.service
        && !named.resolve
    {
        return Err(
            service.error(format!("service upstream \"{address}\" requires \"resolve\" parameter"))
        );
    }
    // A protocol in `stream` has no port of its own.
    let port = if cx.context() == Context::STREAM_UPSTREAM { 0 } else { PORT };
    server.target = target(&address.text, port)
        .map_err(|problem| target_error(problem, address, &address.to_string()))?;
    if named.service.is_none() && server.target.has_no_port() {
        return Err(address
            .error(format!("no port in upstream \"{address}\""))
            .expected("HOST:PORT or unix:PATH"));
    }
    match &mut server.target {
        ServerLocation::Name { service, resolve, .. } => {
            *resolve = named.resolve;
            if let Some(word) = named.service {
                if address.text.contains(&b':') {
                    return Err(
                        address.error(format!("service upstream \"{address}\" may not have port"))
                    );
                }
                *service = Some(word.to_str()?["service=".len()..].into());
            }
        }
        ServerLocation::Addresses(_) if named.service.is_some() => {
            return Err(
                address.error(format!("service upstream \"{address}\" requires domain name"))
            );
        }
        ServerLocation::Addresses(_) => {}
    }
    cx.layer::<UpstreamLayer>().servers.push(server);
    Ok(())
}

/// The settings of the name.
#[derive(Default)]
struct NameOptions<'a> {
    resolve: bool,
    service: Option<&'a Word>,
}

impl ServerConf {
    fn parameter<'a>(
        &mut self,
        node: &Node,
        word: &'a Word,
        supports: Supports,
        named: &mut NameOptions<'a>,
    ) -> Result<(), Diagnostic> {
        let (name, value) = match word.text.iter().position(|b| *b == b'=') {
            Some(at) => (&word.text[..at], Some(&word.text[at + 1..])),
            None => (&word.text[..], None),
        };
        let invalid = || node.parameter_error(word);
        let count = |value| {
            let count = number(value).ok_or_else(invalid)?;
            Ok::<u32, Diagnostic>(u32::try_from(count).unwrap_or(u32::MAX))
        };
        let seconds = |value| Seconds::from_word(value).map_err(|e| e.in_parameter(word));
        if supports == Supports::NoBackup && matches!(name, b"backup" | b"slow_start") {
            return Err(
                word.error(format!("balancing method does not support parameter \"{word}\""))
            );
        }
        match (name, value) {
            (b"weight", Some(value)) => {
                self.weight = count(value)?;
                if self.weight == 0 {
                    return Err(invalid());
                }
            }
            (b"max_conns", Some(value)) => self.max_conns = count(value)?,
            (b"max_fails", Some(value)) => self.max_fails = count(value)?,
            (b"fail_timeout", Some(value)) => self.fail_timeout = seconds(value)?,
            (b"slow_start", Some(value)) => self.slow_start = seconds(value)?,
            (b"backup", None) => self.backup = true,
            (b"down", None) => self.down = ServerMode::Down,
            (b"drain", None) => self.down = ServerMode::Draining,
            (b"resolve", None) => named.resolve = true,
            (b"route", Some(b"")) => return Err(word.error("route is empty")),
            (b"route", Some(value)) if value.len() > ROUTE_MAX => {
                return Err(word.error(format!("route is longer than {ROUTE_MAX}")));
            }
            (b"route", Some(value)) => self.route = Some(Bytes::copy_from_slice(value)),
            (b"service", Some(b"")) => return Err(word.error("service is empty")),
            (b"service", Some(_)) => named.service = Some(word),
            _ => return Err(invalid()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(host: &str, port: u16) -> Result<ServerLocation, &'static str> {
        Ok(ServerLocation::Name { host: host.into(), port, service: None, resolve: false })
    }

    fn inet(address: &str) -> Result<ServerLocation, &'static str> {
        Ok(ServerLocation::Addresses(vec![Address::Inet(address.parse().unwrap())]))
    }

    #[test]
    fn targets() {
        let read = |text: &str| target(text.as_bytes(), 80);
        assert_eq!(read("127.0.0.1"), inet("127.0.0.1:80"));
        assert_eq!(read("127.0.0.1:8080"), inet("127.0.0.1:8080"));
        assert_eq!(read("[::1]"), inet("[::1]:80"));
        assert_eq!(read("[::1]:81"), inet("[::1]:81"));
        assert_eq!(read("backend.example"), name("backend.example", 80));
        assert_eq!(read("backend:81"), name("backend", 81));
        let unix = Address::Unix(b"/run/x"[..].into());
        assert_eq!(read("unix:/run/x"), Ok(ServerLocation::Addresses(vec![unix])));
        assert_eq!(read("unix:"), Err("no path in the unix domain socket"));
        assert_eq!(read(":80"), Err("no host"));
        assert_eq!(read("a:0"), Err("invalid port"));
        assert_eq!(read("a:65536"), Err("invalid port"));
        assert_eq!(read("a:x"), Err("invalid port"));
        assert_eq!(read("[::1"), Err("invalid host"));
        assert_eq!(read("[::x]"), Err("invalid IPv6 address"));
        assert_eq!(read("a/b"), Err("invalid host"));
    }
}
