//! Location matching: the `location` for a normalised URI.
//!
//! [`Pattern::parse`] reads the arguments of `location`; [`Locations`] is the table of one level (a
//! server, or a location with nested ones), built inside out when the configuration is read, and
//! searched once per request and internal redirect. The order is nginx's
//! (`ngx_http_core_find_location`): at each level an equal `=` location ends the search; otherwise
//! the longest prefix is taken and its nested level searched. Unless that search has ended or the
//! prefix was `^~`, the level's regexes are tried in order, then its variables, and a match is searched for nested
//! locations.
//!
//! Prefixes are kept sorted; a look-up is one binary search and a walk along links to shorter
//! prefixes. It allocates nothing. Regexes are compiled and run by the caller, who evaluates variables, too; of many, only those that can match
//! are.

use std::fmt;
use std::ops::ControlFlow;

use nowait_variables::candidates::{self, Candidates};

/// The comparison of a location's text with the URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `= /uri`
    Exact,
    /// `/prefix`
    Prefix,
    /// `^~ /prefix`: regexes of the same level are not tried.
    PrefixNoRegex,
    /// `~ regex`, or `~* regex` when `caseless`.
    Regex {
        /// Compiled without regard to case.
        caseless: bool,
    },
    /// `$variable`: for requests for which it is neither empty nor `0`.
    Variable,
    /// `@name`: for `error_page`, `try_files` and the like; never matched by a URI.
    Named,
}

/// The arguments of a `location` directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// The kind of comparison.
    pub kind: Kind,
    /// URI, prefix, regex, or the name with its `@` or `$`; without the modifier.
    pub text: Box<[u8]>,
}

/// The reason why a location is refused (the operator's fault), in nginx's wording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocationError {
    /// The first of two arguments is not a modifier.
    Modifier(Box<[u8]>),
    /// Wrong number of arguments, or an empty one.
    Arguments,
    /// A location inside an `=` location.
    InsideExact(Box<[u8]>, Box<[u8]>),
    /// A location inside an `@` location.
    InsideNamed(Box<[u8]>, Box<[u8]>),
    /// An `@` location inside another location.
    NestedNamed(Box<[u8]>),
    /// A nested location whose text does not begin with its parent's.
    Outside(Box<[u8]>, Box<[u8]>),
    /// Two `=`, or two prefixes (`^~` or not), of the same text.
    Duplicate {
        /// The text of both.
        text: Box<[u8]>,
        /// Position of the later one in the order of [`Builder::add`], from 0.
        index: usize,
        /// Position of the one before it.
        first: usize,
    },
}

impl fmt::Display for LocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        match self {
            LocationError::Modifier(text) => {
                write!(f, "invalid location modifier \"{}\"", show(text))
            }
            LocationError::Arguments => {
                write!(f, "invalid number of arguments in \"location\" directive")
            }
            LocationError::InsideExact(text, parent) => write!(
                f,
                "location \"{}\" cannot be inside the exact location \"{}\"",
                show(text),
                show(parent)
            ),
            LocationError::InsideNamed(text, parent) => write!(
                f,
                "location \"{}\" cannot be inside the named location \"{}\"",
                show(text),
                show(parent)
            ),
            LocationError::NestedNamed(text) => {
                write!(f, "named location \"{}\" can be on the server level only", show(text))
            }
            LocationError::Outside(text, parent) => {
                write!(f, "location \"{}\" is outside location \"{}\"", show(text), show(parent))
            }
            LocationError::Duplicate { text, .. } => {
                write!(f, "duplicate location \"{}\"", show(text))
            }
        }
    }
}

impl std::error::Error for LocationError {}

impl Pattern {
    /// Reads the arguments of `location`: `[ = | ^~ | ~ | ~* ] uri`, `$variable` or `@name`; the modifier may
    /// also stand directly before the text, as in `location =/`.
    pub fn parse(args: &[&[u8]]) -> Result<Pattern, LocationError> {
        let regex = |caseless| Kind::Regex { caseless };
        let (kind, text) = match args {
            [modifier, text] => match *modifier {
                b"=" => (Kind::Exact, *text),
                b"^~" => (Kind::PrefixNoRegex, *text),
                b"~" => (regex(false), *text),
                b"~*" => (regex(true), *text),
                other => return Err(LocationError::Modifier(other.into())),
            },
            [text] => match *text {
                [b'=', text @ ..] => (Kind::Exact, text),
                [b'^', b'~', text @ ..] => (Kind::PrefixNoRegex, text),
                [b'~', b'*', text @ ..] => (regex(true), text),
                [b'~', text @ ..] => (regex(false), text),
                [b'@', ..] => (Kind::Named, *text),
                [b'$', ..] => (Kind::Variable, *text),
                text => (Kind::Prefix, text),
            },
            _ => return Err(LocationError::Arguments),
        };
        Ok(Pattern { kind, text: text.into() })
    }

