//! The reference, generated from the tables: `docs/reference/` has no other source.
//!
//! Called by `nowait reference` and, through it, by `cargo xtask docs`; never runs in the server.

use std::fmt::Write as _;

use crate::nearest::nearest;
use crate::registry::{Registry, Row};

/// The page of all directives: an index by name, then the modules in table order.
pub fn directives(registry: &Registry) -> String {
    let mut out = String::from("# Directives\n\n");
    let mut names: Vec<&Row> = registry.rows().collect();
    names.sort_by_key(|row| (row.name, row.module));
    let links = names.iter().map(|row| format!("[{}](#{})", row.name, anchor(row)));
    out.push_str(&links.collect::<Vec<_>>().join(" ·\n"));
    out.push('\n');
    for module in modules(registry) {
        let _ = writeln!(out, "\n## Module {module}");
        for row in registry.rows().filter(|row| row.module == module) {
            directive(&mut out, row);
        }
    }
    out
}

/// The sections of all directives of a name, if there are any.
pub fn directive_named(registry: &Registry, name: &str) -> String {
    let mut out = String::new();
    for row in registry.named(name.as_bytes()) {
        heading(&mut out, row);
        let _ = writeln!(out, "| Module | {} |", row.module);
        body(&mut out, row);
    }
    out
}

/// The directive with the name most similar to `name`, if there is one.
pub fn nearest_directive(registry: &Registry, name: &str) -> Option<&'static str> {
    nearest(name, registry.rows().map(|row| row.name))
}

/// The section of one directive.
fn directive(out: &mut String, row: &Row) {
    let _ = writeln!(out, "\n<a id=\"{}\"></a>", anchor(row));
    heading(out, row);
    body(out, row);
}

fn heading(out: &mut String, row: &Row) {
    let _ = writeln!(out, "\n### {}\n\n| | |\n|---|---|", row.name);
}

fn body(out: &mut String, row: &Row) {
    let _ = writeln!(out, "| Syntax | {} |", code(&syntax(row)));
    let default = default(row).map_or_else(|| "—".to_owned(), |text| code(&text));
    let _ = writeln!(out, "| Default | {default} |");
    let _ = writeln!(out, "| Context | {} |", row.contexts.describe());
    if !row.doc.is_empty() {
        out.push('\n');
        for line in row.doc {
            let _ = writeln!(out, "{}", line.strip_prefix(' ').unwrap_or(line).trim_end());
        }
    }
}

/// `sendfile on | off;`, `server { ... }`
fn syntax(row: &Row) -> String {
    let end = if row.block { "" } else { ";" };
    match row.args {
        "" => format!("{}{end}", row.name),
        args => format!("{} {args}{end}", row.name),
    }
}

/// `sendfile off;`
fn default(row: &Row) -> Option<String> {
    let text = row.default.filter(|text| !text.is_empty())?;
    let end = if row.block || text.ends_with('}') { "" } else { ";" };
    Some(format!("{} {text}{end}", row.name))
}

/// Unique per row: the name, and the module where another module has that name too.
fn anchor(row: &Row) -> String {
    format!("{}-{}", row.module, row.name).replace(' ', "-")
}

/// Inline code for a table cell.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// A directive, for pages in other forms than Markdown.
#[derive(Debug)]
pub struct Entry {
    /// The name.
    pub name: &'static str,
    /// `sendfile on | off;`
    pub syntax: String,
    /// `sendfile off;`
    pub default: Option<String>,
    /// `http, server, location`
    pub contexts: String,
    doc: &'static [&'static str],
}

impl Entry {
    /// The text in Markdown, each paragraph in one line.
    pub fn paragraphs(&self) -> Vec<String> {
        let paragraphs = self.doc.split(|line| line.trim().is_empty());
        let text =
            |lines: &[&str]| lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        paragraphs.map(text).filter(|text| !text.is_empty()).collect()
    }
}

/// The modules in table order.
pub fn modules(registry: &Registry) -> Vec<&'static str> {
    let mut modules: Vec<&str> = Vec::new();
    for row in registry.rows() {
        if !modules.contains(&row.module) {
            modules.push(row.module);
        }
    }
    modules
}

/// The directives of a module in table order.
pub fn entries(registry: &Registry, module: &str) -> Vec<Entry> {
    let rows = registry.rows().filter(|row| row.module == module);
    rows.map(|row| Entry {
        name: row.name,
        syntax: syntax(row),
        default: default(row),
        contexts: row.contexts.describe(),
        doc: row.doc,
    })
    .collect()
}

/// Rows without doc text or syntax: for a check of the repository.
pub fn undocumented(registry: &Registry) -> Vec<&'static Row> {
    let lacks = |row: &Row| row.doc.is_empty() || (row.args.is_empty() && !row.arity.allows(0));
    registry.rows().filter(|row| lacks(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cx, Diagnostic, Node};

    crate::rows! {
        static ROWS, module "files";

        /// Enables
        /// `sendfile()`.
        "sendfile" => nothing, in HTTP | SERVER, take exactly(1), default "off", args "on | off";
        block "server" => nothing, in HTTP, take none(), args "{ ... }";
        /// Marks a location.
        "internal" => nothing, in LOCATION, take none(), args "";
    }

    fn nothing(_cx: &mut Cx<'_>, _node: &Node) -> Result<(), Diagnostic> {
        Ok(())
    }

    #[test]
    fn reference_page() {
        let page = directives(&Registry::new(&[ROWS]));
        let section = "### sendfile\n\n| | |\n|---|---|\n\
            | Syntax | `sendfile on \\| off;` |\n| Default | `sendfile off;` |\n\
            | Context | http, server |\n\nEnables\n`sendfile()`.\n";
        assert!(page.contains(section), "{page}");
        assert!(page.contains("| Syntax | `server { ... }` |\n| Default | — |"), "{page}");
        assert!(page.contains("| Syntax | `internal;` |"), "{page}");
        assert!(page.contains("### include"), "{page}");
        assert!(page.contains("[sendfile](#files-sendfile)"), "{page}");
    }

    #[test]
    fn undocumented_rows() {
        assert_eq!(undocumented(&Registry::new(&[ROWS])).len(), 1);
    }
}
