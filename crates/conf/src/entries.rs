//! The entries of a large data block (`geo`, `map`) as text: what the parser leaves of them, and how they are
//! read again, one by one.
//!
//! A `geo` block may have a million entries, and a tree of them takes ten times as much memory as their text.
//! The parser has found all errors of syntax, so that none is reported here.

use std::fmt;
use std::sync::Arc;

use crate::lexer::{Lexer, Place, Token};
use crate::source::{FileId, Source, Span};
use crate::tree::{Node, Word};

/// Pieces of texts, in the order of reading: what stands between `include` directives, and the included
/// files.
#[derive(Clone, Default)]
pub struct Entries(Vec<Piece>);

#[derive(Clone)]
struct Piece {
    file: FileId,
    source: Arc<Source>,
    place: Place,
    /// `None`: it is being read.
    end: Option<u32>,
}

impl Entries {
    pub(crate) fn begin(&mut self, file: FileId, source: &Arc<Source>, place: Place) {
        self.0.push(Piece { file, source: source.clone(), place, end: None });
    }

    pub(crate) fn end(&mut self, end: u32) {
        if let Some(piece) = self.0.last_mut() {
            piece.end.get_or_insert(end);
        }
    }

    /// Calls `each` with every entry. They are in one node, whose memory is used again.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&Node)) {
        let mut node = Node {
            name: Word::built_in(""),
            args: Vec::new(),
            block: None,
            span: Span::BUILT_IN,
            close: None,
            entries: None,
        };
        for piece in &self.0 {
            piece.for_each(&mut node, &mut each);
        }
    }
}

impl Piece {
    fn for_each(&self, node: &mut Node, each: &mut impl FnMut(&Node)) {
        let text = &self.source.text[..];
        let text = &text[..self.end.map_or(text.len(), |end| end as usize)];
        let mut lexer = Lexer::at(self.file, text, self.place);
        let mut named = false;
        // After an error of syntax, which the parser has reported, the rest does not matter.
        while let Ok(token) = lexer.next() {
            match token {
                Token::Word(word) if !named => {
                    node.name = word;
                    node.args.clear();
                    named = true;
                }
                Token::Word(word) => node.args.push(word),
                Token::Semicolon(at) => {
                    if named {
                        node.span = node.name.span.to(at);
                        each(node);
                    }
                    named = false;
                }
                Token::Open(_) | Token::Close(_) | Token::End(_) => return,
            }
        }
    }
}

/// Blocks are compared by what they say.
impl PartialEq for Entries {
    fn eq(&self, other: &Self) -> bool {
        let text = |entries: &Self| {
            let mut all = Vec::new();
            entries.for_each(|node| all.push(node.clone()));
            all
        };
        text(self) == text(other)
    }
}

impl Eq for Entries {}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").field("pieces", &self.0.len()).finish_non_exhaustive()
    }
}
