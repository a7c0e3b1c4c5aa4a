//! A configuration text as a sequence of pieces: tokens, comments and blocks of Lua code.
//!
//! Called by [`format`](crate::format()), and by [`comments`], which finds remarks in a file.
//! Independent of directives and layout. Returns `None` for texts that
//! [`parse_text`](crate::parse_text) rejects.

use crate::lexer::{Lexer, Token};
use crate::lua;
use crate::source::FileId;

/// Width of a tab when columns are counted.
const TAB_COLUMNS: usize = 8;

/// The kind of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceKind {
    Word,
    Semicolon,
    Open,
    Close,
    /// From `#` to the end of the line, without the spaces before that.
    Comment,
    /// The code between the braces of a `*_by_lua_block`, byte for byte.
    Lua,
}

/// A piece as it is written in the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'t> {
    pub kind: PieceKind,
    pub raw: &'t [u8],
    /// The white space before it.
    pub gap: &'t [u8],
    /// Line ends in `gap`.
    pub newlines: usize,
    /// The line that it starts in, counted from 1.
    pub line: u32,
    /// Bytes before it.
    pub start: usize,
    /// Columns before it in that line.
    pub column: usize,
}

impl PartialEq for Piece<'_> {
    /// Whether the texts are equal, regardless of their places.
    fn eq(&self, other: &Piece<'_>) -> bool {
        (self.kind, self.raw) == (other.kind, other.raw)
    }
}

/// The pieces of a text; `None` if it has a broken word.
pub(crate) fn pieces(text: &[u8]) -> Option<Vec<Piece<'_>>> {
    let mut scan = Scan { text, pieces: Vec::new(), at: 0, line: 1, column: 0 };
    let mut lexer = Lexer::new(FileId::BUILT_IN, text);
    let mut contains_lua = None;
    loop {
        let (kind, span) = match lexer.next().ok()? {
            Token::Word(word) => {
                contains_lua.get_or_insert_with(|| lua::is_block(&word.text()));
                (PieceKind::Word, word.span)
            }
            Token::Semicolon(span) => (PieceKind::Semicolon, span),
            Token::Open(span) => (PieceKind::Open, span),
            Token::Close(span) => (PieceKind::Close, span),
            Token::End(span) => {
                scan.gap_to(span.start as usize);
                return Some(scan.pieces);
            }
        };
        let (start, end) = (span.start as usize, span.end as usize);
        let gap = scan.gap_to(start);
        scan.push(kind, gap, start, end);
        if kind == PieceKind::Word {
            continue;
        }
        if contains_lua.take() == Some(true) && kind == PieceKind::Open {
            lexer.skip_lua();
            let body = lexer.position();
            scan.push(PieceKind::Lua, end, end, body);
        }
    }
}

struct Scan<'t> {
    text: &'t [u8],
    pieces: Vec<Piece<'t>>,
    at: usize,
    line: u32,
    column: usize,
}

impl<'t> Scan<'t> {
    /// Takes the comments between the last piece and the next token at `end`; returns where the
    /// white space before that begins.
    fn gap_to(&mut self, end: usize) -> usize {
        let mut gap = self.at;
        while let Some(length) = self.text[gap..end].iter().position(|&byte| byte == b'#') {
            let start = gap + length;
            let rest = &self.text[start..end];
            let line = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
            let comment = rest[..line].trim_ascii_end();
            self.push(PieceKind::Comment, gap, start, start + comment.len());
            gap = start + line;
        }
        gap
    }

    fn push(&mut self, kind: PieceKind, gap: usize, start: usize, end: usize) {
        self.advance(start);
        let white = &self.text[gap..start];
        self.pieces.push(Piece {
            kind,
            raw: &self.text[start..end],
            gap: white,
            newlines: white.iter().filter(|&&byte| byte == b'\n').count(),
            line: self.line,
            start,
            column: self.column,
        });
        self.advance(end);
    }

    fn advance(&mut self, to: usize) {
        for &byte in &self.text[self.at..to] {
            match byte {
                b'\n' => (self.line, self.column) = (self.line + 1, 0),
                b'\t' => self.column = (self.column / TAB_COLUMNS + 1) * TAB_COLUMNS,
                _ => self.column += columns(&[byte]),
            }
        }
        self.at = to;
    }
}

/// Columns that a text without tabs and line ends takes: its characters.
pub(crate) fn columns(text: &[u8]) -> usize {
    text.iter().filter(|&&byte| byte & 0xc0 != 0x80).count()
}

/// A comment of a configuration text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comment<'t> {
    /// The text after the `#`.
    pub text: &'t [u8],
    /// The start of this text, in bytes.
    pub start: u32,
    /// The line, counted from 1.
    pub line: u32,
    /// Whether the comment is alone in its line.
    pub is_alone: bool,
}

/// The comments of a text in order; none if it has a broken word. A `#` in a quoted string or in Lua code
/// starts no comment.
pub fn comments(text: &[u8]) -> Vec<Comment<'_>> {
    let pieces = pieces(text).unwrap_or_default();
    let alone = |index: usize, piece: &Piece<'_>| index == 0 || piece.newlines > 0;
    let comments = pieces.iter().enumerate().filter(|(_, piece)| piece.kind == PieceKind::Comment);
    comments
        .map(|(index, piece)| Comment {
            text: &piece.raw[1..],
            start: piece.start as u32 + 1,
            line: piece.line,
            is_alone: alone(index, piece),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let pieces = pieces(text.as_bytes()).expect("a good text");
        let show = |piece: &Piece<'_>| {
            let raw = String::from_utf8_lossy(piece.raw);
            format!("{}:{} {:?} {raw}", piece.line, piece.column, piece.kind)
        };
        pieces.iter().map(show).collect()
    }

    #[test]
    fn everything_but_white_space_is_a_piece() {
        assert_eq!(
            shown("a \"b # c\"; # d \r\n\tä#e {#f\n}"),
            [
                "1:0 Word a",
                "1:2 Word \"b # c\"",
                "1:9 Semicolon ;",
                "1:11 Comment # d",
                "2:8 Word ä#e",
                "2:12 Open {",
                "2:13 Comment #f",
                "3:0 Close }"
            ]
        );
    }

    #[test]
    fn lua_is_one_piece() {
        assert_eq!(
            shown("x_by_lua_block { -- }\n # }"),
            ["1:0 Word x_by_lua_block", "1:15 Open {", "1:16 Lua  -- }\n # ", "2:3 Close }"]
        );
    }

    #[test]
    fn comments_know_their_lines() {
        let text = b"# one\na 'x\n# no' # two\n; #three\n";
        let found: Vec<_> = comments(text).iter().map(|c| (c.line, c.is_alone, c.text)).collect();
        let expected =
            [(1, true, &b" one"[..]), (3, false, &b" two"[..]), (4, false, &b"three"[..])];
        assert_eq!(found, expected);
        assert!(comments(b"# a\n\"").is_empty());
    }
}
