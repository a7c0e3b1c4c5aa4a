//! The layout of configuration texts, as written by `nowait fmt`.
//!
//! One directive per line, four spaces for each block, one space between words, at most one blank
//! line. Line breaks within a directive, the spelling of words, and comments are kept, as are the
//! contents of blocks with data (`map`, `types`) or Lua code. Formatting is idempotent.
//!
//! Sans-IO. It never changes what a text means: the result is read back and compared piece by piece.

use std::path::Path;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::parser::parse_text;
use crate::pieces::{Piece, PieceKind, columns, pieces};

/// Columns of one level.
const INDENT: usize = 4;

/// Comments of consecutive lines are not aligned with one behind more columns: one long line would
/// multiply the size of the text.
const ALIGNED_COLUMNS_MAX: usize = 200;

/// Blocks whose entries are data and are often written as a table.
const DATA: &[&[u8]] =
    &[b"charset_map", b"geo", b"geoip2", b"map", b"num_map", b"split_clients", b"types"];

/// Formats the text of one file; `name` is for messages. An `include` is a directive like others.
///
/// # Errors
/// The syntax errors.
pub fn format(name: &Path, text: &[u8]) -> Result<Vec<u8>, Diagnostics> {
    let (_, mut diagnostics) = parse_text(name, text);
    if !diagnostics.is_empty() {
        return Err(diagnostics);
    }
    if let Some(before) = pieces(text) {
        let formatted = Layout::default().of(&before);
        if pieces(&formatted).as_ref() == Some(&before) {
            return Ok(formatted);
        }
    }
    let message = format!("\"{}\" would not be the same when formatted", name.display());
    let hint = "this is a defect of the program; please report it with the file";
    diagnostics.push(Diagnostic::emerg(message).hint(hint));
    Err(diagnostics)
}

/// A line of the result, or several if a word or Lua code contains line ends.
#[derive(Default)]
struct Line<'t> {
    is_apart: bool,
    indent: usize,
    code: Vec<u8>,
    /// The column at which text is appended.
    width: usize,
    /// A comment at the end, and the column where it was.
    comment: Option<(usize, &'t [u8])>,
}

impl Line<'_> {
    fn append(&mut self, code: &[u8]) {
        self.width = match code.iter().rposition(|&byte| byte == b'\n') {
            Some(end) => columns(&code[end + 1..]),
            None => self.width + columns(code),
        };
        self.code.extend_from_slice(code);
    }
}

/// Whether a comment behind so many columns is aligned with others.
fn is_aligned(width: usize) -> bool {
    width <= ALIGNED_COLUMNS_MAX
}

#[derive(Default)]
struct Layout<'t> {
    lines: Vec<Line<'t>>,
    depth: usize,
    /// The depth of the block of data around this place.
    data: Option<usize>,
    /// The state of the directive being written.
    directive: Option<Directive>,
    /// The column of the first entry in a line of data, if it began the line.
    anchor: Option<usize>,
    last: Option<PieceKind>,
}

struct Directive {
    is_data: bool,
    /// The words of its first line: where they were, and where they are now.
    columns: Vec<(usize, usize)>,
    is_first_line: bool,
}

