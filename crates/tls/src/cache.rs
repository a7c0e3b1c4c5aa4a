//! The session cache of servers (`ssl_session_cache`): bounded, shared by workers.

use std::hash::RandomState;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hashlink::LinkedHashMap;
use rustls::server::StoresServerSessions;

/// The cost of an entry besides its key and value.
const ENTRY_BYTES: usize = 128;

/// Sessions that may be resumed. The oldest ones make room for new ones.
#[derive(Debug)]
pub struct SessionCache {
    bytes_max: usize,
    timeout: Duration,
    state: Mutex<CacheState>,
}

#[derive(Debug, Default)]
struct CacheState {
    /// In order of age.
    sessions: LinkedHashMap<Box<[u8]>, CachedSession, RandomState>,
    bytes: usize,
}

#[derive(Debug)]
struct CachedSession {
    stored: Instant,
    value: Vec<u8>,
}

impl SessionCache {
    /// A cache that holds at most `bytes_max`, and sessions for `timeout`.
    pub fn new(bytes_max: usize, timeout: Duration) -> SessionCache {
        SessionCache { bytes_max, timeout, state: Mutex::default() }
    }

    /// Number of sessions in it.
    pub fn len(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).sessions.len()
    }

    /// Whether it has no session.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes over the sessions of another cache, which is empty afterwards.
    pub fn adopt(&self, other: &SessionCache) {
        if std::ptr::eq(self, other) {
            return;
        }
        let lock = |cache: &SessionCache| {
            std::mem::take(&mut *cache.state.lock().unwrap_or_else(PoisonError::into_inner))
        };
        let mut state = lock(other);
        state.make_room(self.bytes_max);
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn put(&self, key: &[u8], value: Vec<u8>) -> bool {
        let bytes = key.len() + value.len() + ENTRY_BYTES;
        if bytes > self.bytes_max {
            return false;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.remove(key);
        state.bytes += bytes;
        state.sessions.insert(key.into(), CachedSession { stored: Instant::now(), value });
        state.make_room(self.bytes_max);
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let session = state.sessions.get(key)?;
        if session.stored.elapsed() < self.timeout {
            return Some(session.value.clone());
        }
        state.remove(key);
        None
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let session = state.remove(key)?;
        (session.stored.elapsed() < self.timeout).then_some(session.value)
    }
}

impl CacheState {
    /// Removes the oldest sessions until the others fit.
    fn make_room(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some((key, session)) = self.sessions.pop_front() else { break };
            self.bytes -= session.bytes(&key);
        }
        debug_assert!(self.bytes == 0 || !self.sessions.is_empty(), "no session takes no room");
    }

    fn remove(&mut self, key: &[u8]) -> Option<CachedSession> {
        let session = self.sessions.remove(key)?;
        self.bytes -= session.bytes(key);
        Some(session)
    }
}

impl CachedSession {
    /// What it takes with its key.
    fn bytes(&self, key: &[u8]) -> usize {
        key.len() + self.value.len() + ENTRY_BYTES
    }
}

/// A server's view of a cache, with only sessions of servers with the same context.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) cache: Arc<SessionCache>,
    pub(crate) context: Vec<u8>,
}

impl Sessions {
    fn key(&self, key: &[u8]) -> Vec<u8> {
        [&self.context, key].concat()
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.cache.put(&self.key(&key), value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.cache.get(&self.key(key))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.cache.take(&self.key(key))
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_sessions_make_room() {
        let cache = SessionCache::new(10 * (ENTRY_BYTES + 2), Duration::from_secs(60));
        for number in 0..100u8 {
            assert!(cache.put(&[number], vec![number]));
        }
        assert_eq!(cache.len(), 10);
        assert_eq!((cache.get(&[89]), cache.get(&[90])), (None, Some(vec![90])));
        assert!(!cache.put(&[0], vec![0; 10_000]));
        // Sessions that are taken leave room.
        for number in 0..10_000u16 {
            let key = number.to_be_bytes();
            cache.put(&key[1..], vec![1]);
            assert!(cache.take(&key[1..]).is_some());
        }
        let state = cache.state.lock().unwrap();
        let bytes: usize = state.sessions.values().map(|s| s.value.len() + ENTRY_BYTES + 1).sum();
        assert_eq!(state.bytes, bytes);
    }

    #[test]
    fn sessions_are_taken_over() {
        let long = Duration::from_secs(60);
        let (old, new) = (SessionCache::new(10_000, long), SessionCache::new(200, long));
        old.put(b"a", vec![1]);
        old.put(b"b", vec![2]);
        new.adopt(&old);
        assert!(old.is_empty());
        assert_eq!((new.get(b"a"), new.get(b"b")), (None, Some(vec![2])));
        new.adopt(&new);
        assert_eq!(new.len(), 1);
    }

    #[test]
    fn sessions_expire() {
        let cache = SessionCache::new(10_000, Duration::ZERO);
        cache.put(b"a", vec![1]);
        assert_eq!(cache.get(b"a"), None);
        assert!(cache.is_empty());
        cache.put(b"a", vec![1]);
        assert_eq!(cache.take(b"a"), None);
    }
}
