//! nginx's tokens: words, quotes, escapes, comments.
//!
//! Knows no directives. Follows the rules of nginx's `ngx_conf_read_token`, oddities included:
//! quotes count only at the start of a word, `#` only where a word could start, `${` does not open
//! a block, and a backslash takes any special meaning from the next byte.

use std::borrow::Cow;
use std::fmt;

use crate::lua;
use crate::source::{FileId, Place, Span};
use crate::tree::Word;

/// A word as written in the text, copied only by [`word`](RawWord::word).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawWord<'t> {
    /// Without quotes, with escapes.
    raw: &'t [u8],
    pub span: Span,
    pub quoted: bool,
    escapes: bool,
}

impl RawWord<'_> {
    /// A word that has no text.
    pub fn empty(span: Span) -> Self {
        RawWord { raw: b"", span, quoted: false, escapes: false }
    }

    pub fn text(&self) -> Cow<'_, [u8]> {
        match self.escapes {
            true => unescape(self.raw).into(),
            false => self.raw.into(),
        }
    }

    pub fn is(&self, text: &str) -> bool {
        *self.text() == *text.as_bytes()
    }

    pub fn word(&self) -> Word {
        Word { text: self.text().into_owned(), span: self.span, quoted: self.quoted }
    }

    /// Stores the word in an existing one, and reuses its memory.
    pub fn replace(&self, word: &mut Word) {
        word.text.clear();
        word.text.extend_from_slice(&self.text());
        (word.span, word.quoted) = (self.span, self.quoted);
    }
}

impl fmt::Display for RawWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text()))
    }
}

/// The next token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Token<'t> {
    Word(RawWord<'t>),
    Semicolon(Span),
    Open(Span),
    Close(Span),
    End(Span),
}

/// The reason why a word could not be read. The lexer has moved past the problem.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LexError<'t> {
    /// A character other than space, `;`, `{` or `)` after a closing quote.
    AfterQuote { at: Span, byte: u8, word: RawWord<'t> },
    /// The text ended within a word; a quote that was never closed is named.
    EndInWord { word: Span, quote: Option<u8>, end: Span },
    /// A word longer than [`WORD_BYTES_MAX`].
    TooLong { word: Span, quote: Option<u8>, start: Vec<u8> },
}

/// Maximum length of a word. nginx reads words through a buffer of this size.
pub(crate) const WORD_BYTES_MAX: usize = 4096;

pub(crate) struct Lexer<'t> {
    text: &'t [u8],
    pos: usize,
    line: u32,
    file: FileId,
    word_bytes_max: usize,
    /// Columns before the token being read; `None` if others stand before it in its line.
    indentation: Option<usize>,
}

/// Width of a tab when the indentation of lines is compared.
const TAB_COLUMNS: usize = 8;

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Whether a byte is an ordinary character within a word.
static ORDINARY: [bool; 256] = {
    let mut ordinary = [true; 256];
    let mut byte = 0;
    while byte < ordinary.len() {
        let special = matches!(byte as u8, b';' | b'{' | b'\\' | b'$');
        ordinary[byte] = !special && !is_space(byte as u8);
        byte += 1;
    }
    ordinary
};

