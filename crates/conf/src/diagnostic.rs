//! Errors and warnings of a configuration: message, place, expected form, hint.

use crate::missing::{MissingDirective, MissingUses};
use crate::registry::Row;
use std::fmt::Write as _;

use crate::source::{Sources, Span};

/// Severity, with nginx's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The configuration is worth a second look. Found by the linter only.
    Notice,
    /// The configuration works, but probably not as intended.
    Warn,
    /// The configuration works, and is dangerous or useless. Found by the linter only.
    Error,
    /// The configuration is refused.
    Emerg,
}

impl Level {
    /// All levels, the most severe first.
    const ALL: [Level; 4] = [Level::Emerg, Level::Error, Level::Warn, Level::Notice];

    pub fn name(self) -> &'static str {
        match self {
            Level::Notice => "notice",
            Level::Warn => "warn",
            Level::Error => "error",
            Level::Emerg => "emerg",
        }
    }

    /// The name for findings of the level.
    fn noun(self) -> &'static str {
        match self {
            Level::Notice => "notice",
            Level::Warn => "warning",
            Level::Error | Level::Emerg => "error",
        }
    }
}

/// The number of findings of each level.
#[derive(Clone, Copy, Debug, Default)]
struct Counts([u32; Level::ALL.len()]);

impl Counts {
    fn of(&self, level: Level) -> usize {
        self.0[level as usize] as usize
    }

    fn add(&mut self, level: Level) {
        self.0[level as usize] = self.0[level as usize].saturating_add(1);
    }
}

/// One finding. Built where the problem is detected and refined on the way up:
/// `word.error("invalid value").expected("a size like 8k").hint("did you mean \"16k\"?")`.
#[derive(Clone, Debug)]
pub struct Diagnostic(Box<Details>);

#[derive(Clone, Debug)]
struct Details {
    level: Level,
    message: String,
    span: Option<Span>,
    label: Option<String>,
    expected: Option<String>,
    hints: Vec<String>,
    notes: Vec<(Span, String)>,
    /// The kind of mistake, for findings of the linter.
    kind: Option<&'static str>,
    /// Possibly only a consequence of unbalanced braces.
    follows_from_nesting: bool,
    /// Module and name of a directive that nowait does not have.
    missing: Option<(MissingDirective, String)>,
    /// Other places with the same finding.
    repeats: Vec<Span>,
    /// Further such places, beyond [`Diagnostic::REPEATS_MAX`].
    more_repeats: usize,
}

/// The beginning of messages about syntax.
const SYNTAX: &str = "unexpected ";

impl Diagnostic {
    /// Maximum number of recorded places of a recurring finding; more are only counted.
    pub const REPEATS_MAX: usize = 20;

    pub fn new(level: Level, message: impl Into<String>) -> Diagnostic {
        Diagnostic(Box::new(Details {
            level,
            message: message.into(),
            span: None,
            label: None,
            expected: None,
            hints: Vec::new(),
            notes: Vec::new(),
            kind: None,
            follows_from_nesting: false,
            missing: None,
            repeats: Vec::new(),
            more_repeats: 0,
        }))
    }

    /// An error: the configuration is refused.
    pub fn emerg(message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(Level::Emerg, message)
    }

    /// A warning: the configuration is accepted.
    pub fn warn(message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(Level::Warn, message)
    }

    /// Points at `span`.
    pub fn at(mut self, span: Span) -> Diagnostic {
        self.0.span = Some(span);
        self
    }

    /// Points at `span` unless it already points somewhere.
    pub fn or_at(mut self, span: Span) -> Diagnostic {
        self.0.span.get_or_insert(span);
        self
    }

    /// A remark next to the carets.
    pub fn label(mut self, label: impl Into<String>) -> Diagnostic {
        self.0.label = Some(label.into());
        self
    }

    /// The expected form: `a size such as 8k`.
    pub fn expected(mut self, expected: impl Into<String>) -> Diagnostic {
        self.0.expected = Some(expected.into());
        self
    }

    /// A hint for the operator.
    pub fn hint(mut self, hint: impl Into<String>) -> Diagnostic {
        self.0.hints.push(hint.into());
        self
    }

    /// A second place that belongs to the problem.
    pub fn note(mut self, span: Span, note: impl Into<String>) -> Diagnostic {
        self.0.notes.push((span, note.into()));
        self
    }

