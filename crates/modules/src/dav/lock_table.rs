//! The locks of a zone (RFC 4918 section 6). Independent of requests; takes the time as an argument.
//!
//! Locks are kept by file path, so that all URIs of a file share them. A zone is bounded in bytes; a full
//! zone accepts no further locks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

/// Memory of a lock besides its texts, in bytes.
const FIXED: u64 = 256;

/// Longest description of an owner, in bytes.
pub const OWNER_BYTES_MAX: usize = 4096;

/// The token of a lock: the bytes of a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token([u8; 16]);

impl Token {
    /// Makes a token of random bytes. RFC 9562: version 4.
    pub fn new(mut bytes: [u8; 16]) -> Token {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Token(bytes)
    }

    /// Reads `urn:uuid:…`.
    pub fn parse(text: &[u8]) -> Option<Token> {
        let mut digits = text.strip_prefix(b"urn:uuid:")?.to_vec();
        digits.retain(|byte| *byte != b'-');
        let bytes = HEXLOWER_PERMISSIVE.decode(&digits).ok()?;
        Some(Token(bytes.try_into().ok()?))
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("urn:uuid:")?;
        let digits = HEXLOWER.encode(&self.0);
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
        f.write_str(&parts.join("-"))
    }
}

/// A lock.
#[derive(Clone, Debug)]
pub struct Lock {
    pub token: Token,
    /// The path of the file, without a slash at its end.
    pub path: Vec<u8>,
    /// The URI under which it was locked, escaped.
    pub root: String,
    /// XML: the content of the element `owner`.
    pub owner: String,
    /// Whether the lock covers everything below, too.
    pub infinite: bool,
    pub exclusive: bool,
    /// When it expires, in seconds.
    pub expires: u64,
}

impl Lock {
    fn bytes(&self) -> u64 {
        FIXED + (2 * self.path.len() + self.root.len() + self.owner.len()) as u64
    }
}

/// The reason why a lock is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum LockError {
    /// A lock on this URI conflicts.
    Locked(String),
    /// The zone is full.
    Full,
}

/// The resources whose locks conflict with a change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reach {
    /// Names in the parent directory are added or removed.
    pub parent: bool,
    /// Resources below are changed, too.
    pub below: bool,
}

/// The locks of a zone, shared by all workers.
#[derive(Debug)]
pub struct Locks {
    size: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_path: BTreeMap<Vec<u8>, Vec<Lock>>,
    by_time: BTreeSet<(u64, Token)>,
    paths: BTreeMap<Token, Vec<u8>>,
    bytes: u64,
}

impl Locks {
    /// No locks, with room for this many bytes.
    pub fn new(size: u64) -> Locks {
        Locks { size, state: Mutex::default() }
    }

