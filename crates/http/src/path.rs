//! Which file a URI means: `root` and `alias`. nginx: `ngx_http_map_uri_to_path`.
//!
//! Called by the handlers and phases that look at files. Never touches a disk.

use bytes::Bytes;

use crate::log::Level;
use crate::request::Request;
use crate::variables::complex::Complex;

/// Where the files of a location are.
#[derive(Clone, Debug)]
pub struct FilePath {
    /// The value of `root` or `alias`; absolute when it has no variables.
    pub base: Complex,
    /// How the URI is appended to it.
    pub append: Append,
    /// What relative values of variables are relative to; ends with a slash.
    pub prefix: Bytes,
}

/// How the URI is appended to the value of `root` or `alias`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Append {
    /// `root`: the whole URI.
    Uri,
    /// `alias` in a prefix location: what follows the location's name, which has this length.
    After(usize),
    /// `alias` in a regular-expression location: nothing; the value is the path.
    Nothing,
}

impl FilePath {
    /// Appends the value of `root` or `alias`.
    pub fn append_root(&self, request: &Request, out: &mut Vec<u8>) {
        let start = out.len();
        self.base.append(request, out);
        if self.base.literal().is_none() && out.get(start) != Some(&b'/') {
            out.splice(start..start, self.prefix.iter().copied());
        }
    }

    /// Appends the path of the file that the request's URI means, and returns the length of the
    /// root in it.
    pub fn append_file(&self, request: &Request, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        self.append_root(request, out);
        let root = out.len() - start;
        let rest = match self.append {
            Append::Uri => &request.uri.path[..],
            Append::After(len) => request.uri.path.get(len..).unwrap_or_default(),
            Append::Nothing if request.uri_is_file => &request.uri.path,
            Append::Nothing => b"",
        };
        out.extend_from_slice(rest);
        root
    }

    /// Whether there is a file that the URI means. An `alias` replaces the part of the URI that the
    /// location stands for, which a URI rewritten in the location does not have: that is logged.
    pub fn is_usable(&self, request: &Request) -> bool {
        let usable = !(self.is_alias() && request.uri_rewritten);
        if !usable {
            let name = String::from_utf8_lossy(&request.location().name);
            request.log(
                Level::Alert,
                format_args!(
                    "\"alias\" cannot be used in location \"{name}\" where URI was rewritten"
                ),
            );
        }
        usable
    }

    /// Whether the location uses `alias`.
    pub fn is_alias(&self) -> bool {
        self.append != Append::Uri
    }
}
