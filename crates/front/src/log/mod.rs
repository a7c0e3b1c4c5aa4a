//! Logs: access lines, error lines, and the thread that writes both.
//!
//! Request code renders a line ([`format`](mod@format), [`error`](mod@error)) and hands it to a [`writer::Sink`], which
//! copies it into a bounded ring and returns. Only the threads of the log writer touch files, pipes
//! and syslog sockets, so a stuck log disk costs lines (which are counted and reported), but never
//! delays a request. Nothing here knows requests or connections: values come from a [`Logged`]
//! subject.

pub mod access;
pub mod debug_connection;
pub mod directives;
pub mod error;
mod error_json;
pub mod error_options;
pub mod error_rate;
pub mod escape;
pub mod format;
mod paths;
mod ring;
pub mod syslog;
mod target;
mod threads;
pub mod time;
pub mod writer;

use nowait_conf::Errno;
use std::fmt;

use nowait_variables::{Namespace, Subject};

/// Severity of a message; order and words as in the `error_log` directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// The server cannot run.
    Emerg = 1,
    /// A bug or a failure that needs the operator's immediate attention.
    Alert,
    /// A part failed.
    Crit,
    /// A request failed.
    Error,
    /// To be investigated.
    Warn,
    /// Worth knowing: start, stop, reload.
    Notice,
    /// About one client.
    Info,
    /// For developers.
    Debug,
}

impl Level {
    /// All levels, from the most severe to the least.
    pub const ALL: [Level; 8] = [
        Level::Emerg,
        Level::Alert,
        Level::Crit,
        Level::Error,
        Level::Warn,
        Level::Notice,
        Level::Info,
        Level::Debug,
    ];

    /// The word in brackets on a line, and in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Level::Emerg => "emerg",
            Level::Alert => "alert",
            Level::Crit => "crit",
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Notice => "notice",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }

    /// The level with this number, from 1.
    pub fn of_number(number: u8) -> Option<Level> {
        Level::ALL.into_iter().find(|level| *level as u8 == number)
    }

    /// The level of a word of the configuration.
    pub fn from_name(name: &[u8]) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name().as_bytes() == name)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A namespace whose variables are used in access logs.
pub trait Formats: Namespace {
    /// The name and the text of the format that exists without being defined, and is used where
    /// none is named.
    const FORMAT: Option<(&'static str, &'static str)>;

    /// Formats of ours that exist unless the configuration defines one with the same name: their names and texts, with
    /// `escape=json`.
    const PRESETS: &'static [(&'static str, &'static str)] = &[];
}

/// A subject about which access log lines are written.
pub trait Logged: Subject {
    /// Appends the document root: a log whose path has variables is written only if this directory exists.
    /// If nothing is appended, there is no such test.
    fn append_root(&self, out: &mut Vec<u8>) {
        let _ = out;
    }
}

/// Receives failures of the logs themselves: the main error log.
pub trait LogReport: Send + Sync {
    /// Writes a message that belongs to no request. Must not block.
    fn report(&self, level: Level, message: fmt::Arguments<'_>);
}

/// An operating system error as nginx shows it: ` (2: No such file or directory)`.
#[derive(Debug)]
pub struct OsError<'a>(pub &'a std::io::Error);

impl fmt::Display for OsError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " ({})", Errno(self.0))
    }
}
