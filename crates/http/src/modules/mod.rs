//! The modules: the only list that names them all. Handlers of one phase have their turns, and filters of
//! one place apply, in this order, which is that of nginx.

pub mod access;
pub mod acme;
pub mod addition;
pub mod auth_basic;
pub mod auth_request;
pub mod autoindex;
pub mod browser;
pub mod charset;
pub mod compression;
pub mod dav;
pub mod empty_gif;
pub mod fastcgi;
pub mod flv;
pub mod geoip2;
pub mod grpc;
pub mod gunzip;
pub mod headers;
pub mod image_filter;
pub mod index;
pub mod limit;
pub mod map;
pub mod memcached;
pub mod mirror;
pub mod more_headers;
pub mod mp4;
pub mod not_modified;
pub mod proxy;
pub mod random_index;
pub mod range;
pub mod realip;
pub mod referer;
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
pub mod userid;
pub mod uwsgi;

use crate::module::ModuleList;
use crate::{cache, health};

/// The list.
pub static MODULES: ModuleList = ModuleList(&[
    &map::MODULE,
    &geoip2::MODULE,
    &acme::MODULE,
    &realip::MODULE,
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
    &dav::MODULE,
    &static_files::MODULE,
    &empty_gif::MODULE,
    &flv::MODULE,
    &mp4::MODULE,
    &stub_status::MODULE,
    &status::MODULE,
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
    &crate::upstream::sticky_cookie::MODULE,
    &headers::MODULE,
    &userid::MODULE,
    &gunzip::MODULE,
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
    use crate::blocks::vocabulary;
    use crate::variables::complex::{Place, Table};

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
        assert!(matches!(table.define_set("Limit_Rate"), Ok(Place::Builtin(_))));
        assert!(table.define_set("uri").is_err());
    }
}
