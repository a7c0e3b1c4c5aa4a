//! Issuers and certificates, with their state that survives reloads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use nowait_acme::{Algorithm, ExternalAccount, Identifier, Schedule, Validity};
use nowait_conf::Contents;
use nowait_front::tls::https::Https;
use nowait_front::tls::validation;
use nowait_http::slots::Key;
use sha1::{Digest, Sha1};

use super::dns_hook::{DnsHook, HookState};

/// Characters of the first identifier in a file name, such that the name with all suffixes has at most 255
/// bytes.
const NAME_MAX: usize = 200;

/// Maximum number of pending challenges of an issuer. Orders are made one after another.
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
    /// The program for `dns-01`.
    pub dns_hook: Option<DnsHook>,
    /// The time until a published record is visible everywhere.
    pub dns_propagation_delay: Duration,
    /// Before a first order, the server checks that the names resolve to it.
    pub checks_names: bool,
    pub state_path: Option<Vec<u8>>,
    /// `None` only while the configuration is read.
    pub https: Option<Https>,
    pub shared: Arc<IssuerState>,
}

/// The type of challenge that proves control of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeKind {
    /// `http-01`
    Http,
    /// `tls-alpn-01`
    TlsAlpn,
    /// `dns-01`
    Dns,
}

impl ChallengeKind {
    /// The name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http-01",
            Self::TlsAlpn => "tls-alpn-01",
            Self::Dns => "dns-01",
        }
    }
}

/// The key of an account.
pub enum AccountKey {
    /// Generated on first use.
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
        let hash = HEXLOWER.encode(&hash.finalize()[..8]);
        let first = identifiers.first().map(Identifier::value).unwrap_or_default();
        let first: String = first.replace('*', "_").chars().take(NAME_MAX).collect();
        Self { issuer, algorithm, file: format!("{first}-{hash}.pem"), identifiers }
    }

    /// The first identifier, for logs.
    pub fn name(&self) -> String {
        self.identifiers.first().map(Identifier::value).unwrap_or_default()
    }
}

/// A certificate with its key.
pub struct CertifiedKey {
    /// The key, then the chain, in PEM.
    pub text: zeroize::Zeroizing<String>,
    pub validity: Validity,
    /// The name for the issuer (RFC 9773, 4.1).
    pub id: Option<String>,
}

/// The account at an issuer.
#[derive(Clone)]
pub struct Account {
    /// The key in DER.
    pub key: Contents,
    /// Its URL, once known.
    pub url: Option<String>,
}

/// The state of an issuer, shared by workers.
#[derive(Default)]
pub struct IssuerState {
    challenges: Mutex<BTreeMap<Vec<u8>, String>>,
    pairs: Mutex<BTreeMap<String, Arc<CertifiedKey>>>,
    account: Mutex<Option<Account>>,
    /// By the certificate's file.
    schedules: Mutex<BTreeMap<String, Schedule>>,
    /// Certificates that are in use and could not be written, by their file.
    unstored: Mutex<BTreeMap<String, WriteRetry>>,
    /// The program for `dns-01`, and its records.
    pub hook: Arc<HookState>,
}

/// The pause after a first failed write.
const PAUSE_MIN: Duration = Duration::from_secs(60);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// The time of the next attempt to write a certificate.
#[derive(Clone, Copy, Debug)]
pub struct WriteRetry {
    pause: Duration,
    at: Instant,
}

impl WriteRetry {
    /// The state after a failure at `now`.
    fn after(before: Option<Self>, now: Instant) -> Self {
        let pause =
            before.map_or(PAUSE_MIN, |before| (before.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX));
        Self { pause, at: now + pause }
    }

    /// Time until the next attempt.
    pub fn left(self, now: Instant) -> Duration {
        self.at.saturating_duration_since(now)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl IssuerState {
    pub fn pair(&self, file: &str) -> Option<Arc<CertifiedKey>> {
        lock(&self.pairs).get(file).cloned()
    }

    pub fn put(&self, file: &str, pair: CertifiedKey) {
        lock(&self.pairs).insert(file.to_owned(), Arc::new(pair));
    }

    pub fn account(&self) -> Option<Account> {
        lock(&self.account).clone()
    }

    pub fn set_account(&self, account: Account) {
        *lock(&self.account) = Some(account);
    }

    /// A certificate that could not be written.
    pub fn unstored(&self, file: &str) -> Option<WriteRetry> {
        lock(&self.unstored).get(file).copied()
    }

    /// Writing a certificate has failed; returns the pause until the next attempt.
    pub fn not_stored(&self, file: &str, now: Instant) -> Duration {
        let mut unstored = lock(&self.unstored);
        let next = WriteRetry::after(unstored.get(file).copied(), now);
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
            *unstored = WriteRetry { pause: Duration::ZERO, at: now };
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

/// Responses published for an order; withdrawn on drop.
pub struct PublishedChallenges<'s> {
    shared: &'s IssuerState,
    tokens: Vec<Vec<u8>>,
    validations: Vec<validation::Published>,
}

impl<'s> PublishedChallenges<'s> {
    pub fn new(shared: &'s IssuerState) -> Self {
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

impl Drop for PublishedChallenges<'_> {
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

    /// Takes over certificates, account and challenges of unchanged issuers.
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
        let (shared, mut now) = (IssuerState::default(), Instant::now());
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
