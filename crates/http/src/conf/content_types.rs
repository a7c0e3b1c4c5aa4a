//! Sets of content types, to which filters restrict themselves: `gzip_types`, `charset_types` and their
//! like. nginx: `ngx_http_types_slot`.

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};

/// A set of content types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentTypes {
    /// `*`
    All,
    /// These types, in lower case. As in nginx, `text/html` is always included.
    These(Box<[Box<[u8]>]>),
}

impl ContentTypes {
    /// Whether the set applies to a response with this type, if it has one: `*` includes responses
    /// without a type. nginx: `ngx_http_test_content_type`.
    pub fn mean(&self, kind: Option<&Bytes>) -> bool {
        *self == Self::All || kind.is_some_and(|kind| self.contains(kind))
    }

    /// Whether a type belongs to the set.
    pub fn contains(&self, kind: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::These(kinds) => kinds.iter().any(|known| known.eq_ignore_ascii_case(kind)),
        }
    }
}

impl Setting for ContentTypes {
    const ARITY: arity::Arity = arity::at_least(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        Ok(Self::with(vec![b"text/html"[..].into()], node, cx))
    }

    /// Several directives on one level accumulate. nginx: `ngx_http_types_slot`.
    fn again(&mut self, node: &Node, cx: &mut Cx<'_>) -> Result<(), Diagnostic> {
        if let Self::These(kinds) = self {
            *self = Self::with(std::mem::take(kinds).into_vec(), node, cx);
        }
        Ok(())
    }
}

impl ContentTypes {
    /// These types and those given by a directive.
    fn with(mut kinds: Vec<Box<[u8]>>, node: &Node, cx: &mut Cx<'_>) -> Self {
        for word in &node.args {
            if word.text[..] == *b"*" {
                return Self::All;
            }
            let kind = word.text.to_ascii_lowercase();
            if kinds.iter().any(|known| **known == kind[..]) {
                if kind != b"text/html" {
                    let text = format!("duplicate MIME type \"{word}\"");
                    cx.report(Diagnostic::warn(text).at(word.span));
                }
                continue;
            }
            kinds.push(kind.into());
        }
        Self::These(kinds.into())
    }
}
