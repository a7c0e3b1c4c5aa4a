//! Issuers, their certificates, and what reloads keep of both.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use nowait_acme::{Algorithm, External, Identifier};
use nowait_conf::Contents;
use nowait_front::tls::https::Https;
use sha1::{Digest, Sha1};

use crate::slots::Key;

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
    pub external: Option<External>,
    pub profile: Option<(String, bool)>,
    pub preferred_chain: Option<String>,
    pub common_name: bool,
    pub state_path: Option<Vec<u8>>,
    /// `None` only while the configuration is read.
    pub https: Option<Https>,
    pub shared: Arc<Shared>,
}

/// The key of an account.
pub enum AccountKey {
    /// Generated when it is needed first.
    Generated(Algorithm),
    /// From a file, in DER.
    Given(Contents),
}

/// A certificate of a server.
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
    pub from: SystemTime,
    pub until: SystemTime,
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

    pub fn publish(&self, token: &str, answer: String) {
        let mut challenges = lock(&self.challenges);
        if challenges.len() >= CHALLENGES_MAX {
            challenges.clear();
        }
        challenges.insert(token.as_bytes().to_vec(), answer);
    }

    pub fn unpublish(&self) {
        lock(&self.challenges).clear();
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
