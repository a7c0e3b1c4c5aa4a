//! `listen`: addresses, socket parameters, and which servers answer at an address.
//! nginx: `ngx_http_core_listen`, `ngx_http_add_listen`, `ngx_http_optimize_servers`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use nowait_conf::{Cx, Diagnostic, Node, Seconds, Size, Span, Word};
use nowait_runtime::net::Address;
use nowait_sys::listen::{Keepalive, ListenAddress, ListenSpec};

use super::Regex;
use super::ServerId;
use crate::server_name::Names;

/// Number of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenId(pub u32);

/// A listening socket and the servers behind it.
pub struct Listen {
    /// How the socket is opened.
    pub spec: ListenSpec,
    /// Servers by the local address of a connection; a wildcard socket may serve several.
    addresses: Vec<(ListenAddress, Virtual)>,
}

/// The servers of one address.
pub struct Virtual {
    /// Answers when no name matches.
    pub default_server: ServerId,
    /// All others by name; absent when the default is the only one and has no name that captures.
    pub names: Names<ServerId, Regex>,
    /// The PROXY protocol comes first on its connections.
    pub proxy_protocol: bool,
}

impl Listen {
    /// The servers for a connection's local address.
    pub fn at(&self, local: &Address) -> &Virtual {
        let exact = self.addresses.iter().find(|(address, _)| match (address, local) {
            (ListenAddress::Inet(a), Address::Inet(b)) => a == b,
            _ => false,
        });
        // The last one is the socket's own address: the wildcard, if there are several.
        match exact.or(self.addresses.last()) {
            Some((_, virtual_servers)) => virtual_servers,
            None => unreachable!("a listening socket is made for an address"),
        }
    }

    /// The servers when the local address makes no difference; `None` when it has to be asked for.
    pub fn only(&self) -> Option<&Virtual> {
        match &self.addresses[..] {
            [(_, only)] => Some(only),
            _ => None,
        }
    }

    /// Whether the address is a wildcard, so that connections have another local address.
    pub fn is_wildcard(&self) -> bool {
        matches!(&self.spec.address, ListenAddress::Inet(address) if address.ip().is_unspecified())
    }
}

/// One `listen` directive.
#[derive(Clone, Debug)]
pub struct ListenDirective {
    spec: ListenSpec,
    /// Socket parameters were given: they belong to one directive per address.
    set: bool,
    /// Bind to this address even when a wildcard listens at its port.
    bind: bool,
    default_server: bool,
    proxy_protocol: bool,
    span: Span,
}

/// The function of the directive.
///
/// # Errors
/// What is wrong with it.
pub fn listen(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let (first, parameters) = node.args.split_first().ok_or_else(|| node.arity_error())?;
    let addresses = addresses(first)?;
    let mut directive = ListenDirective {
        spec: ListenSpec::new(addresses[0].clone()),
        set: false,
        bind: false,
        default_server: false,
        proxy_protocol: false,
        span: node.span,
    };
    for word in parameters {
        directive.parameter(node, word, cx)?;
    }
    let mut directives = Vec::new();
    for address in addresses {
        let mut directive = directive.clone();
        if directive.spec.ipv6only != ListenSpec::new(address.clone()).ipv6only
            && !matches!(address, ListenAddress::Inet(SocketAddr::V6(_)))
        {
            return Err(node.error(format!("ipv6only is not supported for \"{first}\"")));
        }
        directive.spec.address = address;
        directives.push(directive);
    }
    cx.layer::<super::blocks::ServerLayer>().listens.extend(directives);
    Ok(())
}

impl ListenDirective {
    /// `listen *:80` (or 8000 without privileges), for servers without a `listen`.
    pub fn default_at(span: Span) -> Self {
        let port = if nowait_sys::process::is_root() { 80 } else { 8000 };
        Self {
            spec: ListenSpec::new(ListenAddress::Inet(SocketAddr::new(
                Ipv4Addr::UNSPECIFIED.into(),
                port,
            ))),
            set: false,
            bind: false,
            default_server: false,
            proxy_protocol: false,
            span,
        }
    }

