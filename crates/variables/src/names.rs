//! Virtual server names: the server for a `Host`.
//!
//! [`parse`] reads one argument of `server_name`; [`Names`] is the table of one listening address,
//! built when the configuration is read and asked once per request (and once per TLS handshake).
//! The order is nginx's: exact name, longest `*.suffix`, longest `prefix.*`, first matching regex.
//!
//! A look-up allocates nothing and its cost is bounded by the longest configured name, not by the
//! length of the client's `Host`. This module compiles and runs no regular expressions: the regex
//! type is the caller's, and so is running it.

use std::fmt;
use std::hash::BuildHasher;
use std::ops::ControlFlow;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxBuildHasher;

use crate::candidates::{self, Candidates};

/// One argument of `server_name`, checked and in lowercase unless it is a regex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerName {
    /// `example.com`, `*.example.com`, `.example.com`, `www.example.*`, `_`, or empty.
    Plain(Box<[u8]>),
    /// `~pattern`, without the tilde.
    Regex {
        /// The pattern to compile.
        pattern: Box<[u8]>,
        /// nginx compiles a pattern with an uppercase letter without regard to case, since hosts
        /// are matched in lowercase.
        caseless: bool,
    },
}

impl ServerName {
    /// The value of `$server_name` when this is the first name of its server: regexes keep their
    /// tilde, `.example.com` loses its dot.
    pub fn variable_text(&self) -> Vec<u8> {
        match self {
            ServerName::Plain(name) => name.strip_prefix(b".").unwrap_or(name).to_vec(),
            ServerName::Regex { pattern, .. } => [b"~", &pattern[..]].concat(),
        }
    }
}

/// Why an argument of `server_name` or an entry of the table is refused (the operator's fault).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameError {
    /// A lone `*`, `*x` or `.`.
    Invalid(Box<[u8]>),
    /// `~` with nothing behind it.
    EmptyRegex(Box<[u8]>),
    /// More than one `*`, a `*` in the middle of a label, `..`, or a NUL.
    InvalidWildcard(Box<[u8]>),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Invalid(name) => {
                write!(f, "server name \"{}\" is invalid", name.escape_ascii())
            }
            NameError::EmptyRegex(name) => {
                write!(f, "empty regex in server name \"{}\"", name.escape_ascii())
            }
            NameError::InvalidWildcard(name) => {
                write!(f, "invalid server name or wildcard \"{}\"", name.escape_ascii())
            }
        }
    }
}

impl std::error::Error for NameError {}

/// Reads one argument of `server_name`. `hostname` replaces `$hostname`.
pub fn parse(text: &[u8], hostname: &[u8]) -> Result<ServerName, NameError> {
    let invalid = match text.first() {
        Some(b'*') => text.len() < 3 || text[1] != b'.',
        Some(b'.') => text.len() < 2,
        _ => false,
    };
    if invalid {
        return Err(NameError::Invalid(text.into()));
    }
    if let Some(pattern) = text.strip_prefix(b"~") {
        if pattern.is_empty() {
            return Err(NameError::EmptyRegex(text.into()));
        }
        let caseless = pattern.iter().any(u8::is_ascii_uppercase);
        return Ok(ServerName::Regex { pattern: pattern.into(), caseless });
    }
    let name = if text.eq_ignore_ascii_case(b"$hostname") { hostname } else { text };
    Ok(ServerName::Plain(name.to_ascii_lowercase().into()))
}

/// The warning for a name that can hardly match: `server name "x/y" has suspicious symbols`.
pub fn suspicious(text: &[u8]) -> Option<String> {
    text.contains(&b'/')
        .then(|| format!("server name \"{}\" has suspicious symbols", text.escape_ascii()))
}

/// The result of [`Names::insert`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InsertResult {
    /// The name is in the table.
    New,
    /// Another entry has this name. nginx warns: `conflicting server name "x" on ADDR, ignored`.
    Conflict,
}

/// Keys of one kind with the length of the longest, which bounds the work of a look-up.
#[derive(Debug, Clone)]
struct Keys<T> {
    table: HashTable<Key<T>>,
    /// The keys, one after the other: there may be very many.
    text: Vec<u8>,
    longest: usize,
}

/// A key and its value.
#[derive(Debug, Clone)]
struct Key<T> {
    start: usize,
    length: u32,
    value: T,
}

impl<T> Default for Keys<T> {
    fn default() -> Self {
        Keys { table: HashTable::new(), text: Vec::new(), longest: 0 }
    }
}

impl<T> Key<T> {
    fn of<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        &text[self.start..self.start + self.length as usize]
    }
}

