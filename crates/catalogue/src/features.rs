//! Directives of the parts that a build can leave out: Cargo features of the program.
//!
//! Always compiled, with or without the parts. [`find`](crate::find) names the feature of a directive that no
//! table has, so that the message says how to get it; a test of the program holds this table against the
//! tables of modules.

/// A Cargo feature with directives.
#[derive(Debug)]
pub struct Feature {
    /// Its name for Cargo.
    pub name: &'static str,
    /// The same, as the summary of a configuration's problems names an origin.
    pub(crate) origin: &'static str,
    /// How to get it.
    pub(crate) advice: &'static str,
    /// The modules of its directives, as the reference names them, separated by blanks.
    modules: &'static str,
    /// Its directives, separated by blanks.
    names: &'static str,
}

macro_rules! table {
    ($($name:literal ($modules:literal) => $names:literal;)+) => {
        const TABLE: &[Feature] = &[$(Feature {
            name: $name,
            origin: concat!("feature \"", $name, "\""),
            advice: concat!("build it in: cargo build --release --features ", $name),
            modules: $modules,
            names: $names,
        },)+];
    };
}

table! {
    "acme" ("acme") => "acme_issuer acme_certificate acme_shared_zone";
    "dav" ("dav dav_ext") =>
        "dav_methods create_full_put_path min_delete_depth dav_access dav_ext_methods dav_ext_lock \
         dav_ext_lock_zone put_overwrite";
    "geoip2" ("geoip2 stream_geoip2") => "geoip2 geoip2_proxy geoip2_proxy_recursive";
    "images" ("image_filter") =>
        "image_filter image_filter_buffer image_filter_interlace image_filter_jpeg_quality \
         image_filter_sharpen image_filter_transparency image_filter_webp_quality";
    "mp4" ("mp4") =>
        "mp4 mp4_buffer_size mp4_max_buffer_size mp4_start_key_frame mp4_limit_rate \
         mp4_limit_rate_after";
    "otel" ("otel") =>
        "otel_exporter otel_resource_attr otel_service_name otel_span_attr otel_span_name otel_trace \
         otel_trace_context";
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Feature> {
    TABLE.iter()
}

/// The feature of a directive.
pub fn find(name: &[u8]) -> Option<&'static Feature> {
    all().find(|feature| feature.names().any(|known| known.as_bytes() == name))
}

impl Feature {
    /// Its directives.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.names.split_ascii_whitespace()
    }

    /// Whether a module of the reference belongs to it.
    pub fn has_module(&self, module: &str) -> bool {
        self.modules.split_ascii_whitespace().any(|known| known == module)
    }
}

#[cfg(test)]
mod tests {
    use nowait_conf::{Bundle, Cx, Paths, Registry, parse};
    use std::path::Path;

    use super::*;

    nowait_conf::rows! {
        static ROWS, module "core";

        /// Not left out.
        block "http" => http, in MAIN, take none(), args "";
    }

    fn http(cx: &mut Cx<'_>, node: &nowait_conf::Node) -> Result<(), nowait_conf::Diagnostic> {
        cx.block(nowait_conf::Context::HTTP, node.children());
        Ok(())
    }

    /// What a build that has only the row above says about a configuration.
    fn said(text: &str) -> String {
        let mut files = Bundle::default();
        let main = Path::new("/etc/nowait.conf");
        files.add(main, text);
        let (tree, mut diagnostics) = parse(&files, main, None);
        let registry = Registry::new(&[ROWS]).with(crate::find);
        Cx::new(&registry, Paths::new(Path::new("/etc"), main), &mut diagnostics).run(&tree);
        diagnostics.render(false)
    }

    #[test]
    fn a_directive_that_is_left_out_names_its_feature() {
        for feature in all() {
            for name in feature.names() {
                let said = said(&format!("http {{ {name} on; }}"));
                let error = format!(
                    "directive \"{name}\" belongs to the feature \"{}\", which this build leaves out",
                    feature.name
                );
                assert!(said.contains(&error), "{said}");
                let hint = format!("cargo build --release --features {}\n", feature.name);
                assert!(said.contains(&hint), "{said}");
            }
        }
        assert!(said("http { perl_modules x; }").contains("not supported by nowait"));
        assert!(find(b"gzip").is_none());
    }

    #[test]
    fn each_name_stands_once() {
        let mut names: Vec<_> = all().flat_map(Feature::names).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
