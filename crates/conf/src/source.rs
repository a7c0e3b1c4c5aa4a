//! The texts that diagnostics point into: names, contents, positions.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::marks::Marks;

/// The text of a [`Sources`] that contains a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub(crate) u32);

impl FileId {
    /// The text given by `-g`.
    pub const COMMAND_LINE: FileId = FileId(u32::MAX);
    /// A text of the program itself: the default of a directive.
    pub const BUILT_IN: FileId = FileId(u32::MAX - 1);
}

/// A range of bytes in a text. `line` counts from 1 and belongs to `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    pub file: FileId,
    pub line: u32,
    pub start: u32,
    pub end: u32,
}

impl Span {
    /// A span in no file, for values that do not come from one.
    pub const BUILT_IN: Span = Span { file: FileId::BUILT_IN, line: 1, start: 0, end: 0 };

    /// From the start of this span to the end of `other` (same file).
    pub fn to(self, other: Span) -> Span {
        Span { end: other.end.max(self.end), ..self }
    }
}

/// One configuration file as it was read.
#[derive(Debug)]
pub(crate) struct Source {
    pub name: PathBuf,
    pub text: Arc<Vec<u8>>,
    /// The directive that included it.
    included_at: Option<Span>,
    marks: OnceLock<Marks>,
}

impl Source {
    fn new(name: PathBuf, text: Arc<Vec<u8>>, included_at: Option<Span>) -> Source {
        Source { name, text, included_at, marks: OnceLock::new() }
    }

    fn marks(&self) -> &Marks {
        self.marks.get_or_init(|| Marks::of(&self.text))
    }
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Bytes before it.
    pub start: u32,
    /// The line, counted from 1.
    pub line: u32,
}

/// The entries of a large data block (`geo`, `map`) as text: ranges in the order of reading, between
/// `include` directives and from the included files. `entries.rs` reads them.
#[derive(Clone, Default)]
pub struct Entries(Vec<EntryRange>);

/// A piece of a text.
#[derive(Clone)]
pub(crate) struct EntryRange {
    pub file: FileId,
    source: Arc<Source>,
    pub place: Place,
    /// `None`: it is being read.
    end: Option<u32>,
}

impl Entries {
    pub(crate) fn begin(&mut self, file: FileId, source: &Arc<Source>, place: Place) {
        self.0.push(EntryRange { file, source: source.clone(), place, end: None });
    }

    pub(crate) fn end(&mut self, end: u32) {
        if let Some(piece) = self.0.last_mut() {
            piece.end.get_or_insert(end);
        }
    }

    pub(crate) fn pieces(&self) -> &[EntryRange] {
        &self.0
    }
}

impl EntryRange {
    /// The text of the file up to the end of the piece.
    pub fn text(&self) -> &[u8] {
        let text = &self.source.text[..];
        &text[..self.end.map_or(text.len(), |end| (end as usize).min(text.len()))]
    }
}

/// Entries are equal if their texts and places are.
impl PartialEq for Entries {
    fn eq(&self, other: &Self) -> bool {
        let same = |(one, two): (&EntryRange, &EntryRange)| {
            (one.file, one.place) == (two.file, two.place) && one.text() == two.text()
        };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same)
    }
}

impl Eq for Entries {}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").field("pieces", &self.0.len()).finish_non_exhaustive()
    }
}

/// All texts read so far, cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<Arc<Source>>,
    command_line: Option<Arc<Source>>,
}

impl Sources {
    pub(crate) fn add(
        &mut self,
        name: PathBuf,
        text: Arc<Vec<u8>>,
        included_at: Option<Span>,
    ) -> (FileId, Arc<Source>) {
        let id = FileId(u32::try_from(self.files.len()).expect("files are bounded by FILES_MAX"));
        let source = Arc::new(Source::new(name, text, included_at));
        self.files.push(Arc::clone(&source));
        (id, source)
    }

    pub(crate) fn set_command_line(&mut self, text: Vec<u8>) -> Arc<Source> {
        let source = Arc::new(Source::new(PathBuf::from("command line"), Arc::new(text), None));
        self.command_line = Some(Arc::clone(&source));
        source
    }

    /// The files with their names and texts; a file counts each time it is included.
    pub fn texts(&self) -> impl Iterator<Item = (FileId, &Path, &[u8])> {
        let files = (0..).map(FileId).zip(&self.files);
        files.map(|(id, source)| (id, &*source.name, source.text.as_slice()))
    }

    fn source(&self, file: FileId) -> Option<&Source> {
        match file {
            FileId::COMMAND_LINE => self.command_line.as_deref(),
            FileId(n) => self.files.get(n as usize).map(|source| &**source),
        }
    }

    /// The name of a file as it was opened; `None` for the command line and built-in texts.
    pub fn name(&self, file: FileId) -> Option<&Path> {
        match file {
            FileId::COMMAND_LINE => None,
            _ => self.source(file).map(|source| &*source.name),
        }
    }

    /// A key that sorts spans in the order of reading: the command line first, and an included
    /// file where its `include` stands.
    pub(crate) fn reading_order(&self, span: Span) -> Vec<(u32, u32)> {
        let mut key = vec![(span.file.0.wrapping_add(1), span.start)];
        let mut at = span;
        while let Some(outer) = self.source(at.file).and_then(|source| source.included_at) {
            key.push((outer.file.0.wrapping_add(1), outer.start));
            at = outer;
        }
        key.reverse();
        key
    }

    /// `FILE:LINE`, or `command line`, or `built-in default`.
    pub fn place(&self, span: Span) -> String {
        match span.file {
            FileId::COMMAND_LINE => "command line".to_owned(),
            _ => match self.name(span.file) {
                Some(name) => format!("{}:{}", name.display(), span.line),
                None => "built-in default".to_owned(),
            },
        }
    }

    /// The column that `span` starts at, in characters, counted from 1.
    pub fn column(&self, span: Span) -> Option<usize> {
        let source = self.source(span.file)?;
        let offset = (span.start as usize).min(source.text.len());
        Some(source.marks().characters(&source.text, offset) + 1)
    }

    /// The line that `span` starts in without its line end, and the byte offset of `span` in it.
    pub fn line(&self, span: Span) -> Option<(&[u8], usize)> {
        let source = self.source(span.file)?;
        let offset = (span.start as usize).min(source.text.len());
        let line = source.marks().line(&source.text, offset);
        let text = &source.text[line.clone()];
        Some((text.strip_suffix(b"\r").unwrap_or(text), offset - line.start))
    }
}
