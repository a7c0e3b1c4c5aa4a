//! Text with variables, as most directives take it (nginx: a "complex value").
//!
//! Compiled once when the configuration is read; evaluated per request by appending to a buffer.

use bytes::Bytes;

use super::Index;
use crate::request::Request;

/// Text with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complex {
    parts: Box<[Part]>,
}

/// A piece of a [`Complex`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text as it stands.
    Literal(Bytes),
    /// A variable.
    Variable(Index),
    /// A group of the last regular expression that matched: `$1` to `$9`.
    Capture(u8),
}

impl Complex {
    /// Text of these pieces.
    pub fn new(parts: Vec<Part>) -> Self {
        Self { parts: parts.into() }
    }

    /// From the form of the configuration language.
    pub fn from_compiled(compiled: &nowait_conf::Compiled) -> Self {
        let parts = compiled.parts().iter().map(|part| match part {
            nowait_conf::Part::Literal(text) => Part::Literal(Bytes::copy_from_slice(text)),
            nowait_conf::Part::Variable(index) => Part::Variable(Index(*index)),
            nowait_conf::Part::Capture(n) => Part::Capture(*n),
        });
        Self { parts: parts.collect() }
    }

    /// Text without variables.
    pub fn from_literal(text: impl Into<Bytes>) -> Self {
        Self { parts: Box::new([Part::Literal(text.into())]) }
    }

    /// The text, if it has no variables.
    pub fn literal(&self) -> Option<&Bytes> {
        static EMPTY: Bytes = Bytes::new();
        match &*self.parts {
            [] => Some(&EMPTY),
            [Part::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether it is the empty text.
    pub fn is_empty(&self) -> bool {
        self.literal().is_some_and(Bytes::is_empty)
    }

    /// The pieces.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Appends the value for a request. Variables that are not found add nothing.
    pub fn append(&self, request: &Request, out: &mut Vec<u8>) {
        self.append_with(request, Groups::Plain, out);
    }

    /// As [`append`](Self::append), with captures escaped for a URI where that is asked for.
    ///
    /// nginx differs: it goes through the pieces twice, first for the length. Where a variable
    /// matches an expression meanwhile (`map`), the groups are others the second time, and it
    /// answers with 500 ("no buffer space in script copy"). Here each piece is what it is when its
    /// turn comes.
    pub fn append_with(&self, request: &Request, groups: Groups, out: &mut Vec<u8>) {
        for part in &*self.parts {
            match part {
                Part::Literal(text) => out.extend_from_slice(text),
                Part::Variable(index) => {
                    request.current.conf.variables.append(*index, request, out);
                }
                Part::Capture(n) => {
                    let captures = request.captures.borrow();
                    let group = captures.group(usize::from(*n)).unwrap_or_default();
                    if groups == Groups::Escaped && request.path_was_escaped() {
                        crate::escape::push_uri(out, crate::escape::Set::Args, group);
                    } else {
                        out.extend_from_slice(group);
                    }
                }
            }
        }
    }
}

/// How groups of a regular expression become part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups {
    /// As they are.
    Plain,
    /// Escaped, if the path of the request was.
    Escaped,
}