    /// Names the kind of mistake.
    pub fn kind(mut self, kind: &'static str) -> Diagnostic {
        self.0.kind = Some(kind);
        self
    }

    /// Shows the syntax of the directive, unless an expected form is already given.
    pub(crate) fn or_syntax(self, row: &Row) -> Diagnostic {
        let details = &self.0;
        let advised = details.expected.is_some() || details.label.is_some();
        if advised || !details.hints.is_empty() || !details.notes.is_empty() {
            return self;
        }
        self.hint(row.syntax())
    }

    /// Adds a hint, unless there is one already.
    pub(crate) fn or_hint(self, hint: Option<&'static str>) -> Diagnostic {
        match hint {
            Some(hint) if self.0.hints.is_empty() => self.hint(hint),
            _ => self,
        }
    }

    pub(crate) fn follows_from_nesting(mut self) -> Diagnostic {
        self.0.follows_from_nesting = true;
        self
    }

    /// The finding is a missing directive; the summary will name it.
    pub(crate) fn missing(
        mut self,
        missing: MissingDirective,
        name: impl Into<String>,
    ) -> Diagnostic {
        self.0.missing = Some((missing, name.into()));
        self
    }

    /// Whether two findings differ only in their places. A finding with notes is never merged.
    fn repeats(&self, other: &Diagnostic) -> bool {
        let (one, two) = (&self.0, &other.0);
        one.span.is_some()
            && two.span.is_some()
            && !one.message.starts_with(SYNTAX)
            && one.notes.is_empty()
            && two.notes.is_empty()
            && one.level == two.level
            && one.message == two.message
            && one.label == two.label
            && one.expected == two.expected
            && one.hints == two.hints
    }

    /// Adds the place of an identical finding. The first one in the text stays the main one.
    fn absorb(&mut self, other: Diagnostic) {
        let Some(span) = other.0.span else { return };
        if self.0.repeats.len() < Self::REPEATS_MAX {
            self.0.repeats.push(span);
        } else {
            self.0.more_repeats += 1;
        }
    }

    pub fn level(&self) -> Level {
        self.0.level
    }

    /// The message in nginx's words, without the place.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn span(&self) -> Option<Span> {
        self.0.span
    }

    pub fn expectation(&self) -> Option<&str> {
        self.0.expected.as_deref()
    }

    pub fn hints(&self) -> &[String] {
        &self.0.hints
    }

    /// The kind of mistake, if the linter found it.
    pub fn kind_name(&self) -> Option<&'static str> {
        self.0.kind
    }

    /// Every recorded place, the main one first.
    pub fn places(&self) -> impl Iterator<Item = Span> {
        self.0.span.into_iter().chain(self.0.repeats.iter().copied())
    }

    /// Further places that were only counted.
    pub fn more_places(&self) -> usize {
        self.0.more_repeats
    }

    /// Other places that belong to the problem, with remarks.
    pub fn notes(&self) -> &[(Span, String)] {
        &self.0.notes
    }
}

/// All findings of one configuration, with the texts they point into.
#[derive(Debug, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    /// Whether there is no limit.
    keeps_all: bool,
    /// The counts of `list`.
    kept: Counts,
    /// Findings beyond [`Diagnostics::MAX`].
    dropped: Counts,
    missing: MissingUses,
    pub(crate) sources: Sources,
    pub(crate) unbalanced: bool,
}

impl Diagnostics {
    /// No findings yet, about these texts. All that are added are kept: the caller limits them.
    pub fn new(sources: Sources) -> Diagnostics {
        Diagnostics { sources, keeps_all: true, ..Diagnostics::default() }
    }

    /// Maximum number of findings of each level kept while a configuration is read; more are only counted,
    /// so that the output for a binary file stays readable. Warnings take no room from errors.
    pub const MAX: usize = 100;

    pub fn push(&mut self, diagnostic: Diagnostic) {
        if self.unbalanced && diagnostic.0.follows_from_nesting {
            return;
        }
        if let Some((missing, name)) = &diagnostic.0.missing {
            self.missing.note(*missing, name);
        }
        let level = diagnostic.level();
        if self.keeps_all || self.kept.of(level) < Self::MAX {
            self.kept.add(level);
            self.list.push(diagnostic);
        } else {
            self.dropped.add(level);
        }
    }

