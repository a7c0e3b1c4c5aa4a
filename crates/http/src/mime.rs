//! Content types by file name extension: the `types` block and its default.
//!
//! Built when the configuration is read; [`Types::lookup`] runs once per file response and
//! allocates nothing. `types_hash_max_size` and `types_hash_bucket_size` are accepted by the
//! configuration without effect: the table has the size that it needs.

use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::slots::Key;

/// The charset that a location declares for its texts, if it is the same for all requests.
pub static CHARSET: Key<Bytes> = Key::new();

/// Extensions up to this length are looked up without allocation; no registered one is longer.
const INLINE_LEN: usize = 32;

/// A table from extensions to content types.
#[derive(Debug, Clone, Default)]
pub struct Types {
    by_extension: FxHashMap<Box<[u8]>, Bytes>,
    longest: usize,
}

impl Types {
    /// An empty table, as an empty `types` block makes it: all files have the default type.
    pub fn new() -> Self {
        Self::default()
    }

    /// nginx's table when no `types` block is configured: html, gif and jpg.
    pub fn builtin() -> Self {
        let mut types = Types::new();
        for (content_type, extension) in
            [("text/html", "html"), ("image/gif", "gif"), ("image/jpeg", "jpg")]
        {
            let content_type = Bytes::from_static(content_type.as_bytes());
            types.insert(extension.as_bytes(), content_type);
        }
        types
    }

    /// Sets the type of `extension` (any case, without dot). Returns the type it had, if any:
    /// nginx warns `duplicate extension "x", content type: "new", previous content type: "old"`
    /// and takes the new one.
    pub fn insert(&mut self, extension: &[u8], content_type: Bytes) -> Option<Bytes> {
        self.longest = self.longest.max(extension.len());
        self.by_extension.insert(extension.to_ascii_lowercase().into(), content_type)
    }

    /// The warning for a second type of one extension.
    pub fn duplicate_warning(extension: &[u8], new: &[u8], old: &[u8]) -> String {
        format!(
            "duplicate extension \"{}\", content type: \"{}\", previous content type: \"{}\"",
            extension.to_ascii_lowercase().escape_ascii(),
            new.escape_ascii(),
            old.escape_ascii()
        )
    }

    /// Number of extensions.
    pub fn len(&self) -> usize {
        self.by_extension.len()
    }

    /// Whether there are no extensions.
    pub fn is_empty(&self) -> bool {
        self.by_extension.is_empty()
    }

    /// The type of an extension in any case, without dot.
    pub fn lookup(&self, extension: &[u8]) -> Option<&Bytes> {
        if extension.len() > self.longest {
            return None;
        }
        let mut inline = [0; INLINE_LEN];
        let Some(lowercase) = inline.get_mut(..extension.len()) else {
            return self.by_extension.get(&extension.to_ascii_lowercase()[..]);
        };
        lowercase.copy_from_slice(extension);
        lowercase.make_ascii_lowercase();
        self.by_extension.get(&*lowercase)
    }
}

/// The extension of a URI's last segment, without dot; empty if it has none. As in nginx a name
/// that begins with a dot has no extension by that dot.
pub fn extension(uri: &[u8]) -> &[u8] {
    for at in (2..uri.len()).rev() {
        match uri[at] {
            b'.' if uri[at - 1] != b'/' => return &uri[at + 1..],
            b'/' => break,
            _ => {}
        }
    }
    b""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_ignores_case() {
        let types = Types::builtin();
        assert_eq!(types.len(), 3);
        assert_eq!(types.lookup(b"html").unwrap(), "text/html");
        assert_eq!(types.lookup(b"JpG").unwrap(), "image/jpeg");
        assert_eq!(types.lookup(b"jpeg"), None);
        assert_eq!(types.lookup(b""), None);
        assert_eq!(Types::new().lookup(b"html"), None);
    }

    #[test]
    fn long_extensions_work() {
        let mut types = Types::builtin();
        let long = [b'x'; 100];
        assert_eq!(types.lookup(&long), None);
        types.insert(&long, "a/b".into());
        assert_eq!(types.lookup(&[b'X'; 100]).unwrap(), "a/b");
        assert_eq!(types.lookup(&[b'X'; 99]), None);
    }

    #[test]
    fn the_last_type_wins_and_the_first_is_returned() {
        let mut types = Types::builtin();
        let old = types.insert(b"HTML", "text/plain".into()).unwrap();
        assert_eq!(types.lookup(b"html").unwrap(), "text/plain");
        assert_eq!(
            Types::duplicate_warning(b"HTML", b"text/plain", &old),
            "duplicate extension \"html\", content type: \"text/plain\", \
             previous content type: \"text/html\""
        );
    }

    #[test]
    fn extensions() {
        for (uri, expected) in [
            ("/index.html", "html"),
            ("/a.b/c.tar.GZ", "GZ"),
            ("/a.b/c", ""),
            ("/.html", ""),
            ("/a/.html", ""),
            ("/a.", ""),
            ("/x.y", "y"),
            ("/", ""),
            ("", ""),
            ("/.", ""),
        ] {
            assert_eq!(extension(uri.as_bytes()), expected.as_bytes(), "{uri}");
        }
    }
}
