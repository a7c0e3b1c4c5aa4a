//! Late variables: those whose value is known only when the content of a request was read, and those
//! derived from them by `map`, `set` and the like.
//!
//! Found once, when the configuration was read completely. A text that is evaluated early, such as the key
//! of a cache, checks this before it is evaluated ([`Resolved::late_in`]). Reads nothing itself.

use std::collections::HashMap;

use crate::complex::Part;
use crate::{Complex, Index, InitialValue, Namespace, Resolved, Subject, Table};

/// The dependencies of a variable: a bit for each built-in variable of [`Subject::late`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Late(pub u8);

impl Late {
    /// None: the value is known from the beginning.
    pub const NOTHING: Late = Late(0);

    /// Whether the value is not known from the beginning.
    pub fn is_late(self) -> bool {
        self != Self::NOTHING
    }

    /// Whether these have something in common.
    pub fn has(self, other: Late) -> bool {
        self.0 & other.0 != 0
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Late) -> Late {
        Late(self.0 | other.0)
    }
}

impl<N: Namespace> Table<N> {
    /// Notes that a `set` gives a variable the value of a text.
    pub fn note_assigned(&mut self, name: &str, value: &Complex<N>) {
        let sources = indices(value);
        if !sources.is_empty() {
            self.assigned.entry(name.to_ascii_lowercase().into()).or_default().extend(sources);
        }
    }

    /// The dependencies of each mentioned variable; empty if no late variable is mentioned.
    pub(crate) fn late(&self) -> Box<[Late]> {
        let late: HashMap<&str, Late> = N::Subject::late().collect();
        if !late.keys().any(|name| self.mentions(name)) {
            return Box::default();
        }
        // Dependencies can be circular: passes over all variables, until nothing changes. Each pass but the
        // last one finds a variable, and mostly there are two or three.
        let mut found: Vec<Late> = self.names.iter().map(|_| Late::NOTHING).collect();
        loop {
            let mut changed = false;
            for (at, name) in self.names.iter().enumerate() {
                let mut all = found[at];
                let mut add = |index: Index| {
                    all = all.and(found.get(index.0 as usize).copied().unwrap_or_default());
                };
                if let Some(sources) = self.assigned.get(name) {
                    sources.iter().copied().for_each(&mut add);
                }
                match self.user.get(name) {
                    Some(user) => {
                        if let Some(InitialValue::Computed { by, .. }) = &user.unset {
                            by.sources(&mut add);
                        }
                    }
                    None => all = all.and(late.get(&**name).copied().unwrap_or_default()),
                }
                changed |= std::mem::replace(&mut found[at], all) != all;
            }
            if !changed {
                return found.into();
            }
        }
    }
}

impl<N: Namespace> Resolved<N> {
    /// The dependencies of a variable.
    pub fn late(&self, index: Index) -> Late {
        self.late.get(index.0 as usize).copied().unwrap_or_default()
    }

    /// The dependencies of a text.
    pub fn late_in(&self, text: &Complex<N>) -> Late {
        // Most configurations mention none.
        if self.late.is_empty() {
            return Late::NOTHING;
        }
        indices(text).into_iter().fold(Late::NOTHING, |all, index| all.and(self.late(index)))
    }
}

/// The variables of a text.
fn indices<N>(text: &Complex<N>) -> Vec<Index> {
    let variables = text.parts().iter().filter_map(|part| match part {
        Part::Variable(index) => Some(*index),
        Part::Literal(_) | Part::Capture(_) => None,
    });
    variables.collect()
}

impl<N> Complex<N> {
    /// Calls `add` with each variable of the text, for [`Compute::sources`](crate::Compute::sources).
    pub fn each_variable(&self, add: &mut dyn FnMut(Index)) {
        indices(self).into_iter().for_each(add);
    }
}
