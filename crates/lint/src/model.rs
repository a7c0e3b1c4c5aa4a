//! A configuration as rules see it: blocks with their kinds, what is in effect in them, and which
//! servers answer where.
//!
//! Built once for all rules. Inheritance is that of the directive tables ([`Inheritance`]).

use std::ops::ControlFlow;

use nowait_conf::{Inheritance, Node, Registry, Span, Tree, Word};

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Main,
    Events,
    Http,
    Server,
    Location,
    If,
    LimitExcept,
    Upstream,
    /// `map`, `geo`, `types` and others whose entries are no directives.
    Data,
    Stream,
    /// Everything else: blocks within `stream`, unknown ones.
    Other,
}

struct Entry<'m> {
    kind: Kind,
    /// `None`: the top level, or a block that the text only implies.
    node: Option<&'m Node>,
    parent: Option<usize>,
    nodes: &'m [Node],
}

/// A configuration.
pub struct Model<'m> {
    pub tree: &'m Tree,
    registry: &'m Registry,
    entries: Vec<Entry<'m>>,
    /// Only a part of a configuration is known: something that is missing may be elsewhere.
    pub is_part: bool,
}

impl<'m> Model<'m> {
    /// Blocks of `tree`. A text without `http` that has servers or locations is taken for a part of a
    /// configuration.
    pub fn new(tree: &'m Tree, registry: &'m Registry) -> Model<'m> {
        let mut model = Model { tree, registry, entries: Vec::new(), is_part: false };
        let nodes = tree.nodes.as_slice();
        let has =
            |names: &[&str]| nodes.iter().any(|node| names.iter().any(|name| node.name == **name));
        let kind = if has(&["http", "events", "stream", "worker_processes", "user", "pid"]) {
            Kind::Main
        } else if has(HTTP_ONLY) {
            Kind::Http
        } else if has(&["listen", "server_name", "location"]) {
            Kind::Server
        } else if nodes.is_empty() {
            Kind::Main
        } else {
            Kind::Http
        };
        model.is_part = kind != Kind::Main;
        let mut pending = vec![Entry { kind, node: None, parent: None, nodes }];
        while let Some(entry) = pending.pop() {
            let (index, outer, nodes) = (model.entries.len(), entry.kind, entry.nodes);
            model.entries.push(entry);
            // The first block is to be taken next.
            for node in nodes.iter().rev().filter(|node| node.block.is_some()) {
                let kind = kind_of(outer, node);
                let nodes = if kind == Kind::Data { &[][..] } else { node.children() };
                pending.push(Entry { kind, node: Some(node), parent: Some(index), nodes });
            }
        }
        model
    }

    /// Every block, in the order of the text.
    pub fn blocks(&'m self) -> impl Iterator<Item = Block<'m>> {
        (0..self.entries.len()).map(|index| Block { model: self, index })
    }

    /// The blocks of a kind.
    pub fn all(&'m self, kind: Kind) -> impl Iterator<Item = Block<'m>> {
        self.blocks().filter(move |block| block.kind() == kind)
    }

    /// `server` blocks of `http`.
    pub fn servers(&'m self) -> impl Iterator<Item = Block<'m>> {
        self.all(Kind::Server)
    }

    /// Blocks that requests pass through: `http`, servers, locations, and what is in them.
    pub fn for_requests(&'m self) -> impl Iterator<Item = Block<'m>> {
        self.blocks().filter(|block| block.is_for_requests())
    }

    /// Every directive with this name in such blocks.
    pub fn directives(&'m self, name: &'static str) -> impl Iterator<Item = (Block<'m>, &'m Node)> {
        self.for_requests().flat_map(move |block| block.own(name).map(move |node| (block, node)))
    }

    /// How a directive is inherited.
    pub fn inheritance(&self, name: &str) -> Inheritance {
        let rows = self.registry.named(name.as_bytes());
        rows.first().map_or(Inheritance::Unknown, |row| row.inheritance)
    }

    /// Whether an `upstream` block has this name.
    pub fn upstream(&'m self, name: &[u8]) -> Option<Block<'m>> {
        self.all(Kind::Upstream).find(|block| {
            block.node().and_then(|node| node.args.first()).is_some_and(|word| word.text == name)
        })
    }

    /// The server that answers requests for unknown names at an address, and whether it was chosen
    /// for that by `default_server`.
    pub fn default_server(&'m self, address: &str) -> Option<(Block<'m>, bool)> {
        let at = |server: Block<'m>| {
            let listens = server.listens().into_iter().filter(|l| l.address == address);
            listens.collect::<Vec<_>>()
        };
        let mut first = None;
        for server in self.servers() {
            let listens = at(server);
            if listens.iter().any(|listen| listen.is_default) {
                return Some((server, true));
            }
            if !listens.is_empty() && first.is_none() {
                first = Some((server, false));
            }
        }
        first
    }

    /// The names of variables that a directive of `http` defines, with the texts of their values.
    /// Values are the last words of entries, with the pattern that leads to each.
    pub fn tables(&self, variable: &str) -> Vec<(&'m Word, &'m Word)> {
        let mut values = Vec::new();
        for entry in &self.entries {
            let Some(node) = entry.node.filter(|_| entry.kind == Kind::Data) else { continue };
            let [_, name] = node.args.as_slice() else { continue };
            if node.name != "map" || name.text.strip_prefix(b"$") != Some(variable.as_bytes()) {
                continue;
            }
            let entries = node.children().iter();
            values.extend(entries.filter_map(|entry| Some((&entry.name, entry.args.first()?))));
        }
        values
    }

    /// Whether some `map`, `geo` or `split_clients` defines the variable.
    pub fn is_table(&self, variable: &str) -> bool {
        self.entries.iter().any(|entry| {
            let word = entry.node.filter(|_| entry.kind == Kind::Data);
            let word = word.and_then(|node| node.args.last());
            word.is_some_and(|word| word.text.strip_prefix(b"$") == Some(variable.as_bytes()))
        })
    }
}

/// Directives that stand in `http` and nowhere within it.
const HTTP_ONLY: &[&str] = &[
    "server",
    "upstream",
    "map",
    "geo",
    "split_clients",
    "limit_req_zone",
    "limit_conn_zone",
    "proxy_cache_path",
    "fastcgi_cache_path",
    "log_format",
];

fn kind_of(outer: Kind, node: &Node) -> Kind {
    let name = &*node.name.text;
    match (outer, name) {
        (
            _,
            b"map" | b"geo" | b"types" | b"split_clients" | b"charset_map" | b"geoip2" | b"match",
        ) => Kind::Data,
        (Kind::Main, b"http") => Kind::Http,
        (Kind::Main, b"events") => Kind::Events,
        (Kind::Main, b"stream") => Kind::Stream,
        (Kind::Http, b"server") => Kind::Server,
        (Kind::Http, b"upstream") => Kind::Upstream,
        (Kind::Server | Kind::Location, b"location") => Kind::Location,
        (Kind::Server | Kind::Location, b"if") => Kind::If,
        (Kind::Location, b"limit_except") => Kind::LimitExcept,
        _ => Kind::Other,
    }
}

/// A block of a [`Model`].
#[derive(Clone, Copy)]
pub struct Block<'m> {
    pub model: &'m Model<'m>,
    index: usize,
}

impl PartialEq for Block<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

/// How a location is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modifier {
    /// `=`
    Exact,
    Prefix,
    /// `^~`
    Preferred,
    /// `~`, or `~*` without regard to case.
    Regex {
        ignores_case: bool,
    },
    /// `@name`
    Named,
}

/// What a location is for.
#[derive(Clone, Copy, Debug)]
pub struct Location<'m> {
    pub modifier: Modifier,
    /// The prefix, the expression or the name; the modifier may be glued to it.
    pub word: &'m Word,
    /// The same without a modifier.
    pub text: &'m [u8],
}