    /// Whether this location may stand inside `parent`.
    pub fn check_inside(&self, parent: &Pattern) -> Result<(), LocationError> {
        let (text, outer) = (self.text.clone(), parent.text.clone());
        match (parent.kind, self.kind) {
            (Kind::Exact, _) => Err(LocationError::InsideExact(text, outer)),
            (Kind::Named, _) => Err(LocationError::InsideNamed(text, outer)),
            (_, Kind::Named) => Err(LocationError::NestedNamed(text)),
            (_, Kind::Regex { .. } | Kind::Variable) | (Kind::Variable, _) => Ok(()),
            // As in nginx a regex parent is compared by its text too, which in effect lets only
            // regexes stand inside a regex.
            _ if text.starts_with(&outer) => Ok(()),
            _ => Err(LocationError::Outside(text, outer)),
        }
    }
}

/// One location of a level, as given to [`Builder::add`].
#[derive(Debug)]
pub struct LocationNode<T, R> {
    /// The result of [`Locations::find`].
    pub value: T,
    /// The compiled regex or the variable; present for [`Kind::Regex`] and [`Kind::Variable`] only.
    pub test: Option<R>,
    /// For a text ending in `/`: a request for the text without the slash is redirected to it (nginx sets
    /// this for `proxy_pass` and similar directives).
    pub auto_redirect: bool,
    /// The locations inside this one.
    pub nested: Option<Locations<T, R>>,
}

/// Result of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocationMatch<'a, T> {
    /// The location.
    pub value: &'a T,
    /// Whether it was found by `=`.
    pub exact: bool,
    /// The URI lacks the trailing slash of the location's text: respond with 301 to the escaped
    /// text.
    pub auto_redirect: bool,
}