    /// The size of the zone in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    fn state(&self, now: u64) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(&(expires, token)) = state.by_time.first()
            && expires <= now
        {
            state.remove(token);
        }
        state
    }

    /// Adds a lock.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn add(&self, lock: Lock, now: u64) -> Result<(), LockError> {
        let mut state = self.state(now);
        if let Some(other) = state.in_the_way(&lock) {
            return Err(LockError::Locked(other.root.clone()));
        }
        if state.bytes + lock.bytes() > self.size {
            return Err(LockError::Full);
        }
        state.bytes += lock.bytes();
        state.by_time.insert((lock.expires, lock.token));
        state.paths.insert(lock.token, lock.path.clone());
        state.by_path.entry(lock.path.clone()).or_default().push(lock);
        Ok(())
    }

    /// Extends the lock on a path that has one of these tokens, and returns it.
    pub fn refresh(&self, path: &[u8], tokens: &[Token], expires: u64, now: u64) -> Option<Lock> {
        let mut state = self.state(now);
        let found = state.covering(path).find(|lock| tokens.contains(&lock.token))?.clone();
        state.by_time.remove(&(found.expires, found.token));
        state.by_time.insert((expires, found.token));
        let locks = state.by_path.get_mut(&found.path)?;
        let lock = locks.iter_mut().find(|lock| lock.token == found.token)?;
        lock.expires = expires;
        Some(lock.clone())
    }

    /// Removes the lock with this token if it covers a path; false if there is none.
    pub fn remove(&self, path: &[u8], token: Token, now: u64) -> bool {
        let mut state = self.state(now);
        let found = state.covering(path).any(|lock| lock.token == token);
        if found {
            state.remove(token);
        }
        found
    }

    /// Removes all locks on a path and below: there is no file any more.
    pub fn forget(&self, path: &[u8], now: u64) {
        let mut state = self.state(now);
        let own = state.by_path.get(path).into_iter().flatten();
        let gone: Vec<Token> = own.chain(state.below(path)).map(|lock| lock.token).collect();
        gone.into_iter().for_each(|token| state.remove(token));
    }

    /// The locks that cover a path.
    pub fn of(&self, path: &[u8], now: u64) -> Vec<Lock> {
        self.state(now).covering(path).cloned().collect()
    }

    /// Checks that a client that has submitted these tokens may change the resource at a path.
    ///
    /// # Errors
    /// The URI of a conflicting lock.
    pub fn check(
        &self,
        path: &[u8],
        reach: Reach,
        tokens: &[Token],
        now: u64,
    ) -> Result<(), String> {
        let state = self.state(now);
        let parent = parent(path).filter(|_| reach.parent);
        let parent = parent.and_then(|parent| state.by_path.get(parent));
        let own: Vec<&Lock> = state.covering(path).collect();
        let mut groups = vec![own];
        groups.extend(parent.map(|locks| locks.iter().collect()));
        if reach.below {
            let mut last: Option<&[u8]> = None;
            for lock in state.below(path) {
                match groups.last_mut().filter(|_| last == Some(&lock.path[..])) {
                    Some(group) => group.push(lock),
                    None => groups.push(vec![lock]),
                }
                last = Some(&lock.path);
            }
        }
        // Holders of a shared lock need only their own token.
        for group in groups {
            if let Some(first) = group.first()
                && !group.iter().any(|lock| tokens.contains(&lock.token))
            {
                return Err(first.root.clone());
            }
        }
        Ok(())
    }
}

/// The path of the directory that holds a path.
fn parent(path: &[u8]) -> Option<&[u8]> {
    path.iter().rposition(|byte| *byte == b'/').map(|at| &path[..at])
}

impl State {
    fn remove(&mut self, token: Token) {
        let Some(path) = self.paths.remove(&token) else { return };
        let Some(locks) = self.by_path.get_mut(&path) else { return };
        if let Some(at) = locks.iter().position(|lock| lock.token == token) {
            let lock = locks.swap_remove(at);
            self.bytes -= lock.bytes();
            self.by_time.remove(&(lock.expires, token));
        }
        if locks.is_empty() {
            self.by_path.remove(&path);
        }
    }

    /// A lock that excludes a new one.
    fn in_the_way(&self, lock: &Lock) -> Option<&Lock> {
        let below = lock.infinite.then(|| self.below(&lock.path)).into_iter().flatten();
        let mut others = self.covering(&lock.path).chain(below);
        others.find(|other| other.exclusive || lock.exclusive)
    }

    /// The locks on a path, and those on directories above that cover it.
    fn covering(&self, path: &[u8]) -> impl Iterator<Item = &Lock> {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let above = ends.filter_map(|end| self.by_path.get(&path[..end])).flatten();
        let above = above.filter(|lock| lock.infinite);
        above.chain(self.by_path.get(path).into_iter().flatten())
    }

