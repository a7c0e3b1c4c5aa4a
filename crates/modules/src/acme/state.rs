//! Issuers, their certificates, and what reloads keep of both.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nowait_acme::{Algorithm, ExternalAccount, Identifier, Schedule, Validity};
use nowait_conf::Contents;
use nowait_front::tls::https::Https;
use nowait_front::tls::validation;
use nowait_http::slots::Key;
use sha1::{Digest, Sha1};

/// Characters of the first name in a file's name: with all that is appended, it has 255 bytes at most.
const NAME_MAX: usize = 200;

/// Challenges of an issuer at a time: orders are made one after another.
const CHALLENGES_MAX: usize = 100;

/// The issuers of a configuration.
pub static ISSUERS: Key<Issuers> = Key::new();

/// Issuers and certificates, by number.
#[derive(Default)]
pub struct Issuers {
    pub all: Vec<Issuer>,
    pub certificates: Vec<Certificate>,
}

/// An issuer.
pub struct Issuer {
    pub name: Box<str>,
    /// The directory.
    pub uri: String,
    pub account_key: AccountKey,
    pub contacts: Vec<String>,
    pub accepts_terms: bool,
    pub external: Option<ExternalAccount>,
    pub profile: Option<(String, bool)>,
    pub preferred_chain: Option<String>,
    pub common_name: bool,
    pub challenge: ChallengeKind,
    /// Before a first order, the server looks whether the names lead here.
    pub checks_names: bool,
    pub state_path: Option<Vec<u8>>,
    /// `None` only while the configuration is read.
    pub https: Option<Https>,
    pub shared: Arc<Shared>,
}

/// How control of names is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeKind {
    /// `http-01`
    Http,
    /// `tls-alpn-01`
    TlsAlpn,
}

impl ChallengeKind {
    /// The name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http-01",
            Self::TlsAlpn => "tls-alpn-01",
        }
    }
}

/// The key of an account.
pub enum AccountKey {
    /// Generated when it is needed first.
    Generated(Algorithm),
    /// From a file, in DER.
    Given(Contents),
}

/// A certificate of a server.
#[derive(Clone)]
pub struct Certificate {
    /// The number of its issuer.
    pub issuer: usize,
    pub identifiers: Vec<Identifier>,
    pub algorithm: Algorithm,
    /// The name of its file, which equal certificates share.
    pub file: String,
}

impl Default for Certificate {
    fn default() -> Self {
        Self::new(usize::MAX, Vec::new(), Algorithm::Ecdsa256)
    }
}

impl Certificate {
    pub fn new(issuer: usize, identifiers: Vec<Identifier>, algorithm: Algorithm) -> Self {
        let mut hash = Sha1::new();
        hash.update(algorithm.name());
        for one in &identifiers {
            hash.update([0]);
            hash.update(one.value());
        }
        let hash: String = hash.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect();
        let first = identifiers.first().map(Identifier::value).unwrap_or_default();
        let first: String = first.chars().take(NAME_MAX).collect();
        Self { issuer, algorithm, file: format!("{first}-{hash}.pem"), identifiers }
    }

    /// Its first identifier, for logs.
    pub fn name(&self) -> String {
        self.identifiers.first().map(Identifier::value).unwrap_or_default()
    }
}

/// A certificate with its key.
pub struct Pair {
    /// The key, then the chain, in PEM.
    pub text: zeroize::Zeroizing<String>,
    pub validity: Validity,
    /// Its name for the issuer (RFC 9773, 4.1).
    pub id: Option<String>,
}

/// What is known of an issuer's account.
#[derive(Clone)]
pub struct Account {
    /// The key in DER.
    pub key: Contents,
    /// Its URL, once the issuer has told it.
    pub url: Option<String>,
}

/// What workers share of an issuer.
#[derive(Default)]
pub struct Shared {
    challenges: Mutex<BTreeMap<Vec<u8>, String>>,
    pairs: Mutex<BTreeMap<String, Arc<Pair>>>,
    account: Mutex<Option<Account>>,
    /// By the certificate's file.
    schedules: Mutex<BTreeMap<String, Schedule>>,
    /// Certificates that are in use and could not be written, by their file.
    unstored: Mutex<BTreeMap<String, Unstored>>,
}

/// The first pause after a failure to write.
const PAUSE_MIN: Duration = Duration::from_secs(60);

/// The longest one.
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// When the next attempt is made to write a certificate.
#[derive(Clone, Copy, Debug)]
pub struct Unstored {
    pause: Duration,
    at: Instant,
}

impl Unstored {
    /// It has failed now, and perhaps before.
    fn after(before: Option<Self>, now: Instant) -> Self {
        let pause =
            before.map_or(PAUSE_MIN, |before| (before.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX));
        Self { pause, at: now + pause }
    }

