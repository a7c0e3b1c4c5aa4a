//! The modules: the only list that names them all. Handlers of one phase have their turns, and filters of
//! one place apply, in this order, which is that of nginx.

pub mod access;
pub mod addition;
pub mod auth_basic;
pub mod auth_request;
pub mod autoindex;
pub mod empty_gif;
pub mod headers;
pub mod index;
pub mod limit;
pub mod mirror;
pub mod not_modified;
pub mod random_index;
pub mod range;
pub mod realip;
pub mod referer;
pub mod secure_link;
pub mod static_files;
pub mod status;
pub mod stub_status;
pub mod sub_filter;
pub mod try_files;
pub mod userid;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::IpAddr;

use nowait_conf::{Cx, Row, Scope};
use nowait_variables::Subject;
use nowait_variables::cidr::Cidr;

use crate::log::Level;
use crate::module::{Module, Parts};
use crate::request::Request;
use crate::variables::{
    Builtin, Captures, Changeable, Family, Resolved, Slots, core, proxy_protocol, system, upstream,
};
use crate::{filter, forwarded, proxy};

static MODULES: &[&Module] = &[
    &realip::MODULE,
    &limit::MODULE,
    &access::MODULE,
    &auth_basic::MODULE,
    &auth_request::MODULE,
    &try_files::MODULE,
    &mirror::MODULE,
    &random_index::MODULE,
    &index::MODULE,
    &autoindex::MODULE,
    &static_files::precompressed::MODULE,
    &static_files::MODULE,
    &empty_gif::MODULE,
    &stub_status::MODULE,
    &status::MODULE,
    &proxy::MODULE,
    &referer::MODULE,
    &secure_link::MODULE,
    &filter::slice::MODULE,
    &not_modified::MODULE,
    &crate::upstream::sticky_cookie::MODULE,
    &headers::MODULE,
    &userid::MODULE,
    &filter::gunzip::MODULE,
    &addition::MODULE,
    &sub_filter::MODULE,
    &filter::charset::MODULE,
    &filter::ssi::MODULE,
    &filter::codings::MODULE,
    &filter::gzip::MODULE,
    &range::MODULE,
];

/// The tables of all modules' directives.
pub fn rows() -> impl Iterator<Item = &'static [Row]> {
    MODULES.iter().flat_map(|module| module.rows).copied()
}

/// Adds what takes part in the requests of the location that a chain of blocks describes.
pub fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut Parts) {
    MODULES.iter().filter_map(|module| module.build).for_each(|build| build(cx, chain, parts));
}

/// All built-in variables: those of the core, then module by module.
pub fn builtins() -> impl Iterator<Item = &'static Builtin> {
    let core = [core::BUILTINS, system::BUILTINS, proxy_protocol::BUILTINS, upstream::BUILTINS];
    let others = [crate::cache::state::BUILTINS];
    let modules = MODULES.iter().map(|module| module.variables);
    core.into_iter().chain(others).chain(modules).flatten()
}

/// All families of variables.
pub fn families() -> impl Iterator<Item = &'static Family> {
    let core = [core::FAMILIES, proxy_protocol::FAMILIES, upstream::FAMILIES];
    core.into_iter().chain(MODULES.iter().map(|module| module.families)).flatten()
}

/// The built-in variables that `set` may change.
pub fn changeable() -> impl Iterator<Item = &'static Changeable> {
    core::CHANGEABLE.iter().chain(MODULES.iter().flat_map(|module| module.changeable))
}

impl Subject for Request {
    const HAS_PROXIES: bool = true;

    fn builtins() -> impl Iterator<Item = &'static Builtin> {
        builtins()
    }

    fn families() -> impl Iterator<Item = &'static Family> {
        families()
    }

    fn changeable() -> impl Iterator<Item = &'static Changeable> {
        changeable()
    }

    fn variables(&self) -> &Resolved {
        &self.current.conf.variables
    }

    fn slots(&self) -> &Slots {
        &self.shared.slots
    }

    fn captures(&self) -> &RefCell<Captures> {
        &self.captures
    }

    fn depth(&self) -> &Cell<u8> {
        &self.variable_depth
    }

    fn uninitialized(&self, name: &str) {
        if self.location().rewrite.uninitialized_variable_warn {
            self.log(Level::Warn, format_args!("using uninitialized \"{name}\" variable"));
        }
    }

    fn fault(&self, message: fmt::Arguments<'_>) {
        self.log(Level::Error, message);
    }

    /// Captures of an escaped path are escaped again. nginx: `r->quoted_uri || r->plus_in_uri`.
    fn push_group(&self, group: &[u8], out: &mut Vec<u8>) {
        if self.path_was_escaped() {
            nowait_message::escape::push_uri(out, nowait_message::escape::Set::Args, group);
        } else {
            out.extend_from_slice(group);
        }
    }

    fn peer_ip(&self) -> Option<IpAddr> {
        Some(self.peer().inet()?.ip())
    }

    fn forwarded(&self, address: IpAddr, proxies: &[Cidr], recursive: bool) -> IpAddr {
        let values: Vec<&[u8]> = self
            .head
            .fields()
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(b"x-forwarded-for"))
            .map(|field| field.value)
            .collect();
        forwarded::client_of(address, values.into_iter(), proxies, recursive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variables::{Place, Table};

    #[test]
    fn no_two_rows_have_one_name() {
        let mut names: Vec<&str> = builtins().map(|row| row.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(changeable().all(|row| names.binary_search(&row.name).is_ok()));
    }

    #[test]
    fn families_accept_an_empty_name() {
        let mut table = Table::default();
        for name in ["arg_x", "arg_", "http_host", "Host"] {
            table.index(name);
        }
        assert!(table.resolve().is_ok());
        assert!(matches!(table.define_set("Limit_Rate"), Ok(Place::Builtin(_))));
        assert!(table.define_set("uri").is_err());
    }
}
