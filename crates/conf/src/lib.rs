//! The configuration language of nginx: syntax, directive tables, values, diagnostics.
//!
//! The crate knows no HTTP and never waits for anything but the configuration files themselves.
//! Three steps, each usable alone:
//!
//! 1. [`parse`] turns files into a [`Tree`] of [`Node`]s, expanding `include`.
//! 2. [`Cx::run`] walks the tree by a [`Registry`] of [`Row`]s: one row per directive, written with
//!    [`directives!`] (typed fields with inheritance) or [`rows!`] (hand-written functions).
//! 3. Blocks leave [`Scope`]s behind; `SomeConf::resolve(cx, &[&http, &server, &location])` merges
//!    them into plain structs without unset values.
//!
//! Errors of all three steps are collected in [`Diagnostics`]: all of them, not just the first.
#![forbid(unsafe_code)]

pub mod arity;
mod context;
mod cx;
mod diagnostic;
pub mod docs;
mod entries;
mod field;
mod files;
mod format;
mod glob;
mod irregular;
mod lexer;
mod lua;
mod marks;
mod missing;
mod nearest;
mod os_error;
mod parser;
mod paths;
mod pieces;
mod recovery;
mod regex;
mod registry;
mod source;
mod substitution;
mod tables;
mod template;
mod tree;
mod values;

pub use arity::Arity;
pub use context::Context;
pub use cx::{Cx, Scope};
pub use diagnostic::{Diagnostic, Diagnostics, Level};
pub use field::{Field, LocalSetting, Setting, Value, ValueError};
pub use files::{Bundle, Contents, Disk, Files, NAMED_BYTES_MAX};
pub use format::format;
pub use irregular::IrregularFile;
pub use lua::is_block as is_lua_block;
pub use missing::{Absence, Catalogue, MissingDirective};
pub use nearest::nearest;
pub use os_error::Errno;
pub use parser::{parse, parse_for_use, parse_text};
pub use paths::Paths;
pub use pieces::{Comment, comments};
pub use regex::{Captures, HEAP_LIMIT_KIB, MATCH_LIMIT, MatchError, Regex, RegexError};
pub use registry::{Inheritance, Registry, Row};
pub use source::{FileId, Sources, Span};
pub use template::{CompiledTemplate, Part, Template, VariableNames};
pub use tree::{Node, Tree, Word};
pub use values::{
    BoundedNumber, Buffers, ConfPath, Msec, Offset, Path, Present, Seconds, Size, Words, number,
};

#[doc(hidden)]
pub use tables::private as __private;
