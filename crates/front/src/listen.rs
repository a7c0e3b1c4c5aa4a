//! `listen`: addresses and socket parameters. nginx: `ngx_http_core_listen`,
//! `ngx_stream_core_listen`.
//!
//! Protocols have the row, and call [`read`] to evaluate it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use nowait_conf::{Cx, Diagnostic, Node, Seconds, Size, Span, Word};
use nowait_sys::listen::{Keepalive, ListenAddress, ListenSpec};

/// The parameters that `listen` allows in a protocol.
#[derive(Clone, Copy, Debug)]
pub struct ListenRules {
    /// The default port; `None`: a port is required.
    pub default_port: Option<u16>,
    /// Whether `udp` is allowed.
    pub udp: bool,
    /// Whether `ssl` is allowed.
    pub ssl: bool,
    /// Whether `http2` is allowed.
    pub http2: bool,
    /// Whether `quic` is allowed.
    pub quic: bool,
}

/// Parameters of connections.
const TCP_ONLY: [&str; 7] =
    ["fastopen=", "backlog=", "deferred", "multipath", "so_keepalive=", "proxy_protocol", "ssl"];

/// The parameters that exclude `quic`, in nginx's order.
const NOT_QUIC: [&str; 8] = [
    "fastopen=",
    "backlog=",
    "deferred",
    "multipath",
    "ssl",
    "http2",
    "so_keepalive=",
    "proxy_protocol",
];

/// One `listen` directive.
#[derive(Clone, Debug)]
pub struct ListenDirective {
    pub(crate) spec: ListenSpec,
    /// Socket parameters were given: they belong to one directive per address.
    pub(crate) set: bool,
    /// Bind to this address even if a wildcard listens on its port.
    pub(crate) bind: bool,
    pub(crate) default_server: bool,
    pub(crate) proxy_protocol: bool,
    pub(crate) ssl: bool,
    pub(crate) http2: bool,
    pub(crate) quic: bool,
    pub(crate) span: Span,
}

/// Reads a directive: one for each of its addresses.
///
/// # Errors
/// The reason why the directive is invalid.
pub fn read(
    cx: &mut Cx<'_>,
    node: &Node,
    rules: ListenRules,
) -> Result<Vec<ListenDirective>, Diagnostic> {
    let (first, parameters) = node.args.split_first().ok_or_else(|| node.arity_error())?;
    let addresses = addresses(first, rules.default_port)?;
    let mut directive = ListenDirective {
        spec: ListenSpec::new(addresses[0].clone()),
        set: false,
        bind: false,
        default_server: false,
        proxy_protocol: false,
        ssl: false,
        http2: false,
        quic: rules.quic && parameters.iter().any(|word| *word == *"quic"),
        span: node.span,
    };
    if directive.quic {
        incompatible(node, parameters, &NOT_QUIC, "quic")?;
        // nginx differs: its sockets are shared by the workers without `reuseport`, which only one server
        // of an address may have. Here each worker always has its own.
        directive.spec.reuseport = true;
        directive.spec.quic = true;
    }
    let (udp, others): (Vec<&Word>, Vec<&Word>) =
        parameters.iter().partition(|word| rules.udp && **word == *"udp");
    for word in others {
        if directive.quic && (*word == *"quic" || *word == *"reuseport") {
            continue;
        }
        if rules.http2 && *word == *"http2" {
            let text = "the \"listen ... http2\" directive is deprecated, use the \"http2\" directive \
                        instead";
            cx.report(Diagnostic::warn(text).at(word.span));
            directive.http2 = true;
            continue;
        }
        directive.parameter(node, word, rules, cx)?;
    }
    if !udp.is_empty() {
        incompatible(node, parameters, &TCP_ONLY, "udp")?;
    }
    let transport = match udp.is_empty() {
        true if directive.quic => Some("quic"),
        true => None,
        false => Some("udp"),
    };
    let mut directives = Vec::new();
    for mut address in addresses {
        if let Some(transport) = transport {
            address = match address {
                ListenAddress::Inet(inet) | ListenAddress::Udp(inet) => ListenAddress::Udp(inet),
                ListenAddress::Unix(_) => {
                    let text = format!("\"{transport}\" is not supported for \"{first}\"");
                    return Err(node.error(text));
                }
            };
        }
        let mut directive = directive.clone();
        if directive.spec.ipv6only != ListenSpec::new(address.clone()).ipv6only
            && !address.inet().is_some_and(|inet| inet.is_ipv6())
        {
            return Err(node.error(format!("ipv6only is not supported for \"{first}\"")));
        }
        directive.spec.address = address;
        directives.push(directive);
    }
    Ok(directives)
}

