//! Maps a URI to a file: `root` and `alias`. nginx: `ngx_http_map_uri_to_path`.
//!
//! Part of a location's settings; returns the paths of requests' files. Never touches a disk.

use bytes::Bytes;
use nowait_variables::Subject;

use crate::variables::complex::{Complex, HttpVariables};

/// The directory of a location's files.
#[derive(Clone, Debug)]
pub struct FilePath {
    /// The value of `root` or `alias`; absolute when it has no variables.
    pub base: Complex,
    /// The way of appending the URI.
    pub append: Append,
    /// Base of relative paths that variables produce; ends with a slash.
    pub prefix: Bytes,
}

/// The way of appending the URI to the value of `root` or `alias`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Append {
    /// `root`: the whole URI.
    Uri,
    /// `alias` in a prefix location: the part after the location's name, which has this length.
    After(usize),
    /// `alias` in a regular-expression location: the value is the path.
    Nothing,
}

impl FilePath {
    /// Appends the value of `root` or `alias`.
    pub fn append_root(
        &self,
        subject: &impl Subject<Namespace = HttpVariables>,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        subject.append_text(&self.base, out);
        if self.base.literal().is_none() && out.get(start) != Some(&b'/') {
            out.splice(start..start, self.prefix.iter().copied());
        }
    }

    /// The part of a URI's path that is appended to the root. `is_file`: `try_files` found the URI
    /// below the value of an `alias` with captures.
    pub fn rest<'u>(&self, uri: &'u [u8], is_file: bool) -> &'u [u8] {
        match self.append {
            Append::Uri => uri,
            Append::After(len) => uri.get(len..).unwrap_or_default(),
            Append::Nothing if is_file => uri,
            Append::Nothing => b"",
        }
    }

    /// Whether the location uses `alias`.
    pub fn is_alias(&self) -> bool {
        self.append != Append::Uri
    }
}

/// Path and query string of a URI that comes from content or from an upstream server, not from the
/// client; `None` if it could lead out of the root. nginx: `ngx_http_parse_unsafe_uri`.
pub fn from_outside(uri: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let (path, args) = match uri.iter().position(|&b| b == b'?') {
        Some(at) => (&uri[..at], Some(uri[at + 1..].to_vec())),
        None => (uri, None),
    };
    let is_safe = |path: &[u8]| {
        let leads_up = path.split(|&b| b == b'/').any(|segment| segment == b"..");
        !path.is_empty() && !path.contains(&0) && !leads_up
    };
    if !is_safe(path) {
        return None;
    }
    let (decoded, _) =
        nowait_message::escape::unescape(path, nowait_message::escape::Unescape::All);
    is_safe(&decoded).then_some((decoded, args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_that_lead_out() {
        assert_eq!(from_outside(b"/a%20b?c%20"), Some((b"/a b".to_vec(), Some(b"c%20".to_vec()))));
        let odd = (b"/..a/b..".to_vec(), Some(b"/../".to_vec()));
        assert_eq!(from_outside(b"/..a/b..?/../"), Some(odd));
        for wrong in
            ["", "?a", "..", "../a", "/a/..", "/../a", "/a/../b", "/%2e%2e/b", "/a%00b", "/a\0"]
        {
            assert_eq!(from_outside(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
