//! The server of `stream` that has a port, which an explanation of HTTP requests ends at.

use std::net::{IpAddr, SocketAddr};

use nowait_conf::{Node, Tree};
use nowait_http::explain::Question;
use nowait_runtime::net::Address;
use nowait_stream::conf::StreamConf;
use nowait_sys::listen::ListenAddress;

/// Servers of a group that are shown.
const PEERS_SHOWN_MAX: usize = 8;

/// Describes the `stream` server of the port, if there is one.
pub fn describe(stream: &StreamConf, tree: &Tree, question: &Question) -> Option<String> {
    let port = question.port?;
    let host = question.host.trim_start_matches('[').trim_end_matches(']');
    let host: Option<IpAddr> = host.parse().ok();
    let inet = |address: &ListenAddress| match address {
        ListenAddress::Inet(address) => Some(*address).filter(|address| address.port() == port),
        _ => None,
    };
    let of_port = |address: SocketAddr| match host {
        None => true,
        Some(ip) if ip == address.ip() => true,
        Some(ip) => address.ip().is_unspecified() && ip.is_ipv4() == address.is_ipv4(),
    };
    let all = stream.listens().iter();
    let mut all: Vec<_> = all
        .filter_map(|listen| Some((listen, inet(&listen.spec.address)?)))
        .filter(|(_, address)| of_port(*address))
        .collect();
    // An exact address precedes a wildcard.
    all.sort_by_key(|(_, address)| address.ip().is_unspecified());
    let (listen, address) = all.first()?;
    let local = SocketAddr::new(host.unwrap_or(address.ip()), port);
    let servers = listen.at(&Address::Inet(local));
    let block = tree.nodes.iter().find(|node| node.name == "stream")?;
    let mut nodes = block.children().iter().filter(|node| node.name == "server");
    let node = nodes.nth(servers.default_server.0 as usize)?;
    let place = tree.sources.place(node.name.span);
    let which = match servers.all.len() {
        0 | 1 => "a server".to_owned(),
        several => format!("the default of {several} servers"),
    };
    let does = what(block, node);
    Some(format!(
        "port {port} belongs to {which} of \"stream\" in {place}, which {does}; only requests to servers \
         of \"http\" are explained"
    ))
}

/// Describes how a server handles connections.
fn what(block: &Node, server: &Node) -> String {
    for (name, verb) in [
        ("proxy_pass", "passes connections to"),
        ("pass", "hands connections to"),
        ("return", "sends"),
    ] {
        let Some(node) = server.children().iter().find(|node| node.name == *name) else { continue };
        let to = node.args.first().map(|word| word.lossy()).unwrap_or_default();
        return format!("{verb} \"{to}\"{}", peers(block, &to));
    }
    "does nothing with connections".to_owned()
}

/// The servers of a group.
fn peers(block: &Node, name: &str) -> String {
    let is_group = |node: &&Node| {
        node.name == "upstream" && node.args.first().is_some_and(|word| *word == *name)
    };
    let Some(group) = block.children().iter().find(is_group) else { return String::new() };
    let servers = group.children().iter().filter(|node| node.name == "server");
    let servers = servers.filter_map(|node| node.args.first()).map(|word| word.lossy());
    let mut shown: Vec<_> = servers.take(PEERS_SHOWN_MAX + 1).collect();
    if shown.len() > PEERS_SHOWN_MAX {
        shown[PEERS_SHOWN_MAX] = "...".into();
    }
    format!(" (servers {})", shown.join(", "))
}
