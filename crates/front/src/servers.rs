//! Virtual servers: their names, and the choice of the server for a name at an address. nginx:
//! `server_name`, `ngx_http_add_listen`, `ngx_http_optimize_servers`, and their copies for `stream`.
//!
//! Protocols have the row of `server_name`, and call [`read_names`] to evaluate it, and [`build`]
//! once all servers are known.

use std::collections::BTreeMap;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Span};
use nowait_runtime::net::Address;
use nowait_sys::listen::{ListenAddress, ListenSpec};
use nowait_variables::names::{self, InsertResult, Names};
use nowait_variables::{Namespace, Regex};

use crate::listen::ListenDirective;

/// Number of a virtual server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(pub u32);

/// Number of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenId(pub u32);

/// A listening socket and the servers behind it.
pub struct Listen {
    /// The parameters of the socket.
    pub spec: ListenSpec,
    /// Servers by the local address of a connection; a wildcard socket may serve several.
    addresses: Vec<(ListenAddress, Virtual)>,
}

/// The servers of one address.
pub struct Virtual {
    /// Used when no name matches.
    pub default_server: ServerId,
    /// Servers by name.
    pub names: Names<ServerId, Regex>,
    /// Whether a name makes a difference: there are several servers, or expressions that capture.
    pub has_choice: bool,
    /// Connections begin with the PROXY protocol.
    pub proxy_protocol: bool,
    /// The position of the `ssl` parameter, if connections use TLS.
    pub ssl: Option<Span>,
    /// All servers of the address.
    pub all: Vec<ServerId>,
    /// HTTP/2 is enabled for all servers.
    pub http2: bool,
    /// The position of the `quic` parameter, if connections use QUIC.
    pub quic: Option<Span>,
}

impl Listen {
    /// The servers for a connection's local address.
    pub fn at(&self, local: &Address) -> &Virtual {
        let local = local.inet();
        let exact =
            self.addresses.iter().find(|(address, _)| local.is_some() && address.inet() == local);
        // The last one is the socket's own address: the wildcard, if there are several.
        match exact.or(self.addresses.last()) {
            Some((_, virtual_servers)) => virtual_servers,
            None => unreachable!("a listening socket is made for an address"),
        }
    }

    /// The servers if the local address makes no difference; `None` if it has to be queried.
    pub fn only(&self) -> Option<&Virtual> {
        match &self.addresses[..] {
            [(_, only)] => Some(only),
            _ => None,
        }
    }

    /// The servers of every address.
    pub fn all(&self) -> impl Iterator<Item = &Virtual> {
        self.addresses.iter().map(|(_, servers)| servers)
    }

    /// Whether the address is a wildcard, so that connections have another local address.
    pub fn is_wildcard(&self) -> bool {
        self.spec.address.is_wildcard()
    }
}

/// A name of a server.
#[derive(Clone, Debug)]
pub enum ServerName {
    /// Exact or with a wildcard.
    Plain(Vec<u8>),
    /// `~expression`
    Regex(Regex),
}

/// A name of a server as written, and compiled if it is a regular expression.
pub struct ConfiguredName {
    /// The value of `$server_name`.
    pub shown: Bytes,
    /// The name.
    pub name: ServerName,
    /// Position in the configuration.
    pub span: Span,
}

impl ConfiguredName {
    /// The empty name of the server at `span`, which states none.
    pub fn none(span: Span) -> Self {
        Self { shown: Bytes::new(), name: ServerName::Plain(Vec::new()), span }
    }
}

/// Reads a `server_name`; names captured by expressions are variables of `N`.
///
/// # Errors
/// An invalid name.
pub fn read_names<N: Namespace>(
    cx: &mut Cx<'_>,
    node: &Node,
) -> Result<Vec<ConfiguredName>, Diagnostic> {
    let mut all = Vec::with_capacity(node.args.len());
    for word in &node.args {
        let hostname = nowait_sys::process::hostname();
        let parsed = names::parse(&word.text, hostname.as_bytes())
            .map_err(|error| word.error(error.to_string()))?;
        if let Some(warning) = names::suspicious(&word.text) {
            cx.report(Diagnostic::warn(warning).at(word.span));
        }
        let shown = parsed.variable_text().into();
        let name = match parsed {
            names::ServerName::Regex { pattern, caseless } => {
                ServerName::Regex(Regex::compile::<N>(cx, word, &pattern, caseless)?)
            }
            names::ServerName::Plain(text) => ServerName::Plain(text.into()),
        };
        all.push(ConfiguredName { shown, name, span: word.span });
    }
    Ok(all)
}

