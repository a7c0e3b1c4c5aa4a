//! Variables of requests: those that the modules of this crate offer, by name, and what the framework
//! of `nowait_variables` needs from a request.
//!
//! Called by every module whose directives accept variables. nginx: `ngx_http_variables.c`.

pub mod core;
pub mod proxy_protocol;
pub mod system;
pub mod upstream;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::IpAddr;

use nowait_variables::Subject;
use nowait_variables::cidr::Cidr;
pub use nowait_variables::{Captures, DEPTH_MAX, DuplicateVariable, Index, Slot, Slots};

use crate::forwarded;
use crate::log::Level;
use crate::request::Request;

/// A built-in variable: one row of a module's table.
pub type Builtin = nowait_variables::Builtin<Request>;
/// A family of variables with a common prefix: one row of a module's table.
pub type Family = nowait_variables::Family<Request>;
/// A built-in variable that `set` may change.
pub type Changeable = nowait_variables::Changeable<Request>;
/// The variables of one configuration.
pub type Table = nowait_variables::Table<Request>;
/// The variables of one configuration after it was read completely.
pub type Resolved = nowait_variables::Resolved<Request>;
/// The target of a `set`.
pub type Place = nowait_variables::Place<Request>;
/// Places that mention variables, for the error about unknown ones.
pub type Mentions = nowait_variables::Mentions<Request>;

/// Text with variables.
pub mod complex {
    pub use nowait_variables::complex::{Groups, Part};

    /// Text with variables of a request.
    pub type Complex = nowait_variables::Complex<crate::request::Request>;
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

/// The built-in variables that `set` may change.
pub fn changeable() -> impl Iterator<Item = &'static Changeable> {
    core::CHANGEABLE.iter().chain(crate::userid::CHANGEABLE).chain(crate::referer::CHANGEABLE)
}

/// All built-in variables, module by module.
pub fn builtins() -> impl Iterator<Item = &'static Builtin> {
    core::BUILTINS
        .iter()
        .chain(system::BUILTINS)
        .chain(proxy_protocol::BUILTINS)
        .chain(crate::realip::BUILTINS)
        .chain(crate::limit::BUILTINS)
        .chain(crate::cache::state::BUILTINS)
        .chain(crate::slice::BUILTINS)
        .chain(crate::gzip::BUILTINS)
        .chain(crate::codings::BUILTINS)
        .chain(crate::ssi::BUILTINS)
        .chain(crate::secure_link::BUILTINS)
        .chain(crate::userid::BUILTINS)
        .chain(crate::referer::BUILTINS)
        .chain(crate::handler::stub_status::BUILTINS)
        .chain(crate::proxy::variables::BUILTINS)
        .chain(upstream::BUILTINS)
}

/// All families of variables.
pub fn families() -> impl Iterator<Item = &'static Family> {
    core::FAMILIES.iter().chain(proxy_protocol::FAMILIES).chain(upstream::FAMILIES)
}

#[cfg(test)]
mod tests {
    use super::*;

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
