//! The built-in variables of a namespace: those of its core and of its modules.
//!
//! Collected by the program before a configuration is read, and looked up by name while it is read.

use std::collections::{HashMap, HashSet};

use crate::{Builtin, Family, SettableBuiltin};

/// Built-in variables by their names, which are in lower case.
pub struct Vocabulary<S: 'static> {
    builtins: Vec<&'static Builtin<S>>,
    by_name: HashMap<&'static str, &'static Builtin<S>>,
    families: Vec<&'static Family<S>>,
    changeable: HashMap<&'static str, &'static SettableBuiltin<S>>,
    replaceable: HashSet<&'static str>,
}

impl<S> Default for Vocabulary<S> {
    fn default() -> Self {
        Self {
            builtins: Vec::new(),
            by_name: HashMap::new(),
            families: Vec::new(),
            changeable: HashMap::new(),
            replaceable: HashSet::new(),
        }
    }
}

impl<S> Vocabulary<S> {
    /// Adds the tables of a module. Of two variables with one name, the first one counts.
    pub fn add(
        &mut self,
        builtins: &'static [Builtin<S>],
        families: &'static [Family<S>],
        changeable: &'static [SettableBuiltin<S>],
    ) {
        for row in builtins {
            self.by_name.entry(row.name).or_insert(row);
        }
        self.builtins.extend(builtins);
        self.families.extend(families);
        self.changeable.extend(changeable.iter().map(|row| (row.name, row)));
    }

    /// Lets the configuration define these built-in variables itself. Where it only sets one, the
    /// built-in value applies until then. nginx: `NGX_HTTP_VAR_CHANGEABLE`.
    pub fn replaceable(&mut self, names: impl IntoIterator<Item = &'static str>) {
        self.replaceable.extend(names);
    }

    /// All built-in variables, in the order of the modules.
    pub fn builtins(&self) -> impl Iterator<Item = &'static Builtin<S>> {
        self.builtins.iter().copied()
    }

    /// All families of variables, in the order of the modules.
    pub fn families(&self) -> impl Iterator<Item = &'static Family<S>> {
        self.families.iter().copied()
    }

    /// The built-in variable with this name.
    pub fn builtin(&self, name: &str) -> Option<&'static Builtin<S>> {
        self.by_name.get(name).copied()
    }

    /// The families that a name belongs to, each with what follows its prefix.
    pub fn families_of<'a>(
        &self,
        name: &'a str,
    ) -> impl Iterator<Item = (&'static Family<S>, &'a str)> {
        self.families().filter_map(move |row| Some((row, name.strip_prefix(row.prefix)?)))
    }

    /// The built-in variable with this name, if `set` may change it.
    pub fn changeable(&self, name: &str) -> Option<&'static SettableBuiltin<S>> {
        self.changeable.get(name).copied()
    }

    /// Whether the configuration may define the built-in variable with this name.
    pub fn is_replaceable(&self, name: &str) -> bool {
        self.replaceable.contains(name)
    }

    /// The name nearest to a misspelt one: that of a built-in variable, of one that the configuration defines, or
    /// of one of a family (`http_host` for `htpp_host`).
    pub(crate) fn nearest<'a>(
        &self,
        name: &str,
        defined: impl Iterator<Item = &'a str>,
    ) -> Option<String> {
        let known = self.builtins().map(|row| row.name);
        if let Some(near) = nowait_conf::nearest(name, known.chain(defined)) {
            return Some(near.to_owned());
        }
        self.families().find_map(|row| {
            let (prefix, rest) = name.split_at_checked(row.prefix.len())?;
            let is_near = prefix != row.prefix && !rest.is_empty() && prefix.ends_with('_');
            (is_near && nowait_conf::nearest(prefix, [row.prefix]).is_some())
                .then(|| format!("{}{rest}", row.prefix))
        })
    }
}
