//! The modules of a program, and what they add together.
//!
//! The list itself is made where all modules are known; the core has it from the configuration.

use std::ops::Deref;

use nowait_conf::{Cx, Row, Scope};
use nowait_variables::Vocabulary;

use crate::conf::HttpConf;
use crate::module::{Module, Parts};
use crate::request::Request;
use crate::variables::{core, proxy_protocol, system, upstream};

/// Modules. Handlers of one phase have their turns, and filters of one place apply, in this order.
#[derive(Clone, Copy, Default)]
pub struct ModuleList(pub &'static [&'static Module]);

impl Deref for ModuleList {
    type Target = [&'static Module];

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl ModuleList {
    /// The tables of all modules' directives.
    pub fn rows(self) -> impl Iterator<Item = &'static [Row]> {
        self.0.iter().flat_map(|module| module.rows).copied()
    }

    /// Adds what takes part in the requests of the location that a chain of blocks describes.
    pub fn build(self, cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut Parts) {
        self.iter().filter_map(|module| module.build).for_each(|build| build(cx, chain, parts));
    }

    /// Lets the modules check and add what only the whole configuration shows.
    pub fn finish(self, cx: &mut Cx<'_>, conf: &mut HttpConf) {
        self.iter().filter_map(|module| module.finish).for_each(|finish| finish(cx, conf));
    }

    /// The variables of requests: those of the core, then module by module.
    pub fn vocabulary(self) -> Vocabulary<Request> {
        let mut all = Vocabulary::default();
        all.add(core::BUILTINS, core::FAMILIES, core::CHANGEABLE);
        all.add(system::BUILTINS, &[], &[]);
        all.add(proxy_protocol::BUILTINS, proxy_protocol::FAMILIES, &[]);
        all.add(upstream::BUILTINS, upstream::FAMILIES, &[]);
        for module in self.0 {
            all.add(module.variables, module.families, module.changeable);
            let names = module.variables.iter().map(|row| row.name);
            all.replaceable(names.filter(|name| (module.replaceable)(name)));
        }
        all
    }
}
