//! The position of a block: its server, and its URIs.

use bytes::Bytes;
use nowait_conf::Cx;
use nowait_front::servers::ServerName;

use crate::location_tree::{Kind, Pattern};

/// The pattern of the location that a scope belongs to.
#[derive(Default)]
pub struct PatternLayer(pub Option<Pattern>);

/// The names of the server that is being resolved.
#[derive(Default)]
pub struct ServerNames(pub Vec<ServerName>);

/// The first name of the server that is being resolved, as it is written; empty if it has none.
#[derive(Default)]
pub struct FirstServerName(pub Bytes);

/// The URIs of a block.
pub enum UriScope {
    /// The URIs with this prefix.
    Prefix(Bytes),
    /// An expression, a variable, a name, `if` or `limit_except`: no known part of the URI.
    Other,
}

/// The URIs of the block being read.
pub fn place(cx: &mut Cx<'_>) -> UriScope {
    match &cx.layer::<PatternLayer>().0 {
        Some(Pattern { kind: Kind::Regex { .. } | Kind::Variable | Kind::Named, .. }) | None => {
            UriScope::Other
        }
        Some(pattern) => UriScope::Prefix(Bytes::copy_from_slice(&pattern.text)),
    }
}