impl<'t> Lexer<'t> {
    pub fn new(file: FileId, text: &'t [u8]) -> Lexer<'t> {
        // The command line is read as a whole and is not limited by nginx's buffer.
        let word_bytes_max = if file == FileId::COMMAND_LINE { usize::MAX } else { WORD_BYTES_MAX };
        Lexer { text, pos: 0, line: 1, file, word_bytes_max, indentation: None }
    }

    /// Continues at a place of the text.
    pub fn at(file: FileId, text: &'t [u8], place: Place) -> Lexer<'t> {
        let Place { start, line } = place;
        Lexer { pos: start as usize, line, ..Lexer::new(file, text) }
    }

    /// The position at which the next token is searched.
    pub fn place(&self) -> Place {
        Place { start: self.pos as u32, line: self.line }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.pos).copied()
    }

    fn bump(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.pos += 1;
        if byte == b'\n' {
            self.line += 1;
        }
        Some(byte)
    }

    fn span(&self, start: usize, line: u32) -> Span {
        Span { file: self.file, line, start: start as u32, end: self.pos as u32 }
    }

    /// The next token; after [`Token::End`] always that.
    pub fn next(&mut self) -> Result<Token<'t>, LexError<'t>> {
        self.skip_space_and_comments();
        let (start, line) = (self.pos, self.line);
        let Some(byte) = self.bump() else {
            return Ok(Token::End(self.span(start, line)));
        };
        match byte {
            b';' => Ok(Token::Semicolon(self.span(start, line))),
            b'{' => Ok(Token::Open(self.span(start, line))),
            b'}' => Ok(Token::Close(self.span(start, line))),
            b'"' | b'\'' => self.quoted(start, line, byte),
            _ => {
                self.pos = start;
                self.line = line;
                self.bare(start, line)
            }
        }
    }

    fn skip_space_and_comments(&mut self) {
        let mut indentation = (self.pos == 0).then_some(0);
        while let Some(byte) = self.peek() {
            match byte {
                b'#' => {
                    let rest = &self.text[self.pos..];
                    self.pos += memchr::memchr(b'\n', rest).unwrap_or(rest.len());
                    continue;
                }
                b'\n' => {
                    self.line += 1;
                    indentation = Some(0);
                }
                b'\t' => indentation = indentation.map(|columns| columns + TAB_COLUMNS),
                _ if is_space(byte) => indentation = indentation.map(|columns| columns + 1),
                _ => break,
            }
            self.pos += 1;
        }
        self.indentation = indentation;
    }

    fn bare(&mut self, start: usize, line: u32) -> Result<Token<'t>, LexError<'t>> {
        let (mut variable, mut escapes) = (false, false);
        loop {
            let rest = &self.text[self.pos..];
            let run = rest.iter().take_while(|byte| ORDINARY[usize::from(**byte)]).count();
            if run > 0 {
                if self.pos + run - start >= self.word_bytes_max {
                    self.pos = (start + self.word_bytes_max).max(self.pos + 1);
                    return Err(self.too_long(start, line, None));
                }
                self.pos += run;
                variable = false;
            }
            let Some(byte) = self.peek() else {
                let end = self.span(self.pos, self.line);
                return Err(LexError::EndInWord { word: self.span(start, line), quote: None, end });
            };
            if byte == b'{' && variable {
                self.pos += 1;
                continue;
            }
            variable = byte == b'$';
            // A "}" ends no word. At the start of a word, it was handled before.
            if byte != b'$' && byte != b'\\' {
                let raw = &self.text[start..self.pos];
                let span = self.span(start, line);
                return Ok(Token::Word(RawWord { raw, span, quoted: false, escapes }));
            }
            self.bump();
            if byte == b'\\' {
                escapes = true;
                self.bump();
            }
            if self.pos - start >= self.word_bytes_max {
                return Err(self.too_long(start, line, None));
            }
        }
    }

    fn quoted(&mut self, start: usize, line: u32, quote: u8) -> Result<Token<'t>, LexError<'t>> {
        let mut escapes = false;
        loop {
            let Some(byte) = self.bump() else {
                let word = self.span(start, line);
                let end = self.span(self.pos, self.line);
                return Err(LexError::EndInWord { word, quote: Some(quote), end });
            };
            if byte == b'\\' {
                escapes = true;
                self.bump();
            } else if byte == quote {
                break;
            }
            if self.pos - start > self.word_bytes_max {
                return Err(self.too_long(start, line, Some(quote)));
            }
        }
        let raw = &self.text[start + 1..self.pos - 1];
        let word = RawWord { raw, span: self.span(start, line), quoted: true, escapes };
        match self.peek() {
            // A ")" may follow at once, for `if ($x = "y")`; it starts the next word.
            Some(byte) if !is_space(byte) && !matches!(byte, b';' | b'{' | b')') => {
                let (at, line) = (self.pos, self.line);
                self.bump();
                Err(LexError::AfterQuote { at: self.span(at, line), byte, word })
            }
            _ => Ok(Token::Word(word)),
        }
    }

    /// Gives up on a word and skips the rest of the line that it starts in.
    fn too_long(&mut self, start: usize, line: u32, quote: Option<u8>) -> LexError<'t> {
        let text_start = start + usize::from(quote.is_some());
        let end = self.text.len().min(text_start + 10);
        let error = LexError::TooLong {
            word: Span { file: self.file, line, start: start as u32, end: start as u32 + 1 },
            quote,
            start: self.text[text_start..end].to_vec(),
        };
        // A quote is taken for an ordinary byte of its line, which the caller skips.
        if quote.is_some() {
            self.pos = start + 1;
            self.line = line;
        } else {
            while self.peek().is_some_and(|b| !is_space(b) && b != b';' && b != b'{') {
                self.pos += 1;
            }
        }
        error
    }

    /// Moves behind the next `;` or line end, or before the next brace, and returns which it was.
    pub fn skip_to_delimiter(&mut self) -> Option<u8> {
        while let Some(byte) = self.peek() {
            if matches!(byte, b'{' | b'}') {
                return Some(byte);
            }
            self.bump();
            if matches!(byte, b';' | b'\n') {
                return Some(byte);
            }
        }
        None
    }

    /// Moves back to `span`'s start, for words that turn out to belong elsewhere.
    pub fn rewind(&mut self, span: Span) {
        self.pos = span.start as usize;
        self.line = span.line;
    }

    /// Moves before the `}` that closes a block of Lua code, or to the end without one.
    pub fn skip_lua(&mut self) {
        let rest = &self.text[self.pos..];
        let body = &rest[..lua::body_len(rest)];
        self.pos += body.len();
        self.line += body.iter().filter(|&&byte| byte == b'\n').count() as u32;
    }

    /// Bytes before the place that is read next.
    pub fn position(&self) -> usize {
        self.pos
    }

    /// Columns before the last token, if it is the first of its line.
    pub fn indentation(&self) -> Option<usize> {
        self.indentation
    }
}

/// nginx's escapes: `\"`, `\'`, `\\` lose the backslash, `\t`, `\r`, `\n` become control bytes, any
/// other backslash stays.
fn unescape(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        let (byte, length) = match (raw[at], raw.get(at + 1)) {
            (b'\\', Some(&next @ (b'"' | b'\'' | b'\\'))) => (next, 2),
            (b'\\', Some(b't')) => (b'\t', 2),
            (b'\\', Some(b'r')) => (b'\r', 2),
            (b'\\', Some(b'n')) => (b'\n', 2),
            (byte, _) => (byte, 1),
        };
        out.push(byte);
        at += length;
    }
    out
}
