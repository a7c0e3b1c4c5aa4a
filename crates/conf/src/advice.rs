//! What to do about directives of nginx that are missing: said once per module, after the findings.
//!
//! Called by [`Diagnostics`](crate::Diagnostics), which notes each use. Never decides anything: the
//! findings themselves refuse the configuration.

use std::fmt::Write as _;

/// Uses of missing directives, by module in the order of their first use.
#[derive(Debug, Default)]
pub(crate) struct Missing(Vec<(&'static str, Vec<&'static str>)>);

impl Missing {
    /// Notes the use of a directive.
    pub(crate) fn note(&mut self, module: &'static str, name: &'static str) {
        let position = self.0.iter().position(|(known, _)| *known == module);
        let position = position.unwrap_or_else(|| {
            self.0.push((module, Vec::new()));
            self.0.len() - 1
        });
        let names = &mut self.0[position].1;
        if !names.contains(&name) {
            names.push(name);
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
        let _ = writeln!(out, "nowait: {count} {noun} used here that nowait does not have:");
        for (module, names) in &self.0 {
            let _ = writeln!(out, "  {module}: {}", names.join(", "));
            if let Some(advice) = advice(module) {
                let _ = writeln!(out, "    = hint: {advice}");
            }
        }
        out
    }
}

/// What to write instead, or what follows from leaving the lines out.
fn advice(module: &str) -> Option<&'static str> {
    const APPLICATION: &str =
        "nowait serves files; let the server that you have answer for what is not a file";
    const TLS: &str =
        "where TLS is used, let a server in front of nowait end it; else remove the lines";
    let rest = module.strip_prefix("ngx_")?;
    Some(match rest.strip_suffix("_module").unwrap_or(rest) {
        "http_dav" => "nowait serves files and does not store any",
        "http_ssl" | "http_v2" | "http_v3" | "openssl" => TLS,
        "http_upstream" | "http_tunnel" | "http_memcached" | "http_slice_filter" => APPLICATION,
        "http_proxy" | "http_fastcgi" | "http_uwsgi" | "http_scgi" | "http_grpc" => APPLICATION,
        part if part.starts_with("http_upstream_") => APPLICATION,
        part if part.starts_with("stream_") || part == "stream" => {
            "nowait serves HTTP only; let the server that you have pass on the rest"
        }
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
            ("ngx_http_dav_module", "dav_methods"),
            ("ngx_http_perl_module", "perl"),
            ("ngx_http_dav_module", "dav_access"),
            ("ngx_http_dav_module", "dav_methods"),
        ] {
            missing.note(module, name);
        }
        assert_eq!(
            missing.summary(),
            "nowait: 3 directives used here that nowait does not have:\n  \
             ngx_http_dav_module: dav_methods, dav_access\n    \
             = hint: nowait serves files and does not store any\n  \
             ngx_http_perl_module: perl\n"
        );
    }

    #[test]
    fn advice_is_for_modules_of_nginx() {
        for module in ["http_dav", "http_fastcgi", "stream_ssl"] {
            let module = format!("ngx_{module}_module");
            assert!(advice(&module).is_some(), "{module}");
            assert!(unsupported::all().any(|entry| entry.module == module), "{module}");
        }
    }
}
