//! Look-ups by name for rules: addresses, groups of upstream servers, values of variables. Built once, so
//! that the time is proportional to the size of a configuration.

use std::collections::HashMap;

use nowait_conf::{Node, Word};

use crate::model::{BlockEntry, BlockKind};

/// One `listen` of a server.
#[derive(Clone, Debug)]
pub struct Listen<'m> {
    pub node: &'m Node,
    /// Address and port: `*:80`, `[::]:443`, `unix:/path`.
    pub address: String,
    pub port: Option<u16>,
    pub is_ssl: bool,
    pub is_default: bool,
    pub has_proxy_protocol: bool,
    /// Only this machine can connect.
    pub is_local: bool,
}

/// The servers of an address.
pub(crate) struct Address {
    /// The first one.
    pub first: usize,
    /// The first one with `default_server`.
    pub default: Option<usize>,
    pub servers: usize,
}

/// Blocks by their numbers.
#[derive(Default)]
pub(crate) struct BlockIndex<'m> {
    pub listens: HashMap<usize, Vec<Listen<'m>>>,
    pub addresses: HashMap<String, Address>,
    pub upstreams: HashMap<&'m [u8], usize>,
    /// The values that maps give their variables: key and value.
    pub tables: HashMap<&'m [u8], Vec<(&'m Word, &'m Word)>>,
    /// The values that `set` gives to variables, by server, and for `http` those of all servers.
    pub sets: HashMap<usize, HashMap<&'m [u8], Vec<&'m Word>>>,
}

impl<'m> BlockIndex<'m> {
    pub fn of(entries: &[BlockEntry<'m>]) -> BlockIndex<'m> {
        let mut index = BlockIndex::default();
        for (number, entry) in entries.iter().enumerate() {
            match (entry.kind, entry.node) {
                (BlockKind::Server, node) => index.server(number, node, entry.nodes),
                (BlockKind::Upstream, Some(node)) => {
                    if let Some(name) = node.args.first() {
                        index.upstreams.entry(&*name.text).or_insert(number);
                    }
                }
                (BlockKind::Data, Some(node)) => index.table(node),
                _ => {}
            }
            let sets = || entry.nodes.iter().filter(|node| node.name == "set");
            if sets().next().is_some() {
                for scope in scopes(entries, number) {
                    let known = index.sets.entry(scope).or_default();
                    for node in sets() {
                        if let [variable, value] = node.args.as_slice()
                            && let Some(name) = variable.text.strip_prefix(b"$")
                        {
                            known.entry(name).or_default().push(value);
                        }
                    }
                }
            }
        }
        index
    }

    fn server(&mut self, number: usize, node: Option<&'m Node>, nodes: &'m [Node]) {
        let listens = nodes.iter().filter(|node| node.name == "listen");
        let mut listens: Vec<Listen<'m>> = listens.filter_map(listen).collect();
        if let (true, Some(node)) = (listens.is_empty(), node) {
            listens.push(Listen {
                node,
                address: "*:80".to_owned(),
                port: Some(80),
                is_ssl: false,
                is_default: false,
                has_proxy_protocol: false,
                is_local: false,
            });
        }
        let mut last: HashMap<&str, ()> = HashMap::new();
        for listen in &listens {
            let is_first = last.insert(&listen.address, ()).is_none();
            let known = self.addresses.entry(listen.address.clone());
            let known = known.or_insert(Address { first: number, default: None, servers: 0 });
            known.servers += usize::from(is_first);
            if listen.is_default {
                known.default.get_or_insert(number);
            }
        }
        self.listens.insert(number, listens);
    }

    fn table(&mut self, node: &'m Node) {
        let [_, name] = node.args.as_slice() else { return };
        let Some(variable) = name.text.strip_prefix(b"$") else { return };
        if node.name == "map" {
            let entries = node.children().iter();
            let values = entries.filter_map(|entry| Some((&entry.name, entry.args.first()?)));
            self.tables.entry(variable).or_default().extend(values);
        }
    }
}

/// The blocks whose directives may use what `set` sets in a block: its server, and `http` around that.
fn scopes<'e>(entries: &'e [BlockEntry<'_>], number: usize) -> impl Iterator<Item = usize> + 'e {
    let chain = std::iter::successors(Some(number), |number| entries[*number].parent);
    chain.filter(|number| matches!(entries[*number].kind, BlockKind::Server | BlockKind::Http))
}

fn listen(node: &Node) -> Option<Listen<'_>> {
    let word = node.args.first()?;
    let text = word.to_str().ok()?;
    let given = |name: &str| node.args[1..].iter().any(|word| *word == *name);
    let (host, port) = match text {
        _ if text.starts_with("unix:") => (text, None),
        _ if text.bytes().all(|b| b.is_ascii_digit()) => ("*", Some(text)),
        _ if text.starts_with('[') => match text.split_once("]:") {
            Some((host, port)) => (&text[..host.len() + 1], Some(port)),
            None => (text, Some("80")),
        },
        _ => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("80")),
        },
    };
    let host = if host == "0.0.0.0" { "*" } else { host };
    let is_local = host.starts_with("unix:")
        || host.starts_with("127.")
        || matches!(host, "localhost" | "[::1]");
    Some(Listen {
        node,
        address: port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")),
        port: port.and_then(|port| port.parse().ok()),
        is_ssl: given("ssl") || given("quic"),
        is_default: given("default_server") || given("default"),
        has_proxy_protocol: given("proxy_protocol"),
        is_local,
    })
}
