//! Names that issuers of certificates validate by `tls-alpn-01` (RFC 8737).
//!
//! The code that orders certificates publishes responses here. Every handshake of the process checks them,
//! regardless of its server, because an issuer may connect to any listening socket. Therefore the state belongs to
//! the process, and not to a generation of the configuration.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nowait_tls::pem::{self, PrivateKey};
use nowait_tls::{Error, Hello, Identity, ServerSettings, TlsServer};

/// The application protocol of validations.
const PROTOCOL: &[u8] = b"acme-tls/1";

/// Validations at a time, over all issuers.
const PENDING_MAX: usize = 1000;

/// Whether validations are answered at all. Without it, the protocol is like any other.
static ANSWERS: AtomicBool = AtomicBool::new(false);

/// The certificate to present.
static PENDING: Mutex<PendingStatuses> =
    Mutex::new(PendingStatuses { published: 0, by_name: BTreeMap::new() });

struct PendingStatuses {
    /// The number of the last published certificate.
    published: u64,
    /// By server name, with its number.
    by_name: BTreeMap<String, (u64, TlsServer)>,
}

fn pending() -> MutexGuard<'static, PendingStatuses> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enables or disables answers to validations.
pub fn set_answers(on: bool) {
    ANSWERS.store(on, Ordering::Relaxed);
}

/// Whether a client validates a name. RFC 8737, 3: it offers only this protocol.
pub(super) fn is_asked(hello: &Hello) -> bool {
    ANSWERS.load(Ordering::Relaxed) && hello.offers_only(PROTOCOL)
}

/// The server for a name that is being validated.
pub(super) fn find(name: &str) -> Option<TlsServer> {
    pending().by_name.get(name).map(|(_, server)| server.clone())
}

/// A certificate that validates a name.
pub struct Proof(TlsServer);

impl Proof {
    /// Reads a certificate with its key from PEM. This computes: it belongs into a pool.
    ///
    /// # Errors
    /// They are unusable.
    pub fn new(file: &str) -> Result<Self, Error> {
        let key = PrivateKey::from_pem(file.as_bytes(), &[])?;
        let identity = Identity::new(pem::certificates(file.as_bytes())?, &key, None)?;
        let settings = ServerSettings {
            identities: vec![identity],
            alpn: vec![PROTOCOL.to_vec()],
            ..ServerSettings::default()
        };
        TlsServer::new(settings).map(Self)
    }

    /// Presents the certificate to clients that validate `name`, until the result is dropped or another
    /// certificate is published for the name.
    ///
    /// # Errors
    /// Too many names are being validated.
    pub fn publish(self, name: String) -> Result<Published, Error> {
        let mut pending = pending();
        if pending.by_name.len() >= PENDING_MAX {
            return Err(Error::Settings(format!("{PENDING_MAX} names are being validated")));
        }
        pending.published += 1;
        let number = pending.published;
        pending.by_name.insert(name.clone(), (number, self.0));
        Ok(Published { name, number })
    }
}

/// A published [`Proof`].
#[derive(Debug)]
pub struct Published {
    name: String,
    number: u64,
}

impl Drop for Published {
    fn drop(&mut self) {
        let mut pending = pending();
        if pending.by_name.get(&self.name).is_some_and(|(number, _)| *number == self.number) {
            pending.by_name.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_proof_is_withdrawn() {
        let name = "validation.test";
        let publish = || {
            let own = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
            let file = format!("{}{}", own.cert.pem(), own.signing_key.serialize_pem());
            Proof::new(&file).unwrap().publish(name.to_owned()).unwrap()
        };
        let first = publish();
        let second = publish();
        drop(first);
        assert!(find(name).is_some());
        drop(second);
        assert!(find(name).is_none());
        assert!(Proof::new("").is_err());
    }
}
