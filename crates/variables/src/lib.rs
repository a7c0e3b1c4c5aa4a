//! Variables: names are resolved to indices once, when the configuration is read; a subject (an
//! HTTP request, a session of `stream`) looks them up by index and appends their value to a buffer.
//!
//! A subject implements [`Subject`], and its variables form a [`Namespace`], which is all that settings
//! know of it. The modules that derive variables from others (`map`, `geo`, `geoip2`,
//! `split_clients`) and texts with variables ([`complex`]) work for every subject. No name is
//! looked up while a request is served, except for the names in server-side includes.
//!
//! nginx: `ngx_http_variables.c` and its copy `ngx_stream_variables.c`. A variable is one of
//! - a built-in, computed from the subject by a function,
//! - a family with a prefix (`$http_`, `$arg_`, …),
//! - one that the configuration defines: a slot of the subject, written by `set` and by named
//!   captures of regular expressions, or computed once by `map` and its like ([`Compute`]).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod assigned_urls;
pub mod candidates;
pub mod cidr;
pub mod complex;
pub mod geo;
#[cfg(feature = "geoip2")]
pub mod geoip2;
mod interner;
pub mod json_set;
pub mod late;
pub mod map;
pub mod names;
pub mod num_map;
pub mod regex;
pub mod split_clients;
mod subject;
mod vocabulary;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Span, Template, Word};
use rustc_hash::FxHashMap;

pub use complex::Complex;
pub use interner::interned;
pub use late::Late;
pub use regex::{Captures, Regex};
pub use subject::{Namespace, Slots, Subject};
pub use vocabulary::Vocabulary;

/// The maximum depth of variables that refer to others. nginx: `ngx_http_variable_depth`.
pub const DEPTH_MAX: u8 = 100;

/// Computes a variable: appends its value to the buffer and returns whether it is found.
/// A value that is not found renders as an empty string, and as `-` in logs.
pub type Getter<S> = fn(&S, &mut Vec<u8>) -> bool;

/// Like [`Getter`], for families of variables: the second argument is what follows the prefix, in
/// lower case.
pub type PrefixGetter<S> = fn(&S, &[u8], &mut Vec<u8>) -> bool;

/// A built-in variable: one row of a module's table.
pub struct Builtin<S> {
    /// Name without the dollar sign.
    pub name: &'static str,
    /// Text for the reference.
    pub doc: &'static str,
    /// Computes the value.
    pub get: Getter<S>,
}

/// A family of variables with a common prefix: one row of a module's table.
pub struct Family<S> {
    /// The prefix, with its underscore.
    pub prefix: &'static str,
    /// Text for the reference.
    pub doc: &'static str,
    /// Computes the value.
    pub get: PrefixGetter<S>,
}

/// A built-in variable that `set` may change.
pub struct SettableBuiltin<S> {
    /// Name without the dollar sign.
    pub name: &'static str,
    /// Takes the new value.
    pub set: Setter<S>,
}

/// Changes the value of a built-in variable.
pub type Setter<S> = fn(&mut S, Bytes);

/// The value of a variable that a block of the configuration defines, such as `map`.
pub trait Compute<S>: Send + Sync {
    /// The value for a subject; `None` when it is not found.
    fn compute(&self, subject: &S) -> Option<Bytes>;

    /// Calls `add` with each variable that the value is derived from.
    fn sources(&self, _add: &mut dyn FnMut(Index)) {}
}

/// The initial state of a variable of the configuration.
pub enum InitialValue<N: Namespace> {
    /// Not found: a named capture.
    Missing,
    /// Empty, with a warning: a variable of `set`.
    Uninitialized,
    /// Computed.
    Computed {
        /// By this.
        by: Arc<dyn Compute<N::Subject>>,
        /// Evaluated every time, otherwise once per request.
        volatile: bool,
        /// Derived from a late variable: not kept before the subject has its content.
        late: bool,
    },
}

// A derive would require the same of the namespace.
impl<N: Namespace> Clone for InitialValue<N> {
    fn clone(&self) -> Self {
        match self {
            Self::Missing => Self::Missing,
            Self::Uninitialized => Self::Uninitialized,
            Self::Computed { by, volatile, late } => {
                Self::Computed { by: by.clone(), volatile: *volatile, late: *late }
            }
        }
    }
}

