//! Plain texts.

use std::ops::Deref;

use crate::arity::{self, Arity};
use crate::cx::Cx;
use crate::diagnostic::Diagnostic;
use crate::field::{Setting, Value, ValueError};
use crate::tree::{Node, Word};

/// A text that is UTF-8.
impl Value for String {
    fn from_word(text: &[u8]) -> Result<String, ValueError> {
        let text = std::str::from_utf8(text);
        text.map(str::to_owned).map_err(|_| ValueError::value().expected("UTF-8 text"))
    }
}

/// All arguments of a directive, one at least.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words(pub Vec<Word>);

impl Deref for Words {
    type Target = [Word];

    fn deref(&self) -> &[Word] {
        &self.0
    }
}

impl Setting for Words {
    const ARITY: Arity = arity::at_least(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Words, Diagnostic> {
        Ok(Words(node.args.clone()))
    }
}

/// One argument, unchanged.
impl Setting for Word {
    const ARITY: Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Word, Diagnostic> {
        node.args.first().cloned().ok_or_else(|| node.arity_error())
    }
}

/// A directive without arguments, whose presence alone matters (`internal;`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Present;

impl Setting for Present {
    const ARITY: Arity = arity::none();

    fn parse(_node: &Node, _cx: &mut Cx<'_>) -> Result<Present, Diagnostic> {
        Ok(Present)
    }
}
