//! A short digest of a key's text, so that a purge by prefix reads few files.
//!
//! The text itself is in the file's head. In memory there are only 16-bit hashes of the text's
//! first prefixes that end with a slash: for `httporigin/a/b/c.jpg` of `httporigin/`,
//! `httporigin/a/` and `httporigin/a/b/`. A purge of a prefix compares the hashes for the slashes
//! that it contains, and reads the heads of matching objects: almost only those that it will purge.

/// The hashes of a text's first prefixes.
pub(super) const SKETCH_PREFIXES: usize = 4;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sketch(pub(crate) [u16; SKETCH_PREFIXES]);

impl Sketch {
    /// The sketch of an unknown text: may match every prefix.
    pub const UNKNOWN: Self = Self([0; SKETCH_PREFIXES]);
    /// Follows the last prefix, so that a text with fewer slashes doesn't match.
    const END: u16 = 1;

    /// The sketch of a key's text.
    pub fn of(text: &[u8]) -> Self {
        let mut sketch = [Self::END; SKETCH_PREFIXES];
        prefixes(text).zip(&mut sketch).for_each(|(hash, place)| *place = hash);
        Self(sketch)
    }

    /// Whether the text may begin with `prefix`; never false when it does.
    pub fn may_begin_with(&self, prefix: &[u8]) -> bool {
        *self == Self::UNKNOWN || prefixes(prefix).zip(self.0).all(|(hash, own)| hash == own)
    }
}

fn prefixes(text: &[u8]) -> impl Iterator<Item = u16> + '_ {
    let mut hasher = crc32fast::Hasher::new();
    text.split_inclusive(|&byte| byte == b'/')
        .filter(|part| part.ends_with(b"/"))
        .take(SKETCH_PREFIXES)
        .map(move |part| {
            hasher.update(part);
            let crc = hasher.clone().finalize();
            // 0 and 1 have special meanings.
            ((crc ^ crc >> 16) as u16).max(2)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_matches_and_other_directories_do_not() {
        let text = b"httporigin.example/images/2026/11/20/a.jpg";
        let sketch = Sketch::of(text);
        for length in 0..=text.len() {
            assert!(sketch.may_begin_with(&text[..length]));
        }
        for other in
            [&b"httporigin.example/videos/"[..], b"httpother/", b"httporigin.example/images/2025/"]
        {
            assert!(!sketch.may_begin_with(other));
        }
        assert!(!Sketch::of(b"httporigin/a").may_begin_with(b"httporigin/a/"));
        assert!(Sketch::UNKNOWN.may_begin_with(b"httpother/"));
    }
}
