//! The place of a block: its server, and the URIs that it stands for.

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

/// The URIs that a block stands for.
pub enum Place {
    /// The URIs that begin with this, or are this.
    Prefix(Bytes),
    /// An expression, a name, `if` or `limit_except`: no known part of the URI.
    Other,
}

/// The URIs that the block being read stands for.
pub fn place(cx: &mut Cx<'_>) -> Place {
    match &cx.layer::<PatternLayer>().0 {
        Some(Pattern { kind: Kind::Regex { .. } | Kind::Named, .. }) | None => Place::Other,
        Some(pattern) => Place::Prefix(Bytes::copy_from_slice(&pattern.text)),
    }
}