/// Refuses parameters that the transport lacks.
fn incompatible(
    node: &Node,
    parameters: &[Word],
    excluded: &[&str],
    transport: &str,
) -> Result<(), Diagnostic> {
    let is = |word: &Word, name: &str| match name.ends_with('=') {
        true => word.text.starts_with(name.as_bytes()),
        false => word.text == name.as_bytes(),
    };
    for name in excluded {
        if parameters.iter().any(|word| is(word, name)) {
            let name = name.trim_end_matches('=');
            let problem = format!("\"{name}\" parameter is incompatible with \"{transport}\"");
            return Err(node.directive_error(&problem));
        }
    }
    Ok(())
}

impl ListenDirective {
    /// `listen *:PORT`, for servers without a `listen`.
    pub fn of_port(port: u16, span: Span) -> Self {
        Self {
            spec: ListenSpec::new(ListenAddress::Inet(SocketAddr::new(
                Ipv4Addr::UNSPECIFIED.into(),
                port,
            ))),
            set: false,
            bind: false,
            default_server: false,
            proxy_protocol: false,
            ssl: false,
            http2: false,
            quic: false,
            span,
        }
    }

    /// Adds `ssl`, unless its connections are encrypted already.
    pub fn add_ssl(&mut self) {
        self.ssl |= !self.quic;
    }

    /// Whether it has `http2`.
    pub fn has_http2(&self) -> bool {
        self.http2
    }

    /// Whether it has `quic`.
    pub fn has_quic(&self) -> bool {
        self.quic
    }

    /// The port; `None` for a Unix-domain socket.
    pub fn port(&self) -> Option<u16> {
        self.spec.address.inet().map(|address| address.port())
    }

