//! The parsed configuration: words, directives, blocks. Plain data, no meaning yet.

use std::borrow::Cow;
use std::fmt;

use crate::diagnostic::Diagnostic;
use crate::files::Bundle;
use crate::source::{Entries, Sources, Span};

/// One token after removal of quotes and escapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    pub text: Vec<u8>,
    /// Position in the configuration, quotes included.
    pub span: Span,
    /// Whether it was written in quotes.
    pub quoted: bool,
}

impl Word {
    /// A word that no file contains, for defaults and tests.
    pub fn built_in(text: impl Into<Vec<u8>>) -> Word {
        Word { text: text.into(), span: Span::BUILT_IN, quoted: false }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    /// The text for messages; bytes that are not UTF-8 are replaced.
    pub fn lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.text)
    }

    /// The text, or an error that it is not valid UTF-8.
    pub fn to_str(&self) -> Result<&str, Diagnostic> {
        std::str::from_utf8(&self.text)
            .map_err(|_| self.error(format!("invalid value \"{self}\"")).expected("UTF-8 text"))
    }

    /// The rest of a parameter such as `max=10`: `word.strip_prefix("max=")` is the word `10`.
    pub fn strip_prefix(&self, prefix: &str) -> Option<Word> {
        let rest = self.text.strip_prefix(prefix.as_bytes())?;
        let mut span = self.span;
        let skipped = prefix.len() as u32 + u32::from(self.quoted);
        if span.start + skipped <= span.end {
            span.start += skipped;
        }
        Some(Word { text: rest.to_vec(), span, quoted: self.quoted })
    }

    /// An error that points at this word.
    pub fn error(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::emerg(message).at(self.span)
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lossy())
    }
}

impl PartialEq<str> for Word {
    fn eq(&self, other: &str) -> bool {
        self.text == other.as_bytes()
    }
}

impl PartialEq<&str> for Word {
    fn eq(&self, other: &&str) -> bool {
        self.text == other.as_bytes()
    }
}

/// One directive: `name args...;` or `name args... { block }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: Word,
    pub args: Vec<Word>,
    /// The directives between the braces.
    pub block: Option<Vec<Node>>,
    /// From the name to the `;` or the `{`.
    pub span: Span,
    /// The `}` of the block; `None` without one, or if it is missing.
    pub close: Option<Span>,
    /// The entries of a data block that were left as text; its `block` then has only what should not be
    /// there, blocks.
    pub entries: Option<Box<Entries>>,
}

impl Node {
    /// The directives of the block; empty without one.
    pub fn children(&self) -> &[Node] {
        self.block.as_deref().unwrap_or(&[])
    }

    /// An error that points at the name.
    pub fn error(&self, message: impl Into<String>) -> Diagnostic {
        self.name.error(message)
    }

    /// `"NAME" directive PROBLEM`, as nginx words what a directive's function returns
    /// (`is duplicate`, `invalid value`).
    pub fn directive_error(&self, problem: &str) -> Diagnostic {
        self.error(format!("\"{}\" directive {problem}", self.name))
    }

    /// `invalid number of arguments in "NAME" directive`.
    pub fn arity_error(&self) -> Diagnostic {
        self.error(format!("invalid number of arguments in \"{}\" directive", self.name))
    }

    /// `invalid parameter "WORD"`, pointing at the word.
    pub fn parameter_error(&self, word: &Word) -> Diagnostic {
        word.error(format!("invalid parameter \"{word}\""))
    }

    /// All words of the entry, name first, for data blocks (`types`, `map`).
    pub fn words(&self) -> impl Iterator<Item = &Word> {
        std::iter::once(&self.name).chain(&self.args)
    }
}

/// A whole configuration: `-g` directives first, then the main file, includes expanded.
#[derive(Debug, Default)]
pub struct Tree {
    pub nodes: Vec<Node>,
    /// Every file that was read, once, in the order of the first reading.
    pub files: Bundle,
    pub sources: Sources,
    /// Braces did not match: where blocks end is a guess, so follow-up errors are held back.
    pub unbalanced: bool,
}