/// The target of `set`.
pub enum SetTarget<N: Namespace> {
    /// A slot of the subject.
    Slot(Slot),
    /// A built-in variable.
    Builtin(Setter<N::Subject>),
}

impl<N: Namespace> Clone for SetTarget<N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N: Namespace> Copy for SetTarget<N> {}

impl<N: Namespace> fmt::Debug for SetTarget<N> {
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

/// Place of a value that subjects carry themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub u16);

/// The meaning of an index.
enum Definition<N: Namespace> {
    /// Computed from the subject.
    Builtin(Getter<N::Subject>),
    /// Computed from the subject and the rest of the name.
    Family(PrefixGetter<N::Subject>, Box<[u8]>),
    /// Stored in the subject, with a fallback.
    Slot(Slot, Fallback<N>),
}

/// The meaning of a slot before anything is stored in it.
enum Fallback<N: Namespace> {
    Unset(InitialValue<N>, Box<str>),
    /// `set $http_x` elsewhere must not hide the header from other locations.
    Family(PrefixGetter<N::Subject>, Box<[u8]>),
    /// Likewise.
    Builtin(Getter<N::Subject>),
}

/// A variable that the configuration defines.
struct UserVariable<N: Namespace> {
    slot: Slot,
    unset: Option<InitialValue<N>>,
    /// Only `set` defines it, so that a built-in variable or a family of its prefix stays visible.
    weak: bool,
}

/// The variables of one configuration.
pub struct Table<N: Namespace> {
    vocabulary: Arc<Vocabulary<N::Subject>>,
    by_name: FxHashMap<Box<str>, Index>,
    names: Vec<Box<str>>,
    user: HashMap<Box<str>, UserVariable<N>>,
    /// The variables in the values that `set` gives to others.
    assigned: HashMap<Box<str>, Vec<Index>>,
}

/// Without built-in variables.
impl<N: Namespace> Default for Table<N> {
    fn default() -> Self {
        Self::new(Vocabulary::default())
    }
}

impl<N: Namespace> Table<N> {
    /// For a configuration with these built-in variables.
    pub fn new(vocabulary: Vocabulary<N::Subject>) -> Self {
        Self {
            vocabulary: Arc::new(vocabulary),
            by_name: FxHashMap::default(),
            names: Vec::new(),
            user: HashMap::new(),
            assigned: HashMap::new(),
        }
    }
}

/// The variables of one configuration after it was read: every index has a meaning.
pub struct Resolved<N: Namespace> {
    vocabulary: Arc<Vocabulary<N::Subject>>,
    definitions: Box<[Definition<N>]>,
    /// The definitions of the configuration, for names that are learnt at run time.
    named: HashMap<Box<str>, Definition<N>>,
    /// The dependencies of each definition; empty: none depends on a late variable.
    late: Box<[Late]>,
}

impl<N: Namespace> Default for Resolved<N> {
    fn default() -> Self {
        Self {
            vocabulary: Arc::default(),
            definitions: Box::default(),
            named: HashMap::new(),
            late: Box::default(),
        }
    }
}

impl<N: Namespace> Table<N> {
    /// The index of a mentioned variable; the name needs no definition yet, since directives that
    /// define variables may follow.
    pub fn index(&mut self, name: &str) -> Index {
        // It is in lower case, as a rule.
        if let Some(&index) = self.by_name.get(name) {
            return index;
        }
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
        user.unset = Some(InitialValue::Missing);
        Ok(user.slot)
    }

    /// Defines a variable that a block computes. The last definition of a name counts.
    ///
    /// # Errors
    /// A built-in variable has this name.
    pub fn define_computed(
        &mut self,
        name: &str,
        by: Arc<dyn Compute<N::Subject>>,
        volatile: bool,
    ) -> Result<(), DuplicateVariable> {
        let user = self.user(name)?;
        user.weak = false;
        user.unset = Some(InitialValue::Computed { by, volatile, late: false });
        Ok(())
    }

