//! Variables: names are resolved to indices once, when the configuration is read; a request looks
//! them up by index and appends their value to a buffer.
//!
//! Called by every module whose directives take variables. Never looks a name up at request time,
//! but for the names in server-side includes.
//!
//! nginx: `ngx_http_variables.c`. A variable is one of
//! - a built-in, computed from the request by a function ([`core`]),
//! - a family with a prefix (`$http_`, `$arg_`, `$cookie_`, `$sent_http_`, `$sent_trailer_`),
//! - one that the configuration defines: a slot of the request, written by `set` and by named
//!   captures of regular expressions, or computed once by `map` and its like ([`Compute`]).

pub mod complex;
pub mod core;
pub mod proxy_protocol;
pub mod system;
pub mod upstream;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::log::Level;
use crate::request::Request;

/// How deep variables may refer to other variables. nginx: `ngx_http_variable_depth`.
pub const DEPTH_MAX: u8 = 100;

/// Computes a variable: appends its value to the buffer and returns whether it is found.
/// A value that is not found renders as an empty string, and as `-` in logs.
pub type Getter = fn(&Request, &mut Vec<u8>) -> bool;

/// Like [`Getter`], for families of variables: the second argument is what follows the prefix, in
/// lower case.
pub type PrefixGetter = fn(&Request, &[u8], &mut Vec<u8>) -> bool;

/// A built-in variable: one row of a module's table.
pub struct Builtin {
    /// Name without the dollar sign.
    pub name: &'static str,
    /// Text for the reference.
    pub doc: &'static str,
    /// Computes the value.
    pub get: Getter,
}

/// A family of variables with a common prefix: one row of a module's table.
pub struct Family {
    /// The prefix, with its underscore.
    pub prefix: &'static str,
    /// Text for the reference.
    pub doc: &'static str,
    /// Computes the value.
    pub get: PrefixGetter,
}

/// A built-in variable that `set` may change.
pub struct Changeable {
    /// Name without the dollar sign.
    pub name: &'static str,
    /// Takes the new value.
    pub set: Setter,
}

/// Changes what a built-in variable stands for.
pub type Setter = fn(&mut Request, Bytes);

/// The value of a variable that a block of the configuration defines, such as `map`.
pub trait Compute: Send + Sync {
    /// The value for a request; `None` when it is not found.
    fn compute(&self, request: &Request) -> Option<Bytes>;
}

/// What a variable of the configuration is when nothing has been stored for the request.
#[derive(Clone)]
pub enum Unset {
    /// Not found: a named capture.
    Missing,
    /// Empty, with a warning: a variable of `set`.
    Uninitialized,
    /// Computed.
    Computed {
        /// By this.
        by: Arc<dyn Compute>,
        /// Every time anew, else once per request.
        volatile: bool,
    },
}

/// Where `set` writes to.
#[derive(Clone, Copy)]
pub enum Place {
    /// Into the request.
    Slot(Slot),
    /// Into what a built-in variable stands for.
    Builtin(Setter),
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(slot) => slot.fmt(f),
            Self::Builtin(_) => f.write_str("Builtin"),
        }
    }
}

/// The name belongs to a built-in variable that can't be changed. The operator's fault.
#[derive(Debug, PartialEq, Eq)]
pub struct DuplicateVariable(String);

impl fmt::Display for DuplicateVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the duplicate \"{}\" variable", self.0)
    }
}

impl std::error::Error for DuplicateVariable {}

/// Index of a variable that the configuration mentions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Index(u32);

impl From<u32> for Index {
    /// The index of a compiled text.
    fn from(index: u32) -> Self {
        Self(index)
    }
}

/// Place of a value that requests carry themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub u16);

/// What an index means.
#[derive(Clone)]
enum Definition {
    /// Computed from the request.
    Builtin(Getter),
    /// Computed from the request and the rest of the name.
    Family(PrefixGetter, Box<[u8]>),
    /// Stored in the request, else something else.
    Slot(Slot, Fallback),
}

/// What a slot is before anything is stored in it.
#[derive(Clone)]
enum Fallback {
    Unset(Unset, Box<str>),
    /// `set $http_x` elsewhere must not hide the header from other locations.
    Family(PrefixGetter, Box<[u8]>),
}

/// A variable that the configuration defines.
struct User {
    slot: Slot,
    unset: Option<Unset>,
    /// Only `set` defines it, so that a family of its prefix stays visible.
    weak: bool,
}

/// The variables of one configuration.
#[derive(Default)]
pub struct Table {
    by_name: HashMap<Box<str>, Index>,
    names: Vec<Box<str>>,
    user: HashMap<Box<str>, User>,
}

/// The variables of one configuration after it was read: every index has a meaning.
#[derive(Default)]
pub struct Resolved {
    definitions: Box<[Definition]>,
    /// What the configuration defines, for those that learn names while they serve.
    named: HashMap<Box<str>, Definition>,
}

