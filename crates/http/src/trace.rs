//! The steps of a request, recorded for `nowait explain`.
//!
//! Handlers append to it when they explain a request; served requests have none.

use nowait_conf::Span;
use nowait_runtime::fs::FileKind;

/// The subject of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceSubject {
    /// The choice of a location.
    Location,
    /// A directive of the rewrite module.
    Rewrite,
    /// Access rules.
    Access,
    /// The look-up of a file.
    File,
    /// The handler of the response.
    Handler,
    /// A limit of the request.
    Limit,
    /// A cache.
    Cache,
    /// The request to an upstream server.
    Upstream,
    /// A subrequest; its steps are one level deeper.
    Subrequest,
    /// A change of the response.
    Filter,
    /// An internal redirect.
    Redirect,
}

impl TraceSubject {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            TraceSubject::Location => "location",
            TraceSubject::Rewrite => "rewrite",
            TraceSubject::Access => "access",
            TraceSubject::File => "file",
            TraceSubject::Handler => "handler",
            TraceSubject::Limit => "limit",
            TraceSubject::Cache => "cache",
            TraceSubject::Upstream => "upstream",
            TraceSubject::Subrequest => "subrequest",
            TraceSubject::Filter => "filter",
            TraceSubject::Redirect => "redirect",
        }
    }
}

/// A text in quotes; one that is not readable, such as `$binary_remote_addr`, with escapes.
pub fn quoted(text: &[u8]) -> String {
    match std::str::from_utf8(text) {
        Ok(text) if !text.contains(char::is_control) => format!("\"{text}\""),
        _ => format!("\"{}\"", text.escape_ascii()),
    }
}

/// One step of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceStep {
    /// The subject.
    pub about: TraceSubject,
    /// The directive behind it.
    pub span: Option<Span>,
    /// Without a span: names of directives, separated by blanks, of which the one that applies in the
    /// location is behind it.
    pub by: &'static str,
    /// The innermost block whose settings apply: a location, or a block in it. `None`: no location was
    /// chosen yet.
    pub block: Option<Span>,
    /// The number of subrequests around it.
    pub depth: u8,
    /// The event. It may contain data from the client.
    pub text: String,
    /// For [`TraceSubject::Location`]: the path that was looked up.
    pub path: Option<Vec<u8>>,
}

/// The steps of a request.
#[derive(Debug, Default)]
pub struct Trace {
    /// In order.
    pub steps: Vec<TraceStep>,
    /// The blocks whose settings apply: the location, then an `if` in it.
    pub blocks: Vec<Span>,
    /// The value of [`TraceStep::by`] for the following steps. Each handler begins with none.
    pub by: &'static str,
    /// Conditions of the result that cannot be known in advance.
    pub conditions: Vec<String>,
}

impl Trace {
    /// Adds a step.
    pub fn add(&mut self, about: TraceSubject, span: Option<Span>, text: impl Into<String>) {
        let (text, by, block) = (text.into(), self.by, self.blocks.last().copied());
        self.steps.push(TraceStep { about, span, by, block, depth: 0, text, path: None });
    }

    /// Adds the steps of a subrequest.
    pub(crate) fn subrequest(&mut self, of: Trace) {
        let deeper = |step: TraceStep| TraceStep { depth: step.depth.saturating_add(1), ..step };
        self.steps.extend(of.steps.into_iter().map(deeper));
    }

    /// Records the look-up of a file.
    pub fn file(&mut self, path: &[u8], found: bool) {
        let found = if found { "exists" } else { "does not exist" };
        self.add(
            TraceSubject::File,
            None,
            format!("\"{}\" {found}", String::from_utf8_lossy(path)),
        );
    }

    /// Records the look-up of a directory or of a file, with its result.
    pub fn file_of_kind(&mut self, path: &[u8], directory: bool, found: Option<FileKind>) {
        let other = match (directory, found) {
            (true, Some(kind)) if kind != FileKind::Directory => "is a file, not a directory",
            (false, Some(FileKind::Directory)) => "is a directory, not a file",
            (_, found) => return self.file(path, found.is_some()),
        };
        self.add(
            TraceSubject::File,
            None,
            format!("\"{}\" {other}", String::from_utf8_lossy(path)),
        );
    }

    /// The settings of this location apply, for this path.
    pub(crate) fn location(&mut self, span: Span, path: &[u8], text: impl Into<String>) {
        let path = Some(path.to_vec());
        self.steps.push(TraceStep {
            about: TraceSubject::Location,
            span: Some(span),
            by: "",
            block: Some(span),
            depth: 0,
            text: text.into(),
            path,
        });
        self.blocks = vec![span];
    }

    /// The settings of a block in it apply.
    pub fn inside(&mut self, span: Span) {
        self.blocks.truncate(1);
        self.blocks.push(span);
    }
}
