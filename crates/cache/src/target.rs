//! The object of a request, and the keys that a thread hashed recently.

use std::cell::RefCell;
use std::hash::Hasher;

use bytes::Bytes;
use rustc_hash::FxHasher;

use crate::key::Key;

/// The number of key texts that a thread remembers.
const RECENT_MAX: usize = 256;

/// Longer texts are not remembered.
const RECENT_BYTES_MAX: usize = 1024;

thread_local! {
    /// Recently requested keys, by a hash of the text.
    static RECENT: RefCell<[Option<CacheKey>; RECENT_MAX]> =
        const { RefCell::new([const { None }; RECENT_MAX]) };
}

/// The object requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheKey {
    /// Identifies the object: [`main`](CacheKey::main), or a variant of it.
    pub key: Key,
    /// The hash of `text`.
    pub main: Key,
    /// The key's text (`proxy_cache_key`).
    pub text: Bytes,
}

impl CacheKey {
    /// The object of a key text.
    pub fn new(text: Bytes) -> CacheKey {
        let main = Key::new(&text);
        CacheKey { key: main, main, text }
    }

    /// Like [`new`](CacheKey::new), for a text that this thread may have seen recently: then it is
    /// not hashed again.
    pub fn of(text: &[u8]) -> CacheKey {
        if text.len() > RECENT_BYTES_MAX {
            return CacheKey::new(Bytes::copy_from_slice(text));
        }
        let mut hasher = FxHasher::default();
        hasher.write(text);
        let at = (hasher.finish() >> 32) as usize % RECENT_MAX;
        RECENT.with_borrow_mut(|recent| match &recent[at] {
            Some(target) if target.text == text => target.clone(),
            _ => recent[at].insert(CacheKey::new(Bytes::copy_from_slice(text))).clone(),
        })
    }

    /// The variant of the same text that `distinction` distinguishes (`Vary`).
    #[must_use]
    pub fn variant(&self, distinction: &[u8]) -> CacheKey {
        CacheKey { key: self.main.variant(distinction), main: self.main, text: self.text.clone() }
    }
}
