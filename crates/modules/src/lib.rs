//! The only list of all modules. Handlers of the same phase and filters of the same stage run in the order of
//! this list, which is that of nginx. A build can leave some out by their Cargo features; the catalogue
//! (`features`) then knows their directives.
#![forbid(unsafe_code)]

pub mod access;
#[cfg(feature = "acme")]
pub mod acme;
pub mod addition;
pub mod auth_basic;
pub mod auth_request;
pub mod autoindex;
pub mod browser;
pub mod charset;
pub mod compression;
pub mod connections_api;
#[cfg(feature = "dav")]
pub mod dav;
pub mod empty_gif;
pub mod fastcgi;
pub mod flv;
#[cfg(feature = "geoip2")]
pub mod geoip2;
pub mod grpc;
pub mod gunzip;
pub mod headers;
#[cfg(feature = "images")]
pub mod image_filter;
pub mod index;
pub mod limit;
pub mod map;
pub mod memcached;
pub mod mirror;
pub mod more_headers;
#[cfg(feature = "mp4")]
pub mod mp4;
pub mod not_modified;
#[cfg(feature = "otel")]
pub mod otel;
pub mod proxy;
pub mod random_index;
pub mod range;
pub mod realip;
pub mod referer;
pub mod requests;
pub mod rewrite;
pub mod scgi;
pub mod secure_link;
pub mod slice;
pub mod ssi;
pub mod ssl;
pub mod static_files;
pub mod status;
pub mod stub_status;
pub mod sub_filter;
pub mod try_files;
pub mod tunnel;
pub mod upload_progress;
pub mod userid;
pub mod uwsgi;

use nowait_backend::{cache, health};
use nowait_http::module::ModuleList;

/// The list.
pub static MODULES: ModuleList = ModuleList(&[
    &map::MODULE,
    #[cfg(feature = "geoip2")]
    &geoip2::MODULE,
    #[cfg(feature = "acme")]
    &acme::MODULE,
    &realip::MODULE,
    #[cfg(feature = "otel")]
    &otel::MODULE,
    // Its handlers run before `return` and `rewrite`, as the module's do in nginx.
    &upload_progress::MODULE,
    &rewrite::MODULE,
    &more_headers::MODULE,
    &limit::MODULE,
    &access::MODULE,
    &auth_basic::MODULE,
    &auth_request::MODULE,
    &try_files::MODULE,
    &mirror::MODULE,
    &random_index::MODULE,
    &index::MODULE,
    &autoindex::MODULE,
    #[cfg(feature = "dav")]
    &dav::MODULE,
    &static_files::MODULE,
    &empty_gif::MODULE,
    &flv::MODULE,
    #[cfg(feature = "mp4")]
    &mp4::MODULE,
    &stub_status::MODULE,
    &status::MODULE,
    &requests::MODULE,
    &connections_api::MODULE,
    &proxy::MODULE,
    &fastcgi::MODULE,
    &uwsgi::MODULE,
    &scgi::MODULE,
    &grpc::MODULE,
    &memcached::MODULE,
    &tunnel::MODULE,
    &cache::MODULE,
    &health::MODULE,
    &referer::MODULE,
    &browser::MODULE,
    &secure_link::MODULE,
    &slice::MODULE,
    &ssl::MODULE,
    &not_modified::MODULE,
    &nowait_backend::upstream::sticky_cookie::MODULE,
    &headers::MODULE,
    &userid::MODULE,
    &gunzip::MODULE,
    #[cfg(feature = "images")]
    &image_filter::MODULE,
    &addition::MODULE,
    &sub_filter::MODULE,
    &charset::MODULE,
    &ssi::MODULE,
    &compression::MODULE,
    &range::MODULE,
]);

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    use nowait_conf::{Bundle, Cx, Paths, Registry, parse};
    use nowait_http::blocks::{self, vocabulary};
    use nowait_http::conf::HttpConf;
    use nowait_http::variables::complex::{SetTarget, Table};

    #[test]
    fn no_two_rows_have_one_name() {
        let vocabulary = vocabulary(MODULES);
        let mut names: Vec<&str> = vocabulary.builtins().map(|row| row.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        let changeable = MODULES.iter().flat_map(|module| module.changeable);
        assert!(changeable.into_iter().all(|row| names.binary_search(&row.name).is_ok()));
    }

    #[test]
    fn families_accept_an_empty_name() {
        let mut table = Table::new(vocabulary(MODULES));
        for name in ["arg_x", "arg_", "http_host", "Host"] {
            table.index(name);
        }
        assert!(table.resolve().is_ok());
        assert!(matches!(table.define_set("Limit_Rate"), Ok(SetTarget::Builtin(_))));
        assert!(table.define_set("uri").is_err());
    }

    /// The configuration of this text.
    fn build(text: &str) -> HttpConf {
        let mut files = Bundle::default();
        let main = Path::new("/etc/nowait.conf");
        files.add(main, text);
        let (tree, mut diagnostics) = parse(&files, main, None);
        let registry = Registry::new(&blocks::rows(MODULES));
        let paths = Paths::new(Path::new("/etc"), main);
        let mut cx = Cx::new(&registry, paths, &mut diagnostics);
        blocks::prepare(&mut cx, MODULES);
        let scope = cx.run(&tree);
        let built = blocks::build(&mut cx, &scope, MODULES);
        drop(cx);
        built.unwrap_or_else(|| panic!("{}", diagnostics.render(false)))
    }

    #[test]
    fn a_group_that_urls_with_different_ports_name_is_one_group() {
        let text = "http {
            server {
                listen 127.0.0.1:1;
                location / { proxy_pass http://u; }
                location /tls { proxy_pass https://u; }
            }
            upstream u { server 127.0.0.1:2; }
        }";
        let conf = build(text);
        // Otherwise each of its servers would be checked twice.
        assert_eq!(conf.upstreams.iter().count(), 1);
    }
}
