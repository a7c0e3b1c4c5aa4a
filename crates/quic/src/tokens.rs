//! Tokens that prove the address of a client: how they are sealed, and those that were used, because each proves it once
//! (RFC 9000, 8.1.4).
//!
//! Called by the library, which makes tokens and reads what is in them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::Prk;
use quinn_proto::crypto::{AeadKey, CryptoError, HandshakeTokenKey};
use quinn_proto::{TokenLog, TokenReuseError};

/// Used tokens that are remembered, at least, and at most twice as many; 16 bytes each. A token that was forgotten
/// might be used again, but only from its own address, until it expires.
const USED_MAX: usize = 32 * 1024;

/// The time during which a token of an earlier connection proves an address.
pub(crate) const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Tokens that a client gets each time it proves its address. For the library, each of its Handshake packets does: in
/// all, a connection gives one to four.
pub(crate) const SENT: u32 = 1;

/// The first byte of the library's tokens of Retry packets, before they are sealed.
const RETRY: u8 = 0;

/// The bytes behind a sealed token, by which its kind is known without the key: "A token sent in a NEW_TOKEN frame or a
/// Retry packet MUST be constructed in a way that allows the server to identify how it was provided to a client"
/// (RFC 9000, 8.1.1). They are so many that no other server's token has them by chance.
const RETRY_MARK: [u8; MARK_BYTES] = *b"RETR";
const NEW_MARK: [u8; MARK_BYTES] = *b"NEWT";
const MARK_BYTES: usize = 4;

/// Bytes of a token of a Retry packet for no address: its kind, the kind of address, an IPv4 address, a port, an empty
/// connection ID, and seconds. All of them are zero.
const NOBODYS_BYTES: usize = 1 + 1 + 4 + 2 + 1 + 8;

/// Seals tokens, each with a key of its own.
pub(crate) struct TokenKey(Prk);

impl TokenKey {
    pub(crate) fn new(key: Prk) -> TokenKey {
        TokenKey(key)
    }
}

impl HandshakeTokenKey for TokenKey {
    fn aead_from_hkdf(&self, random: &[u8]) -> Box<dyn AeadKey> {
        let info = [random];
        let key = self.0.expand(&info, &AES_256_GCM).map(UnboundKey::from);
        Box::new(OneToken(key.ok().map(LessSafeKey::new)))
    }
}

/// Seals one token. `None`: there is no key, and nothing can be sealed or opened.
struct OneToken(Option<LessSafeKey>);

impl OneToken {
    fn key(&self) -> Result<&LessSafeKey, CryptoError> {
        self.0.as_ref().ok_or(CryptoError)
    }

    /// The nonce: the key is used for one token.
    fn nonce() -> Nonce {
        Nonce::assume_unique_for_key([0; NONCE_LEN])
    }
}

impl AeadKey for OneToken {
    fn seal(&self, data: &mut Vec<u8>, _: &[u8]) -> Result<(), CryptoError> {
        let mark = if data.first() == Some(&RETRY) { RETRY_MARK } else { NEW_MARK };
        let sealed = self.key()?.seal_in_place_append_tag(Self::nonce(), Aad::from(mark), data);
        sealed.map_err(|_| CryptoError)?;
        data.extend_from_slice(&mark);
        Ok(())
    }

    /// Opens a token. One of a Retry packet that cannot be opened was changed, or made with a key of the past: it is opened
    /// as that of nobody, which the library answers by INVALID_TOKEN. "If a server receives a client Initial that contains
    /// an invalid Retry token but is otherwise valid, it knows the client will not accept another Retry token. [...] the
    /// server SHOULD immediately close the connection with an INVALID_TOKEN error" (RFC 9000, 8.1.2). Others that cannot be
    /// opened are ignored: "the server SHOULD proceed as if the client did not have a validated address" (8.1.3).
    fn open<'a>(&self, data: &'a mut [u8], _: &[u8]) -> Result<&'a mut [u8], CryptoError> {
        let key = self.key()?;
        let (sealed, mark) = data.split_last_chunk_mut().ok_or(CryptoError)?;
        let opened = key.open_in_place(Self::nonce(), Aad::from(*mark), sealed);
        match opened.map(|plain| plain.len()) {
            Ok(len) => Ok(&mut sealed[..len]),
            Err(_) if *mark == RETRY_MARK => {
                let nobodys = sealed.get_mut(..NOBODYS_BYTES).ok_or(CryptoError)?;
                nobodys.fill(0);
                Ok(nobodys)
            }
            Err(_) => Err(CryptoError),
        }
    }
}

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

    fn key() -> TokenKey {
        crate::HostKey::random().token_key()
    }

    #[test]
    fn tokens_are_opened_as_they_were_sealed() {
        let key = key();
        for plain in [&[RETRY, 1, 2, 3][..], &[1, 2, 3], &[1; 100]] {
            let mut token = plain.to_vec();
            key.aead_from_hkdf(b"one").seal(&mut token, &[]).unwrap();
            assert_eq!(key.aead_from_hkdf(b"one").open(&mut token.clone(), &[]).unwrap(), plain);
            // A change anywhere is found, and so is the key of another one.
            let is_retry = plain[0] == RETRY;
            let bits = (0..token.len() - MARK_BYTES).map(|at| (at, "one")).chain([(0, "two")]);
            for (at, random) in bits {
                let mut changed = token.clone();
                changed[at] ^= u8::from(random == "one");
                let opened = key.aead_from_hkdf(random.as_bytes());
                let opened = opened.open(&mut changed, &[]).ok().map(|plain| plain.to_vec());
                assert_eq!(opened, is_retry.then(|| vec![0; NOBODYS_BYTES]));
            }
            for at in token.len() - MARK_BYTES..token.len() {
                let mut changed = token.clone();
                changed[at] ^= 1;
                assert!(key.aead_from_hkdf(b"one").open(&mut changed, &[]).is_err());
            }
        }
        for len in 0..MARK_BYTES + NOBODYS_BYTES {
            let mut short = [vec![0; len], RETRY_MARK.to_vec()].concat();
            let short = &mut short[len.min(MARK_BYTES)..];
            assert!(key.aead_from_hkdf(b"one").open(short, &[]).is_err());
        }
    }

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
