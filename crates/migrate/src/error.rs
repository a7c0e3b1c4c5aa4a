//! The reasons why a configuration can't be examined.

use std::fmt;
use std::io;

use crate::survey::Survey;

/// A bound that a configuration exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`Survey::FILES_MAX`]
    Files,
    /// [`Survey::BYTES_MAX`]
    Bytes,
    /// [`Survey::DIRECTIVES_MAX`]
    Directives,
    /// [`Survey::INCLUSIONS_MAX`]
    Inclusions,
}

/// The reason why there is no survey. The operator has to solve it.
#[derive(Debug)]
pub enum Error {
    /// The main file cannot be read.
    Main(io::Error),
    /// The configuration is too large.
    TooLarge(Limit),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Main(error) => write!(f, "{error}"),
            Error::TooLarge(Limit::Files) => {
                write!(f, "it includes more than {} files", Survey::FILES_MAX)
            }
            Error::TooLarge(Limit::Bytes) => {
                write!(f, "its files have more than {} MB", Survey::BYTES_MAX >> 20)
            }
            Error::TooLarge(Limit::Directives) => {
                write!(f, "it has more than {} directives", Survey::DIRECTIVES_MAX)
            }
            Error::TooLarge(Limit::Inclusions) => {
                write!(f, "its files include others more than {} times", Survey::INCLUSIONS_MAX)
            }
        }
    }
}

impl std::error::Error for Error {}