impl Table {
    /// The index of a mentioned variable; the name needs no definition yet, since directives that
    /// define variables may follow.
    pub fn index(&mut self, name: &str) -> Index {
        let name = name.to_ascii_lowercase();
        if let Some(&index) = self.by_name.get(name.as_str()) {
            return index;
        }
        let index = Index(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(name.as_str().into());
        self.by_name.insert(name.into_boxed_str(), index);
        index
    }

    /// Defines the variable of a named capture; the same name is the same slot.
    ///
    /// # Errors
    /// A built-in variable has this name.
    pub fn define_capture(&mut self, name: &str) -> Result<Slot, DuplicateVariable> {
        let user = self.user(name)?;
        user.weak = false;
        user.unset = Some(Unset::Missing);
        Ok(user.slot)
    }

    /// Defines a variable that a block computes. The last definition of a name counts.
    ///
    /// # Errors
    /// A built-in variable has this name.
    pub fn define_computed(
        &mut self,
        name: &str,
        by: Arc<dyn Compute>,
        volatile: bool,
    ) -> Result<(), DuplicateVariable> {
        let user = self.user(name)?;
        user.weak = false;
        user.unset = Some(Unset::Computed { by, volatile });
        Ok(())
    }

    /// Defines the variable of a `set`, unless something else defines it; says where `set` writes.
    ///
    /// # Errors
    /// A built-in variable has this name, and it can't be changed.
    pub fn define_set(&mut self, name: &str) -> Result<Place, DuplicateVariable> {
        let lower = name.to_ascii_lowercase();
        if !self.user.contains_key(lower.as_str())
            && let Some(builtin) = changeable().find(|row| row.name == lower)
        {
            return Ok(Place::Builtin(builtin.set));
        }
        let user = self.user(name)?;
        user.unset.get_or_insert(Unset::Uninitialized);
        Ok(Place::Slot(user.slot))
    }

    /// Defines a variable that a module sets when it has a result; not found before.
    ///
    /// # Errors
    /// A built-in variable has this name, and it can't be changed.
    pub fn define_result(&mut self, name: &str) -> Result<Place, DuplicateVariable> {
        let lower = name.to_ascii_lowercase();
        if !self.user.contains_key(lower.as_str())
            && let Some(builtin) = changeable().find(|row| row.name == lower)
        {
            return Ok(Place::Builtin(builtin.set));
        }
        let user = self.user(name)?;
        user.unset.get_or_insert(Unset::Missing);
        Ok(Place::Slot(user.slot))
    }

    fn user(&mut self, name: &str) -> Result<&mut User, DuplicateVariable> {
        let lower = name.to_ascii_lowercase();
        if builtins().any(|row| row.name == lower) && !changeable().any(|row| row.name == lower) {
            return Err(DuplicateVariable(name.to_owned()));
        }
        let next = Slot(u16::try_from(self.user.len()).unwrap_or(u16::MAX));
        let new = || User { slot: next, unset: None, weak: true };
        Ok(self.user.entry(lower.into_boxed_str()).or_insert_with(new))
    }

    /// Whether the configuration mentions a variable.
    pub fn mentions(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Gives every mentioned name its meaning.
    ///
    /// # Errors
    /// The names that nobody defines.
    pub fn resolve(&self) -> Result<Resolved, Vec<String>> {
        let mut unknown = Vec::new();
        let mut definitions = Vec::with_capacity(self.names.len());
        for name in &self.names {
            match self.definition(name) {
                Some(definition) => definitions.push(definition),
                None => unknown.push(name.to_string()),
            }
        }
        if unknown.is_empty() {
            let named = self.user.keys();
            let named = named.filter_map(|name| Some((name.clone(), self.definition(name)?)));
            Ok(Resolved { definitions: definitions.into(), named: named.collect() })
        } else {
            Err(unknown)
        }
    }

    fn definition(&self, name: &str) -> Option<Definition> {
        let family = || {
            families().find_map(|row| {
                let rest = name.strip_prefix(row.prefix)?;
                // As in nginx the rest may be empty: such a variable is never found.
                Some((row.get, Box::<[u8]>::from(rest.as_bytes())))
            })
        };
        if let Some(user) = self.user.get(name) {
            if user.weak
                && let Some((get, rest)) = family()
            {
                return Some(Definition::Slot(user.slot, Fallback::Family(get, rest)));
            }
            let unset = user.unset.clone().unwrap_or(Unset::Missing);
            return Some(Definition::Slot(user.slot, Fallback::Unset(unset, name.into())));
        }
        let builtin = builtins().find(|row| row.name == name);
        if let Some(row) = builtin {
            return Some(Definition::Builtin(row.get));
        }
        family().map(|(get, rest)| Definition::Family(get, rest))
    }
}

impl nowait_conf::VariableNames for Table {
    fn index(&mut self, name: &[u8]) -> Option<u32> {
        Some(Table::index(self, std::str::from_utf8(name).ok()?).0)
    }
}

impl Resolved {
    /// Appends the value of a variable; false when it is not found.
    pub fn append(&self, index: Index, request: &Request, out: &mut Vec<u8>) -> bool {
        self.definitions[index.0 as usize].append(request, out)
    }

    /// Appends the value of the variable with this name, in lower case; false when it is not found
    /// or there is none. Only for names that nobody knows before: commands in pages (`ssi`).
    pub fn append_named(&self, name: &str, request: &Request, out: &mut Vec<u8>) -> bool {
        if let Some(definition) = self.named.get(name) {
            return definition.append(request, out);
        }
        if let Some(row) = builtins().find(|row| row.name == name) {
            return (row.get)(request, out);
        }
        families().any(|row| {
            name.strip_prefix(row.prefix)
                .is_some_and(|rest| (row.get)(request, rest.as_bytes(), out))
        })
    }
}

impl Definition {
    fn append(&self, request: &Request, out: &mut Vec<u8>) -> bool {
        match self {
            Definition::Builtin(get) => get(request, out),
            Definition::Family(get, rest) => get(request, rest, out),
            Definition::Slot(slot, fallback) => {
                if let Some(value) = request.slot(*slot) {
                    out.extend_from_slice(&value);
                    return true;
                }
                match fallback {
                    Fallback::Family(get, rest) => get(request, rest, out),
                    Fallback::Unset(unset, name) => {
                        let Some(value) = unset.value(request, *slot, name) else { return false };
                        out.extend_from_slice(&value);
                        true
                    }
                }
            }
        }
    }
}

impl Unset {
    /// The value of a slot in which nothing is stored.
    fn value(&self, request: &Request, slot: Slot, name: &str) -> Option<Bytes> {
        match self {
            Self::Missing => None,
            Self::Uninitialized => {
                if request.location().rewrite.uninitialized_variable_warn {
                    request
                        .log(Level::Warn, format_args!("using uninitialized \"{name}\" variable"));
                }
                // Stored, so that one warning per request is enough.
                request.set_slot(slot, Some(Bytes::new()));
                Some(Bytes::new())
            }
            Self::Computed { by, volatile } => {
                let depth = request.variable_depth.get();
                if depth >= DEPTH_MAX {
                    request.log(
                        Level::Error,
                        format_args!("cycle while evaluating variable \"{name}\""),
                    );
                    return None;
                }
                request.variable_depth.set(depth + 1);
                let value = by.compute(request);
                request.variable_depth.set(depth);
                if !volatile {
                    request.set_slot(slot, value.clone());
                }
                value
            }
        }
    }
}

/// The built-in variables that `set` may change.
pub fn changeable() -> impl Iterator<Item = &'static Changeable> {
    core::CHANGEABLE.iter()
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
        .chain(crate::ssi::BUILTINS)
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
    fn a_name_is_resolved_once_and_in_any_case() {
        let mut table = Table::default();
        let first = table.index("Host");
        assert_eq!(first, table.index("host"));
        assert_ne!(first, table.index("uri"));
        assert!(table.resolve().is_ok());
    }

    #[test]
    fn unknown_names_are_all_reported() {
        let mut table = Table::default();
        table.index("nosuch");
        table.index("arg_x");
        table.index("arg_");
        table.index("such");
        let errors = table.resolve().err().expect("two names have no definition");
        assert_eq!(errors, ["nosuch", "such"]);
    }

    #[test]
    fn a_name_that_is_defined_later_is_known() {
        let mut table = Table::default();
        table.index("name");
        assert!(table.resolve().is_err());
        table.define_capture("Name").unwrap();
        assert!(table.resolve().is_ok());
    }

    #[test]
    fn only_changeable_builtins_are_set() {
        let mut table = Table::default();
        assert!(matches!(table.define_set("args"), Ok(Place::Builtin(_))));
        assert!(matches!(table.define_set("Limit_Rate"), Ok(Place::Builtin(_))));
        assert!(matches!(table.define_set("mine"), Ok(Place::Slot(_))));
        let error = table.define_set("uri").expect_err("$uri is not changeable");
        assert_eq!(error.to_string(), "the duplicate \"uri\" variable");
        assert!(table.define_capture("host").is_err());
    }

    #[test]
    fn a_set_leaves_a_family_visible_and_a_capture_hides_it() {
        let mut table = Table::default();
        table.index("http_x");
        table.define_set("http_x").unwrap();
        let family = table.definition("http_x");
        assert!(matches!(family, Some(Definition::Slot(_, Fallback::Family(..)))));
        table.define_capture("http_x").unwrap();
        let hidden = table.definition("http_x");
        assert!(matches!(hidden, Some(Definition::Slot(_, Fallback::Unset(..)))));
    }
}
