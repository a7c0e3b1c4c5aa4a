//! Tokens that a client has used: each proves an address once (RFC 9000, 8.1.4).
//!
//! Called by the library when a client shows a token of an earlier connection.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use quinn_proto::{TokenLog, TokenReuseError};

/// Used tokens that are remembered, at least, and at most twice as many; 16 bytes each. A token that was forgotten
/// might be used again, but only from its own address, until it expires.
const USED_MAX: usize = 32 * 1024;

/// The time during which a token of an earlier connection proves an address.
pub(crate) const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Tokens that a client gets per connection.
pub(crate) const SENT: u32 = 2;

/// The used tokens of a process.
#[derive(Default)]
pub(crate) struct UsedTokens(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    newer: HashSet<u128>,
    older: HashSet<u128>,
}

impl TokenLog for UsedTokens {
    fn check_and_insert(
        &self,
        nonce: u128,
        _: SystemTime,
        _: Duration,
    ) -> Result<(), TokenReuseError> {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if used.older.contains(&nonce) || !used.newer.insert(nonce) {
            return Err(TokenReuseError);
        }
        if used.newer.len() >= USED_MAX {
            used.older = std::mem::take(&mut used.newer);
        }
        Ok(())
    }
}

/// The judgement that was made when the client's first datagram came: it is processed a second time, and its token is
/// not new then.
pub(crate) struct Judged {
    validated: bool,
}

impl Judged {
    pub(crate) fn new(validated: bool) -> Arc<Judged> {
        Arc::new(Judged { validated })
    }
}

impl TokenLog for Judged {
    fn check_and_insert(&self, _: u128, _: SystemTime, _: Duration) -> Result<(), TokenReuseError> {
        if self.validated { Ok(()) } else { Err(TokenReuseError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_counts_once_and_memory_is_bounded() {
        let used = UsedTokens::default();
        let is_new = |nonce| used.check_and_insert(nonce, SystemTime::UNIX_EPOCH, LIFETIME).is_ok();
        assert!(is_new(1));
        assert!(!is_new(1));
        assert!((2..USED_MAX as u128 + 2).all(is_new));
        // Of the older ones, too.
        assert!(!is_new(1));
        assert!((0..USED_MAX as u128 * 4).map(|nonce| nonce + 1_000_000).all(is_new));
        let generations = used.0.lock().unwrap();
        assert!(generations.newer.len() + generations.older.len() <= 2 * USED_MAX);
    }
}
