//! The model of a configuration for rules: blocks with their kinds, directives in effect in them, and
//! servers by address.
//!
//! Built once for all rules. Inheritance is that of the directive tables ([`Inheritance`]).

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::ControlFlow;

use nowait_conf::{Inheritance, Node, Registry, Span, Tree, Word};

use crate::index::{BlockIndex, Listen};
use crate::surroundings::Surroundings;

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
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
    /// Other blocks: within `stream`, unknown ones.
    Other,
}

pub(crate) struct BlockEntry<'m> {
    pub kind: BlockKind,
    /// `None`: the top level, or a block that the text only implies.
    pub node: Option<&'m Node>,
    pub parent: Option<usize>,
    pub nodes: &'m [Node],
    /// The entry behind the last one inside.
    end: usize,
    /// The directives of a large block by their names.
    by_name: HashMap<&'m [u8], Vec<&'m Node>>,
    /// The groups of its regular expressions by number or name, once they were asked for.
    groups: OnceCell<HashMap<String, Vec<String>>>,
    takes_any_name: OnceCell<bool>,
}

/// Blocks with more directives have an index of them.
const SCANNED_MAX: usize = 16;

/// Maximum number of directives of one name in one block that inner blocks consider.
const LINES_MAX: usize = 1000;

/// A configuration.
pub struct Model<'m> {
    pub tree: &'m Tree,
    registry: &'m Registry,
    entries: Vec<BlockEntry<'m>>,
    index: BlockIndex<'m>,
    /// The machine that it is for.
    pub surroundings: &'m dyn Surroundings,
    /// Only a part of a configuration is known: missing directives may be in another file.
    pub is_part: bool,
}

