//! All directives of the program: look-up by name, suggestions, consistency.

use std::fmt;

use rustc_hash::FxHashMap;

use crate::arity::Arity;
use crate::context::Context;
use crate::cx::Cx;
use crate::diagnostic::Diagnostic;
use crate::missing::{Catalogue, MissingDirective};
use crate::nearest::nearest;
use crate::tree::Node;

/// The effect of a directive of an outer block in inner blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inheritance {
    /// Applies to inner blocks without the directive. In others, the directive defines how both are
    /// combined; usually the inner one replaces the outer one.
    Value,
    /// The directives of the inner block replace all of the outer ones.
    List,
    /// Applies to its own block only.
    Own,
    /// Not defined by the table.
    Unknown,
}

/// One directive with all its properties. Written by [`directives!`](crate::directives) and
/// [`rows!`](crate::rows), never by hand.
pub struct Row {
    pub name: &'static str,
    /// The module it is documented under.
    pub module: &'static str,
    /// Lines of Markdown for the reference.
    pub doc: &'static [&'static str],
    pub contexts: Context,
    /// The arguments as the reference shows them: `on | off`.
    pub args: &'static str,
    /// The default as configuration text.
    pub default: Option<&'static str>,
    pub arity: Arity,
    pub inheritance: Inheritance,
    /// Whether it takes a `{ block }`.
    pub block: bool,
    pub apply: fn(&mut Cx<'_>, &Node) -> Result<(), Diagnostic>,
}

impl Row {
    /// The syntax, for messages: `the syntax is "gzip on | off;"`.
    pub(crate) fn syntax(&self) -> String {
        let (name, args) = (self.name, self.args);
        let space = if args.is_empty() { "" } else { " " };
        let end = if self.block { "" } else { ";" };
        format!("the syntax is \"{name}{space}{args}{end}\"")
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Row({} in {})", self.name, self.contexts.describe())
    }
}

crate::rows! {
    static LANGUAGE, module "core";

    /// Includes another file, or the files matching a pattern, into the configuration. Included
    /// files consist of complete directives and blocks. Relative names start at the directory of
    /// the main configuration file; files that match a pattern are read in the order of their
    /// names, and a pattern that matches none is no error.
    ///
    /// `include mime.types;` reads a built-in table of types if there is no such file; so does a
    /// path that ends in `/mime.types`, with a warning. `fastcgi.conf`, `fastcgi_params`,
    /// `scgi_params` and `uwsgi_params` are built in, too.
    "include" => |_cx: &mut Cx<'_>, _node: &Node| Ok(()), in ANY, take exactly(1), args "file | mask";
}

/// The tables of all crates, indexed by name.
#[derive(Debug, Default)]
pub struct Registry {
    rows: Vec<&'static Row>,
    by_name: FxHashMap<&'static str, Vec<&'static Row>>,
    catalogue: Option<Catalogue>,
}

impl Registry {
    /// Collects tables: `Registry::new(&[FileConf::ROWS, SERVER_ROWS])`.
    pub fn new(tables: &[&'static [Row]]) -> Registry {
        let mut registry = Registry::default();
        // "include" is resolved by the parser; its row serves the reference and the hints.
        for row in LANGUAGE.iter().chain(tables.iter().flat_map(|table| table.iter())) {
            registry.rows.push(row);
            registry.by_name.entry(row.name).or_default().push(row);
        }
        registry
    }

    /// Sets the catalogue of directives that no table has.
    pub fn with(self, catalogue: Catalogue) -> Registry {
        Registry { catalogue: Some(catalogue), ..self }
    }

    /// The catalogue's entry for a name that no table has, at least not in this context.
    pub(crate) fn missing(&self, name: &[u8], context: Context) -> Option<MissingDirective> {
        self.catalogue?(name, context)
    }

    /// The rows of a name: several if it differs by context (`server` in `http` and `stream`).
    pub fn named(&self, name: &[u8]) -> &[&'static Row] {
        let rows = std::str::from_utf8(name).ok().and_then(|name| self.by_name.get(name));
        rows.map(Vec::as_slice).unwrap_or_default()
    }

    /// The row of a name in a context.
    pub fn find(&self, name: &[u8], context: Context) -> Option<&'static Row> {
        self.named(name).iter().copied().find(|row| row.contexts.intersects(context))
    }

    /// All rows in table order.
    pub fn rows(&self) -> impl Iterator<Item = &'static Row> {
        self.rows.iter().copied()
    }

    /// The known name nearest to a misspelt one, preferably one allowed in `context`.
    pub fn suggest(&self, name: &str, context: Context) -> Option<&'static str> {
        let here = self.rows().filter(|row| row.contexts.intersects(context)).map(|row| row.name);
        nearest(name, here).or_else(|| nearest(name, self.rows().map(|row| row.name)))
    }

    /// Rows of one name that share a context: a mistake in the tables, for a test to find.
    pub fn conflicts(&self) -> Vec<String> {
        let mut found = Vec::new();
        for rows in self.by_name.values() {
            for (n, row) in rows.iter().enumerate() {
                for other in &rows[n + 1..] {
                    if row.contexts.intersects(other.contexts) {
                        found.push(format!(
                            "{row:?} ({}) and {other:?} ({})",
                            row.module, other.module
                        ));
                    }
                }
            }
        }
        found.sort();
        found
    }
}
