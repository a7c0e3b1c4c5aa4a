//! The logs of a generation: which lines go where.

use std::fmt;

use crate::request::Request;

/// How bad a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// A bug or a failure that needs the operator at once.
    Alert,
    /// A part failed.
    Crit,
    /// A request failed.
    Error,
    /// Something to look at.
    Warn,
    /// About one client.
    Info,
}

/// The logs of a generation.
#[derive(Default)]
pub struct Logs;

impl Logs {
    /// Writes a line about a request.
    pub fn request_error(&self, _request: &Request, _level: Level, _message: fmt::Arguments<'_>) {}

    /// Writes a line about no request.
    pub fn error(&self, _level: Level, _message: fmt::Arguments<'_>) {}
}

/// Writes the access log lines of a request.
pub fn access(_request: &Request) {}