    /// Like [`push`](Self::push), but a finding that recurs, such as a directive that is not available,
    /// is kept once with all its places. Syntax errors stay apart: each place looks different.
    pub(crate) fn merge(&mut self, diagnostic: Diagnostic) {
        match self.list.iter_mut().find(|known| known.repeats(&diagnostic)) {
            Some(known) => known.absorb(diagnostic),
            None => self.push(diagnostic),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Number of findings beyond [`Diagnostics::MAX`].
    pub fn dropped(&self) -> usize {
        self.dropped.0.iter().map(|count| *count as usize).sum()
    }

    /// A line for each level with findings beyond [`Diagnostics::MAX`], the most severe first: `7 more
    /// warnings not shown`.
    pub fn omissions(&self) -> impl Iterator<Item = (Level, String)> {
        Level::ALL.into_iter().filter_map(|level| {
            let (count, noun) = (self.dropped.of(level), level.noun());
            let plural = if count == 1 { "" } else { "s" };
            (count > 0).then(|| (level, format!("{count} more {noun}{plural} not shown")))
        })
    }

    /// The texts that the findings point into.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Whether the configuration has to be refused.
    pub fn has_errors(&self) -> bool {
        self.kept.of(Level::Emerg) > 0
    }

    /// The findings in the order in which the configuration is read; those without a place last.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        let mut sorted: Vec<&Diagnostic> = self.list.iter().collect();
        sorted.sort_by_cached_key(|diagnostic| {
            let key = diagnostic.span().map(|span| self.sources.reading_order(span));
            (key.is_none(), key)
        });
        sorted.into_iter()
    }

    /// `MESSAGE in FILE:LINE`: the text that goes to the error log. The linter's findings name the
    /// column, too.
    pub fn classic(&self, diagnostic: &Diagnostic) -> String {
        let column = |span| self.sources.column(span).unwrap_or(1);
        let text = match diagnostic.span() {
            Some(span) if diagnostic.0.kind.is_some() => {
                let place = self.sources.place(span);
                format!("{} in {place}:{}", diagnostic.message(), column(span))
            }
            Some(span) => format!("{} in {}", diagnostic.message(), self.sources.place(span)),
            None => diagnostic.message().to_owned(),
        };
        one_line(&text)
    }

    /// Renders all findings for a terminal, in the order of [`Diagnostics::iter`]; each begins
    /// with the classic `nowait: [emerg] MESSAGE in FILE:LINE`. A summary of the directives that
    /// only nginx has follows, with advice.
    pub fn render(&self, color: bool) -> String {
        let mut out = String::new();
        for diagnostic in self.iter() {
            self.render_one(&mut out, diagnostic, color);
        }
        for (level, text) in self.omissions() {
            let paint = Paint { color };
            let _ = writeln!(out, "nowait: {} {}", paint.level(level), paint.bold(&text));
        }
        out.push_str(&self.missing.summary());
        out
    }

    fn render_one(&self, out: &mut String, diagnostic: &Diagnostic, color: bool) {
        let paint = Paint { color };
        let _ = writeln!(
            out,
            "nowait: {} {}",
            paint.level(diagnostic.level()),
            paint.bold(&self.classic(diagnostic))
        );
        let details = &diagnostic.0;
        let width = details.span.iter().chain(details.notes.iter().map(|(span, _)| span));
        let width = width.map(|span| span.line.to_string().len()).max().unwrap_or(1);
        if let Some(span) = details.span {
            let expected = details.expected.as_ref().map(|expected| format!("expected {expected}"));
            self.render_line(
                out,
                span,
                details.label.clone().or(expected).as_deref(),
                width,
                paint,
            );
        }
        for (span, note) in &details.notes {
            if details.span.is_some_and(|main| main.file != span.file) {
                let _ = writeln!(
                    out,
                    "{:width$} {} {}",
                    "",
                    paint.frame("-->"),
                    self.sources.place(*span)
                );
            }
            self.render_line(out, *span, Some(note), width, paint);
        }
        for hint in &details.hints {
            let _ = writeln!(
                out,
                "{:width$} {} {hint}",
                "",
                paint.frame("= hint:"),
                hint = one_line(hint)
            );
        }
        if let Some(kind) = details.kind {
            let _ = writeln!(out, "{:width$} {} {kind}", "", paint.frame("= kind:"));
        }
        if !details.repeats.is_empty() {
            let places = self.repeats(details);
            let _ = writeln!(out, "{:width$} {} {places}", "", paint.frame("= also"));
        }
    }

    /// `in FILE:3, 4, 9, in OTHER:1 and in 7 more places`.
    fn repeats(&self, details: &Details) -> String {
        let mut spans = details.repeats.clone();
        spans.sort_by_cached_key(|span| self.sources.reading_order(*span));
        let mut out = String::new();
        let mut file = None;
        let mut last = 0;
        for span in spans {
            if file != Some(span.file) {
                let separator = if out.is_empty() { "" } else { ", " };
                let _ = write!(out, "{separator}in {}", self.sources.place(span));
            } else if last != span.line {
                let _ = write!(out, ", {}", span.line);
            }
            (file, last) = (Some(span.file), span.line);
        }
        if details.more_repeats > 0 {
            let _ = write!(out, " and in {} more places", details.more_repeats);
        }
        one_line(&out)
    }

    fn render_line(
        &self,
        out: &mut String,
        span: Span,
        label: Option<&str>,
        width: usize,
        paint: Paint,
    ) {
        let Some((line, offset)) = self.sources.line(span) else {
            return;
        };
        let length = (span.end.saturating_sub(span.start) as usize)
            .clamp(1, line.len().saturating_sub(offset).max(1));
        let shown = Excerpt::new(line, offset, length);
        let bar = paint.frame("|");
        let number = paint.frame(&format!("{:>width$}", span.line));
        let _ = writeln!(out, "{}", format!("{number} {bar} {}", shown.text).trim_end());
        let carets = paint.caret(&"^".repeat(shown.carets));
        let label = label.map(|l| format!(" {}", one_line(l))).unwrap_or_default();
        let _ = writeln!(
            out,
            "{:width$} {bar} {:indent$}{carets}{label}",
            "",
            "",
            indent = shown.indent
        );
    }
}

/// A source line made printable: tabs widened, control bytes replaced, long lines cut around the marked
/// part, so that the terminal shows the text and obeys none of it.
struct Excerpt {
    text: String,
    indent: usize,
    carets: usize,
}

impl Excerpt {
    /// Characters of a source line shown at most.
    const WIDTH_MAX: usize = 160;
    /// Characters kept before the marked part of a line that has to be cut.
    const LEAD: usize = 60;
    /// Bytes of each part that may be shown: characters have at most four.
    const BYTES_MAX: usize = 4 * (Self::WIDTH_MAX + 1);

