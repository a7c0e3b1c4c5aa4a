//! Keys: the hash of a key's text, variants of a key, and the names of cache files.
//!
//! A key is the MD5 of its text. The file name is its hexadecimal form, below directories that
//! `levels` cuts from its end, as in nginx, so that scripts which find or delete the file of a URL
//! keep working. MD5 is used for its length and for these names, not for security: the text is in
//! the file's head and is compared on every hit.

use std::fmt;

use data_encoding::HEXLOWER;
use md5::{Digest, Md5};

/// The bytes of a key.
pub const KEY_BYTES: usize = 16;
/// The maximum number of directory levels: nginx's limit.
pub const LEVELS_MAX: usize = 3;
/// The longest relative name of a cache file: three levels of two digits with their slashes, and
/// 32 digits.
pub const NAME_BYTES_MAX: usize = 3 * 3 + 2 * KEY_BYTES;

/// Identifies a stored object: the MD5 of its key's text, or of a variant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub [u8; KEY_BYTES]);

impl Key {
    /// The key of a text.
    pub fn new(text: &[u8]) -> Self {
        Self(Md5::digest(text).into())
    }

    /// The key of a variant (`Vary`). `distinction` distinguishes it, e.g. the names and values of
    /// the request fields that the response varies by. Equal to a plain key only in a collision.
    #[must_use]
    pub fn variant(&self, distinction: &[u8]) -> Self {
        let mut md5 = Md5::new();
        md5.update(self.0);
        md5.update(b"\0variant\0");
        md5.update(distinction);
        Self(md5.finalize().into())
    }

    /// Reads the 32 hexadecimal digits at the end of a file name; `None` for any other name, such
    /// as that of a temporary file.
    pub fn from_file_name(name: &[u8]) -> Option<Self> {
        let mut key = [0; KEY_BYTES];
        if name.len() != 2 * KEY_BYTES {
            return None;
        }
        // Lower case only: nginx writes no other, and one object must not have two names.
        HEXLOWER.decode_mut(name, &mut key).ok()?;
        Some(Self(key))
    }

    /// The lower-case hexadecimal digits.
    pub fn hex(&self) -> [u8; 2 * KEY_BYTES] {
        let mut hex = [0; 2 * KEY_BYTES];
        HEXLOWER.encode_mut(&self.0, &mut hex);
        hex
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hex().iter().try_for_each(|&digit| fmt::Write::write_char(f, char::from(digit)))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `levels=1:2`: how many digits name each directory level, from the end of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Levels {
    digits: [u8; LEVELS_MAX],
}

impl Levels {
    /// No directories: all files in one.
    pub const NONE: Self = Self { digits: [0; LEVELS_MAX] };

    /// Up to three levels of one or two digits; `None` for anything else.
    pub fn new(digits: &[u8]) -> Option<Self> {
        let mut levels = Self::NONE;
        if digits.len() > LEVELS_MAX || digits.iter().any(|&n| !(1..=2).contains(&n)) {
            return None;
        }
        levels.digits[..digits.len()].copy_from_slice(digits);
        Some(levels)
    }

    /// The digits of each level, the outermost first.
    pub fn digits(&self) -> impl Iterator<Item = usize> + '_ {
        self.digits.iter().take_while(|&&n| n > 0).map(|&n| usize::from(n))
    }

    /// The name of the key's file below the cache's directory: `c/29/b7f5…029c` for `1:2`.
    pub fn file_name(&self, key: &Key) -> FileName {
        let hex = key.hex();
        let mut name = FileName { bytes: [0; NAME_BYTES_MAX], length: 0, directory: 0 };
        let mut end = hex.len();
        for digits in self.digits() {
            name.push(&hex[end - digits..end]);
            name.push(b"/");
            end -= digits;
        }
        name.directory = name.length;
        name.push(&hex);
        name
    }
}

/// The relative name of a cache file, held without allocation.
#[derive(Clone, Copy)]
pub struct FileName {
    bytes: [u8; NAME_BYTES_MAX],
    length: u8,
    directory: u8,
}

impl FileName {
    /// The whole relative name.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).expect("digits and slashes")
    }

    /// The directories, without the slash at their end; empty without levels.
    pub fn directory(&self) -> &str {
        self.as_str()[..usize::from(self.directory)].trim_end_matches('/')
    }

    fn push(&mut self, bytes: &[u8]) {
        let start = usize::from(self.length);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len() as u8;
    }
}

impl fmt::Debug for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1321, appendix A.5.
    #[test]
    fn is_the_md5_of_its_text() {
        assert_eq!(Key::new(b"abc").to_string(), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(Key::new(b"").to_string(), "d41d8cd98f00b204e9800998ecf8427e");
    }

    /// The example in nginx's documentation of `proxy_cache_path`.
    #[test]
    fn levels_are_cut_from_the_end() {
        let key = Key::from_file_name(b"b7f54b2df7773722d382f4809d65029c").unwrap();
        let name = Levels::new(&[1, 2]).unwrap().file_name(&key);
        assert_eq!(name.as_str(), "c/29/b7f54b2df7773722d382f4809d65029c");
        assert_eq!(name.directory(), "c/29");
        let name = Levels::new(&[2, 2, 2]).unwrap().file_name(&key);
        assert_eq!(name.as_str(), "9c/02/65/b7f54b2df7773722d382f4809d65029c");
        let name = Levels::NONE.file_name(&key);
        assert_eq!(name.as_str(), "b7f54b2df7773722d382f4809d65029c");
        assert_eq!(name.directory(), "");
        assert_eq!(Levels::new(&[3]), None);
        assert_eq!(Levels::new(&[1, 1, 1, 1]), None);
    }

    #[test]
    fn other_files_are_no_keys() {
        for name in [
            &b"b7f54b2df7773722d382f4809d65029c.0000000001"[..],
            b"B7F54B2DF7773722D382F4809D65029C",
            b"b7f54b2df7773722d382f4809d65029",
            b"b7f54b2df7773722d382f4809d65029g",
            b"",
        ] {
            assert_eq!(Key::from_file_name(name), None);
        }
    }

    #[test]
    fn variants_differ_from_each_other_and_from_the_plain_key() {
        let key = Key::new(b"abc");
        let (gzip, br) = (key.variant(b"accept-encoding:gzip"), key.variant(b"accept-encoding:br"));
        assert!(gzip != br && gzip != key && br != key);
        assert_ne!(gzip, Key::new(b"abd").variant(b"accept-encoding:gzip"));
    }
}