/// The listening sockets and names of a server.
pub struct ServerListens {
    /// The server.
    pub id: ServerId,
    /// The `listen` directives.
    pub listens: Vec<ListenDirective>,
    /// The names.
    pub names: Vec<ConfiguredName>,
}

struct Address_ {
    directive: ListenDirective,
    servers: Vec<ServerId>,
    /// Their places among all servers.
    places: Vec<usize>,
    default: Option<(ServerId, Span)>,
    first: ServerId,
    proxy_protocol: bool,
    ssl: Option<Span>,
    http2: bool,
    quic: Option<Span>,
}

/// Makes the listening sockets of all servers.
pub fn build(cx: &mut Cx<'_>, servers: &[ServerListens]) -> Vec<Listen> {
    let mut addresses: BTreeMap<ListenAddress, Address_> = BTreeMap::new();
    let mut order = Vec::new();
    for (place, server) in servers.iter().enumerate() {
        for directive in &server.listens {
            let address = directive.spec.address.clone();
            let entry = addresses.entry(address.clone()).or_insert_with(|| {
                order.push(address.clone());
                Address_ {
                    directive: directive.clone(),
                    servers: Vec::new(),
                    places: Vec::new(),
                    default: None,
                    first: server.id,
                    proxy_protocol: false,
                    ssl: None,
                    http2: false,
                    quic: None,
                }
            });
            // Names of one server are adjacent.
            if entry.servers.last() == Some(&server.id) {
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
            entry.ssl = entry.ssl.or(directive.ssl.then_some(directive.span));
            entry.http2 |= directive.http2;
            entry.quic = entry.quic.or(directive.quic.then_some(directive.span));
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
            entry.places.push(place);
        }
    }
    let wildcards: Vec<ListenAddress> =
        order.iter().filter(|address| address.is_wildcard()).cloned().collect();
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

/// Whether a wildcard address covers another one.
fn covers(wildcard: &ListenAddress, address: &ListenAddress) -> bool {
    match (wildcard.inet(), address.inet()) {
        (Some(wild), Some(inet)) => {
            wild != inet
                && wildcard.is_stream() == address.is_stream()
                && wild.is_ipv4() == inet.is_ipv4()
                && wild.port() == inet.port()
        }
        _ => false,
    }
}

fn virtual_servers(cx: &mut Cx<'_>, entry: &Address_, servers: &[ServerListens]) -> Virtual {
    let mut names = Names::new();
    let mut given: Vec<(&[u8], Span)> = Vec::new();
    let address = &entry.directive.spec.address;
    for server in entry.places.iter().map(|place| &servers[*place]) {
        for ConfiguredName { name, span, .. } in &server.names {
            let text = match name {
                ServerName::Regex(regex) => {
                    names.insert_regex(regex.clone(), server.id);
                    continue;
                }
                ServerName::Plain(text) => text,
            };
            match names.insert(text, server.id) {
                Ok(InsertResult::New) => given.push((text, *span)),
                Ok(InsertResult::Conflict) => {
                    let shown = String::from_utf8_lossy(text);
                    let warning =
                        format!("conflicting server name \"{shown}\" on {address}, ignored");
                    let warning = Diagnostic::warn(warning).at(*span);
                    let first = given.iter().find(|(known, _)| names::overlap(known, text));
                    cx.report(match first {
                        Some((_, first)) => warning.note(*first, "first given here"),
                        None => warning,
                    });
                }
                Err(error) => cx.report(Diagnostic::emerg(error.to_string()).at(*span)),
            }
        }
    }
    names.seal(Regex::pattern);
    names.frequent().for_each(Regex::prepare);
    Virtual {
        default_server: entry.default.map_or(entry.first, |(id, _)| id),
        has_choice: entry.servers.len() > 1 || names.has_regexes(),
        names,
        proxy_protocol: entry.proxy_protocol,
        ssl: entry.ssl,
        all: entry.servers.clone(),
        http2: entry.http2,
        quic: entry.quic,
    }
}
