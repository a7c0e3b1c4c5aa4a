//! The page of the reference about directives that are missing: `docs/reference/unsupported.md`.
//!
//! Called by `nowait reference` and, through it, by the repository's documentation task.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use nowait_conf::Registry;

use crate::unsupported::{self, Unsupported};
use crate::{elsewhere, features};

/// The page of nginx's directives that are missing, by module, with the reason.
pub fn page(registry: &Registry) -> String {
    let mut out = String::from(
        "# Directives that are not supported\n\n## Of nginx\n\n\
         Using one is an error that names the reason below.\n",
    );
    let mut modules: BTreeMap<(&str, &str), Vec<Unsupported>> = BTreeMap::new();
    let is_missing = |entry: &Unsupported| features::find(entry.name.as_bytes()).is_none();
    for entry in unsupported::missing(registry).filter(is_missing) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_conf::{Cx, Diagnostic, Node};

    nowait_conf::rows! {
        static ROWS, module "files";

        /// Enables `sendfile()`.
        "sendfile" => nothing, in HTTP | SERVER, take exactly(1), default "off", args "on | off";
    }

    fn nothing(_cx: &mut Cx<'_>, _node: &Node) -> Result<(), Diagnostic> {
        Ok(())
    }

    #[test]
    fn implemented_directives_are_left_out() {
        let page = page(&Registry::new(&[ROWS]));
        assert!(page.contains("`load_module`") && page.contains("`proxy_pass`"));
        assert!(!page.contains("`sendfile`"));
    }
}