fn hash(key: &[u8]) -> u64 {
    FxBuildHasher.hash_one(key)
}

impl<T> Keys<T> {
    fn insert(&mut self, key: &[u8], value: T) -> InsertResult {
        let Self { table, text, .. } = self;
        let same = |known: &Key<T>| known.of(text) == key;
        let Entry::Vacant(place) = table.entry(hash(key), same, |known| hash(known.of(text)))
        else {
            return InsertResult::Conflict;
        };
        // No text of a configuration is longer.
        let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
        place.insert(Key { start: text.len(), length, value });
        self.text.extend_from_slice(key);
        self.longest = self.longest.max(key.len());
        InsertResult::New
    }

    fn get(&self, key: &[u8]) -> Option<&T> {
        let found = self.table.find(hash(key), |known| known.of(&self.text) == key);
        found.map(|key| &key.value)
    }

    fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

/// Whether two plain names claim the same hosts: `.example.com` is both `example.com` and
/// `*.example.com`.
pub fn overlap(one: &[u8], two: &[u8]) -> bool {
    let covers = |dotted: &[u8], name: &[u8]| {
        dotted.first() == Some(&b'.')
            && (name == &dotted[1..] || name.strip_prefix(b"*") == Some(dotted))
    };
    one == two || covers(one, two) || covers(two, one)
}

/// The names of all servers of one listening address. `T` is the server (an index or an `Arc`),
/// `R` a compiled regular expression.
#[derive(Debug, Clone)]
pub struct Names<T, R> {
    exact: Keys<T>,
    /// `*.example.com` as `.example.com`.
    heads: Keys<T>,
    /// `www.example.*` as `www.example.`.
    tails: Keys<T>,
    regexes: Vec<(R, T)>,
    /// Which of many expressions are worth trying; see [`Names::seal`].
    candidates: Option<Candidates>,
}

impl<T, R> Default for Names<T, R> {
    fn default() -> Self {
        Names {
            exact: Keys::default(),
            heads: Keys::default(),
            tails: Keys::default(),
            regexes: Vec::new(),
            candidates: None,
        }
    }
}

impl<T: Clone, R> Names<T, R> {
    /// An empty table, in which every look-up fails and the default server is used.
    pub fn new() -> Self {
        Self::default()
    }

    /// True when no name was added, so that a look-up can be left out.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty()
            && self.heads.is_empty()
            && self.tails.is_empty()
            && self.regexes.is_empty()
    }

    /// Whether there are expressions.
    pub fn has_regexes(&self) -> bool {
        !self.regexes.is_empty()
    }

    /// Adds a plain name as [`parse`] returned it. The earlier entry wins a conflict.
    pub fn insert(&mut self, name: &[u8], value: T) -> Result<InsertResult, NameError> {
        let stars = name.iter().filter(|&&b| b == b'*').count();
        if stars > 1 || name.contains(&0) || name.windows(2).any(|pair| pair == b"..") {
            return Err(NameError::InvalidWildcard(name.into()));
        }
        if name.len() > 1 && name[0] == b'.' {
            // `.example.com` is `example.com` and `*.example.com`. nginx ignores the whole entry
            // when either of the two is taken.
            if self.heads.get(name).is_some() {
                return Ok(InsertResult::Conflict);
            }
            if self.exact.insert(&name[1..], value.clone()) == InsertResult::Conflict {
                return Ok(InsertResult::Conflict);
            }
            return Ok(self.heads.insert(name, value));
        }
        if name.len() > 2 {
            if name.starts_with(b"*.") {
                return Ok(self.heads.insert(&name[1..], value));
            }
            if name.ends_with(b".*") {
                return Ok(self.tails.insert(&name[..name.len() - 1], value));
            }
        }
        if stars > 0 {
            return Err(NameError::InvalidWildcard(name.into()));
        }
        Ok(self.exact.insert(name, value))
    }

    /// Adds a text that is matched as a whole, no matter what it looks like. The earlier entry wins.
    pub fn insert_exact(&mut self, text: &[u8], value: T) -> InsertResult {
        self.exact.insert(text, value)
    }

    /// Adds a regex; regexes are tried in the order in which they were added.
    pub fn insert_regex(&mut self, regex: R, value: T) {
        self.regexes.push((regex, value));
        self.candidates = None;
    }