    fn new(line: &[u8], offset: usize, length: usize) -> Excerpt {
        let offset = offset.min(line.len());
        let end = (offset + length).min(line.len());
        // In a line of megabytes, only the part that can be shown is examined.
        let start = offset.saturating_sub(Self::BYTES_MAX);
        let mut before = printable(&line[start..offset]);
        let mut marked = printable(&line[offset..end.min(offset + Self::BYTES_MAX)]);
        let after = printable(&line[end..line.len().min(end + Self::BYTES_MAX)]);
        if before.chars().count() + marked.chars().count() + after.chars().count() > Self::WIDTH_MAX
        {
            let skip = before.chars().count().saturating_sub(Self::LEAD);
            if skip > 0 {
                before = format!("...{}", before.chars().skip(skip).collect::<String>());
            }
            marked = marked.chars().take(Self::WIDTH_MAX / 2).collect();
        }
        let indent = before.chars().count();
        let carets = marked.chars().count().max(1);
        let room = Self::WIDTH_MAX.saturating_sub(indent + carets);
        let mut text = before;
        text.push_str(&marked);
        let total = after.chars().count();
        text.extend(after.chars().take(room));
        if total > room {
            text.push_str("...");
        }
        Excerpt { text: text.trim_end().to_owned(), indent, carets }
    }
}

/// Replaces control characters, which neither a log line nor a terminal should receive.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn printable(bytes: &[u8]) -> String {
    let mut out = String::new();
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '\t' => out.push_str("    "),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[derive(Clone, Copy)]
struct Paint {
    color: bool,
}

impl Paint {
    fn wrap(self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn level(self, level: Level) -> String {
        let code = match level {
            Level::Notice => "1;36",
            Level::Warn => "1;33",
            Level::Error | Level::Emerg => "1;31",
        };
        self.wrap(code, &format!("[{}]", level.name()))
    }

    fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    fn frame(self, text: &str) -> String {
        self.wrap("1;34", text)
    }

    fn caret(self, text: &str) -> String {
        self.wrap("1;31", text)
    }
}
