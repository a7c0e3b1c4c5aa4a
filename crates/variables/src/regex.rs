//! Regular expressions of locations and server names: matching sets the captures of the subject.

use std::cell::RefMut;

use nowait_conf::{Cx, Diagnostic, Regex as Compiled, RegexError, Word};
use rustc_hash::FxHashMap;

use crate::{DuplicateVariable, Namespace, Slot, Subject, Table};

/// Captures of a regular expression: `$1` to `$9` and more.
#[derive(Default, Debug, Clone)]
pub struct Captures {
    /// The text that the expression was matched against.
    pub subject: Vec<u8>,
    /// Start and end of each group; group 0 is the whole match.
    pub groups: nowait_conf::Captures,
}

impl Captures {
    /// Forgets all groups.
    pub fn clear(&mut self) {
        self.subject.clear();
        self.groups.clear();
    }

    /// The text of a group.
    pub fn group(&self, n: usize) -> Option<&[u8]> {
        self.groups.text(n, &self.subject)
    }
}

/// The expressions of the configuration so far: of thousands of servers, most have the same few.
#[derive(Default)]
struct Expressions {
    exact: FxHashMap<Vec<u8>, Compiled>,
    caseless: FxHashMap<Vec<u8>, Compiled>,
}

impl Expressions {
    /// The compiled expression, which all who write it share.
    fn compile(cx: &mut Cx<'_>, pattern: &[u8], caseless: bool) -> Result<Compiled, RegexError> {
        let all = cx.global::<Self>();
        let known = if caseless { &mut all.caseless } else { &mut all.exact };
        if let Some(compiled) = known.get(pattern) {
            return Ok(compiled.clone());
        }
        let compiled = Compiled::new(pattern, caseless)?;
        known.insert(pattern.to_vec(), compiled.clone());
        Ok(compiled)
    }
}

/// A compiled expression and the variables that its named groups set.
#[derive(Debug, Clone)]
pub struct Regex {
    compiled: Compiled,
    named: Box<[(usize, Slot)]>,
}

impl Regex {
    /// Combines an expression with the variables of its named groups.
    pub fn new(compiled: Compiled, named: Vec<(usize, Slot)>) -> Self {
        Self { compiled, named: named.into() }
    }

    /// Compiles an expression of the configuration, and defines the variables of its named groups.
    ///
    /// # Errors
    /// An invalid expression, or a group named like a built-in variable.
    pub fn compile<N: Namespace>(
        cx: &mut Cx<'_>,
        word: &Word,
        pattern: &[u8],
        caseless: bool,
    ) -> Result<Regex, Diagnostic> {
        let compiled = Expressions::compile(cx, pattern, caseless)
            .map_err(|error| error.in_word(word, pattern))?;
        let table = cx.global::<Table<N>>();
        let named = compiled.names().map(|(name, group)| Ok((group, table.define_capture(name)?)));
        match named.collect::<Result<_, DuplicateVariable>>() {
            Ok(named) => Ok(Regex::new(compiled, named)),
            Err(error) => Err(word.error(error.to_string())),
        }
    }

    /// Whether a text matches. Nothing is captured.
    ///
    /// # Errors
    /// The match exceeded its effort limit.
    pub fn is_match(&self, text: &[u8]) -> Result<bool, String> {
        self.compiled.is_match(text).map_err(|error| error.to_string())
    }

    /// Compiles it for matching, which the first match does otherwise: for lists of which each text is matched
    /// against many.
    pub fn prepare(&self) {
        self.compiled.prepare();
    }

    /// The expression as it was written.
    pub fn pattern(&self) -> &[u8] {
        self.compiled.pattern()
    }

    /// Matches a text; on success the captures of the subject and named variables are set.
    ///
    /// # Errors
    /// The match exceeded its effort limit.
    pub fn search_in<S: Subject>(&self, of: &S, text: &[u8]) -> Result<bool, String> {
        let mut captures: RefMut<'_, Captures> = of.captures().borrow_mut();
        let Captures { subject, groups } = &mut *captures;
        let found = self.compiled.captures_into(text, groups).map_err(|error| error.to_string())?;
        if !found {
            return Ok(false);
        }
        subject.clear();
        subject.extend_from_slice(text);
        for (group, slot) in &*self.named {
            // A group that did not participate in the match is an empty text, as in nginx.
            let value = captures.group(*group).unwrap_or_default();
            of.set_slot(*slot, Some(bytes::Bytes::copy_from_slice(value)));
        }
        Ok(true)
    }
}
