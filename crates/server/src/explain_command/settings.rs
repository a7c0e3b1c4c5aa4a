//! The settings that apply to a request in its block: directives that the configuration states.
//!
//! The directive tables define which directives are settings, and their inheritance. Only this file knows
//! which directives replace each other, and which settings depend on another one.

use std::collections::{HashMap, HashSet};

use nowait_conf::{Context, Inheritance, Node, Registry, Row};

/// A directive that applies.
pub struct Setting<'n> {
    /// The module that it belongs to.
    pub module: &'static str,
    /// The directive.
    pub node: &'n Node,
}

/// Directives that share a list, which an inner block with one of them replaces as a whole.
const TOGETHER: &[&[&str]] = &[
    &["root", "alias"],
    &["allow", "deny"],
    &[
        "more_set_headers",
        "more_clear_headers",
        "more_set_input_headers",
        "more_clear_input_headers",
    ],
];

/// Modules whose settings apply only to connections with TLS.
const OF_TLS: &[&str] = &["ssl", "acme"];

/// Contexts of requests.
const FOR_REQUESTS: Context =
    Context::SERVER.or(Context::LOCATION).or(Context::LOCATION_IF).or(Context::LIMIT_EXCEPT);

/// Maximum number of listed directives of one name in one block.
const LISTED_MAX: usize = 50;

/// Directives of a block, by name.
type BlockDirectives<'n> = HashMap<&'n [u8], Vec<&'n Node>>;

/// The blocks that a request is in.
pub struct Blocks<'n> {
    /// The innermost first, and the top level of the file last.
    all: Vec<BlockDirectives<'n>>,
    /// Blocks of `if` and `limit_except` at the beginning: each is a part of the location around it.
    parts: usize,
}

impl<'n> Blocks<'n> {
    /// `chain`: the blocks in the file `top`, the outermost first.
    pub fn of(top: &'n [Node], chain: &[&'n Node]) -> Blocks<'n> {
        let part = |node: &&&Node| node.name == "if" || node.name == "limit_except";
        let parts = chain.iter().rev().take_while(part).count();
        let blocks = chain.iter().rev().map(|block| block.children()).chain([top]);
        let by_name = |nodes: &'n [Node]| {
            let mut block = BlockDirectives::new();
            for node in nodes {
                block.entry(node.name.as_bytes()).or_default().push(node);
            }
            block
        };
        Blocks { all: blocks.map(by_name).collect(), parts }
    }

    /// The settings that apply, by module.
    pub fn settings(&self, registry: &Registry, is_tls: bool) -> Vec<Setting<'n>> {
        let mut list = Vec::new();
        for row in registry.rows().filter(|row| row.contexts.intersects(FOR_REQUESTS)) {
            let needs_tls = OF_TLS.contains(&row.module);
            if (is_tls || !needs_tls) && self.is_used(registry, row) {
                let applying = self.applying(row).into_iter().take(LISTED_MAX);
                list.extend(applying.map(|node| Setting { module: row.module, node }));
            }
        }
        // A module may have several tables.
        let mut modules: Vec<&str> =
            list.iter().map(|setting: &Setting<'_>| setting.module).collect();
        let mut seen = HashSet::new();
        modules.retain(|module| seen.insert(*module));
        list.sort_by_key(|setting| modules.iter().position(|module| *module == setting.module));
        list
    }

    /// Whether requests here meet the module of `row` at all: settings of `proxy` need a `proxy_pass`.
    fn is_used(&self, registry: &Registry, row: &Row) -> bool {
        let pass = format!("{}_pass", row.module);
        let of_module = |other: &&&'static Row| other.module == row.module;
        match registry.named(pass.as_bytes()).iter().find(of_module) {
            Some(pass) => !self.applying(pass).is_empty(),
            None => true,
        }
    }

    /// The directives of a row that apply.
    fn applying(&self, row: &Row) -> Vec<&'n Node> {
        let depth = match row.inheritance {
            // Blocks, and directives whose effect is a step of the request.
            Inheritance::Unknown => return Vec::new(),
            Inheritance::Own => self.parts + 1,
            Inheritance::Value | Inheritance::List => self.all.len(),
        };
        let own = [row.name];
        let names = TOGETHER.iter().find(|names| names.contains(&row.name));
        let names = names.copied().unwrap_or(&own);
        let mut found = Vec::new();
        for (at, block) in self.all.iter().enumerate().take(depth) {
            let rule = self.inherits(at, row.name);
            if names.iter().any(|name| block.contains_key(name.as_bytes())) {
                found.extend(block.get(row.name.as_bytes()).into_iter().flatten().copied());
                if rule != Some("merge") {
                    break;
                }
            } else if rule == Some("off") {
                break;
            }
        }
        found
    }

    /// The value of `add_header_inherit` and the like in a block.
    fn inherits(&self, at: usize, name: &str) -> Option<&'n str> {
        let inherit = format!("{name}_inherit");
        let deciding = self.all.iter().skip(at).find_map(|block| block.get(inherit.as_bytes()));
        deciding.and_then(|nodes| nodes.last()?.args.first()?.to_str().ok())
    }
}

/// The directive of these names, separated by blanks, that applies in a chain of blocks.
pub fn behind<'n>(chain: &[&'n Node], names: &str) -> Option<&'n Node> {
    let fits = |node: &&Node| names.split_ascii_whitespace().any(|name| node.name == *name);
    chain.iter().rev().find_map(|block| block.children().iter().find(fits))
}

/// A directive as written, on one line, without the contents of a block.
pub fn shown(node: &Node) -> String {
    let mut out = node.name.lossy().into_owned();
    for word in &node.args {
        out.push(' ');
        match word.quoted {
            true => out.push_str(&format!("\"{}\"", word.lossy().replace('"', "\\\""))),
            false => out.push_str(&word.lossy()),
        }
    }
    out.push_str(if node.block.is_some() { " { ... }" } else { ";" });
    out
}
