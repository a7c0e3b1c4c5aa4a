//! Advice on directives that nowait does not have: printed once per module, after the findings.
//!
//! Called by [`Diagnostics`](crate::Diagnostics), which records each use. It decides nothing: the
//! findings themselves refuse the configuration.

use std::fmt::Write as _;

use crate::elsewhere;

/// Uses of missing directives, by module in the order of their first use.
#[derive(Debug, Default)]
pub(crate) struct Missing(Vec<(&'static str, Vec<String>)>);

impl Missing {
    /// Notes the use of a directive.
    pub(crate) fn note(&mut self, module: &'static str, name: &str) {
        let position = self.0.iter().position(|(known, _)| *known == module);
        let position = position.unwrap_or_else(|| {
            self.0.push((module, Vec::new()));
            self.0.len() - 1
        });
        let names = &mut self.0[position].1;
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }

    /// The summary; empty if everything is there.
    pub(crate) fn summary(&self) -> String {
        let mut out = String::new();
        if self.0.is_empty() {
            return out;
        }
        let count: usize = self.0.iter().map(|(_, names)| names.len()).sum();
        let noun = if count == 1 { "directive" } else { "directives" };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "nowait: {count} {noun} not available in nowait:");
        for (module, names) in &self.0 {
            let _ = writeln!(out, "  {module}: {}", names.join(", "));
            if let Some(advice) = advice(module).or_else(|| elsewhere::advice(module)) {
                let _ = writeln!(out, "    = hint: {advice}");
            }
        }
        out
    }
}

/// The replacement, or the consequence of removing the lines.
fn advice(module: &str) -> Option<&'static str> {
    let rest = module.strip_prefix("ngx_")?;
    Some(match rest.strip_suffix("_module").unwrap_or(rest) {
        "core" => "every available module is built in; remove the lines",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unsupported;

    #[test]
    fn each_module_is_named_once() {
        let mut missing = Missing::default();
        assert_eq!(missing.summary(), "");
        for (module, name) in [
            ("ngx_core_module", "one"),
            ("ngx_http_perl_module", "perl"),
            ("ngx_core_module", "two"),
            ("ngx_core_module", "one"),
        ] {
            missing.note(module, name);
        }
        assert_eq!(
            missing.summary(),
            "nowait: 3 directives not available in nowait:\n  \
             ngx_core_module: one, two\n    \
             = hint: every available module is built in; remove the lines\n  \
             ngx_http_perl_module: perl\n"
        );
    }

    #[test]
    fn advice_is_for_modules_of_nginx() {
        let module = "ngx_core_module";
        assert!(advice(module).is_some());
        assert!(unsupported::all().any(|entry| entry.module == module));
    }
}
