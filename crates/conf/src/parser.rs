//! Parses files to a [`Tree`]: directives, blocks, `include`. Reports all syntax errors in one run.
//!
//! Messages are nginx's. The line of an error is that of the word at fault; nginx differs and names
//! the line of the `;` or `{` that ends the directive.
//!
//! Called once per configuration load. Blocks are kept on a stack of its own, so nesting is
//! limited by a number and not by the thread's stack.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::files::{Bundle, Files};
use crate::glob;
use crate::irregular::IrregularFile;
use crate::lexer::{LexError, Lexer, RawWord, Token};
use crate::lua;
use crate::os_error::Errno;
use crate::paths::Paths;
use crate::source::{Entries, FileId, Source, Span};
use crate::substitution;
use crate::tree::{Node, Tree, Word};

/// Maximum depth of `include` within `include`.
pub const INCLUDE_DEPTH_MAX: usize = 64;
/// Maximum depth of blocks, over all files of an include chain.
pub const BLOCK_DEPTH_MAX: usize = 128;
/// Maximum number of files; a file counts each time it is included.
pub const FILES_MAX: usize = 200_000;

/// Blocks of data, which may have millions of entries.
const DATA_BLOCKS: [&str; 2] = ["geo", "map"];

/// Reads `main` and all it includes. `globals` is the text of `-g`; its directives come first.
/// Relative includes start at the directory of `main`, as nginx's do.
pub fn parse(files: &dyn Files, main: &Path, globals: Option<&str>) -> (Tree, Diagnostics) {
    Parser::new(files, main).all(main, globals)
}

/// Like [`parse`], for a configuration that will be used: the entries of large data blocks, `geo` and `map`,
/// are checked and left as text, which takes a tenth of the memory. [`Cx::each_entry`](crate::Cx::each_entry)
/// reads them.
pub fn parse_for_use(files: &dyn Files, main: &Path, globals: Option<&str>) -> (Tree, Diagnostics) {
    let mut parser = Parser::new(files, main);
    parser.leaves_entries = true;
    parser.all(main, globals)
}

/// Reads one text alone, called `name` in messages: `include` stays a directive.
pub fn parse_text(name: &Path, text: &[u8]) -> (Tree, Diagnostics) {
    let nothing = Bundle::default();
    let mut parser = Parser::new(&nothing, name);
    parser.includes_stay = true;
    let mut nodes = Vec::new();
    let text = Arc::new(text.to_vec());
    let (id, source) = parser.tree.sources.add(name.to_owned(), text, None);
    parser.text(id, &source, &mut nodes);
    parser.end(nodes)
}

struct Parser<'a> {
    files: &'a dyn Files,
    conf_prefix: Vec<u8>,
    tree: Tree,
    diagnostics: Diagnostics,
    /// The include directives that led here.
    including: Vec<Span>,
    /// The files that led here.
    reading: Vec<PathBuf>,
    /// The innermost include names a file without any directory.
    is_bare: bool,
    /// `include` is a directive like others.
    includes_stay: bool,
    /// The entries of data blocks stay text.
    leaves_entries: bool,
    /// The data block being read, perhaps in an included file.
    data: Option<Entries>,
    files_read: usize,
    depth: usize,
}

/// A block that waits for its `}`.
struct OpenBlock {
    node: Node,
    outer: Vec<Node>,
    brace: Span,
    indentation: Option<usize>,
    /// The first directive inside that is indented as if it stood outside.
    outdented: Option<Span>,
}

