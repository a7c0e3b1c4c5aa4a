//! Variables: names are resolved to indices once, when the configuration is read; a request looks
//! them up by index and appends their value to a buffer.
//!
//! Called by every module whose directives take variables. Never looks a name up at request time.
//!
//! nginx: `ngx_http_variables.c`. A variable is one of
//! - a built-in, computed from the request by a function ([`core`]),
//! - a family with a prefix (`$http_`, `$arg_`, `$cookie_`, `$sent_http_`, `$sent_trailer_`),
//! - a slot of the request, written by named captures of regular expressions (and later by `set`
//!   and `map`).

pub mod complex;
pub mod core;
pub mod system;

use std::collections::HashMap;

use crate::request::Request;

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
pub enum Definition {
    /// Computed from the request.
    Builtin(Getter),
    /// Computed from the request and the rest of the name.
    Family(PrefixGetter, Box<[u8]>),
    /// Stored in the request.
    Slot(Slot),
}

/// The variables of one configuration.
#[derive(Default)]
pub struct Table {
    by_name: HashMap<Box<str>, Index>,
    names: Vec<Box<str>>,
    slots: HashMap<Box<str>, Slot>,
}

/// The variables of one configuration after it was read: every index has a meaning.
#[derive(Default)]
pub struct Resolved {
    definitions: Box<[Definition]>,
    slots: usize,
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

    /// Defines a variable that requests store (a named capture); the same name is the same slot.
    pub fn define_slot(&mut self, name: &str) -> Slot {
        let name = name.to_ascii_lowercase();
        let next = Slot(u16::try_from(self.slots.len()).unwrap_or(u16::MAX));
        *self.slots.entry(name.into_boxed_str()).or_insert(next)
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
            Ok(Resolved { definitions: definitions.into(), slots: self.slots.len() })
        } else {
            Err(unknown)
        }
    }

    fn definition(&self, name: &str) -> Option<Definition> {
        if let Some(&slot) = self.slots.get(name) {
            return Some(Definition::Slot(slot));
        }
        let builtin = builtins().find(|row| row.name == name);
        if let Some(row) = builtin {
            return Some(Definition::Builtin(row.get));
        }
        families().find_map(|row| {
            let rest = name.strip_prefix(row.prefix)?;
            (!rest.is_empty()).then(|| Definition::Family(row.get, rest.as_bytes().into()))
        })
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
        match &self.definitions[index.0 as usize] {
            Definition::Builtin(get) => get(request, out),
            Definition::Family(get, rest) => get(request, rest, out),
            Definition::Slot(slot) => match request.slot(*slot) {
                Some(value) => {
                    out.extend_from_slice(&value);
                    true
                }
                None => false,
            },
        }
    }

    /// How many slots each request needs.
    pub fn slots(&self) -> usize {
        self.slots
    }
}

/// All built-in variables, module by module.
pub fn builtins() -> impl Iterator<Item = &'static Builtin> {
    core::BUILTINS.iter().chain(system::BUILTINS)
}

/// All families of variables.
pub fn families() -> impl Iterator<Item = &'static Family> {
    core::FAMILIES.iter()
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
        let errors = table.resolve().err().expect("two names have no definition");
        assert_eq!(errors, ["nosuch", "arg_"]);
    }

    #[test]
    fn a_slot_wins_over_a_builtin_of_the_same_name() {
        let mut table = Table::default();
        table.index("name");
        assert!(table.resolve().is_err());
        table.define_slot("name");
        assert!(table.resolve().is_ok());
    }
}
