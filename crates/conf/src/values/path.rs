//! File names, completed by the prefix.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::arity::{self, Arity};
use crate::cx::Cx;
use crate::diagnostic::Diagnostic;
use crate::field::Setting;
use crate::tree::Node;

/// A file name; a relative one starts at the prefix (`-p`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path(Vec<u8>);

/// A file name; a relative one starts at the directory of the main configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConfPath(Vec<u8>);

macro_rules! paths {
    ($($type:ident: $complete:ident),*) => {$(
        impl $type {
            pub fn as_bytes(&self) -> &[u8] {
                &self.0
            }

            pub fn as_path(&self) -> &std::path::Path {
                std::path::Path::new(OsStr::from_bytes(&self.0))
            }
        }

        impl Setting for $type {
            const ARITY: Arity = arity::exactly(1);

            fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
                let word = node.args.first().ok_or_else(|| node.arity_error())?;
                if word.text.contains(&0) {
                    return Err(word.error("file name with a zero byte"));
                }
                Ok($type(cx.paths().$complete(&word.text)))
            }
        }
    )*};
}

paths!(Path: full, ConfPath: conf_full);