/// The result of a level's search; the parent level continues only after `Prefix`.
enum Step<'a, T> {
    End(LocationMatch<'a, T>),
    Prefix(&'a T),
}

#[derive(Debug)]
struct Prefix<T, R> {
    text: Box<[u8]>,
    exact: Option<Entry<T, R>>,
    inclusive: Option<(Entry<T, R>, /* ^~ */ bool)>,
    /// The longest other inclusive text that this text begins with.
    shorter: Option<u32>,
}

#[derive(Debug)]
struct Entry<T, R> {
    value: T,
    auto_redirect: bool,
    nested: Option<Box<Locations<T, R>>>,
}

/// Collects the locations of one level.
#[derive(Debug)]
pub struct Builder<T, R> {
    added: Vec<(Pattern, LocationNode<T, R>)>,
}

impl<T, R> Default for Builder<T, R> {
    fn default() -> Self {
        Builder { added: Vec::new() }
    }
}

impl<T, R> Builder<T, R> {
    /// A level without locations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a location; the order matters for regexes and variables.
    pub fn add(&mut self, pattern: Pattern, location: LocationNode<T, R>) {
        self.added.push((pattern, location));
    }

    /// The table, or every duplicate. A location of a regex or variable without it never matches.
    /// Of named locations with the same name the first is kept, as in nginx.
    pub fn build(self) -> Result<Locations<T, R>, Vec<LocationError>> {
        let mut errors = Vec::new();
        let mut prefixes: Vec<Prefix<T, R>> = Vec::new();
        let (mut regexes, mut regex_texts) = (Vec::new(), Vec::new());
        let mut variables = Vec::new();
        let mut named: Vec<(Box<[u8]>, T)> = Vec::new();

        // Sorting by text with the first-added first makes equal texts neighbours, and lets every
        // text come directly after the texts that it begins with.
        let mut plain = Vec::new();
        for (index, (pattern, location)) in self.added.into_iter().enumerate() {
            let LocationNode { value, test, auto_redirect, nested } = location;
            let entry = Entry { value, auto_redirect, nested: nested.map(Box::new) };
            match pattern.kind {
                Kind::Regex { .. } => {
                    if let Some(regex) = test {
                        regexes.push((regex, entry));
                        regex_texts.push(pattern.text);
                    }
                }
                Kind::Variable => variables.extend(test.map(|variable| (variable, entry))),
                Kind::Named => {
                    if !named.iter().any(|(name, _)| *name == pattern.text) {
                        named.push((pattern.text, entry.value));
                    }
                }
                kind => plain.push((pattern.text, kind, entry, index)),
            }
        }
        plain.sort_by(|a, b| a.0.cmp(&b.0));

        // The positions that hold the current text: with "=", and without.
        let (mut exact, mut inclusive) = (None, None);
        for (text, kind, entry, index) in plain {
            if prefixes.last().is_none_or(|last| last.text != text) {
                (exact, inclusive) = (None, None);
                prefixes.push(Prefix { text, exact: None, inclusive: None, shorter: None });
            }
            let slot = prefixes.last_mut().expect("an entry was pushed if there was none");
            let taken = if kind == Kind::Exact { &mut exact } else { &mut inclusive };
            if let Some(first) = *taken {
                errors.push(LocationError::Duplicate { text: slot.text.clone(), index, first });
                continue;
            }
            *taken = Some(index);
            match kind {
                Kind::Exact => slot.exact = Some(entry),
                _ => slot.inclusive = Some((entry, kind == Kind::PrefixNoRegex)),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        link(&mut prefixes);
        let redirecting = prefixes.iter().filter(|prefix| {
            prefix.exact.as_ref().is_some_and(|entry| entry.auto_redirect)
                || prefix.inclusive.as_ref().is_some_and(|(entry, _)| entry.auto_redirect)
        });
        let redirects = redirecting.fold(0, |bits, prefix| bits | length_bit(prefix.text.len()));
        let candidates = Candidates::of(regex_texts.iter().map(|text| &**text));
        Ok(Locations { prefixes, redirects, regexes, candidates, variables, named })
    }
}

/// The bit of a length. Lengths from 63 on share one.
fn length_bit(length: usize) -> u64 {
    1 << length.min(63)
}

/// Sets `shorter` of each prefix. In sorted order the inclusive texts that one text begins with
/// form a stack.
fn link<T, R>(prefixes: &mut [Prefix<T, R>]) {
    let mut open: Vec<u32> = Vec::new();
    for index in 0..prefixes.len() {
        while let Some(&top) = open.last() {
            if prefixes[index].text.starts_with(&prefixes[top as usize].text) {
                break;
            }
            open.pop();
        }
        prefixes[index].shorter = open.last().copied();
        if prefixes[index].inclusive.is_some() {
            open.push(u32::try_from(index).expect("fewer than 2^32 locations fit in memory"));
        }
    }
}

/// The locations of one level. `T` is the location (an index or an `Arc`), `R` a compiled regex or a variable.
#[derive(Debug)]
pub struct Locations<T, R> {
    /// Sorted by text, each text once.
    prefixes: Vec<Prefix<T, R>>,
    /// The lengths of the texts with `auto_redirect`: one [bit](length_bit) for each.
    redirects: u64,
    regexes: Vec<(R, Entry<T, R>)>,
    /// The regexes that can match.
    candidates: Option<Candidates>,
    variables: Vec<(R, Entry<T, R>)>,
    named: Vec<(Box<[u8]>, T)>,
}

impl<T, R> Default for Locations<T, R> {
    fn default() -> Self {
        Locations {
            prefixes: Vec::new(),
            redirects: 0,
            regexes: Vec::new(),
            candidates: None,
            variables: Vec::new(),
            named: Vec::new(),
        }
    }
}

impl<T, R> Locations<T, R> {
    /// The location for `uri` (decoded and normalised), or `None` for the level's own
    /// configuration.
    ///
    /// `matches` runs one regex on the URI, or evaluates a variable; captures it keeps from its last success are those of
    /// the location found. Its error ends the search.
    pub fn find<E>(
        &self,
        uri: &[u8],
        mut matches: impl FnMut(&R) -> Result<bool, E>,
    ) -> Result<Option<LocationMatch<'_, T>>, E> {
        Ok(self.search(uri, &mut matches)?.map(|step| match step {
            Step::End(found) => found,
            Step::Prefix(value) => LocationMatch { value, exact: false, auto_redirect: false },
        }))
    }

    /// The named location `name` (with its `@`).
    pub fn named(&self, name: &[u8]) -> Option<&T> {
        self.named.iter().find(|(text, _)| **text == *name).map(|(_, value)| value)
    }

    /// The regexes of this level that are tried often, of many. For preparing them.
    pub fn frequent(&self) -> impl Iterator<Item = &R> {
        let frequent = candidates::frequent(self.candidates.as_ref(), &self.regexes);
        frequent.map(|(regex, _)| regex)
    }

    /// Calls `each` with the texts of locations that begin with `text`, and are longer: those below a
    /// directory. Regexes are left out.
    pub fn below<'a>(&'a self, text: &[u8], each: &mut dyn FnMut(&'a [u8])) {
        for prefix in &self.prefixes {
            let own = &prefix.text;
            if own.len() > text.len() && own.starts_with(text) {
                each(own);
            } else if !text.starts_with(own) {
                continue;
            }
            let inclusive = prefix.inclusive.as_ref().map(|(entry, _)| entry);
            for entry in prefix.exact.iter().chain(inclusive) {
                if let Some(nested) = &entry.nested {
                    nested.below(text, each);
                }
            }
        }
    }

    // Recursion is bounded by the nesting of blocks in the configuration file.
    fn search<'s, E>(
        &'s self,
        uri: &[u8],
        matches: &mut dyn FnMut(&R) -> Result<bool, E>,
    ) -> Result<Option<Step<'s, T>>, E> {
        let mut result = None;
        match self.find_static(uri) {
            Static::End(found) => return Ok(Some(Step::End(found))),
            Static::Prefix(entry, no_regex) => {
                result = Some(Step::Prefix(&entry.value));
                if let Some(nested) = &entry.nested {
                    match nested.search(uri, matches)? {
                        Some(Step::End(found)) => return Ok(Some(Step::End(found))),
                        Some(step) => result = Some(step),
                        None => {}
                    }
                }
                // nginx takes the `^~` of this level's prefix, not of a nested one.
                if no_regex {
                    return Ok(result);
                }
            }
            Static::None => {}
        }
        let attempt = |(regex, entry): &'s (R, Entry<T, R>)| match matches(regex) {
            Ok(true) => ControlFlow::Break(Ok(entry)),
            Ok(false) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Err(error)),
        };
        let matched =
            candidates::try_in_order(self.candidates.as_ref(), &self.regexes, uri, attempt);
        if let Some(entry) = matched.break_value().transpose()? {
            let mut found =
                LocationMatch { value: &entry.value, exact: false, auto_redirect: false };
            if let Some(nested) = &entry.nested {
                match nested.search(uri, matches)? {
                    // nginx does not redirect from inside a regex location.
                    Some(Step::End(inner)) => {
                        found = LocationMatch { auto_redirect: false, ..inner }
                    }
                    Some(Step::Prefix(value)) => found.value = value,
                    None => {}
                }
            }
            return Ok(Some(Step::End(found)));
        }
        for (variable, entry) in &self.variables {
            if !matches(variable)? {
                continue;
            }
            let inner = match &entry.nested {
                Some(nested) => nested.search(uri, matches)?,
                None => None,
            };
            let found = LocationMatch { value: &entry.value, exact: false, auto_redirect: false };
            return Ok(Some(Step::End(match inner {
                Some(Step::End(inner)) => inner,
                Some(Step::Prefix(value)) => LocationMatch { value, ..found },
                None => found,
            })));
        }
        Ok(result)
    }

    fn find_static(&self, uri: &[u8]) -> Static<'_, T, R> {
        let after = self.prefixes.partition_point(|prefix| *prefix.text <= *uri);
        let mut at = after.checked_sub(1);
        if let Some(prefix) = at.map(|at| &self.prefixes[at])
            && *prefix.text == *uri
        {
            return match (&prefix.exact, &prefix.inclusive) {
                (Some(entry), _) => Static::End(LocationMatch {
                    value: &entry.value,
                    exact: true,
                    auto_redirect: false,
                }),
                (None, Some((entry, no_regex))) => Static::Prefix(entry, *no_regex),
                (None, None) => Static::None,
            };
        }
        // Few URIs have such a length: the others need no second search.
        if self.redirects & length_bit(uri.len() + 1) != 0
            && let Some(value) = self.redirected(uri)
        {
            return Static::End(LocationMatch { value, exact: false, auto_redirect: true });
        }
        // Every configured prefix of the URI is the text before it in sorted order, or on that
        // text's chain of shorter ones.
        while let Some(index) = at {
            let prefix = &self.prefixes[index];
            if let Some((entry, no_regex)) = &prefix.inclusive
                && uri.starts_with(&prefix.text)
            {
                return Static::Prefix(entry, *no_regex);
            }
            at = prefix.shorter.map(|shorter| shorter as usize);
        }
        Static::None
    }

    /// The location of `uri` with a slash appended, if it redirects requests without the slash.
    fn redirected(&self, uri: &[u8]) -> Option<&T> {
        let compare = |prefix: &Prefix<T, R>| {
            let text = &*prefix.text;
            let (begin, rest) = text.split_at(text.len().min(uri.len()));
            begin.cmp(uri).then_with(|| rest.cmp(b"/"))
        };
        let prefix = &self.prefixes[self.prefixes.binary_search_by(compare).ok()?];
        let inclusive = prefix.inclusive.as_ref().map(|(entry, _)| entry);
        let wanted = prefix.exact.as_ref().is_some_and(|entry| entry.auto_redirect)
            || inclusive.is_some_and(|entry| entry.auto_redirect);
        let entry = prefix.exact.as_ref().or(inclusive)?;
        wanted.then_some(&entry.value)
    }
}

enum Static<'a, T, R> {
    End(LocationMatch<'a, T>),
    Prefix(&'a Entry<T, R>, bool),
    None,
}

#[cfg(test)]
mod tests;
