//! Sites without a configuration file: what the command line asks for, as the text of a configuration.
//!
//! Used by `main`, `config_path` and `config`. Everything here becomes ordinary directives; requests meet no
//! other code than with a configuration.

mod account;
pub mod arguments;
pub mod domain;
mod files;
mod media_types;
mod proxy;
mod reachable;
mod request_lines;
mod serve;
mod site;

use std::path::{Path, PathBuf};

pub use files::{BuiltinFile, WithBuiltIn};
pub use proxy::Proxy;
pub use serve::Serve;
use site::Site;

/// A site without a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// `nowait serve`
    Serve(Serve),
    /// `nowait proxy`
    Proxy(Proxy),
}

impl Builtin {
    /// Where it is, and for whom.
    pub fn site(&self) -> &Site {
        match self {
            Builtin::Serve(serve) => &serve.site,
            Builtin::Proxy(proxy) => &proxy.site,
        }
    }

    /// The configuration, without directives that `globals` (`-g`) sets.
    pub fn configuration(&self, globals: Option<&str>) -> String {
        match self {
            Builtin::Serve(serve) => serve.configuration(globals),
            Builtin::Proxy(proxy) => proxy.configuration(globals),
        }
    }

    /// The directories that have to exist: full paths, for a `prefix`. Others of the configuration are not used.
    pub fn directories(&self, prefix: &Path) -> Vec<PathBuf> {
        let state = self.site().domain.as_ref().map(|domain| domain.state.clone());
        let uploads = match self {
            Builtin::Serve(serve) => serve.uploads.map(|_| prefix.join(serve::UPLOADING)),
            Builtin::Proxy(_) => None,
        };
        state.into_iter().chain(uploads).collect()
    }

    /// The text shown at a terminal. `prefix` is the full path of a served directory.
    pub fn greeting(&self, prefix: &Path) -> String {
        match self {
            Builtin::Serve(serve) => serve.greeting(prefix),
            Builtin::Proxy(proxy) => proxy.greeting(),
        }
    }

    /// Warnings for a terminal.
    pub fn warnings(&self, prefix: &Path) -> Vec<String> {
        match self {
            Builtin::Serve(serve) => serve.warnings(prefix),
            Builtin::Proxy(proxy) => proxy.warnings(),
        }
    }
}