    /// Defines the variable of a `set`, unless something else defines it; says where `set` writes.
    ///
    /// # Errors
    /// A built-in variable has this name, and it can't be changed.
    pub fn define_set(&mut self, name: &str) -> Result<SetTarget<N>, DuplicateVariable> {
        let lower = name.to_ascii_lowercase();
        if !self.user.contains_key(lower.as_str())
            && let Some(builtin) = self.vocabulary.changeable(&lower)
        {
            return Ok(SetTarget::Builtin(builtin.set));
        }
        let user = self.user(name)?;
        user.unset.get_or_insert(InitialValue::Uninitialized);
        Ok(SetTarget::Slot(user.slot))
    }

    /// Defines a variable that a module sets when it has a result; not found before.
    ///
    /// # Errors
    /// A built-in variable has this name, and it can't be changed.
    pub fn define_result(&mut self, name: &str) -> Result<SetTarget<N>, DuplicateVariable> {
        let lower = name.to_ascii_lowercase();
        if !self.user.contains_key(lower.as_str())
            && let Some(builtin) = self.vocabulary.changeable(&lower)
        {
            return Ok(SetTarget::Builtin(builtin.set));
        }
        let user = self.user(name)?;
        user.unset.get_or_insert(InitialValue::Missing);
        Ok(SetTarget::Slot(user.slot))
    }

    fn user(&mut self, name: &str) -> Result<&mut UserVariable<N>, DuplicateVariable> {
        let lower = name.to_ascii_lowercase();
        if self.vocabulary.builtin(&lower).is_some()
            && self.vocabulary.changeable(&lower).is_none()
            && !self.vocabulary.is_replaceable(&lower)
        {
            return Err(DuplicateVariable(name.to_owned()));
        }
        let next = Slot(u16::try_from(self.user.len()).unwrap_or(u16::MAX));
        let new = || UserVariable { slot: next, unset: None, weak: true };
        Ok(self.user.entry(lower.into_boxed_str()).or_insert_with(new))
    }

    /// The built-in variables.
    pub fn vocabulary(&self) -> &Vocabulary<N::Subject> {
        &self.vocabulary
    }

    /// The known name nearest to a misspelt one.
    pub fn nearest(&self, name: &str) -> Option<String> {
        let own = self.user.iter().filter(|(_, user)| user.unset.is_some());
        let own = own.map(|(name, _)| &**name).filter(|name| !name.contains(' '));
        self.vocabulary.nearest(name, own)
    }

    /// The name of a mentioned variable.
    pub fn name(&self, index: Index) -> Option<&str> {
        self.names.get(index.0 as usize).map(|name| &**name)
    }

    /// Whether the configuration mentions a variable.
    pub fn mentions(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Gives every mentioned name its meaning.
    ///
    /// # Errors
    /// The names that have no definition.
    pub fn resolve(&self) -> Result<Resolved<N>, Vec<String>> {
        let mut unknown = Vec::new();
        let mut definitions = Vec::with_capacity(self.names.len());
        let late = self.late();
        for (at, name) in self.names.iter().enumerate() {
            match self.definition(name) {
                Some(mut definition) => {
                    if let Definition::Slot(
                        _,
                        Fallback::Unset(InitialValue::Computed { late: is_late, .. }, _),
                    ) = &mut definition
                    {
                        *is_late = late.get(at).is_some_and(|late| late.is_late());
                    }
                    definitions.push(definition);
                }
                None => unknown.push(name.to_string()),
            }
        }
        if unknown.is_empty() {
            let named = self.user.keys();
            let named = named.filter_map(|name| Some((name.clone(), self.definition(name)?)));
            let (definitions, named) = (definitions.into(), named.collect());
            Ok(Resolved { vocabulary: self.vocabulary.clone(), definitions, named, late })
        } else {
            Err(unknown)
        }
    }

    fn definition(&self, name: &str) -> Option<Definition<N>> {
        let family = || {
            // As in nginx the rest may be empty: such a variable is never found.
            let (row, rest) = self.vocabulary.families_of(name).next()?;
            Some((row.get, Box::<[u8]>::from(rest.as_bytes())))
        };
        if let Some(user) = self.user.get(name) {
            if user.weak
                && let Some((get, rest)) = family()
            {
                return Some(Definition::Slot(user.slot, Fallback::Family(get, rest)));
            }
            if user.weak
                && let Some(row) = self.vocabulary.builtin(name)
            {
                return Some(Definition::Slot(user.slot, Fallback::Builtin(row.get)));
            }
            let unset = user.unset.clone().unwrap_or(InitialValue::Missing);
            return Some(Definition::Slot(user.slot, Fallback::Unset(unset, name.into())));
        }
        if let Some(row) = self.vocabulary.builtin(name) {
            return Some(Definition::Builtin(row.get));
        }
        family().map(|(get, rest)| Definition::Family(get, rest))
    }
}

impl<N: Namespace> nowait_conf::VariableNames for Table<N> {
    fn index(&mut self, name: &[u8]) -> Option<u32> {
        Some(Table::index(self, std::str::from_utf8(name).ok()?).0)
    }
}

impl<N: Namespace> Resolved<N> {
    /// Appends the value of a variable; false when it is not found.
    #[inline]
    pub fn append(&self, index: Index, subject: &N::Subject, out: &mut Vec<u8>) -> bool {
        match &self.definitions[index.0 as usize] {
            // Most are.
            Definition::Builtin(get) => get(subject, out),
            other => other.append(subject, out),
        }
    }

