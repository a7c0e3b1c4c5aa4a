//! Keys of session tickets: from files, or generated and replaced at intervals.
//!
//! A ticket is the name of its key, a salt, and the session sealed by AES-256-GCM under a key that
//! is derived from both for this ticket alone. A fixed key in a file may so seal any number of
//! tickets. Tickets also depend on a *context*: servers that share keys but demand different things
//! of their clients do not accept each other's tickets. In front of the session stands the time of
//! issue: rustls leaves it to keys to expire, but keys in files need not.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use rustls::server::ProducesTickets;
use zeroize::Zeroizing;

use crate::error::Error;

const NAME_BYTES: usize = 16;
const SALT_BYTES: usize = 32;

/// Bytes of a tag of AES-GCM.
const TAG_BYTES: usize = 16;

/// Number of key files; nginx has no bound.
pub const TICKET_KEYS_MAX: usize = 64;

/// A key as in nginx's `ssl_session_ticket_key` files, of 48 or 80 bytes.
pub struct TicketKey {
    name: [u8; NAME_BYTES],
    secret: Zeroizing<Vec<u8>>,
}

impl TicketKey {
    /// The contents of a file.
    ///
    /// # Errors
    /// The size is neither 48 nor 80 bytes.
    pub fn from_file(bytes: &[u8]) -> Result<TicketKey, Error> {
        if !matches!(bytes.len(), 48 | 80) {
            return Err(Error::Settings("must be 48 or 80 bytes".to_owned()));
        }
        let (name, secret) = bytes.split_at(NAME_BYTES);
        let name = name.try_into().expect("split at this length");
        Ok(TicketKey { name, secret: Zeroizing::new(secret.to_vec()) })
    }

    fn generate() -> Option<TicketKey> {
        let mut bytes = Zeroizing::new([0; 80]);
        aws_lc_rs::rand::fill(&mut *bytes).ok()?;
        TicketKey::from_file(&*bytes).ok()
    }

    /// The key for a single ticket.
    fn derive(&self, salt: &[u8], context: &[u8]) -> Option<LessSafeKey> {
        let secret = Salt::new(HKDF_SHA256, salt).extract(&self.secret);
        let info = [b"nowait session ticket".as_slice(), context];
        let key: UnboundKey = secret.expand(&info, &AES_256_GCM).ok()?.into();
        Some(LessSafeKey::new(key))
    }

    fn seal(&self, session: &[u8], context: &[u8], now: u64) -> Option<Vec<u8>> {
        let mut salt = [0; SALT_BYTES];
        aws_lc_rs::rand::fill(&mut salt).ok()?;
        let key = self.derive(&salt, context)?;
        let mut sealed = [&now.to_be_bytes()[..], session].concat();
        // The key is used once: its nonce may be a constant.
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        key.seal_in_place_append_tag(nonce, Aad::from(self.name), &mut sealed).ok()?;
        Some([&self.name[..], &salt, &sealed].concat())
    }

    fn open(&self, salt: &[u8], sealed: &[u8], context: &[u8]) -> Option<Vec<u8>> {
        let key = self.derive(salt, context)?;
        let mut session = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        let len = key.open_in_place(nonce, Aad::from(self.name), &mut session).ok()?.len();
        session.truncate(len);
        Some(session)
    }
}

/// The session in an opened ticket, unless it is too old.
fn fresh(opened: Vec<u8>, now: u64, lifetime: Duration) -> Option<Vec<u8>> {
    let (issued, session) = opened.split_first_chunk()?;
    let age = now.saturating_sub(u64::from_be_bytes(*issued));
    (age <= lifetime.as_secs()).then(|| session.to_vec())
}

/// Seconds since the epoch: tickets outlive processes.
fn unix_time() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// The keys in use: the first seals, all open.
enum Keys {
    Fixed(Vec<TicketKey>),
    Rotating(Mutex<Rotation>),
}

struct Rotation {
    /// At most the current and the previous one.
    keys: Vec<Arc<TicketKey>>,
    since: Instant,
}

/// The keys of session tickets. Servers may share them, and a reload should keep them, so that
/// sessions survive it.
pub struct TicketKeys(Keys);

impl std::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TicketKeys").finish_non_exhaustive()
    }
}

impl TicketKeys {
    /// Keys from files: the first one seals new tickets.
    ///
    /// # Errors
    /// There is none, or more than [`TICKET_KEYS_MAX`].
    pub fn fixed(keys: Vec<TicketKey>) -> Result<TicketKeys, Error> {
        if keys.is_empty() || keys.len() > TICKET_KEYS_MAX {
            return Err(Error::Settings("wrong number of session ticket keys".to_owned()));
        }
        Ok(TicketKeys(Keys::Fixed(keys)))
    }