impl Parser<'_> {
    fn new<'a>(files: &'a dyn Files, main: &Path) -> Parser<'a> {
        Parser {
            files,
            conf_prefix: Paths::directory_of(main),
            tree: Tree::default(),
            diagnostics: Diagnostics::default(),
            including: Vec::new(),
            reading: Vec::new(),
            is_bare: false,
            includes_stay: false,
            leaves_entries: false,
            data: None,
            files_read: 0,
            depth: 0,
        }
    }

    fn all(mut self, main: &Path, globals: Option<&str>) -> (Tree, Diagnostics) {
        let mut nodes = Vec::new();
        if let Some(globals) = globals {
            let source = self.tree.sources.set_command_line(globals.as_bytes().to_vec());
            self.text(FileId::COMMAND_LINE, &source, &mut nodes);
        }
        if let Err(error) = self.file(main.as_os_str().as_bytes(), &mut nodes) {
            self.diagnostics.push(error);
        }
        self.end(nodes)
    }

    fn end(self, nodes: Vec<Node>) -> (Tree, Diagnostics) {
        let Parser { mut tree, mut diagnostics, .. } = self;
        tree.nodes = nodes;
        diagnostics.sources = tree.sources.clone();
        diagnostics.unbalanced = tree.unbalanced;
        (tree, diagnostics)
    }

    /// Reads a file and appends its directives. The error is for the caller to place.
    fn file(&mut self, path: &[u8], nodes: &mut Vec<Node>) -> Result<(), Diagnostic> {
        if self.files_read >= FILES_MAX {
            return Err(Diagnostic::emerg(format!("more than {FILES_MAX} configuration files")));
        }
        self.files_read += 1;
        let path = Path::new(OsStr::from_bytes(path));
        // `include` is unconditional: a file that includes itself would never end.
        if self.reading.iter().any(|outer| outer == path) {
            return Err(Diagnostic::emerg(format!("\"{}\" includes itself", path.display())));
        }
        let text = match self.files.shared(path) {
            Ok(text) => text,
            Err(error) => {
                let shown = path.display();
                let message = format!("open() \"{shown}\" failed ({})", Errno(&error));
                match self.fallback(path, &error) {
                    Some(text) => Arc::new(text),
                    None => {
                        let refusal = Diagnostic::emerg(message);
                        return Err(match (IrregularFile::of(&error), error.kind()) {
                            (Some(_), _) => refusal.hint(IrregularFile::HINT),
                            (None, io::ErrorKind::PermissionDenied) => refusal.hint(DENIED),
                            (None, io::ErrorKind::NotFound) if !self.including.is_empty() => {
                                refusal.hint(self.searched())
                            }
                            (None, _) => refusal,
                        });
                    }
                }
            }
        };
        let text = self.tree.files.add_shared(path.to_owned(), text);
        let (id, source) =
            self.tree.sources.add(path.to_owned(), text, self.including.last().copied());
        self.reading.push(path.to_owned());
        self.text(id, &source, nodes);
        self.reading.pop();
        Ok(())
    }

    /// The hint for an included file that does not exist.
    fn searched(&self) -> String {
        let directory = String::from_utf8_lossy(&self.conf_prefix);
        let directory = directory.trim_end_matches('/');
        format!(
            "relative names begin at {directory}/, the directory of the main configuration file"
        )
    }

    /// The built-in text in place of an included file that does not exist.
    fn fallback(&mut self, path: &Path, error: &io::Error) -> Option<Vec<u8>> {
        let include = self.including.last().copied()?;
        let text = self.files.fallback(path).filter(|_| error.kind() == io::ErrorKind::NotFound)?;
        // A name with a directory is expected to exist.
        if !self.is_bare {
            let shown = path.display();
            let message = format!("\"{shown}\" does not exist, the built-in copy is used");
            self.diagnostics.push(Diagnostic::warn(message).at(include));
        }
        Some(text.to_vec())
    }

    /// Parses one text; blocks open and close within it.
    fn text(&mut self, file: FileId, source: &Arc<Source>, nodes: &mut Vec<Node>) {
        let text = &source.text[..];
        if u32::try_from(text.len()).is_err() {
            self.diagnostics.push(Diagnostic::emerg("configuration text is too long"));
            return;
        }
        let mut lexer = Lexer::new(file, text);
        let mut nesting = Nesting::default();
        let mut words: Vec<RawWord<'_>> = Vec::new();
        // Number of open blocks of this text where the entries of a data block are read.
        let mut data = self.data.is_some().then_some(0);
        if let Some(entries) = &mut self.data {
            entries.begin(file, source, lexer.place());
        }
        loop {
            let in_data = data == Some(nesting.open.len());
            match lexer.next() {
                Ok(Token::Word(word)) => {
                    if words.is_empty() {
                        nesting.directive_starts(lexer.indentation(), word.span);
                    }
                    words.push(word);
                }
                Ok(Token::Semicolon(at)) if in_data && !words.is_empty() => {
                    if words[0].is("include") && !self.includes_stay {
                        self.end_piece(words[0].span.start);
                        if let Some(node) = node(&mut words, at) {
                            self.directive(node, nodes);
                        }
                        if let Some(entries) = &mut self.data {
                            entries.begin(file, source, lexer.place());
                        }
                    }
                    words.clear();
                }
                Ok(Token::Semicolon(at)) => match node(&mut words, at) {
                    Some(node) => self.directive(node, nodes),
                    None => self.diagnostics.push(Diagnostic::emerg("unexpected \";\"").at(at)),
                },
                Ok(Token::Open(at)) => {
                    // Otherwise, the text would be read as a directive with a missing ";".
                    if words.first().is_some_and(|name| lua::is_block(&name.text())) {
                        lexer.skip_lua();
                    }
                    let is_data = self.leaves_entries
                        && self.data.is_none()
                        && words.first().is_some_and(|name| DATA_BLOCKS.iter().any(|d| name.is(d)));
                    self.open(&mut words, at, &mut nesting, nodes);
                    if is_data {
                        let mut entries = Entries::default();
                        entries.begin(file, source, lexer.place());
                        self.data = Some(entries);
                        data = Some(nesting.open.len());
                    }
                }
                Ok(Token::Close(at)) => {
                    if !words.is_empty() {
                        self.missing_semicolon(&words, at);
                        if let Some(node) = node(&mut words, at) {
                            self.directive(node, nodes);
                        }
                    }
                    if in_data && let Some(open) = nesting.open.last_mut() {
                        self.end_piece(at.start);
                        open.node.entries = self.data.take().map(Box::new);
                        data = None;
                    }
                    self.close(&lexer, at, &mut nesting, nodes);
                }
                Ok(Token::End(at)) => {
                    if !words.is_empty() {
                        self.unexpected_end(at, &words);
                        if let Some(node) = node(&mut words, at) {
                            self.directive(node, nodes);
                        }
                    }
                    self.unclosed(at, &mut nesting, nodes);
                    self.end_piece(at.start);
                    if data.is_some_and(|level| level > 0) {
                        self.data = None;
                    }
                    return;
                }
                Err(LexError::EndInWord { word, quote: Some(quote), end }) => {
                    self.unclosed_quote(word, quote, end);
                    // The string may have swallowed the braces that would now be reported as
                    // missing.
                    nesting.end_silently(self, nodes);
                    self.data = None;
                    return;
                }
                Err(LexError::EndInWord { word, quote: None, end }) => {
                    words.push(RawWord::empty(word));
                    self.unexpected_end(end, &words);
                    words.clear();
                }
                Err(LexError::AfterQuote { at, byte, word }) => {
                    words.push(word);
                    self.after_quote(at, byte, &words);
                    lexer.rewind(at);
                    recover(&mut lexer, &mut words);
                }
                Err(LexError::TooLong { word, quote, start }) => {
                    self.too_long(word, quote, &start);
                    recover(&mut lexer, &mut words);
                }
            }
        }
    }

    /// The entries of a data block are interrupted here.
    fn end_piece(&mut self, end: u32) {
        if let Some(entries) = &mut self.data {
            entries.end(end);
        }
    }

    fn open(
        &mut self,
        words: &mut Vec<RawWord<'_>>,
        at: Span,
        nesting: &mut Nesting,
        nodes: &mut Vec<Node>,
    ) {
        let Some(node) = node(words, at) else {
            self.diagnostics.push(Diagnostic::emerg("unexpected \"{\"").at(at));
            // Keep the braces balanced: the block is read and dropped.
            let name = Word { text: Vec::new(), span: at, quoted: false };
            let node =
                Node { name, args: Vec::new(), block: None, span: at, close: None, entries: None };
            return self.push_block(node, at, nesting, nodes);
        };
        if at.file == FileId::COMMAND_LINE {
            let message = "block directives are not supported in -g option";
            self.diagnostics.push(Diagnostic::emerg(message).at(at));
        }
        self.push_block(node, at, nesting, nodes);
    }

    fn push_block(
        &mut self,
        node: Node,
        brace: Span,
        nesting: &mut Nesting,
        nodes: &mut Vec<Node>,
    ) {
        self.depth += 1;
        if self.depth == BLOCK_DEPTH_MAX + 1 {
            let message = format!("more than {BLOCK_DEPTH_MAX} blocks within each other");
            self.diagnostics.push(Diagnostic::emerg(message).at(brace));
        }
        let indentation = nesting.indentation;
        let outer = std::mem::take(nodes);
        nesting.open.push(OpenBlock { node, outer, brace, indentation, outdented: None });
    }

    fn pop_block(&mut self, open: OpenBlock, close: Option<Span>, nodes: &mut Vec<Node>) {
        let children = std::mem::replace(nodes, open.outer);
        let mut node = open.node;
        node.close = close;
        if self.depth <= BLOCK_DEPTH_MAX {
            node.block = Some(children);
        } else {
            // Too deep: drop the contents, so that no later walk or drop recurses into them.
            node.block = Some(Vec::new());
        }
        self.depth -= 1;
        if !node.name.text.is_empty() || node.name.quoted {
            if node.name == "include" {
                let message = "directive \"include\" is not terminated by \";\"";
                self.diagnostics.push(node.error(message));
            } else {
                nodes.push(node);
            }
        }
    }

    fn close(&mut self, lexer: &Lexer<'_>, at: Span, nesting: &mut Nesting, nodes: &mut Vec<Node>) {
        if let Some(open) = nesting.open.pop() {
            nesting.block_ends(&open, lexer.indentation(), at);
            return self.pop_block(open, Some(at), nodes);
        }
        self.tree.unbalanced = true;
        let mut error = Diagnostic::emerg("unexpected \"}\"").at(at).label("no block is open here");
        if let Some((name, brace, close)) = nesting.early_close.take() {
            error = error.note(
                close,
                format!("this closes \"{name}\" of line {}; is it one too many?", brace.line),
            );
        }
        self.diagnostics.push(error);
    }

    /// At the end of the text: blocks that are still open.
    fn unclosed(&mut self, at: Span, nesting: &mut Nesting, nodes: &mut Vec<Node>) {
        let Some(innermost) = nesting.open.last() else {
            return;
        };
        self.tree.unbalanced = true;
        let mut error = Diagnostic::emerg("unexpected end of file, expecting \"}\"").at(at);
        match nesting.culprit() {
            Some((name, brace, Some(outdented))) => {
                error = error.note(brace, format!("\"{name}\" is opened here")).note(
                    outdented,
                    "this is indented as if that block had been closed before; is a \"}\" missing above?",
                );
            }
            _ => {
                let name = &innermost.node.name;
                error = error
                    .note(innermost.brace, format!("\"{name}\" is opened here and never closed"));
            }
        }
        self.diagnostics.push(error);
        nesting.end_silently(self, nodes);
    }

    fn missing_semicolon(&mut self, words: &[RawWord<'_>], at: Span) {
        let mut error = Diagnostic::emerg("unexpected \"}\"").at(at);
        if let (Some(first), Some(last)) = (words.first(), words.last()) {
            let end = Span { start: last.span.end.saturating_sub(1), ..last.span };
            error = error.note(end, format!("a \";\" is missing after this to end \"{first}\""));
        }
        self.diagnostics.push(error);
    }

    fn unexpected_end(&mut self, at: Span, words: &[RawWord<'_>]) {
        let mut error = Diagnostic::emerg(unexpected_end_text(at.file)).at(at);
        if let (Some(first), Some(last)) = (words.first(), words.last()) {
            let end = Span { start: last.span.end.saturating_sub(1), ..last.span };
            error = error.note(
                end,
                match words.len() {
                    1 if first.text().is_empty() => "a \";\" is missing after this".to_owned(),
                    _ => format!("a \";\" is missing after this to end \"{first}\""),
                },
            );
        }
        self.diagnostics.push(error);
    }

    fn unclosed_quote(&mut self, word: Span, quote: u8, end: Span) {
        self.tree.unbalanced = true;
        let quote = char::from(quote);
        let first = Span { end: word.start + 1, ..word };
        let error = Diagnostic::emerg(unexpected_end_text(end.file)).at(end);
        let note = format!("this {quote} is never closed by another");
        self.diagnostics.push(error.note(first, note));
    }

    fn after_quote(&mut self, at: Span, byte: u8, words: &[RawWord<'_>]) {
        let mut error = Diagnostic::emerg(format!("unexpected \"{}\"", shown(byte))).at(at);
        error = error.expected("a space, \";\" or \"{\" after the closing quote");
        if let Some(word) = words.last() {
            if word.text().contains(&b'\n') {
                error = error.note(
                    Span { end: word.span.start + 1, ..word.span },
                    "the string that ends there starts here; is its closing quote missing?",
                );
            } else {
                error = error.hint("write \\\" for a quote within a quoted string");
            }
        }
        self.diagnostics.push(error);
    }

    fn too_long(&mut self, word: Span, quote: Option<u8>, start: &[u8]) {
        let message = match quote {
            Some(quote) => format!(
                "too long parameter, probably missing terminating \"{}\" character",
                char::from(quote)
            ),
            None => format!("too long parameter \"{}...\" started", String::from_utf8_lossy(start)),
        };
        self.diagnostics.push(Diagnostic::emerg(message).at(word));
    }

    /// Appends a directive, or what it includes.
    fn directive(&mut self, node: Node, nodes: &mut Vec<Node>) {
        if node.name != "include" || self.includes_stay {
            nodes.push(node);
            return;
        }
        if let Err(error) = self.include(&node, nodes) {
            self.diagnostics.push(error.or_at(node.span));
        }
    }

    fn include(&mut self, node: &Node, nodes: &mut Vec<Node>) -> Result<(), Diagnostic> {
        let [argument] = node.args.as_slice() else {
            return Err(node.arity_error().expected("one file name or pattern"));
        };
        // Such a pattern would match no file.
        substitution::check("include", node)?;
        if self.including.len() >= INCLUDE_DEPTH_MAX {
            let message = format!("more than {INCLUDE_DEPTH_MAX} files include each other");
            return Err(argument.error(message));
        }
        let path = Paths::join(&self.conf_prefix, &argument.text);
        self.including.push(node.span);
        self.is_bare = !argument.text.contains(&b'/');
        let result = self.include_path(&path, argument, nodes);
        self.including.pop();
        result
    }

    fn include_path(
        &mut self,
        path: &[u8],
        argument: &Word,
        nodes: &mut Vec<Node>,
    ) -> Result<(), Diagnostic> {
        if !glob::is_pattern(path) {
            return self.file(path, nodes).map_err(|error| error.or_at(argument.span));
        }
        let found = self.files.glob(path).map_err(|error| {
            let pattern = String::from_utf8_lossy(path);
            argument.error(format!("glob() \"{pattern}\" failed ({})", Errno(&error)))
        })?;
        self.tree.files.add_glob(path, found.clone());
        for path in found {
            self.file(path.as_os_str().as_bytes(), nodes).map_err(|e| e.or_at(argument.span))?;
        }
        Ok(())
    }
}

fn unexpected_end_text(file: FileId) -> &'static str {
    match file {
        FileId::COMMAND_LINE => "unexpected end of parameter, expecting \";\"",
        _ => "unexpected end of file, expecting \";\" or \"}\"",
    }
}

/// A byte for a message.
fn shown(byte: u8) -> char {
    if byte.is_ascii() { char::from(byte) } else { char::REPLACEMENT_CHARACTER }
}

/// The directive that `words` make up; `None` without words.
fn node(words: &mut Vec<RawWord<'_>>, end: Span) -> Option<Node> {
    let (name, args) = words.split_first()?;
    let (name, args) = (name.word(), args.iter().map(RawWord::word).collect());
    words.clear();
    let span = name.span.to(end);
    Some(Node { name, args, block: None, span, close: None, entries: None })
}

/// After a broken word: drops the directive up to its `;` or the end of the line. A block is kept,
/// so that its braces stay balanced.
fn recover(lexer: &mut Lexer<'_>, words: &mut Vec<RawWord<'_>>) {
    if lexer.skip_to_delimiter() != Some(b'{') {
        words.clear();
    }
}

/// Tracks indentation to find the brace that is missing or too many.
#[derive(Default)]
struct Nesting {
    open: Vec<OpenBlock>,
    /// Columns before the directive being read, if it starts its line.
    indentation: Option<usize>,
    /// Closed blocks that held a directive indented as if outside.
    suspects: Vec<(Word, Span, Span)>,
    /// The first block whose `}` was indented differently: name, opening, closing brace.
    early_close: Option<(Word, Span, Span)>,
}

impl Nesting {
    /// Closes all blocks at the end of the text.
    fn end_silently(&mut self, parser: &mut Parser<'_>, nodes: &mut Vec<Node>) {
        while let Some(open) = self.open.pop() {
            parser.pop_block(open, None, nodes);
        }
    }

    fn directive_starts(&mut self, indentation: Option<usize>, at: Span) {
        self.indentation = indentation;
        let Some(open) = self.open.last_mut() else {
            return;
        };
        if let (Some(inner), Some(outer)) = (indentation, open.indentation)
            && inner <= outer
            && at.line > open.brace.line
        {
            open.outdented.get_or_insert(at);
        }
    }

    fn block_ends(&mut self, open: &OpenBlock, indentation: Option<usize>, at: Span) {
        if let Some(outdented) = open.outdented {
            self.suspects.push((open.node.name.clone(), open.brace, outdented));
        }
        if let (Some(close), Some(start)) = (indentation, open.indentation)
            && close != start
            && self.early_close.is_none()
        {
            self.early_close = Some((open.node.name.clone(), open.brace, at));
        }
    }

    /// The block most likely meant to be closed earlier.
    fn culprit(&self) -> Option<(Word, Span, Option<Span>)> {
        let open = self
            .open
            .iter()
            .filter_map(|open| Some((open.node.name.clone(), open.brace, open.outdented?)));
        let closed = self.suspects.iter().cloned();
        open.chain(closed)
            .min_by_key(|(_, brace, outdented)| (outdented.start, u32::MAX - brace.start))
            .map(|(name, brace, outdented)| (name, brace, Some(outdented)))
    }
}

/// The hint for a file that the user may not read.
const DENIED: &str = "run this as root, or as a user who may read the file";