    fn parameter(
        &mut self,
        node: &Node,
        word: &Word,
        rules: ListenRules,
        cx: &mut Cx<'_>,
    ) -> Result<(), Diagnostic> {
        let invalid = |what: &str| word.error(format!("invalid {what} \"{word}\""));
        match &word.text[..] {
            b"default_server" | b"default" => {
                self.default_server = true;
                return Ok(());
            }
            b"proxy_protocol" => {
                self.proxy_protocol = true;
                return Ok(());
            }
            b"ssl" if rules.ssl => {
                self.ssl = true;
                return Ok(());
            }
            b"bind" => {}
            b"deferred" => self.spec.deferred = true,
            b"reuseport" => self.spec.reuseport = true,
            b"multipath" => self.spec.multipath = true,
            b"ipv6only=on" => self.spec.ipv6only = true,
            b"ipv6only=off" => self.spec.ipv6only = false,
            b"ssl" | b"http2" | b"quic" => {
                return Err(word
                    .error(format!("the \"{word}\" parameter is not supported here"))
                    .hint("remove the parameter"));
            }
            text => {
                let (name, value) = match text.iter().position(|&b| b == b'=') {
                    Some(at) => (&text[..at], &text[at + 1..]),
                    None => {
                        return Err(node.parameter_error(word));
                    }
                };
                let number = || std::str::from_utf8(value).ok().and_then(|v| v.parse::<u32>().ok());
                let size = || {
                    <Size as nowait_conf::Value>::from_word(value)
                        .ok()
                        .and_then(|size| u32::try_from(size.0).ok())
                        .filter(|size| *size > 0)
                };
                match name {
                    b"backlog" => {
                        self.spec.backlog = match value {
                            b"-1" => nowait_sys::listen::BACKLOG_DEFAULT,
                            _ => number().filter(|n| *n > 0).ok_or_else(|| invalid("backlog"))?,
                        };
                    }
                    b"fastopen" => {
                        self.spec.fastopen = Some(number().ok_or_else(|| invalid("fastopen"))?);
                    }
                    b"rcvbuf" => self.spec.rcvbuf = Some(size().ok_or_else(|| invalid("rcvbuf"))?),
                    b"sndbuf" => self.spec.sndbuf = Some(size().ok_or_else(|| invalid("sndbuf"))?),
                    b"so_keepalive" => {
                        self.spec.keepalive = keepalive(value).ok_or_else(|| {
                            word.error(format!(
                                "invalid so_keepalive value: \"{}\"",
                                String::from_utf8_lossy(value)
                            ))
                            .expected("on, off, or IDLE:INTERVAL:COUNT such as 30m::10")
                        })?;
                    }
                    b"ipv6only" => {
                        return Err(word
                            .error(format!(
                                "invalid ipv6only flags \"{}\"",
                                String::from_utf8_lossy(value)
                            ))
                            .expected("ipv6only=on or ipv6only=off"));
                    }
                    b"accept_filter" => {
                        let warning = format!(
                            "accept filters \"{word}\" are not supported on this platform, ignored"
                        );
                        cx.report(Diagnostic::warn(warning).at(word.span));
                        return Ok(());
                    }
                    b"setfib" => {
                        return Err(word
                            .error(format!("invalid parameter \"{word}\""))
                            .hint("routing tables of FreeBSD don't exist on Linux"));
                    }
                    _ => {
                        return Err(node.parameter_error(word));
                    }
                }
            }
        }
        self.set = true;
        self.bind = true;
        Ok(())
    }
}

fn keepalive(value: &[u8]) -> Option<Keepalive> {
    match value {
        b"on" => return Some(Keepalive::On { idle: None, interval: None, count: None }),
        b"off" => return Some(Keepalive::Off),
        _ => {}
    }
    let mut parts = value.split(|&b| b == b':');
    let seconds = |part: Option<&[u8]>| match part {
        None | Some(b"") => Some(None),
        Some(text) => {
            let seconds = <Seconds as nowait_conf::Value>::from_word(text).ok()?;
            (seconds.0 > 0).then(|| Some(Duration::from_secs(seconds.0)))
        }
    };
    let idle = seconds(parts.next())?;
    let interval = seconds(parts.next())?;
    let count = match parts.next() {
        None | Some(b"") => None,
        Some(text) => Some(std::str::from_utf8(text).ok()?.parse().ok().filter(|n| *n > 0)?),
    };
    if parts.next().is_some() || (idle.is_none() && interval.is_none() && count.is_none()) {
        return None;
    }
    Some(Keepalive::On { idle, interval, count })
}