    fn parameter(&mut self, node: &Node, word: &Word, cx: &mut Cx<'_>) -> Result<(), Diagnostic> {
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
            b"bind" => {}
            b"deferred" => self.spec.deferred = true,
            b"reuseport" => self.spec.reuseport = true,
            b"multipath" => self.spec.multipath = true,
            b"ipv6only=on" => self.spec.ipv6only = true,
            b"ipv6only=off" => self.spec.ipv6only = false,
            b"ssl" | b"http2" | b"quic" => {
                return Err(word
                    .error(format!(
                        "the \"{word}\" parameter requires TLS, which this build does not have"
                    ))
                    .hint("remove the parameter, or put a TLS terminator in front"));
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
fn addresses(word: &Word) -> Result<Vec<ListenAddress>, Diagnostic> {
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
    // A range of ports is as many addresses.
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
            None if rest.is_empty() => 80..=80,
            None => return Err(error("invalid port")),
        };
        return Ok(inet(ip.into(), port));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, parse_port(port)?),
        None if text.bytes().all(|b| b.is_ascii_digit() || b == b'-') => ("*", parse_port(text)?),
        None => (text, 80..=80),
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

/// What a server contributes to its addresses.
pub struct ServerListens {
    /// The server.
    pub id: ServerId,
    /// Its `listen` directives.
    pub listens: Vec<ListenDirective>,
    /// Its names.
    pub names: Vec<ServerName>,
}

/// One `server_name`.
#[derive(Clone, Debug)]
pub enum ServerName {
    /// Exact or with a wildcard.
    Plain(Vec<u8>),
    /// `~expression`
    Regex(Regex),
}

struct Address_ {
    directive: ListenDirective,
    servers: Vec<ServerId>,
    default: Option<(ServerId, Span)>,
    first: ServerId,
    proxy_protocol: bool,
}

/// Makes the listening sockets of all servers.
pub fn build(cx: &mut Cx<'_>, servers: &[ServerListens]) -> Vec<Listen> {
    let mut addresses: BTreeMap<ListenAddress, Address_> = BTreeMap::new();
    let mut order = Vec::new();
    for server in servers {
        for directive in &server.listens {
            let address = directive.spec.address.clone();
            let entry = addresses.entry(address.clone()).or_insert_with(|| {
                order.push(address.clone());
                Address_ {
                    directive: directive.clone(),
                    servers: Vec::new(),
                    default: None,
                    first: server.id,
                    proxy_protocol: false,
                }
            });
            if entry.servers.contains(&server.id) {
                cx.report(
                    Diagnostic::emerg(format!("a duplicate listen {address}")).at(directive.span),
                );
                continue;
            }
            if directive.set {
                if entry.directive.set && !entry.servers.is_empty() {
                    cx.report(
                        Diagnostic::emerg(format!("duplicate listen options for {address}"))
                            .at(directive.span)
                            .note(entry.directive.span, "first given here"),
                    );
                    continue;
                }
                entry.directive = directive.clone();
            }
            entry.proxy_protocol |= directive.proxy_protocol;
            if directive.default_server {
                if let Some((_, first)) = entry.default {
                    cx.report(
                        Diagnostic::emerg(format!("a duplicate default server for {address}"))
                            .at(directive.span)
                            .note(first, "first given here"),
                    );
                    continue;
                }
                entry.default = Some((server.id, directive.span));
            }
            entry.servers.push(server.id);
        }
    }
    let wildcards: Vec<ListenAddress> =
        order.iter().filter(|address| is_wildcard(address)).cloned().collect();
    let mut listens: Vec<Listen> = Vec::new();
    let mut covered: Vec<(ListenAddress, ListenAddress, Virtual)> = Vec::new();
    for address in order {
        let Some(entry) = addresses.remove(&address) else { continue };
        let virtual_servers = virtual_servers(cx, &entry, servers);
        let wildcard = wildcards.iter().find(|wildcard| covers(wildcard, &address));
        match wildcard {
            Some(wildcard) if !entry.directive.bind => {
                covered.push((wildcard.clone(), address, virtual_servers));
            }
            _ => listens.push(Listen {
                spec: entry.directive.spec,
                addresses: vec![(address, virtual_servers)],
            }),
        }
    }
    for (wildcard, address, virtual_servers) in covered {
        let listen = listens.iter_mut().find(|listen| listen.spec.address == wildcard);
        if let Some(listen) = listen {
            listen.addresses.insert(0, (address, virtual_servers));
        }
    }
    listens
}

fn is_wildcard(address: &ListenAddress) -> bool {
    matches!(address, ListenAddress::Inet(address) if address.ip().is_unspecified())
}

/// Whether a wildcard address receives the connections to another one.
fn covers(wildcard: &ListenAddress, address: &ListenAddress) -> bool {
    match (wildcard, address) {
        (ListenAddress::Inet(wildcard), ListenAddress::Inet(address)) => {
            wildcard != address
                && wildcard.is_ipv4() == address.is_ipv4()
                && wildcard.port() == address.port()
        }
        _ => false,
    }
}

fn virtual_servers(cx: &mut Cx<'_>, entry: &Address_, servers: &[ServerListens]) -> Virtual {
    let mut names = Names::new();
    let address = &entry.directive.spec.address;
    for server in servers.iter().filter(|server| entry.servers.contains(&server.id)) {
        let own = server.listens.iter().find(|listen| listen.spec.address == *address);
        let span = own.map_or(entry.directive.span, |listen| listen.span);
        for name in &server.names {
            match name {
                ServerName::Regex(regex) => names.insert_regex(regex.clone(), server.id),
                ServerName::Plain(text) => match names.insert(text, server.id) {
                    Ok(inserted) => {
                        if inserted == crate::server_name::Inserted::Conflict {
                            let warning = format!(
                                "conflicting server name \"{}\" on {}, ignored",
                                String::from_utf8_lossy(text),
                                address
                            );
                            cx.report(Diagnostic::warn(warning).at(span));
                        }
                    }
                    Err(error) => {
                        cx.report(Diagnostic::emerg(error.to_string()).at(span));
                    }
                },
            }
        }
    }
    Virtual {
        default_server: entry.default.map_or(entry.first, |(id, _)| id),
        names,
        proxy_protocol: entry.proxy_protocol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<String>> {
        let found = addresses(&Word::built_in(text)).ok()?;
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