    /// Appends the value of the variable with this name, in lower case; false when it is not found
    /// or does not exist. Only for names unknown before run time: commands in pages (`ssi`).
    pub fn append_named(&self, name: &str, subject: &N::Subject, out: &mut Vec<u8>) -> bool {
        if let Some(definition) = self.named.get(name) {
            return definition.append(subject, out);
        }
        if let Some(row) = self.vocabulary.builtin(name) {
            return (row.get)(subject, out);
        }
        let mut families = self.vocabulary.families_of(name);
        families.any(|(row, rest)| (row.get)(subject, rest.as_bytes(), out))
    }
}

impl<N: Namespace> Definition<N> {
    fn append(&self, subject: &N::Subject, out: &mut Vec<u8>) -> bool {
        match self {
            Definition::Builtin(get) => get(subject, out),
            Definition::Family(get, rest) => get(subject, rest, out),
            Definition::Slot(slot, fallback) => {
                if let Some(value) = subject.slot(*slot) {
                    out.extend_from_slice(&value);
                    return true;
                }
                match fallback {
                    Fallback::Family(get, rest) => get(subject, rest, out),
                    Fallback::Builtin(get) => get(subject, out),
                    Fallback::Unset(unset, name) => {
                        let Some(value) = unset.value(subject, *slot, name) else { return false };
                        out.extend_from_slice(&value);
                        true
                    }
                }
            }
        }
    }
}

impl<N: Namespace> InitialValue<N> {
    /// The value of a slot in which nothing is stored.
    fn value(&self, subject: &N::Subject, slot: Slot, name: &str) -> Option<Bytes> {
        match self {
            Self::Missing => None,
            Self::Uninitialized => {
                subject.uninitialized(name);
                // Stored, so that one warning per subject is enough.
                subject.set_slot(slot, Some(Bytes::new()));
                Some(Bytes::new())
            }
            Self::Computed { by, volatile, late } => {
                let depth = subject.depth().get();
                if depth >= DEPTH_MAX {
                    subject.fault(format_args!("cycle while evaluating variable \"{name}\""));
                    return None;
                }
                subject.depth().set(depth + 1);
                let value = by.compute(subject);
                subject.depth().set(depth);
                if !(*volatile || *late && subject.awaits_content()) {
                    subject.set_slot(slot, value.clone());
                }
                value
            }
        }
    }
}

/// Where variables are mentioned, for the error about unknown ones.
pub struct Mentions<N> {
    /// Names, and where each is mentioned first.
    pub names: BTreeMap<Vec<u8>, Span>,
    of: PhantomData<fn(N)>,
}

impl<N> Default for Mentions<N> {
    fn default() -> Self {
        Self { names: BTreeMap::new(), of: PhantomData }
    }
}

impl<N> Mentions<N> {
    /// Notes that a variable is mentioned.
    pub fn note(&mut self, name: &[u8], at: Span) {
        match self.names.get_mut(name) {
            Some(first) => *first = at.min(*first),
            None => drop(self.names.insert(name.to_vec(), at)),
        }
    }
}

/// Compiles text with variables.
///
/// # Errors
/// Malformed variables.
pub fn text<N: Namespace>(word: &Word, cx: &mut Cx<'_>) -> Result<Complex<N>, Diagnostic> {
    // Large tables consist of such texts.
    if !word.text.contains(&b'$') {
        return Ok(Complex::from_literal(interner::interned(&word.text)));
    }
    compile(&Template::parse(word)?, cx)
}

/// Compiles parsed text with variables.
///
/// # Errors
/// Malformed variables.
pub fn compile<N: Namespace>(
    template: &Template,
    cx: &mut Cx<'_>,
) -> Result<Complex<N>, Diagnostic> {
    mention::<N>(template, cx);
    let compiled = template.compile(cx.global::<Table<N>>())?;
    Ok(Complex::from_compiled(compiled))
}

/// Records where variables are mentioned.
pub fn mention<N: Namespace>(template: &Template, cx: &mut Cx<'_>) {
    let mentions = cx.global::<Mentions<N>>();
    for name in template.variables() {
        mentions.note(name, template.span());
    }
}

/// The name of a variable as an argument: `$name`.
///
/// # Errors
/// It does not begin with a dollar sign, or there is nothing behind it.
pub fn variable_name(word: &Word) -> Result<&str, Diagnostic> {
    let invalid = || word.error(format!("invalid variable name \"{word}\""));
    match word.text.strip_prefix(b"$") {
        Some(name) if !name.is_empty() => std::str::from_utf8(name).map_err(|_| invalid()),
        _ => Err(invalid().expected("a name that begins with \"$\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// A subject with a variable of each kind.
    #[derive(Default)]
    pub(crate) struct SampleSubject {
        variables: Resolved<Samples>,
        slots: Slots,
        captures: RefCell<Captures>,
        depth: Cell<u8>,
        changed: Option<Bytes>,
        said: RefCell<Vec<String>>,
    }

    /// The namespace of samples.
    pub(crate) enum Samples {}

    impl Namespace for Samples {
        type Subject = SampleSubject;
    }

    impl Subject for SampleSubject {
        type Namespace = Samples;

        const HAS_PROXIES: bool = false;

        fn variables(&self) -> &Resolved<Samples> {
            &self.variables
        }

        fn slots(&self) -> &Slots {
            &self.slots
        }

        fn captures(&self) -> &RefCell<Captures> {
            &self.captures
        }

        fn depth(&self) -> &Cell<u8> {
            &self.depth
        }

        fn uninitialized(&self, name: &str) {
            self.said.borrow_mut().push(format!("uninitialized {name}"));
        }

        fn fault(&self, message: fmt::Arguments<'_>) {
            self.said.borrow_mut().push(message.to_string());
        }

        fn peer_ip(&self) -> Option<std::net::IpAddr> {
            None
        }
    }

    const BUILTINS: &[Builtin<SampleSubject>] = &[
        Builtin {
            name: "fixed",
            doc: "",
            get: |_, out| {
                out.push(b'f');
                true
            },
        },
        Builtin {
            name: "replaceable",
            doc: "",
            get: |_, out| {
                out.push(b'r');
                true
            },
        },
        Builtin {
            name: "changeable",
            doc: "",
            get: |sample, out| {
                out.extend_from_slice(sample.changed.as_deref().unwrap_or_default());
                true
            },
        },
    ];

    const FAMILIES: &[Family<SampleSubject>] = &[Family {
        prefix: "echo_",
        doc: "",
        get: |_, rest, out| {
            out.extend_from_slice(rest);
            !rest.is_empty()
        },
    }];

    const CHANGEABLE: &[SettableBuiltin<SampleSubject>] = &[SettableBuiltin {
        name: "changeable",
        set: |sample, value| sample.changed = Some(value),
    }];

    /// A table with the variables of samples.
    fn table() -> Table<Samples> {
        let mut vocabulary = Vocabulary::default();
        vocabulary.add(BUILTINS, FAMILIES, CHANGEABLE);
        vocabulary.replaceable(["replaceable"]);
        Table::new(vocabulary)
    }

    fn value(sample: &SampleSubject, index: Index) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        sample.variables.append(index, sample, &mut out).then_some(out)
    }

    #[test]
    fn a_name_is_resolved_once_and_in_any_case() {
        let mut table = table();
        let first = table.index("Fixed");
        assert_eq!(first, table.index("fixed"));
        assert_ne!(first, table.index("changeable"));
        assert!(table.resolve().is_ok());
    }

    #[test]
    fn unknown_names_are_all_reported() {
        let mut table = table();
        for name in ["nosuch", "echo_x", "echo_", "such"] {
            table.index(name);
        }
        let errors = table.resolve().err().expect("two names have no definition");
        assert_eq!(errors, ["nosuch", "such"]);
    }

    #[test]
    fn a_name_that_is_defined_later_is_known() {
        let mut table = table();
        table.index("name");
        assert!(table.resolve().is_err());
        table.define_capture("Name").unwrap();
        assert!(table.resolve().is_ok());
    }

    #[test]
    fn only_changeable_builtins_are_set() {
        let mut table = table();
        assert!(matches!(table.define_set("Changeable"), Ok(SetTarget::Builtin(_))));
        assert!(matches!(table.define_set("mine"), Ok(SetTarget::Slot(_))));
        let error = table.define_set("fixed").expect_err("it is not changeable");
        assert_eq!(error.to_string(), "the duplicate \"fixed\" variable");
        assert!(table.define_capture("fixed").is_err());
    }

    #[test]
    fn a_builtin_may_be_replaced() {
        let mut table = table();
        let index = table.index("replaceable");
        let Ok(SetTarget::Slot(slot)) = table.define_set("Replaceable") else {
            panic!("it is a slot")
        };
        let sample =
            SampleSubject { variables: table.resolve().unwrap(), ..SampleSubject::default() };
        assert_eq!(value(&sample, index).unwrap(), b"r");
        sample.set_slot(slot, Some(Bytes::from_static(b"set")));
        assert_eq!(value(&sample, index).unwrap(), b"set");
        table.define_capture("replaceable").unwrap();
        let sample =
            SampleSubject { variables: table.resolve().unwrap(), ..SampleSubject::default() };
        assert_eq!(value(&sample, index), None);
    }

    #[test]
    fn a_set_leaves_a_family_visible_and_a_capture_hides_it() {
        let mut table = table();
        let index = table.index("echo_x");
        let Ok(SetTarget::Slot(slot)) = table.define_set("echo_x") else { panic!("it is a slot") };
        let mut sample =
            SampleSubject { variables: table.resolve().unwrap(), ..SampleSubject::default() };
        assert_eq!(value(&sample, index).unwrap(), b"x");
        sample.set_slot(slot, Some(Bytes::from_static(b"set")));
        assert_eq!(value(&sample, index).unwrap(), b"set");
        table.define_capture("echo_x").unwrap();
        sample = SampleSubject { variables: table.resolve().unwrap(), ..SampleSubject::default() };
        assert_eq!(value(&sample, index), None);
    }

    #[test]
    fn what_is_set_nowhere_is_told_once() {
        let mut table = table();
        let index = table.index("mine");
        table.define_set("mine").unwrap();
        let sample =
            SampleSubject { variables: table.resolve().unwrap(), ..SampleSubject::default() };
        assert_eq!(value(&sample, index).unwrap(), b"");
        assert_eq!(value(&sample, index).unwrap(), b"");
        assert_eq!(*sample.said.borrow(), ["uninitialized mine"]);
    }

    /// Counts its evaluations, and refers to itself.
    struct Cycle(Index);

    impl Compute<SampleSubject> for Cycle {
        fn compute(&self, subject: &SampleSubject) -> Option<Bytes> {
            value(subject, self.0).map(Bytes::from)
        }
    }

    #[test]
    fn cycles_end() {
        let mut table = table();
        let index = table.index("loop");
        table.define_computed("loop", Arc::new(Cycle(index)), false).unwrap();
        let sample =
            SampleSubject { variables: table.resolve().unwrap(), ..SampleSubject::default() };
        assert_eq!(value(&sample, index), None);
        assert_eq!(*sample.said.borrow(), ["cycle while evaluating variable \"loop\""]);
    }
}