/// Reads an address; a name may have several.
fn addresses(word: &Word, default_port: Option<u16>) -> Result<Vec<ListenAddress>, Diagnostic> {
    let text = word.to_str()?;
    let error = |problem: &str| {
        word.error(format!("{problem} in \"{text}\" of the \"listen\" directive")).expected(
            "ADDRESS:PORT, ADDRESS, PORT, [IPV6]:PORT or unix:PATH; PORT may be FIRST-LAST",
        )
    };
    if let Some(path) = text.strip_prefix("unix:") {
        if path.is_empty() {
            return Err(error("no path"));
        }
        if path.len() > 107 {
            return Err(error("too long path"));
        }
        return Ok(vec![ListenAddress::Unix(PathBuf::from(path))]);
    }
    let inet = |ip: IpAddr, ports: RangeInclusive<u16>| {
        ports.map(|port| ListenAddress::Inet(SocketAddr::new(ip, port))).collect()
    };
    let one_port = |port: &str| match port.parse::<u16>() {
        Ok(port @ 1..) => Ok(port),
        _ => Err(error("invalid port")),
    };
    let no_port = || default_port.map(|port| port..=port).ok_or_else(|| error("no port"));
    // A range of ports stands for one address per port.
    let parse_port = |text: &str| match text.split_once('-') {
        None => one_port(text).map(|port| port..=port),
        Some((first, last)) => match (one_port(first)?, one_port(last)?) {
            (first, last) if first <= last => Ok(first..=last),
            _ => Err(error("invalid port range")),
        },
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (ip, rest) = rest.split_once(']').ok_or_else(|| error("no \"]\""))?;
        let ip: Ipv6Addr = ip.parse().map_err(|_| error("invalid IPv6 address"))?;
        let port = match rest.strip_prefix(':') {
            Some(port) => parse_port(port)?,
            None if rest.is_empty() => no_port()?,
            None => return Err(error("invalid port")),
        };
        return Ok(inet(ip.into(), port));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, parse_port(port)?),
        None if text.bytes().all(|b| b.is_ascii_digit() || b == b'-') => ("*", parse_port(text)?),
        None => (text, no_port()?),
    };
    if host == "*" {
        return Ok(inet(Ipv4Addr::UNSPECIFIED.into(), port));
    }
    if host.is_empty() {
        return Err(error("no host"));
    }
    if let Ok(ip) = host.parse::<Ipv4Addr>() {
        return Ok(inet(ip.into(), port));
    }
    // Names are looked up once, when the configuration is read, as nginx does.
    let ips = (host, 0).to_socket_addrs().map_err(|_| error("host not found"))?;
    let found: Vec<ListenAddress> =
        ips.flat_map(|address| -> Vec<_> { inet(address.ip(), port.clone()) }).collect();
    if found.is_empty() { Err(error("host not found")) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<String>> {
        let found = addresses(&Word::built_in(text), Some(80)).ok()?;
        Some(found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn addresses_in_all_forms() {
        let one = |text: &str| read(text).map(|mut all| all.remove(0));
        assert_eq!(one("80").as_deref(), Some("0.0.0.0:80"));
        assert_eq!(one("*:81").as_deref(), Some("0.0.0.0:81"));
        assert_eq!(one("127.0.0.1").as_deref(), Some("127.0.0.1:80"));
        assert_eq!(one("127.0.0.1:82").as_deref(), Some("127.0.0.1:82"));
        assert_eq!(one("[::1]:83").as_deref(), Some("[::1]:83"));
        assert_eq!(one("[::]").as_deref(), Some("[::]:80"));
        assert_eq!(one("unix:/run/x").as_deref(), Some("unix:/run/x"));
        assert_eq!(read("127.0.0.1:80-82").unwrap().len(), 3);
        assert_eq!(read("[::1]:80-81").unwrap(), ["[::1]:80", "[::1]:81"]);
        for wrong in [
            "",
            "82-80",
            "80-",
            "-80",
            "1-70000",
            ":80",
            "0",
            "65536",
            "[::1",
            "[x]:1",
            "127.0.0.1:x",
            "unix:",
        ] {
            assert_eq!(one(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn keepalive_parameters() {
        assert_eq!(keepalive(b"off"), Some(Keepalive::Off));
        assert_eq!(
            keepalive(b"30m::10"),
            Some(Keepalive::On {
                idle: Some(Duration::from_secs(1800)),
                interval: None,
                count: Some(10)
            })
        );
        assert_eq!(keepalive(b"::"), None);
        assert_eq!(keepalive(b"1:2:3:4"), None);
    }
}
