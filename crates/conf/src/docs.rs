//! The reference, generated from the tables: `docs/reference/` has no other source.
//!
//! Called by `nowait reference` and, through it, by the repository's documentation task; nothing here
//! runs in the server.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::elsewhere;
use crate::nearest::nearest;
use crate::registry::{Registry, Row};
use crate::unsupported::{self, Unsupported};

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

/// The sections of every directive of a name; empty if there is none.
pub fn directive_named(registry: &Registry, name: &str) -> String {
    let mut out = String::new();
    for row in registry.named(name.as_bytes()) {
        heading(&mut out, row);
        let _ = writeln!(out, "| Module | {} |", row.module);
        body(&mut out, row);
    }
    out
}

/// The directive whose name is most like `name`, if one is.
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
    /// Its name.
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
    /// Its text in Markdown, each paragraph in one line.
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

/// The page of nginx's directives that are missing, by module, with the reason.
pub fn unsupported(registry: &Registry) -> String {
    let mut out = String::from(
        "# Directives that are not supported\n\n## Of nginx\n\n\
         Using one is an error that names the reason below.\n",
    );
    let mut modules: BTreeMap<(&str, &str), Vec<Unsupported>> = BTreeMap::new();
    for entry in unsupported::missing(registry) {
        modules.entry((entry.module, entry.reason)).or_default().push(entry);
    }
    let count: usize = modules.values().map(Vec::len).sum();
    let _ = writeln!(out, "{count} of {} directives.\n", unsupported::all().count());
    let _ = writeln!(out, "| Module | Directives | Reason |\n|---|---|---|");
    for ((module, reason), entries) in modules {
        let mut names: Vec<String> = entries.iter().map(|e| format!("`{}`", e.name)).collect();
        names.sort();
        names.dedup();
        let _ = writeln!(out, "| {module} | {} | {reason} |", names.join(" "));
    }
    out.push_str(
        "\n## Of third-party modules, NGINX Plus and former releases\n\n\
         They are unknown directives; the error names the module and a substitute.\n\n\
         | Origin | Directives | Instead |\n|---|---|---|\n",
    );
    for (origin, names, advice) in elsewhere::all() {
        let unknown = |name: &&str| registry.named(name.as_bytes()).is_empty();
        let names: Vec<String> = names
            .split_ascii_whitespace()
            .filter(unknown)
            .map(|name| format!("`{name}`"))
            .collect();
        if !names.is_empty() {
            let _ = writeln!(out, "| {origin} | {} | {advice} |", names.join(" "));
        }
    }
    out
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
    fn unsupported_page() {
        let registry = Registry::new(&[ROWS]);
        let page = unsupported(&registry);
        assert!(page.contains("`load_module`") && page.contains("`proxy_pass`"));
        assert!(!page.contains("`sendfile`"));
        assert_eq!(undocumented(&registry).len(), 1);
    }
}
