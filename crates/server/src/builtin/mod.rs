//! Sites without a configuration file: what the command line asks for, as the text of a configuration.
//!
//! Used by `main`, `config_path` and `config`. Everything here becomes ordinary directives; requests meet no
//! other code than with a configuration.

mod account;
pub mod arguments;
pub mod domain;
mod files;
mod media_types;
mod reachable;
mod request_lines;
mod serve;
mod site;

pub use files::{BuiltinFile, WithBuiltIn};
pub use serve::Serve;
