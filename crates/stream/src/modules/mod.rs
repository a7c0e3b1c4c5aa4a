//! The only list of all modules, in the order of the reference. Among the handlers of one phase, the last
//! one runs first, as in nginx.

pub mod access;
pub mod answer;
pub mod limit_conn;
pub mod map;
pub mod pass;
pub mod preread;
pub mod proxy;
pub mod realip;
pub mod set;
pub mod ssl;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::IpAddr;

use nowait_conf::{Cx, Row, Scope};
use nowait_front::log::Level;
use nowait_variables::{Captures, Namespace, Resolved, Slots, Subject, Vocabulary};

use crate::module::{Handler, Module};
use crate::session::Session;
use crate::variables;
use crate::variables::complex::StreamVariables;

static MODULES: &[&Module] = &[
    &access::MODULE,
    &realip::MODULE,
    &limit_conn::MODULE,
    &map::MODULE,
    &set::MODULE,
    &ssl::MODULE,
    &preread::MODULE,
    &answer::MODULE,
    &pass::MODULE,
    &proxy::MODULE,
];

/// The tables of all modules' directives.
pub fn rows() -> impl Iterator<Item = &'static [Row]> {
    MODULES.iter().flat_map(|module| module.rows).copied()
}

/// The handlers of a server, in the order of their phases.
pub fn handlers(cx: &mut Cx<'_>, chain: &[&Scope]) -> Box<[Box<dyn Handler>]> {
    let mut makers: Vec<_> = MODULES.iter().rev().filter_map(|module| module.handler).collect();
    makers.sort_by_key(|(phase, _)| *phase);
    makers.into_iter().filter_map(|(_, make)| make(cx, chain)).collect()
}

impl Namespace for StreamVariables {
    type Subject = Session;
}

/// The variables of sessions: those of the core, then module by module.
pub fn vocabulary() -> Vocabulary<Session> {
    let mut vocabulary = Vocabulary::default();
    vocabulary.add(variables::core::BUILTINS, variables::core::FAMILIES, &[]);
    vocabulary.add(variables::upstream::BUILTINS, &[], &[]);
    MODULES.iter().for_each(|module| vocabulary.add(module.variables, &[], &[]));
    vocabulary.replaceable(ssl::MODULE.variables.iter().map(|row| row.name));
    vocabulary
}

impl Subject for Session {
    type Namespace = StreamVariables;

    const HAS_PROXIES: bool = false;

    fn variables(&self) -> &Resolved<StreamVariables> {
        &self.current.conf.variables
    }

    fn slots(&self) -> &Slots {
        &self.values.slots
    }

    fn captures(&self) -> &RefCell<Captures> {
        &self.values.captures
    }

    fn depth(&self) -> &Cell<u8> {
        &self.depth
    }

    /// nginx adds no module here in `stream`.
    fn uninitialized(&self, _name: &str) {}

    fn fault(&self, message: fmt::Arguments<'_>) {
        self.log(Level::Error, message);
    }

    fn peer_ip(&self) -> Option<IpAddr> {
        Some(self.peer().inet()?.ip())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_variables_have_one_name() {
        let mut names: Vec<&str> = vocabulary().builtins().map(|row| row.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