impl Location<'_> {
    pub fn is_regex(&self) -> bool {
        matches!(self.modifier, Modifier::Regex { .. })
    }

    /// A prefix without or with `^~`.
    pub fn is_prefix(&self) -> bool {
        matches!(self.modifier, Modifier::Prefix | Modifier::Preferred)
    }

    pub fn lossy(&self) -> String {
        String::from_utf8_lossy(self.text).into_owned()
    }
}

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

impl<'m> Block<'m> {
    fn entry(self) -> &'m Entry<'m> {
        &self.model.entries[self.index]
    }

    pub fn kind(self) -> Kind {
        self.entry().kind
    }

    /// The directive that opens the block; none at the top level.
    pub fn node(self) -> Option<&'m Node> {
        self.entry().node
    }

    /// Where the block is opened; for the top level, its first directive.
    pub fn span(self) -> Span {
        let first = || self.nodes().first().map_or(Span::BUILT_IN, |node| node.name.span);
        self.node().map_or_else(first, |node| node.name.span)
    }

    /// The directives of the block.
    pub fn nodes(self) -> &'m [Node] {
        self.entry().nodes
    }

    pub fn parent(self) -> Option<Block<'m>> {
        self.entry().parent.map(|index| Block { model: self.model, index })
    }

    /// The block and those around it, the innermost first.
    pub fn chain(self) -> impl Iterator<Item = Block<'m>> {
        std::iter::successors(Some(self), |block| block.parent())
    }

    pub fn is_for_requests(self) -> bool {
        matches!(
            self.kind(),
            Kind::Http | Kind::Server | Kind::Location | Kind::If | Kind::LimitExcept
        )
    }

    /// The blocks directly inside.
    pub fn inner(self) -> impl Iterator<Item = Block<'m>> {
        self.model.blocks().filter(move |block| block.parent() == Some(self))
    }

    /// The block and all inside.
    pub fn within(self) -> impl Iterator<Item = Block<'m>> {
        self.model.blocks().filter(move |block| block.chain().any(|outer| outer == self))
    }

    /// Whether no `server { }` of the text is around, so that whatever is missing may be in the file that
    /// includes this one.
    pub fn is_snippet(self) -> bool {
        self.model.is_part && self.server().is_none_or(|server| server.node().is_none())
    }

    /// The server around.
    pub fn server(self) -> Option<Block<'m>> {
        self.chain().find(|block| block.kind() == Kind::Server)
    }

    /// The directives of the block with a name.
    pub fn own(self, name: &str) -> impl Iterator<Item = &'m Node> {
        let nodes = self.nodes().iter();
        let name = name.to_owned();
        nodes.filter(move |node| node.name == *name)
    }

    pub fn has(self, name: &str) -> bool {
        self.own(name).next().is_some()
    }

    pub fn has_any(self, names: &[&str]) -> bool {
        names.iter().any(|name| self.has(name))
    }

    /// The directives with a name that are in effect here, and the block that they stand in.
    pub fn effective_in(self, name: &str) -> Option<(Block<'m>, Vec<&'m Node>)> {
        let is_own = self.model.inheritance(name) == Inheritance::Own;
        let blocks = self.chain().take(if is_own { 1 } else { usize::MAX });
        let mut found = blocks.map(|block| (block, block.own(name).collect::<Vec<_>>()));
        found.find(|(_, nodes)| !nodes.is_empty())
    }

    pub fn effective(self, name: &str) -> Vec<&'m Node> {
        self.effective_in(name).map(|(_, nodes)| nodes).unwrap_or_default()
    }

    /// The first argument of the directive in effect.
    pub fn setting(self, name: &str) -> Option<&'m Word> {
        self.effective(name).last().and_then(|node| node.args.first())
    }

    /// Whether the first argument of the directive in effect is this word.
    pub fn is_set(self, name: &str, value: &str) -> bool {
        self.setting(name).is_some_and(|word| *word == *value)
    }

    /// Whether a directive of one of these names is in effect.
    pub fn in_effect(self, names: &[&str]) -> bool {
        names.iter().any(|name| self.effective_in(name).is_some())
    }

    /// What a location is for; also of an `if` or `limit_except` in it.
    pub fn location(self) -> Option<Location<'m>> {
        let found = self.chain().try_for_each(|block| match block.kind() {
            Kind::Location => ControlFlow::Break(block.own_location()),
            Kind::If | Kind::LimitExcept => ControlFlow::Continue(()),
            _ => ControlFlow::Break(None),
        });
        match found {
            ControlFlow::Break(location) => location,
            ControlFlow::Continue(()) => None,
        }
    }

    /// What the block is for, if it is a location.
    pub fn own_location(self) -> Option<Location<'m>> {
        let args = &self.node().filter(|_| self.kind() == Kind::Location)?.args;
        let (modifier, word, text) = match args.as_slice() {
            [modifier, word] => {
                let modifier = match &*modifier.text {
                    b"=" => Modifier::Exact,
                    b"^~" => Modifier::Preferred,
                    b"~" => Modifier::Regex { ignores_case: false },
                    b"~*" => Modifier::Regex { ignores_case: true },
                    _ => return None,
                };
                (modifier, word, &*word.text)
            }
            [word] => {
                let text = &*word.text;
                let rest = |length: usize| &text[length..];
                match text {
                    [b'@', ..] => (Modifier::Named, word, text),
                    [b'=', ..] => (Modifier::Exact, word, rest(1)),
                    [b'^', b'~', ..] => (Modifier::Preferred, word, rest(2)),
                    [b'~', b'*', ..] => (Modifier::Regex { ignores_case: true }, word, rest(2)),
                    [b'~', ..] => (Modifier::Regex { ignores_case: false }, word, rest(1)),
                    _ => (Modifier::Prefix, word, text),
                }
            }
            _ => return None,
        };
        Some(Location { modifier, word, text })
    }

    /// The addresses of a server; without `listen`, nginx's default.
    pub fn listens(self) -> Vec<Listen<'m>> {
        let listens: Vec<Listen<'m>> = self.own("listen").filter_map(listen).collect();
        match (listens.is_empty(), self.node()) {
            (true, Some(node)) => vec![Listen {
                node,
                address: "*:80".to_owned(),
                port: Some(80),
                is_ssl: false,
                is_default: false,
                has_proxy_protocol: false,
                is_local: false,
            }],
            _ => listens,
        }
    }

    /// Whether clients reach the server without TLS, by a network.
    pub fn is_plain(self) -> bool {
        let has_ssl = self.in_effect(&["ssl"]) && self.is_set("ssl", "on");
        !has_ssl
            && self
                .listens()
                .iter()
                .any(|listen| !listen.is_ssl && !listen.is_local && !listen.has_proxy_protocol)
    }

    /// Whether clients reach the server by TLS.
    pub fn is_tls(self) -> bool {
        self.is_set("ssl", "on") || self.listens().iter().any(|listen| listen.is_ssl)
    }

    /// The words of `server_name`.
    pub fn names(self) -> Vec<&'m Word> {
        self.own("server_name").flat_map(|node| &node.args).collect()
    }

    /// Whether requests for any name can get here.
    pub fn takes_any_name(self) -> bool {
        let is_any = |word: &&Word| {
            let text = &*word.text;
            text.is_empty() || *text == *b"_" || *text == *b"~." || text.starts_with(b"~^(.")
        };
        let names = self.names();
        names.is_empty()
            || names.iter().any(is_any)
            || self.listens().iter().any(|listen| {
                let default = self.model.default_server(&listen.address);
                default.is_none_or(|(server, _)| server == self)
            })
    }
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