    /// The locks on resources below a path.
    fn below(&self, path: &[u8]) -> impl Iterator<Item = &Lock> {
        let first = [path, b"/"].concat();
        let end = first.clone();
        let range = self.by_path.range(first..);
        range.take_while(move |(path, _)| path.starts_with(&end)).flat_map(|(_, locks)| locks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(number: u8, path: &str, infinite: bool, exclusive: bool) -> Lock {
        Lock {
            token: Token::new([number; 16]),
            path: path.into(),
            root: path.to_owned(),
            owner: String::new(),
            infinite,
            exclusive,
            expires: 100,
        }
    }

    #[test]
    fn tokens() {
        let token = Token::new([0xab; 16]);
        let text = token.to_string();
        assert_eq!(text, "urn:uuid:abababab-abab-4bab-abab-abababababab");
        assert_eq!(Token::parse(text.as_bytes()), Some(token));
        for wrong in
            ["", "urn:uuid:", "urn:uuid:ab", &text[9..], &format!("{text}0"), "DAV:no-lock"]
        {
            assert_eq!(Token::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn locks_exclude_each_other() {
        let locks = Locks::new(100_000);
        assert_eq!(locks.add(lock(1, "/a", true, true), 0), Ok(()));
        let locked = |by: &str| Err(LockError::Locked(by.to_owned()));
        assert_eq!(locks.add(lock(2, "/a", false, false), 0), locked("/a"));
        assert_eq!(locks.add(lock(2, "/a/b/c", false, true), 0), locked("/a"));
        assert_eq!(locks.add(lock(2, "/ab", false, true), 0), Ok(()));
        assert_eq!(locks.add(lock(3, "", true, false), 0), locked("/a"));
        assert_eq!(locks.add(lock(3, "", false, true), 0), Ok(()));
        assert_eq!(locks.add(lock(4, "/s", false, false), 0), Ok(()));
        assert_eq!(locks.add(lock(5, "/s", false, false), 0), Ok(()));
        assert_eq!(locks.add(lock(6, "/s", false, true), 0), locked("/s"));
    }

    #[test]
    fn changes_need_tokens() {
        let locks = Locks::new(100_000);
        let token = |number| Token::new([number; 16]);
        locks.add(lock(1, "/a", false, true), 0).expect("the first");
        locks.add(lock(2, "/a/b", false, true), 0).expect("the second");
        locks.add(lock(3, "/s", true, false), 0).expect("the third");
        locks.add(lock(4, "/s", true, false), 0).expect("the fourth");
        let check = |path: &str, parent, below, tokens: &[u8]| {
            let tokens: Vec<_> = tokens.iter().map(|number| token(*number)).collect();
            locks.check(path.as_bytes(), Reach { parent, below }, &tokens, 0).is_ok()
        };
        assert!(!check("/a", false, false, &[]));
        assert!(check("/a", false, false, &[1]));
        assert!(!check("/a", false, true, &[1]));
        assert!(check("/a", false, true, &[2, 1]));
        assert!(check("/a/c", false, false, &[]));
        assert!(!check("/a/c", true, false, &[]));
        assert!(check("/a/c", true, false, &[1]));
        assert!(!check("/s/x", false, false, &[1]));
        assert!(check("/s/x", false, false, &[4]));
        locks.forget(b"/a", 0);
        assert!(check("/a/b", true, true, &[]));
    }

    #[test]
    fn locks_expire_and_zones_are_bounded() {
        let locks = Locks::new(FIXED + 100);
        locks.add(lock(1, "/a", false, true), 0).expect("there is room");
        assert_eq!(locks.add(lock(2, "/b", false, true), 99), Err(LockError::Full));
        let token = Token::new([1; 16]);
        assert!(locks.refresh(b"/b", &[token], 200, 99).is_none());
        assert_eq!(locks.refresh(b"/a", &[token], 200, 99).map(|lock| lock.expires), Some(200));
        assert_eq!(locks.add(lock(2, "/b", false, true), 199), Err(LockError::Full));
        assert_eq!(locks.add(lock(2, "/b", false, true), 200), Ok(()));
        assert!(!locks.remove(b"/a", token, 0));
        assert!(locks.remove(b"/b", Token::new([2; 16]), 0));
        assert_eq!(locks.add(lock(3, "/c", false, true), 0), Ok(()));
    }
}