impl<'m> Model<'m> {
    /// Blocks of `tree`. A text without `http` that has servers or locations is taken for a part of a
    /// configuration.
    pub fn new(
        tree: &'m Tree,
        registry: &'m Registry,
        surroundings: &'m dyn Surroundings,
    ) -> Model<'m> {
        let nodes = tree.nodes.as_slice();
        let has =
            |names: &[&str]| nodes.iter().any(|node| names.iter().any(|name| node.name == **name));
        let kind = if has(&["http", "events", "stream", "worker_processes", "user", "pid"]) {
            BlockKind::Main
        } else if has(HTTP_ONLY) {
            BlockKind::Http
        } else if has(&["listen", "server_name", "location"]) {
            BlockKind::Server
        } else if nodes.is_empty() {
            BlockKind::Main
        } else {
            BlockKind::Http
        };
        let entries = entries(kind, nodes);
        let index = BlockIndex::of(&entries);
        Model { tree, registry, entries, index, surroundings, is_part: kind != BlockKind::Main }
    }

    /// Every block, in the order of the text.
    pub fn blocks(&'m self) -> impl Iterator<Item = BlockRef<'m>> {
        (0..self.entries.len()).map(|index| BlockRef { model: self, index })
    }

    /// The blocks of a kind.
    pub fn all(&'m self, kind: BlockKind) -> impl Iterator<Item = BlockRef<'m>> {
        self.blocks().filter(move |block| block.kind() == kind)
    }

    /// `server` blocks of `http`.
    pub fn servers(&'m self) -> impl Iterator<Item = BlockRef<'m>> {
        self.all(BlockKind::Server)
    }

    /// Blocks that requests pass through: `http`, servers, locations, and what is in them.
    pub fn for_requests(&'m self) -> impl Iterator<Item = BlockRef<'m>> {
        self.blocks().filter(|block| block.is_for_requests())
    }

    /// Every directive with this name in such blocks.
    pub fn directives(
        &'m self,
        name: &'static str,
    ) -> impl Iterator<Item = (BlockRef<'m>, &'m Node)> {
        self.for_requests().flat_map(move |block| block.own(name).map(move |node| (block, node)))
    }

    /// The inheritance of a directive.
    pub fn inheritance(&self, name: &str) -> Inheritance {
        let rows = self.registry.named(name.as_bytes());
        rows.first().map_or(Inheritance::Unknown, |row| row.inheritance)
    }

    /// Whether an `upstream` block has this name.
    pub fn upstream(&'m self, name: &[u8]) -> Option<BlockRef<'m>> {
        self.index.upstreams.get(name).map(|index| BlockRef { model: self, index: *index })
    }

    /// The server that answers requests for unknown names at an address, and whether it was chosen
    /// for that by `default_server`.
    pub fn default_server(&'m self, address: &str) -> Option<(BlockRef<'m>, bool)> {
        let known = self.index.addresses.get(address)?;
        let index = known.default.unwrap_or(known.first);
        Some((BlockRef { model: self, index }, known.default.is_some()))
    }

    /// The number of servers at an address.
    pub fn servers_at(&self, address: &str) -> usize {
        self.index.addresses.get(address).map_or(0, |known| known.servers)
    }

    /// The values of a variable that a `map` defines, with the pattern that leads to each.
    pub fn tables(&self, variable: &str) -> &[(&'m Word, &'m Word)] {
        self.index.tables.get(variable.as_bytes()).map(Vec::as_slice).unwrap_or_default()
    }
}

/// The blocks of a text, each followed by those inside of it.
fn entries(kind: BlockKind, nodes: &[Node]) -> Vec<BlockEntry<'_>> {
    /// Kind, directive, block around, and what is inside.
    type PendingBlock<'m> = (BlockKind, Option<&'m Node>, Option<usize>, &'m [Node]);
    let mut entries: Vec<BlockEntry<'_>> = Vec::new();
    let mut pending: Vec<PendingBlock<'_>> = vec![(kind, None, None, nodes)];
    while let Some((kind, node, parent, nodes)) = pending.pop() {
        let index = entries.len();
        let mut by_name: HashMap<&[u8], Vec<&Node>> = HashMap::new();
        if nodes.len() > SCANNED_MAX {
            for node in nodes {
                by_name.entry(&*node.name.text).or_default().push(node);
            }
        }
        entries.push(BlockEntry {
            kind,
            node,
            parent,
            nodes,
            end: 0,
            by_name,
            groups: OnceCell::new(),
            takes_any_name: OnceCell::new(),
        });
        // The first block is to be taken next.
        for node in nodes.iter().rev().filter(|node| node.block.is_some()) {
            let inner = kind_of(kind, node);
            let nodes = if inner == BlockKind::Data { &[][..] } else { node.children() };
            pending.push((inner, Some(node), Some(index), nodes));
        }
    }
    for index in (0..entries.len()).rev() {
        let end = entries[index].end.max(index + 1);
        entries[index].end = end;
        if let Some(parent) = entries[index].parent {
            entries[parent].end = entries[parent].end.max(end);
        }
    }
    entries
}

/// Directives that stand in `http` and nowhere within it.
const HTTP_ONLY: &[&str] = &[
    "server",
    "upstream",
    "map",
    "num_map",
    "geo",
    "split_clients",
    "limit_req_zone",
    "limit_conn_zone",
    "proxy_cache_path",
    "fastcgi_cache_path",
    "log_format",
];

fn kind_of(outer: BlockKind, node: &Node) -> BlockKind {
    let name = &*node.name.text;
    match (outer, name) {
        (
            _,
            b"map"
            | b"num_map"
            | b"geo"
            | b"types"
            | b"split_clients"
            | b"charset_map"
            | b"geoip2"
            | b"match"
            | b"prometheus_template",
        ) => BlockKind::Data,
        (BlockKind::Main, b"http") => BlockKind::Http,
        (BlockKind::Main, b"events") => BlockKind::Events,
        (BlockKind::Main, b"stream") => BlockKind::Stream,
        (BlockKind::Http, b"server") => BlockKind::Server,
        (BlockKind::Http, b"upstream") => BlockKind::Upstream,
        (BlockKind::Server | BlockKind::Location, b"location") => BlockKind::Location,
        (BlockKind::Server | BlockKind::Location, b"if") => BlockKind::If,
        (BlockKind::Location, b"limit_except") => BlockKind::LimitExcept,
        _ => BlockKind::Other,
    }
}

/// A block of a [`Model`].
#[derive(Clone, Copy)]
pub struct BlockRef<'m> {
    pub model: &'m Model<'m>,
    index: usize,
}

impl PartialEq for BlockRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

/// The kind of a location's match.
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

/// The purpose of a location.
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

impl<'m> BlockRef<'m> {
    fn entry(self) -> &'m BlockEntry<'m> {
        &self.model.entries[self.index]
    }

    /// The number in the order of the text.
    pub fn number(self) -> usize {
        self.index
    }

    pub fn kind(self) -> BlockKind {
        self.entry().kind
    }

    /// The directive that opens the block; none at the top level.
    pub fn node(self) -> Option<&'m Node> {
        self.entry().node
    }

    /// The position of the block's opening; for the top level, its first directive.
    pub fn span(self) -> Span {
        let first = || self.nodes().first().map_or(Span::BUILT_IN, |node| node.name.span);
        self.node().map_or_else(first, |node| node.name.span)
    }

    /// The directives of the block.
    pub fn nodes(self) -> &'m [Node] {
        self.entry().nodes
    }

    pub fn parent(self) -> Option<BlockRef<'m>> {
        self.entry().parent.map(|index| BlockRef { model: self.model, index })
    }

    /// The block and those around it, the innermost first.
    pub fn chain(self) -> impl Iterator<Item = BlockRef<'m>> {
        std::iter::successors(Some(self), |block| block.parent())
    }

    pub fn is_for_requests(self) -> bool {
        matches!(
            self.kind(),
            BlockKind::Http
                | BlockKind::Server
                | BlockKind::Location
                | BlockKind::If
                | BlockKind::LimitExcept
        )
    }

    /// The blocks directly inside.
    pub fn inner(self) -> impl Iterator<Item = BlockRef<'m>> {
        let (entries, end) = (&self.model.entries, self.entry().end);
        let at = move |index: usize| (index < end).then_some(index);
        let all = std::iter::successors(at(self.index + 1), move |index| at(entries[*index].end));
        all.map(move |index| BlockRef { model: self.model, index })
    }

    /// The block and all inside.
    pub fn within(self) -> impl Iterator<Item = BlockRef<'m>> {
        (self.index..self.entry().end).map(move |index| BlockRef { model: self.model, index })
    }

    /// Whether the block is not inside a `server { }` of the text, so that missing directives may be in the
    /// including file.
    pub fn is_snippet(self) -> bool {
        self.model.is_part && self.server().is_none_or(|server| server.node().is_none())
    }

    /// The server around.
    pub fn server(self) -> Option<BlockRef<'m>> {
        self.chain().find(|block| block.kind() == BlockKind::Server)
    }

    /// The directives of the block with a name.
    pub fn own(self, name: &str) -> impl Iterator<Item = &'m Node> {
        let by_name = &self.entry().by_name;
        let known = by_name.get(name.as_bytes()).map(Vec::as_slice).unwrap_or_default();
        let scanned = if by_name.is_empty() { self.nodes() } else { &[] };
        let name = name.to_owned();
        known.iter().copied().chain(scanned.iter().filter(move |node| node.name == *name))
    }

    pub fn has(self, name: &str) -> bool {
        self.own(name).next().is_some()
    }

    pub fn has_any(self, names: &[&str]) -> bool {
        names.iter().any(|name| self.has(name))
    }

    /// The directives with a name that are in effect here, and the block that they stand in: up to 1000.
    pub fn effective_in(self, name: &str) -> Option<(BlockRef<'m>, Vec<&'m Node>)> {
        let is_own = self.model.inheritance(name) == Inheritance::Own;
        let blocks = self.chain().take(if is_own { 1 } else { usize::MAX });
        let mut found =
            blocks.map(|block| (block, block.own(name).take(LINES_MAX).collect::<Vec<_>>()));
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

    /// The purpose of a location, also for an `if` or `limit_except` in it.
    pub fn location(self) -> Option<Location<'m>> {
        let found = self.chain().try_for_each(|block| match block.kind() {
            BlockKind::Location => ControlFlow::Break(block.own_location()),
            BlockKind::If | BlockKind::LimitExcept => ControlFlow::Continue(()),
            _ => ControlFlow::Break(None),
        });
        match found {
            ControlFlow::Break(location) => location,
            ControlFlow::Continue(()) => None,
        }
    }

    /// The purpose of the block, if it is a location.
    pub fn own_location(self) -> Option<Location<'m>> {
        let args = &self.node().filter(|_| self.kind() == BlockKind::Location)?.args;
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
                    // Of a variable: it has no URI.
                    [b'$', ..] => return None,
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

    /// The variable of a location for a variable, with its `$`.
    pub fn own_location_variable(self) -> Option<&'m [u8]> {
        let node = self.node().filter(|_| self.kind() == BlockKind::Location)?;
        let [word] = node.args.as_slice() else { return None };
        word.text.starts_with(b"$").then_some(&word.text)
    }

    /// The addresses of a server; without `listen`, nginx's default.
    pub fn listens(self) -> &'m [Listen<'m>] {
        self.model.index.listens.get(&self.index).map(Vec::as_slice).unwrap_or_default()
    }

    /// The values that `set` gives a variable in the server around, or in this block if there is none.
    pub fn sets(self, variable: &str) -> &'m [&'m Word] {
        let scope = self.server().unwrap_or(self);
        let known = self.model.index.sets.get(&scope.index);
        let known = known.and_then(|sets| sets.get(variable.as_bytes()));
        known.map(Vec::as_slice).unwrap_or_default()
    }

    /// The cached groups of its regular expressions.
    pub fn groups(self) -> &'m OnceCell<HashMap<String, Vec<String>>> {
        &self.entry().groups
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
        *self.entry().takes_any_name.get_or_init(|| {
            let names = self.names();
            names.is_empty()
                || names.iter().any(is_any)
                || self.listens().iter().any(|listen| {
                    let default = self.model.default_server(&listen.address);
                    default.is_none_or(|(server, _)| server == self)
                })
        })
    }
}
