//! What rules ask about the machine that a configuration is for: directories, users, certificates.
//!
//! The caller answers, because this crate opens no files. For a configuration of another machine, or a part of
//! one, nothing is known ([`Unknown`]), and rules that ask find nothing.

/// The state of a directory for the user of the server process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryState {
    /// It can be entered, or it is not known whether it can.
    Usable,
    /// It does not exist, or is no directory.
    Missing,
    /// The user may not enter this directory, which is on the path, or the last one.
    Denied(String),
}

/// The machine that a configuration is for.
pub trait Surroundings {
    /// Whether a user can enter the directory with this absolute path, and list or open what is in it.
    fn directory(&self, path: &str, user: &str) -> DirectoryState;

    /// The end of validity of the first certificate in a file (absolute, or relative to the directory of the main
    /// file), as OpenSSL prints it, if that has passed.
    fn expired(&self, path: &str) -> Option<String>;
}

/// A machine of which nothing is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unknown;

impl Surroundings for Unknown {
    fn directory(&self, _path: &str, _user: &str) -> DirectoryState {
        DirectoryState::Usable
    }

    fn expired(&self, _path: &str) -> Option<String> {
        None
    }
}
