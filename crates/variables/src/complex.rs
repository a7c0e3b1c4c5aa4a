//! Text with variables, as most directives take it (nginx: a "complex value").
//!
//! Compiled once when the configuration is read; evaluated per request by appending to a buffer.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node};

use crate::{Index, Namespace, Subject, interned};

/// Text with variables of a namespace.
pub struct Complex<N> {
    parts: Box<[Part]>,
    of: PhantomData<fn(N)>,
}

// A derive would require the same of the namespace.
impl<N> Clone for Complex<N> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone(), of: PhantomData }
    }
}

impl<N> fmt::Debug for Complex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.parts).finish()
    }
}

impl<N> PartialEq for Complex<N> {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

impl<N> Eq for Complex<N> {}

/// A piece of a [`Complex`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Literal text.
    Literal(Bytes),
    /// A variable.
    Variable(Index),
    /// A group of the last regular expression that matched: `$1` to `$9`.
    Capture(u8),
}

impl<N> Complex<N> {
    /// Text of these pieces.
    pub fn new(parts: Vec<Part>) -> Self {
        Self { parts: parts.into(), of: PhantomData }
    }

    /// Compiles a parsed text.
    pub fn from_compiled(compiled: nowait_conf::CompiledTemplate) -> Self {
        // A text without variables is often sent as it is, by all workers at once.
        if let [nowait_conf::Part::Literal(text)] = compiled.parts() {
            return Self::from_literal(interned(text));
        }
        let parts = compiled.into_parts().into_iter().map(|part| match part {
            nowait_conf::Part::Literal(text) => Part::Literal(text.into()),
            nowait_conf::Part::Variable(index) => Part::Variable(Index(index)),
            nowait_conf::Part::Capture(n) => Part::Capture(n),
        });
        Self { parts: parts.collect(), of: PhantomData }
    }

    /// Text without variables.
    pub fn from_literal(text: impl Into<Bytes>) -> Self {
        Self { parts: Box::new([Part::Literal(text.into())]), of: PhantomData }
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
}

impl<N: Namespace> Complex<N> {
    /// Appends the value for a subject. Variables that are not found add nothing.
    #[inline]
    pub fn append(&self, subject: &N::Subject, out: &mut Vec<u8>) {
        match &*self.parts {
            // Most texts are one of these.
            [Part::Variable(index)] => {
                subject.variables().append(*index, subject, out);
            }
            [Part::Literal(text)] => out.extend_from_slice(text),
            _ => self.append_with(subject, Groups::Plain, out),
        }
    }

    /// Like [`append`](Self::append), with captures escaped for a URI where required.
    ///
    /// nginx differs: it evaluates the pieces twice, first for the length. If a variable matches an
    /// expression meanwhile (`map`), the groups differ the second time, and nginx responds with 500
    /// ("no buffer space in script copy"). Here each piece is evaluated once, in order.
    pub fn append_with(&self, subject: &N::Subject, groups: Groups, out: &mut Vec<u8>) {
        for part in &*self.parts {
            match part {
                Part::Literal(text) => out.extend_from_slice(text),
                Part::Variable(index) => {
                    subject.variables().append(*index, subject, out);
                }
                Part::Capture(n) => {
                    let captures = subject.captures().borrow();
                    let group = captures.group(usize::from(*n)).unwrap_or_default();
                    match groups {
                        Groups::Escaped => subject.push_group(group, out),
                        Groups::Plain => out.extend_from_slice(group),
                    }
                }
            }
        }
    }
}

impl<N: Namespace> nowait_conf::Setting for Complex<N> {
    const ARITY: nowait_conf::Arity = nowait_conf::arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        crate::text(word, cx)
    }
}

/// The insertion of a regular expression's groups into a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups {
    /// Unchanged.
    Plain,
    /// Escaped by the subject for a URI ([`Subject::push_group`]).
    Escaped,
}