impl<'t> Layout<'t> {
    fn of(mut self, pieces: &[Piece<'t>]) -> Vec<u8> {
        for piece in pieces {
            if piece.kind == PieceKind::Close {
                self.depth = self.depth.saturating_sub(1);
            }
            match self.data {
                Some(_) => self.data_piece(piece),
                None => self.piece(piece),
            }
            self.account(piece);
        }
        render(&self.lines)
    }

    /// Brings the state up to date after a piece was written.
    fn account(&mut self, piece: &Piece<'t>) {
        match piece.kind {
            PieceKind::Word if self.directive.is_none() => {
                let is_data = DATA.contains(&piece.raw);
                let columns = Vec::new();
                self.directive = Some(Directive { is_data, columns, is_first_line: true });
                self.note_column(piece);
            }
            PieceKind::Word => self.note_column(piece),
            PieceKind::Semicolon => self.directive = None,
            PieceKind::Open => {
                let directive = self.directive.take();
                if directive.is_some_and(|directive| directive.is_data) {
                    self.data.get_or_insert(self.depth);
                }
                self.depth += 1;
            }
            PieceKind::Close if self.data == Some(self.depth) => self.data = None,
            PieceKind::Close | PieceKind::Comment | PieceKind::Lua => {}
        }
        if matches!(piece.kind, PieceKind::Open | PieceKind::Close) {
            self.anchor = None;
        }
        self.last = Some(piece.kind);
    }

    fn note_column(&mut self, piece: &Piece<'t>) {
        let Some(line) = self.lines.last() else { return };
        let now = line.width.saturating_sub(columns(piece.raw));
        let Some(directive) = &mut self.directive else { return };
        directive.is_first_line &= !piece.raw.contains(&b'\n');
        if directive.is_first_line {
            directive.columns.push((piece.column, now));
        }
    }

    fn piece(&mut self, piece: &Piece<'t>) {
        match piece.kind {
            PieceKind::Word if self.directive.is_none() => self.begin(piece, self.depth * INDENT),
            PieceKind::Word if piece.newlines > 0 => self.continue_directive(piece),
            PieceKind::Word if piece.gap.is_empty() => self.append(b"", piece),
            PieceKind::Word => self.append(b" ", piece),
            PieceKind::Semicolon if self.last == Some(PieceKind::Comment) => {
                self.continue_directive(piece)
            }
            PieceKind::Open if self.last == Some(PieceKind::Comment) => {
                self.begin(piece, self.depth * INDENT);
            }
            PieceKind::Open => self.append(b" ", piece),
            PieceKind::Close if !matches!(self.last, Some(PieceKind::Open | PieceKind::Lua)) => {
                self.begin(piece, self.depth * INDENT);
            }
            PieceKind::Semicolon | PieceKind::Close | PieceKind::Lua => self.append(b"", piece),
            PieceKind::Comment => self.comment(piece),
        }
    }

    fn comment(&mut self, piece: &Piece<'t>) {
        let comment = Some((piece.column, piece.raw));
        match self.lines.last_mut() {
            Some(line) if piece.newlines == 0 => line.comment = comment,
            // The continuation of a comment at the end of the line before.
            Some(&mut Line { comment: Some((column, _)), width, .. })
                if piece.newlines == 1 && column == piece.column && is_aligned(width) =>
            {
                self.lines.push(Line { comment, ..Line::default() });
            }
            _ if self.directive.is_some() => self.continue_directive(piece),
            _ => self.begin(piece, self.depth * INDENT),
        }
    }

    /// Writes a piece of a directive into a line of its own: where it was, if that is below a word
    /// of the first line.
    fn continue_directive(&mut self, piece: &Piece<'t>) {
        let mut indent = (self.depth + 1) * INDENT;
        if let Some(directive) = &mut self.directive {
            directive.is_first_line = false;
            let same = directive.columns.binary_search_by_key(&piece.column, |(before, _)| *before);
            indent = same.map_or(indent, |at| directive.columns[at].1);
        }
        self.begin(piece, indent);
    }

    /// Data keeps its line breaks and the space between its words; lines move as far as the block.
    fn data_piece(&mut self, piece: &Piece<'t>) {
        if piece.kind == PieceKind::Close && self.last == Some(PieceKind::Open) {
            return self.append(b"", piece);
        }
        if piece.newlines == 0 {
            return self.append(piece.gap, piece);
        }
        let mut indent = self.depth * INDENT;
        if self.directive.is_none() {
            self.anchor = Some(piece.column);
        } else {
            indent += match piece.column.saturating_sub(self.anchor.unwrap_or(piece.column)) {
                0 => INDENT,
                more => more,
            };
        }
        self.begin(piece, indent);
    }

    fn begin(&mut self, piece: &Piece<'t>, indent: usize) {
        let is_outermost = self.lines.is_empty() || self.last == Some(PieceKind::Open);
        let is_apart = piece.newlines > 1 && !is_outermost && piece.kind != PieceKind::Close;
        let mut line = Line { is_apart, indent, width: indent, ..Line::default() };
        line.append(piece.raw);
        self.lines.push(line);
    }

    fn append(&mut self, gap: &[u8], piece: &Piece<'t>) {
        if self.lines.is_empty() {
            self.lines.push(Line::default());
        }
        if let Some(line) = self.lines.last_mut() {
            line.append(gap);
            line.append(piece.raw);
        }
    }
}

/// Comments at the ends of consecutive lines that were below each other are so again.
fn render(lines: &[Line<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let column = |line: &Line<'_>| line.comment.map(|(column, _)| column);
    let runs = lines.chunk_by(|one, two| {
        column(one) == column(two) && !two.is_apart && is_aligned(one.width.max(two.width))
    });
    for run in runs {
        let comments = run.iter().map(|line| line.width + 1).max().unwrap_or_default();
        for line in run {
            if line.is_apart {
                out.push(b'\n');
            }
            let is_empty = line.code.is_empty();
            spaces(&mut out, if is_empty { 0 } else { line.indent });
            out.extend_from_slice(&line.code);
            if let Some((_, comment)) = line.comment {
                spaces(&mut out, comments - line.width);
                out.extend_from_slice(comment);
            }
            out.push(b'\n');
        }
    }
    out
}

fn spaces(out: &mut Vec<u8>, count: usize) {
    out.resize(out.len() + count, b' ');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(text: &str) -> String {
        let out = format(Path::new("a.conf"), text.as_bytes());
        let out = out.unwrap_or_else(|errors| panic!("{text}: {}", errors.render(false)));
        String::from_utf8(out).unwrap()
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(formatted(text), expected, "{text}");
        assert_eq!(formatted(expected), expected, "again");
    }

    #[test]
    fn directives_get_lines_and_blocks_indentation() {
        check("", "");
        check(" \n\n", "");
        check("a;b  'c  d'\te ;", "a;\nb 'c  d' e;\n");
        check(
            "http{server{listen 80;\nroot /srv;}}",
            "http {\n    server {\n        listen 80;\n        root /srv;\n    }\n}\n",
        );
        check("events\n{\n}\na { }", "events {}\na {}\n");
        check("if ($a = \"b\") { return 404; }", "if ($a = \"b\") {\n    return 404;\n}\n");
    }

    #[test]
    fn blank_lines_group() {
        check("\n\na;\n\n\n\nb;\nc {\n\n d;\n\n}\n\n\n", "a;\n\nb;\nc {\n    d;\n}\n");
        check("a;\r\n\r\nb;\r\n", "a;\n\nb;\n");
    }

    #[test]
    fn comments_stay_where_they_belong() {
        check(
            "# top \n\n#  two\na {#x\n# in\n}# end\n",
            "# top\n\n#  two\na { #x\n    # in\n} # end\n",
        );
        check("a # b\n c; d\n# e\n;", "a # b\n    c;\nd\n    # e\n    ;\n");
        check("a # b\n{ c; }", "a # b\n{\n    c;\n}\n");
        check("#", "#\n");
    }

    #[test]
    fn comments_below_each_other_remain_so() {
        check(
            "a;        # one\n  bb  c;  # two\n          # three\nd; # four\n",
            "a;    # one\nbb c; # two\n      # three\nd; # four\n",
        );
        check("a;   # one\n\nbb; # two\n", "a; # one\n\nbb; # two\n");
        check("a {  # x\n  # y\n}\n", "a { # x\n    # y\n}\n");
    }

    #[test]
    fn one_long_line_pads_no_other() {
        let long = "x".repeat(ALIGNED_COLUMNS_MAX);
        check(
            &format!("{long}\n{{ # one\n  # two\n  # three\na;# four\nbb;# five\n}}"),
            &format!(
                "{long} {{ # one\n    # two\n    # three\n    a; # four\n    bb; # five\n}}\n"
            ),
        );
        check(&format!("{long};\n b; # a\nccc;# a\n"), &format!("{long};\nb;   # a\nccc; # a\n"));
    }

    /// A megabyte of words in one line, and a line for each of as many.
    #[test]
    fn long_lines_take_no_longer_than_short_ones() {
        const WORDS: usize = 300_000;
        let out = formatted(&format!("a{};", " b".repeat(WORDS)));
        assert_eq!(out.len(), 2 * WORDS + 3);
        let lines = "\n b".repeat(WORDS);
        let out = formatted(&format!("a{}{lines};", " b".repeat(WORDS)));
        assert_eq!(out.lines().count(), WORDS + 1);
    }

    #[test]
    fn long_directives_keep_their_lines() {
        check(
            "http {\nlog_format a 'b'\n             'c';\nlog_format d  'e'\n  'f'\n\n  'g' ;\n}",
            "http {\n    log_format a 'b'\n                 'c';\n    log_format d 'e'\n        'f'\n\n        'g';\n}\n",
        );
        check("a 'x\n  y' z\n  w;", "a 'x\n  y' z\n    w;\n");
    }

    #[test]
    fn data_keeps_its_columns() {
        check(
            "http {\n  map $a  $b {\n  default   0;\n\n\n  # c\n  ~^x\t\t1; # d\n    /y\n      2;\n  }\n  }",
            "http {\n    map $a $b {\n        default   0;\n\n        # c\n        ~^x\t\t1; # d\n        /y\n          2;\n    }\n}\n",
        );
        check("types { a  b; c d; }\nx;", "types { a  b; c d; }\nx;\n");
        check("types\n{\n}", "types {}\n");
        check("geo $a {\n  b\n  c; }", "geo $a {\n    b\n        c; }\n");
    }

    #[test]
    fn lua_is_left_alone() {
        let code = "\n  if x then -- }\n\ty = \"{\" \n  end\n";
        check(
            &format!("a {{\nb_by_lua_block   {{{code}}}\nc;\n}}"),
            &format!("a {{\n    b_by_lua_block {{{code}}}\n    c;\n}}\n"),
        );
        check("a_by_lua_block { }", "a_by_lua_block { }\n");
    }

    #[test]
    fn broken_texts_are_refused() {
        for text in ["a", "a {", "}", "a \"b", "a 'b'c;", "{ }", ";"] {
            let errors = format(Path::new("x.conf"), text.as_bytes()).unwrap_err();
            assert!(errors.render(false).contains("x.conf:1"), "{text}");
        }
    }

    #[test]
    fn includes_are_not_read() {
        check("include  a;", "include a;\n");
    }
}
