//! The decision of a phase or handler about a request.

use bytes::Bytes;

use crate::response::{Header, Response};

/// A decision that ends the phases, at least for this round.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "made and taken once per request; a box would cost more"
)]
pub enum Outcome {
    /// The finished response.
    Response(Response),
    /// Respond with this status: with its `error_page` if there is one, otherwise with a built-in
    /// page.
    Special(Special),
    /// Start again with another URI or at a named location.
    Redirect(Target),
    /// Close the connection without a response (`return 444`).
    Close,
}

/// A status without content of its own. nginx: a handler's return code.
#[derive(Debug, Clone, Default)]
pub struct Special {
    /// Status code; 494 to 499 are nginx's own codes for kinds of 400.
    pub status: u16,
    /// `Location`, for redirects.
    pub location: Option<Bytes>,
    /// Other headers, such as `WWW-Authenticate`.
    pub headers: Vec<Header>,
}

/// Target of an internal redirect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Another URI, with its query string.
    Uri {
        /// Path; begins with a slash.
        path: Vec<u8>,
        /// Query string.
        args: Option<Vec<u8>>,
    },
    /// A named location; the URI stays.
    Named(Vec<u8>),
}

impl Outcome {
    /// A status and nothing else.
    pub fn status(status: u16) -> Self {
        Self::Special(Special { status, ..Special::default() })
    }

    /// An external redirect.
    pub fn moved(status: u16, location: impl Into<Bytes>) -> Self {
        Self::Special(Special { status, location: Some(location.into()), headers: Vec::new() })
    }

    /// An internal redirect to `path?args`, or to `@name`.
    pub fn redirect(target: &[u8]) -> Self {
        Self::Redirect(Target::parse(target))
    }

    /// The decision in words.
    pub fn describe(&self) -> String {
        let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        match self {
            Self::Response(response) => format!("responds with {}", response.head.status),
            Self::Special(Special { status, location: Some(to), .. }) => {
                format!("responds with {status}, redirecting to \"{}\"", shown(to))
            }
            Self::Special(Special { status, .. }) => format!("responds with {status}"),
            Self::Redirect(Target::Named(name)) => format!("goes to location \"{}\"", shown(name)),
            Self::Redirect(Target::Uri { path, args }) => {
                let args = args.as_deref().filter(|args| !args.is_empty());
                let args = args.map(|args| format!("?{}", shown(args))).unwrap_or_default();
                format!("redirects internally to \"{}{args}\"", shown(path))
            }
            Self::Close => "closes the connection without a response".to_owned(),
        }
    }
}

impl Target {
    /// Reads `path?args` or `@name`. nginx: `ngx_http_split_args`.
    pub fn parse(text: &[u8]) -> Self {
        if text.first() == Some(&b'@') {
            return Self::Named(text.to_vec());
        }
        match text.iter().position(|&b| b == b'?') {
            Some(at) => {
                Self::Uri { path: text[..at].to_vec(), args: Some(text[at + 1..].to_vec()) }
            }
            None => Self::Uri { path: text.to_vec(), args: None },
        }
    }
}

impl From<Response> for Outcome {
    fn from(response: Response) -> Self {
        Self::Response(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        assert_eq!(Target::parse(b"@a"), Target::Named(b"@a".to_vec()));
        assert_eq!(
            Target::parse(b"/a?b?c"),
            Target::Uri { path: b"/a".to_vec(), args: Some(b"b?c".to_vec()) }
        );
        assert_eq!(Target::parse(b"/a"), Target::Uri { path: b"/a".to_vec(), args: None });
    }
}
