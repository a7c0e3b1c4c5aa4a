//! The entries of a large data block (`geo`, `map`), which the parser leaves as text. They are read again
//! one by one.
//!
//! A `geo` block may have a million entries, and a tree of them takes ten times as much memory as their
//! text. The parser has reported all syntax errors, so that this code reports none.

use crate::cx::Cx;
use crate::lexer::{Lexer, Token};
use crate::source::{Entries, EntryRange, Span};
use crate::tree::{Node, Word};

impl Cx<'_> {
    /// Calls `each` with every entry of a data block that may be large (`geo`, `map`). Entries with blocks
    /// are reported and left out.
    pub fn each_entry(&mut self, node: &Node, mut each: impl FnMut(&mut Self, &Node)) {
        for entry in self.entries(node) {
            each(self, entry);
        }
        if let Some(entries) = &node.entries {
            for_each(entries, |entry| each(self, entry));
        }
    }
}

/// Calls `each` with every entry, in a node whose memory is reused.
fn for_each(entries: &Entries, mut each: impl FnMut(&Node)) {
    let mut node = Node {
        name: Word::built_in(""),
        args: Vec::new(),
        block: None,
        span: Span::BUILT_IN,
        close: None,
        entries: None,
    };
    for piece in entries.pieces() {
        read(piece, &mut node, &mut each);
    }
}

fn read(piece: &EntryRange, node: &mut Node, each: &mut impl FnMut(&Node)) {
    let mut lexer = Lexer::at(piece.file, piece.text(), piece.place);
    let (mut named, mut args) = (false, 0);
    // After an error of syntax, which the parser has reported, the rest does not matter.
    while let Ok(token) = lexer.next() {
        match token {
            Token::Word(word) if !named => {
                word.replace(&mut node.name);
                (named, args) = (true, 0);
            }
            Token::Word(word) => {
                match node.args.get_mut(args) {
                    Some(arg) => word.replace(arg),
                    None => node.args.push(word.word()),
                }
                args += 1;
            }
            Token::Semicolon(at) => {
                if named {
                    node.args.truncate(args);
                    node.span = node.name.span.to(at);
                    each(node);
                }
                named = false;
            }
            Token::Open(_) | Token::Close(_) | Token::End(_) => return,
        }
    }
}
