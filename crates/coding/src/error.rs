//! Errors, and the party at fault.

use std::fmt;

/// The reason why there is no output. The text is for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A library failed, usually for lack of memory: always our fault.
    Failed(String),
    /// The compressed text is malformed: the fault of its source.
    Malformed(String),
    /// The output is no longer needed, so the compression was stopped.
    Unwanted,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(message) | Self::Malformed(message) => f.write_str(message),
            Self::Unwanted => f.write_str("the compressed text is no longer wanted"),
        }
    }
}

impl std::error::Error for Error {}
