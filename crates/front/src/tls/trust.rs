//! Verifiers of client certificates, and the verdicts about a connection's certificate.
//!
//! A verdict belongs to the judge that gave it: authorities, revocation lists, depth, and OCSP.
//! Connections outlive reloads, and carry requests for several servers, so each request asks for the
//! verdict of *its* server's judge. If there is none yet, the chain that the client has presented is
//! verified again, in a pool. Judges with equal contents are the same one, regardless of their generation:
//! then there is nothing to do.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use nowait_runtime::pool::{Class, Op, PoolError};
use nowait_tls::{CertificateDer, Distrust, Role, Verifier};

use super::ocsp::{Asking, ClientOcsp, Responder};
use super::{HandshakeError, Tls};

/// Verdicts that a connection caches besides that of its handshake. If a client alternates between more
/// servers with different judges, its chain is verified again.
const OTHERS_MAX: usize = 4;

/// The parts of a judge.
#[derive(PartialEq, Eq)]
struct TrustContents {
    verifier: [u8; 32],
    /// Whether OCSP checks only the client's own certificate, and the responder.
    ocsp: Option<(bool, Option<Responder>)>,
}

/// Identifies the judge.
#[derive(Clone)]
pub(super) struct TrustIdentity(Arc<TrustContents>);

impl TrustIdentity {
    /// Whether both judges are equal. Equal judges of different generations are merged, so that the next
    /// comparison needs only their addresses.
    fn is(&mut self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        let same = self.0 == other.0;
        if same {
            *self = other.clone();
        }
        same
    }
}

/// Judges certificates of clients.
pub struct ClientTrust {
    identity: TrustIdentity,
    verifier: Arc<Verifier>,
    ocsp: Option<Arc<ClientOcsp>>,
}

impl fmt::Debug for ClientTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientTrust({:?}, {:?})", self.verifier, self.ocsp)
    }
}

impl ClientTrust {
    /// A judge that verifies chains, and then checks them by OCSP.
    pub fn new(verifier: Arc<Verifier>, ocsp: Option<Arc<ClientOcsp>>) -> Self {
        let asks = ocsp.as_ref().map(|ocsp| (ocsp.leaf_only, ocsp.responder.clone()));
        let identity =
            TrustIdentity(Arc::new(TrustContents { verifier: *verifier.digest(), ocsp: asks }));
        Self { identity, verifier, ocsp }
    }

    /// Verifies a chain that a client has presented earlier. `client`: its number in the pool.
    ///
    /// # Errors
    /// The pool takes no more work.
    pub async fn verify(
        &self,
        chain: Vec<CertificateDer<'static>>,
        client: u64,
        asking: &Asking,
    ) -> Result<Result<(), Distrust>, HandshakeError> {
        let verifier = self.verifier.clone();
        let find = move || verifier.find_path(&chain, Role::Client, SystemTime::now());
        let found: Result<_, PoolError> =
            asking.pool.run(Class::Bulk, client, Op::Blocking, find).await;
        Ok(match (found.map_err(HandshakeError::Pool)?, &self.ocsp) {
            (Ok(path), Some(ocsp)) => ocsp.check(&path, asking).await,
            (found, _) => found.map(drop),
        })
    }
}

/// The verdict of a judge about a connection's client.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientVerdict {
    /// The client presented no certificate, or none was requested.
    NoCertificate,
    /// This.
    Given(Result<(), Distrust>),
    /// Not verified yet.
    Pending,
}

/// The verdicts on a connection's client.
#[derive(Default)]
pub(super) struct Verdicts {
    /// The judge of the handshake; its verdict is the session's.
    handshake: RefCell<Option<TrustIdentity>>,
    /// The oldest first.
    others: RefCell<Vec<(TrustIdentity, Result<(), Distrust>)>>,
}

impl fmt::Debug for Verdicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verdicts").finish_non_exhaustive()
    }
}

impl Verdicts {
    /// The verdicts of a handshake with this judge; `None`: it requested no certificate.
    pub(super) fn of(judge: Option<&ClientTrust>) -> Self {
        let handshake = RefCell::new(judge.map(|judge| judge.identity.clone()));
        Self { handshake, others: RefCell::default() }
    }
}

impl Tls {
    /// Whether the handshake was made with this judge, so that another one would have the same result.
    pub fn is_of(&self, judge: Option<&ClientTrust>) -> bool {
        match (&mut *self.verdicts.handshake.borrow_mut(), judge) {
            (Some(own), Some(judge)) => own.is(&judge.identity),
            (None, None) => true,
            _ => false,
        }
    }

    /// The verdict of a judge.
    pub fn verdict(&self, judge: &ClientTrust) -> ClientVerdict {
        // Without a chain, the handshake is incomplete or had no certificate.
        let Some(own) = self.trust() else { return ClientVerdict::NoCertificate };
        if self.is_of(Some(judge)) {
            return ClientVerdict::Given(own);
        }
        let mut others = self.verdicts.others.borrow_mut();
        match others.iter_mut().find_map(|(of, verdict)| of.is(&judge.identity).then_some(*verdict))
        {
            Some(verdict) => ClientVerdict::Given(verdict),
            None => ClientVerdict::Pending,
        }
    }

    /// Remembers a verdict on the chain of this connection.
    pub fn remember(&self, judge: &ClientTrust, verdict: Result<(), Distrust>) {
        let mut others = self.verdicts.others.borrow_mut();
        others.retain_mut(|(of, _)| !of.is(&judge.identity));
        if others.len() >= OTHERS_MAX {
            drop(others.remove(0));
        }
        others.push((judge.identity.clone(), verdict));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(depth: usize, leaf_only: Option<bool>) -> ClientTrust {
        let verifier = Verifier::new(Vec::new(), &[], depth).unwrap();
        let ocsp = leaf_only.map(|leaf_only| {
            let (responder, cache, resolving) = (None, None, Default::default());
            Arc::new(ClientOcsp { leaf_only, responder, cache, resolving })
        });
        ClientTrust::new(Arc::new(verifier), ocsp)
    }

    #[test]
    fn judges_with_equal_contents_are_one() {
        let first = judge(1, None);
        for (other, same) in [
            (judge(1, None), true),
            (judge(2, None), false),
            (judge(1, Some(true)), false),
            (judge(1, Some(false)), false),
        ] {
            let mut identity = first.identity.clone();
            assert_eq!(identity.is(&other.identity), same);
            // Looking once is enough.
            assert_eq!(Arc::ptr_eq(&identity.0, &other.identity.0), same);
        }
    }
}
