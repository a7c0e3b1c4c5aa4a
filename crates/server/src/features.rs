//! The built-in modules, in the form in which tools expect them in `nginx -V`.
//!
//! Called by `main` for `-V`. One row per module of nginx: [`ModuleKind::Optional`] ones are printed as
//! `--with-…` if they exist, [`ModuleKind::Default`] ones as `--without-…` if they do not, so that a tool
//! (or a test suite) knows what to expect. A new module has to flip its row. What this build leaves out has a
//! line of its own.

use std::fmt::Write;

use crate::tools;

/// Version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Version of nginx whose behaviour is followed.
pub const NGINX_VERSION: &str = "1.31.4";

/// Default of `-p`.
pub const PREFIX: &str = "/etc/nowait/";

/// Default of `-c`, relative to the prefix.
pub const CONF_FILE: &str = "nowait.conf";

/// The pid file of a privileged master without `-p` and `pid`.
pub const PID_FILE: &str = "/run/nowait.pid";

/// Whether nginx builds a module by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModuleKind {
    Default,
    Optional,
}

use ModuleKind::{Default, Optional};

/// Name (as in nginx's `--with-NAME` and `--without-NAME`), kind, whether Nowait has it.
const FEATURES: &[(&str, ModuleKind, bool)] = &[
    ("threads", Optional, true),
    ("file-aio", Optional, true),
    ("debug", Optional, true),
    ("http", Default, true),
    ("http-cache", Default, true),
    ("pcre", Default, true),
    // http
    ("http_charset_module", Default, true),
    ("http_gzip_module", Default, true),
    ("http_ssi_module", Default, true),
    ("http_mirror_module", Default, true),
    ("http_userid_module", Default, true),
    ("http_access_module", Default, true),
    ("http_auth_basic_module", Default, true),
    ("http_autoindex_module", Default, true),
    ("http_geo_module", Default, true),
    ("http_map_module", Default, true),
    ("http_split_clients_module", Default, true),
    ("http_referer_module", Default, true),
    ("http_rewrite_module", Default, true),
    ("http_proxy_module", Default, true),
    ("http_fastcgi_module", Default, true),
    ("http_uwsgi_module", Default, true),
    ("http_scgi_module", Default, true),
    ("http_grpc_module", Default, true),
    ("http_memcached_module", Default, true),
    ("http_limit_conn_module", Default, true),
    ("http_limit_req_module", Default, true),
    ("http_empty_gif_module", Default, true),
    ("http_browser_module", Default, true),
    ("http_tunnel_module", Default, true),
    ("http_upstream_hash_module", Default, true),
    ("http_upstream_ip_hash_module", Default, true),
    ("http_upstream_least_conn_module", Default, true),
    ("http_upstream_least_time_module", Default, true),
    ("http_upstream_random_module", Default, true),
    ("http_upstream_keepalive_module", Default, true),
    ("http_upstream_zone_module", Default, true),
    ("http_upstream_sticky_module", Default, true),
    ("http_ssl_module", Optional, true),
    ("http_v2_module", Optional, true),
    ("http_v3_module", Optional, true),
    ("http_realip_module", Optional, true),
    ("http_addition_module", Optional, true),
    ("http_sub_module", Optional, true),
    ("http_dav_module", Optional, cfg!(feature = "dav")),
    ("http_flv_module", Optional, true),
    ("http_image_filter_module", Optional, cfg!(feature = "images")),
    ("http_mp4_module", Optional, cfg!(feature = "mp4")),
    ("http_gunzip_module", Optional, true),
    ("http_gzip_static_module", Optional, true),
    ("http_auth_request_module", Optional, true),
    ("http_random_index_module", Optional, true),
    ("http_secure_link_module", Optional, true),
    ("http_slice_module", Optional, true),
    ("http_stub_status_module", Optional, true),
    ("http_json_module", Optional, true),
    // stream
    ("stream", Optional, true),
    ("stream_ssl_module", Optional, true),
    ("stream_realip_module", Optional, true),
    ("stream_ssl_preread_module", Optional, true),
    ("stream_access_module", Default, true),
    ("stream_geo_module", Default, true),
    ("stream_limit_conn_module", Default, true),
    ("stream_map_module", Default, true),
    ("stream_pass_module", Default, true),
    ("stream_return_module", Default, true),
    ("stream_set_module", Default, true),
    ("stream_split_clients_module", Default, true),
    ("stream_upstream_hash_module", Default, true),
    ("stream_upstream_least_conn_module", Default, true),
    ("stream_upstream_least_time_module", Default, true),
    ("stream_upstream_random_module", Default, true),
    ("stream_upstream_zone_module", Default, true),
    // mail
    ("mail", Optional, false),
    ("mail_pop3_module", Default, false),
    ("mail_imap_module", Default, false),
    ("mail_smtp_module", Default, false),
];

/// The Cargo features with directives, and whether they are built in. The directives are listed in the
/// catalogue.
const WITH_DIRECTIVES: [(&str, bool); 6] = [
    ("acme", cfg!(feature = "acme")),
    ("dav", cfg!(feature = "dav")),
    ("geoip2", cfg!(feature = "geoip2")),
    ("images", cfg!(feature = "images")),
    ("mp4", cfg!(feature = "mp4")),
    ("otel", cfg!(feature = "otel")),
];

/// All Cargo features, and whether they are built in.
fn cargo_features() -> impl Iterator<Item = (&'static str, bool)> {
    WITH_DIRECTIVES.into_iter().chain(tools::NAMES)
}

/// The text of `-v`: the version, and that of nginx.
pub fn version() -> String {
    format!("nowait version: nowait/{VERSION}\nnginx version: nginx/{NGINX_VERSION}\n")
}