    /// Random keys. Each seals tickets for the lifetime of a ticket, and opens them for one more.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generated() -> Result<TicketKeys, Error> {
        let none = Error::Connection(rustls::Error::FailedToGetRandomBytes);
        let keys = vec![Arc::new(TicketKey::generate().ok_or(none)?)];
        Ok(TicketKeys(Keys::Rotating(Mutex::new(Rotation { keys, since: Instant::now() }))))
    }

    /// Uses the same generated keys as `other`, so that its tickets stay valid.
    pub fn adopt(&self, other: &TicketKeys) {
        let (Keys::Rotating(own), Keys::Rotating(other)) = (&self.0, &other.0) else { return };
        if std::ptr::eq(own, other) {
            return;
        }
        let (keys, since) = {
            let rotation = other.lock().unwrap_or_else(PoisonError::into_inner);
            (rotation.keys.clone(), rotation.since)
        };
        *own.lock().unwrap_or_else(PoisonError::into_inner) = Rotation { keys, since };
    }

    fn seal(
        &self,
        session: &[u8],
        context: &[u8],
        lifetime: Duration,
        now: u64,
    ) -> Option<Vec<u8>> {
        match &self.0 {
            Keys::Fixed(keys) => keys.first()?.seal(session, context, now),
            Keys::Rotating(rotation) => rotated(rotation, lifetime).0.seal(session, context, now),
        }
    }

    fn open(&self, ticket: &[u8], context: &[u8], lifetime: Duration, now: u64) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME_BYTES)?;
        let (salt, sealed) = rest.split_at_checked(SALT_BYTES)?;
        if sealed.len() < TAG_BYTES {
            return None;
        }
        let open = |key: &TicketKey| (key.name == name).then(|| key.open(salt, sealed, context))?;
        let opened = match &self.0 {
            Keys::Fixed(keys) => keys.iter().find_map(open),
            Keys::Rotating(rotation) => {
                let (current, previous) = rotated(rotation, lifetime);
                open(&current).or_else(|| open(&*previous?))
            }
        };
        fresh(opened?, now, lifetime)
    }
}

/// The current key and the previous one, after replacing them if due.
fn rotated(
    rotation: &Mutex<Rotation>,
    lifetime: Duration,
) -> (Arc<TicketKey>, Option<Arc<TicketKey>>) {
    let mut rotation = rotation.lock().unwrap_or_else(PoisonError::into_inner);
    let age = rotation.since.elapsed();
    if age >= lifetime
        && let Some(key) = TicketKey::generate()
    {
        // After a pause, even the previously current key is too old.
        rotation.keys.truncate(if age >= lifetime * 2 { 0 } else { 1 });
        rotation.keys.insert(0, Arc::new(key));
        rotation.since = Instant::now();
    }
    (rotation.keys[0].clone(), rotation.keys.get(1).cloned())
}

/// Tickets of one server.
#[derive(Debug)]
pub(crate) struct Tickets {
    pub(crate) keys: Arc<TicketKeys>,
    pub(crate) lifetime: Duration,
    /// The server's requirements for clients, as a hash.
    pub(crate) context: Vec<u8>,
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(self.lifetime.as_secs()).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys.seal(plain, &self.context, self.lifetime, unix_time())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.keys.open(cipher, &self.context, self.lifetime, unix_time())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn key(seed: u8, len: usize) -> TicketKey {
        TicketKey::from_file(&vec![seed; len]).unwrap()
    }

    #[test]
    fn keys_from_files_rotate_by_their_order() {
        let old = TicketKeys::fixed(vec![key(1, 48)]).unwrap();
        let new = TicketKeys::fixed(vec![key(2, 80), key(1, 48)]).unwrap();
        let ticket = old.seal(b"session", b"", LONG, 0).unwrap();
        assert_eq!(new.open(&ticket, b"", LONG, 0).unwrap(), b"session");
        let ticket = new.seal(b"session", b"", LONG, 0).unwrap();
        assert!(old.open(&ticket, b"", LONG, 0).is_none());
        assert!(TicketKey::from_file(&[0; 64]).is_err());
        assert!(TicketKeys::fixed(Vec::new()).is_err());
    }

    #[test]
    fn only_genuine_tickets_of_the_same_context_are_opened() {
        let keys = TicketKeys::generated().unwrap();
        let ticket = keys.seal(b"session", b"a", LONG, 0).unwrap();
        assert!(keys.open(&ticket, b"b", LONG, 0).is_none());
        for at in 0..ticket.len() {
            let mut bad = ticket.clone();
            bad[at] ^= 1;
            assert!(keys.open(&bad, b"a", LONG, 0).is_none());
            assert!(keys.open(&ticket[..at], b"a", LONG, 0).is_none());
        }
        assert!(keys.open(&ticket, b"a", LONG, 0).is_some());
    }

    #[test]
    fn tickets_expire_even_if_their_key_does_not() {
        let keys = TicketKeys::fixed(vec![key(1, 80)]).unwrap();
        let ticket = keys.seal(b"session", b"", LONG, 1000).unwrap();
        assert!(keys.open(&ticket, b"", LONG, 1000 + 3600).is_some());
        assert!(keys.open(&ticket, b"", LONG, 1000 + 3601).is_none());
        // Clocks of several machines differ.
        assert!(keys.open(&ticket, b"", LONG, 990).is_some());
    }

    #[test]
    fn generated_keys_are_taken_over() {
        let (old, new) = (TicketKeys::generated().unwrap(), TicketKeys::generated().unwrap());
        let ticket = old.seal(b"session", b"", LONG, 0).unwrap();
        assert!(new.open(&ticket, b"", LONG, 0).is_none());
        new.adopt(&old);
        assert_eq!(new.open(&ticket, b"", LONG, 0).unwrap(), b"session");
    }

    #[test]
    fn generated_keys_are_replaced() {
        let keys = TicketKeys::generated().unwrap();
        let ticket = keys.seal(b"session", b"", LONG, 0).unwrap();
        // With a lifetime of zero each use replaces them.
        assert!(keys.open(&ticket, b"", Duration::ZERO, 0).is_none());
        assert!(keys.open(&ticket, b"", LONG, 0).is_none());
    }
}