    /// How long nothing is to be done.
    pub fn left(self, now: Instant) -> Duration {
        self.at.saturating_duration_since(now)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn pair(&self, file: &str) -> Option<Arc<Pair>> {
        lock(&self.pairs).get(file).cloned()
    }

    pub fn put(&self, file: &str, pair: Pair) {
        lock(&self.pairs).insert(file.to_owned(), Arc::new(pair));
    }

    pub fn account(&self) -> Option<Account> {
        lock(&self.account).clone()
    }

    pub fn set_account(&self, account: Account) {
        *lock(&self.account) = Some(account);
    }

    /// A certificate that could not be written.
    pub fn unstored(&self, file: &str) -> Option<Unstored> {
        lock(&self.unstored).get(file).copied()
    }

    /// Writing a certificate has failed; returns the pause until the next attempt.
    pub fn not_stored(&self, file: &str, now: Instant) -> Duration {
        let mut unstored = lock(&self.unstored);
        let next = Unstored::after(unstored.get(file).copied(), now);
        unstored.insert(file.to_owned(), next);
        next.pause
    }

    /// A certificate is in its file.
    pub fn stored(&self, file: &str) {
        lock(&self.unstored).remove(file);
    }

    /// After a reload, the next attempts are made at once.
    pub fn store_at_once(&self, now: Instant) {
        lock(&self.unstored).values_mut().for_each(|unstored| {
            *unstored = Unstored { pause: Duration::ZERO, at: now };
        });
    }

    /// The schedule of a certificate: a reload keeps it.
    pub fn schedule(&self, file: &str) -> Option<Schedule> {
        lock(&self.schedules).get(file).cloned()
    }

    pub fn set_schedule(&self, file: &str, schedule: Schedule) {
        lock(&self.schedules).insert(file.to_owned(), schedule);
    }
}

/// What an order has published, until it is dropped.
pub struct Published<'s> {
    shared: &'s Shared,
    tokens: Vec<Vec<u8>>,
    validations: Vec<validation::Published>,
}

impl<'s> Published<'s> {
    pub fn new(shared: &'s Shared) -> Self {
        Self { shared, tokens: Vec::new(), validations: Vec::new() }
    }

    /// The answer to a challenge `http-01`.
    pub fn answer(&mut self, token: &str, answer: String) {
        let token = token.as_bytes().to_vec();
        let mut challenges = lock(&self.shared.challenges);
        if challenges.len() >= CHALLENGES_MAX {
            challenges.clear();
        }
        challenges.insert(token.clone(), answer);
        self.tokens.push(token);
    }

    /// The tokens of answers.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().filter_map(|token| std::str::from_utf8(token).ok())
    }

    /// The answer to a challenge `tls-alpn-01`.
    pub fn validation(&mut self, validation: validation::Published) {
        self.validations.push(validation);
    }
}

impl Drop for Published<'_> {
    fn drop(&mut self) {
        let mut challenges = lock(&self.shared.challenges);
        for token in &self.tokens {
            challenges.remove(token);
        }
    }
}

impl Issuers {
    /// A certificate with its issuer.
    pub fn certificate(&self, number: usize) -> Option<(&Issuer, &Certificate)> {
        let certificate = self.certificates.get(number)?;
        Some((self.all.get(certificate.issuer)?, certificate))
    }

    /// The answer to a challenge.
    pub fn answer(&self, token: &[u8]) -> Option<String> {
        self.all.iter().find_map(|issuer| lock(&issuer.shared.challenges).get(token).cloned())
    }

    /// Keeps certificates, account and challenges of issuers that are still the same.
    pub fn adopt(&mut self, previous: &Self) {
        for own in &mut self.all {
            let same = |one: &&Issuer| one.name == own.name && one.uri == own.uri;
            if let Some(known) = previous.all.iter().find(same) {
                own.shared = known.shared.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_to_write_are_repeated_with_growing_pauses() {
        let (shared, mut now) = (Shared::default(), Instant::now());
        assert!(shared.unstored("a").is_none());
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let pause = shared.not_stored("a", now);
            assert_eq!(shared.unstored("a").unwrap().left(now), pause);
            now += pause;
            assert!(shared.unstored("a").unwrap().left(now).is_zero());
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
        shared.not_stored("a", now);
        shared.store_at_once(now);
        assert!(shared.unstored("a").unwrap().left(now).is_zero());
        assert_eq!(shared.not_stored("a", now), PAUSE_MIN);
        shared.stored("a");
        assert!(shared.unstored("a").is_none());
    }
}