    /// Prepares the table for look-ups, when everything has been added: with many expressions, these then try
    /// only those that can match. `pattern` tells the text of one.
    pub fn seal<'a>(&'a mut self, pattern: impl Fn(&'a R) -> &'a [u8]) {
        for keys in [&mut self.exact, &mut self.heads, &mut self.tails] {
            keys.text.shrink_to_fit();
        }
        self.candidates = Candidates::of(self.regexes.iter().map(|(regex, _)| pattern(regex)));
    }

    /// The regexes that are tried often, of many. For preparing them.
    pub fn frequent(&self) -> impl Iterator<Item = &R> {
        let frequent = candidates::frequent(self.candidates.as_ref(), &self.regexes);
        frequent.map(|(regex, _)| regex)
    }

    /// The server for `host`: lowercase, without port and trailing dot; empty when the request
    /// names none. `None` means the default server.
    ///
    /// `matches` runs one regex on `host` (whose case may differ); it is called in order until it returns true,
    /// so that captures it keeps are those of the match. Regexes that cannot match may be left out. Its error
    /// (a match limit, say) ends the look-up.
    pub fn lookup<'s, E>(
        &'s self,
        host: &[u8],
        mut matches: impl FnMut(&R) -> Result<bool, E>,
    ) -> Result<Option<&'s T>, E> {
        if let Some(value) = self.lookup_hashed(host) {
            return Ok(Some(value));
        }
        if host.is_empty() {
            return Ok(None);
        }
        let attempt = |(regex, value): &'s (R, T)| match matches(regex) {
            Ok(true) => ControlFlow::Break(Ok(value)),
            Ok(false) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Err(error)),
        };
        candidates::try_in_order(self.candidates.as_ref(), &self.regexes, host, attempt)
            .break_value()
            .transpose()
    }

    /// [`Names::lookup`] without the regexes.
    pub fn lookup_hashed(&self, host: &[u8]) -> Option<&T> {
        if let Some(value) = self.exact.get(host) {
            return Some(value);
        }
        self.longest_head(host).or_else(|| self.longest_tail(host))
    }

    fn longest_head(&self, host: &[u8]) -> Option<&T> {
        if self.heads.is_empty() {
            return None;
        }
        // A host of thousands of dots must not cost thousands of long hashes: only suffixes that
        // some key could equal are looked at. As in nginx the wildcard may stand for nothing:
        // `.example.com` is a `*.example.com`.
        let start = host.len().saturating_sub(self.heads.longest);
        (start..host.len())
            .filter(|&at| host[at] == b'.')
            .find_map(|at| self.heads.get(&host[at..]))
    }

    fn longest_tail(&self, host: &[u8]) -> Option<&T> {
        if self.tails.is_empty() {
            return None;
        }
        let end = host.len().min(self.tails.longest);
        (0..end).rev().filter(|&at| host[at] == b'.').find_map(|at| self.tails.get(&host[..=at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&str]) -> Names<usize, String> {
        let mut table = Names::new();
        for (index, name) in names.iter().enumerate() {
            match parse(name.as_bytes(), b"Box.Local").unwrap() {
                ServerName::Plain(name) => {
                    table.insert(&name, index).unwrap();
                }
                ServerName::Regex { pattern, .. } => {
                    table.insert_regex(String::from_utf8(pattern.into()).unwrap(), index)
                }
            }
        }
        table
    }

    /// The "regex" of these tests is a substring.
    fn find(table: &Names<usize, String>, host: &str) -> Option<usize> {
        table
            .lookup::<()>(host.as_bytes(), |regex| Ok(host.contains(regex.as_str())))
            .unwrap()
            .copied()
    }

    #[test]
    fn priority_is_exact_head_tail_regex() {
        let table = table(&[
            "~example",
            "www.example.*",
            "*.example.com",
            "www.example.com",
            "*.www.example.com",
            "~xample",
            "www.*",
        ]);
        assert_eq!(find(&table, "www.example.com"), Some(3));
        assert_eq!(find(&table, "a.example.com"), Some(2));
        assert_eq!(find(&table, "a.www.example.com"), Some(4));
        assert_eq!(find(&table, "a.b.example.com"), Some(2));
        assert_eq!(find(&table, "www.example.org"), Some(1));
        assert_eq!(find(&table, "www.example.co.uk"), Some(1));
        assert_eq!(find(&table, "www.other.org"), Some(6));
        assert_eq!(find(&table, "example.org"), Some(0));
        assert_eq!(find(&table, "example.com"), Some(0));
        assert_eq!(find(&table, "xample"), Some(5));
        assert_eq!(find(&table, "other"), None);
        assert_eq!(find(&table, ""), None);
    }

    #[test]
    fn leading_dot_is_both() {
        let table = table(&[".example.com", "", "_", "$hostname"]);
        assert_eq!(find(&table, "example.com"), Some(0));
        assert_eq!(find(&table, "a.b.example.com"), Some(0));
        assert_eq!(find(&table, ".example.com"), Some(0));
        assert_eq!(find(&table, "xexample.com"), None);
        assert_eq!(find(&table, ""), Some(1));
        assert_eq!(find(&table, "_"), Some(2));
        assert_eq!(find(&table, "box.local"), Some(3));
    }

    #[test]
    fn conflicts_keep_the_first() {
        let mut names: Names<u8, ()> = Names::new();
        assert_eq!(names.insert(b"a.com", 1), Ok(InsertResult::New));
        assert_eq!(names.insert(b"a.com", 2), Ok(InsertResult::Conflict));
        assert_eq!(names.insert(b".a.com", 3), Ok(InsertResult::Conflict));
        assert_eq!(names.insert(b"*.a.com", 4), Ok(InsertResult::New));
        assert_eq!(names.insert(b"*.a.com", 5), Ok(InsertResult::Conflict));
        assert_eq!(names.insert(b"*.b.com", 6), Ok(InsertResult::New));
        assert_eq!(names.insert(b".b.com", 7), Ok(InsertResult::Conflict));
        assert_eq!(names.lookup_hashed(b"a.com"), Some(&1));
        assert_eq!(names.lookup_hashed(b"x.a.com"), Some(&4));
        assert_eq!(names.lookup_hashed(b"b.com"), None);
    }

    #[test]
    fn refusals_have_nginx_wording() {
        for (text, message) in [
            ("*", "server name \"*\" is invalid"),
            ("*a.com", "server name \"*a.com\" is invalid"),
            (".", "server name \".\" is invalid"),
            ("~", "empty regex in server name \"~\""),
        ] {
            assert_eq!(parse(text.as_bytes(), b"").unwrap_err().to_string(), message);
        }
        for text in ["*.a.*", "www.*.com", "a..b", "w*", "a.com*"] {
            let error = Names::<u8, ()>::new().insert(text.as_bytes(), 1).unwrap_err();
            assert_eq!(error.to_string(), format!("invalid server name or wildcard \"{text}\""));
        }
        assert!(suspicious(b"a.com").is_none());
        assert!(suspicious(b"http://a.com").is_some());
    }

    #[test]
    fn parsed_forms() {
        assert_eq!(
            parse(b"~^WWW\\.", b"").unwrap(),
            ServerName::Regex { pattern: (*b"^WWW\\.").into(), caseless: true }
        );
        assert_eq!(parse(b"~^w", b"").unwrap().variable_text(), b"~^w");
        assert_eq!(parse(b".Example.COM", b"").unwrap().variable_text(), b"example.com");
        assert_eq!(parse(b"$HostName", b"Box").unwrap(), ServerName::Plain((*b"box").into()));
    }

    #[test]
    fn errors_of_a_regex_end_the_search() {
        let table = table(&["~a", "~b"]);
        assert_eq!(table.lookup(b"b", |_| Err::<bool, _>("limit")), Err("limit"));
    }

    #[test]
    fn agrees_with_a_naive_oracle() {
        let labels = ["a", "b", "c"];
        let mut seed = 7u64;
        let mut next = move |n: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % n
        };
        for _ in 0..500 {
            let name = |next: &mut dyn FnMut(usize) -> usize| {
                (0..1 + next(4)).map(|_| labels[next(3)]).collect::<Vec<_>>().join(".")
            };
            let mut names: Vec<String> = Vec::new();
            let mut table: Names<String, ()> = Names::new();
            for _ in 0..next(8) {
                let plain = name(&mut next);
                let text = match next(3) {
                    0 => plain,
                    1 => format!("*.{plain}"),
                    _ => format!("{plain}.*"),
                };
                table.insert(text.as_bytes(), text.clone()).unwrap();
                names.push(text);
            }
            for _ in 0..20 {
                let host = name(&mut next);
                let exact = names.iter().find(|n| **n == host);
                let head = names
                    .iter()
                    .filter(|n| n.starts_with("*.") && host.ends_with(&n[1..]))
                    .max_by_key(|n| n.len());
                let tail = names
                    .iter()
                    .filter(|n| n.ends_with(".*") && host.starts_with(&n[..n.len() - 1]))
                    .max_by_key(|n| n.len());
                let expected = exact.or(head).or(tail);
                assert_eq!(table.lookup_hashed(host.as_bytes()), expected, "{names:?} {host}");
            }
        }
    }
}
