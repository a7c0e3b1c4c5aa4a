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
    Status(StatusResponse),
    /// Start again with another URI or at a named location.
    Redirect(RedirectTarget),
    /// Close the connection without a response (`return 444`).
    Close,
}

/// A status without content of its own. nginx: a handler's return code.
#[derive(Debug, Clone, Default)]
pub struct StatusResponse {
    /// Status code; 494 to 499 are nginx's own codes for kinds of 400.
    pub status: u16,
    /// `Location`, for redirects.
    pub location: Option<Bytes>,
    /// Other headers, such as `WWW-Authenticate`.
    pub headers: Vec<Header>,
}

/// RedirectTarget of an internal redirect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedirectTarget {
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
    /// A status without headers.
    pub fn status(status: u16) -> Self {
        Self::Status(StatusResponse { status, ..StatusResponse::default() })
    }

    /// An external redirect.
    pub fn moved(status: u16, location: impl Into<Bytes>) -> Self {
        Self::Status(StatusResponse {
            status,
            location: Some(location.into()),
            headers: Vec::new(),
        })
    }

    /// An internal redirect to `path?args`, or to `@name`.
    pub fn redirect(target: &[u8]) -> Self {
        Self::Redirect(RedirectTarget::parse(target))
    }

    /// The decision in words.
    pub fn describe(&self) -> String {
        let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        match self {
            Self::Response(response) => format!("responds with {}", response.head.status),
            Self::Status(StatusResponse { status, location: Some(to), .. }) => {
                format!("responds with {status}, redirecting to \"{}\"", shown(to))
            }
            Self::Status(StatusResponse { status, .. }) => format!("responds with {status}"),
            Self::Redirect(RedirectTarget::Named(name)) => {
                format!("goes to location \"{}\"", shown(name))
            }
            Self::Redirect(RedirectTarget::Uri { path, args }) => {
                let args = args.as_deref().filter(|args| !args.is_empty());
                let args = args.map(|args| format!("?{}", shown(args))).unwrap_or_default();
                format!("redirects internally to \"{}{args}\"", shown(path))
            }
            Self::Close => "closes the connection without a response".to_owned(),
        }
    }
}

impl RedirectTarget {
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
        assert_eq!(RedirectTarget::parse(b"@a"), RedirectTarget::Named(b"@a".to_vec()));
        assert_eq!(
            RedirectTarget::parse(b"/a?b?c"),
            RedirectTarget::Uri { path: b"/a".to_vec(), args: Some(b"b?c".to_vec()) }
        );
        assert_eq!(
            RedirectTarget::parse(b"/a"),
            RedirectTarget::Uri { path: b"/a".to_vec(), args: None }
        );
    }
}