/// The part of `-V` after [`version`].
pub fn configure() -> String {
    let mut text = format!(
        "built with {}\nTLS SNI support enabled\n{}\
         configure arguments: --prefix={} --conf-path={PREFIX}{CONF_FILE} \
         --error-log-path=stderr --pid-path={PID_FILE}",
        nowait_front::tls::LIBRARY,
        left_out(),
        PREFIX.trim_end_matches('/')
    );
    for (name, kind, built) in FEATURES {
        let word = match (kind, built) {
            (Optional, true) => "with",
            (Default, false) => "without",
            (Optional, false) | (Default, true) => continue,
        };
        // Writing to a string cannot fail.
        let _ = write!(text, " --{word}-{name}");
    }
    text.push('\n');
    text
}

/// The line of `-V` about Cargo features, if not all are built in.
fn left_out() -> String {
    let names = cargo_features().filter(|(_, is_there)| !is_there).map(|(name, _)| name);
    let names = names.collect::<Vec<_>>().join(" ");
    if names.is_empty() { names } else { format!("built without the features: {names}\n") }
}

/// Names of commands in [`usage`].
const USAGE_NAMES: &str =
    "serve | proxy | migrate | explain | reference | cache purge | fmt | lint | generate";

/// Commands in [`usage`], each on a line that begins with its name.
const USAGE_COMMANDS: &str = "  \
  serve [DIR]    : serve a directory without a configuration; --domain: by HTTPS
  proxy URL      : pass requests to a server; --domain: by HTTPS
  migrate [PATH] : report what of an nginx configuration runs, and write an adapted copy
  explain URL    : show what a request would meet: server, location, rewrites, handler
  reference NAME : print the reference of a directive or variable, or a whole page
  cache purge    : remove objects from a cache of the running server
  check-health   : ask a server on this machine for a page
  fmt FILE...    : format configuration files
  lint           : look for mistakes in a valid configuration
  generate TEXT  : print a manual page or completions for a shell
";

/// The text of `-h` after [`version`].
pub fn usage() -> String {
    let has = |text: &&str| !text.split_whitespace().next().is_some_and(tools::is_missing);
    let names = USAGE_NAMES.split(" | ").filter(has).collect::<Vec<_>>().join(" | ");
    let commands: String = USAGE_COMMANDS.split_inclusive('\n').filter(has).collect();
    format!(
        "Usage: nowait [-?hvVtTq] [-s signal] [-p prefix]
              [-e filename] [-c filename] [-g directives]
       nowait {names} ...

Options:
  -?,-h         : this help
  -v            : show version and exit
  -V            : show version and what is built in, then exit
  -t            : test configuration and exit (touches nothing)
  --json        : with -t, print the findings as JSON
  -T            : test configuration, dump it and exit
  -q            : suppress non-error messages during configuration testing
  -s signal     : send signal to a master process: stop, quit, reopen, reload
  -p prefix     : set prefix path (default: {PREFIX})
  -e filename   : set error log file (default: stderr; a daemon's: logs/error.log)
  -c filename   : set configuration file (default: {PREFIX}{CONF_FILE})
  -g directives : set global directives out of configuration file

Commands (each with --help):
{commands}
Without options and without {PREFIX}{CONF_FILE} (or conf/{CONF_FILE} here), nowait serves the
current directory at http://localhost:8080/, as \"nowait serve\" does.

"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config;

    #[test]
    fn tools_find_what_they_look_for() {
        assert!(version().contains("nginx version: nginx/1.31.4\n"));
        let text = configure();
        assert!(text.contains(" --without-mail_pop3_module "));
        assert!(!text.contains("tunnel"));
        assert!(text.contains(" --with-threads "));
        assert!(text.contains(" --with-http_ssl_module "));
        // Absent optional modules must not be named at all: tools search for the bare word.
        assert!(text.contains(" --with-http_v3_module "));
        for word in ["http_xslt", "--with-mail", "OpenSSL", "perl"] {
            assert!(!text.contains(word), "{word}");
        }
        assert!(!text.split(' ').any(|word| word == "--without-http"));
    }

    #[test]
    fn directives_of_a_feature_are_those_of_its_modules() {
        let registry = config::registry();
        for feature in nowait_catalogue::features::all() {
            let (_, is_there) =
                WITH_DIRECTIVES.iter().find(|(name, _)| *name == feature.name).unwrap();
            let rows = registry.rows().filter(|row| feature.has_module(row.module));
            let rows: BTreeSet<_> = rows.map(|row| row.name).collect();
            let names: BTreeSet<_> = feature.names().filter(|_| *is_there).collect();
            assert_eq!(rows, names, "{}", feature.name);
        }
        assert_eq!(nowait_catalogue::features::all().count(), WITH_DIRECTIVES.len());
    }

    #[test]
    fn every_cargo_feature_is_on_by_default_and_said_to_be_missing_otherwise() {
        let manifest = include_str!("../Cargo.toml");
        let rest = manifest.split_once("\n[features]\n").unwrap().1.split("\n[").next().unwrap();
        let lines = rest.lines().filter(|line| !line.starts_with('#'));
        let mut declared: Vec<_> =
            lines.filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
        declared.retain(|name| *name != "default");
        declared.sort_unstable();
        let mut known: Vec<_> = cargo_features().map(|(name, _)| name).collect();
        known.sort_unstable();
        assert_eq!(known, declared);
        assert!(rest.contains(&format!("default = {known:?}\n")), "{rest}");
        for (name, is_there) in cargo_features() {
            assert_ne!(left_out().split_whitespace().any(|word| word == name), is_there, "{name}");
        }
    }

    #[test]
    fn no_feature_is_listed_twice() {
        let mut names: Vec<_> = FEATURES.iter().map(|(name, ..)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FEATURES.len());
    }
}
