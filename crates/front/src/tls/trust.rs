//! What decides about certificates of clients, and what was decided about that of a connection.
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

/// Verdicts that a connection remembers besides that of its handshake. A client that goes back and forth
/// between more servers with other judges has its chain verified more often.
const OTHERS_MAX: usize = 4;

/// What a judge consists of.
#[derive(PartialEq, Eq)]
struct TrustContents {
    verifier: [u8; 32],
    /// Whether only the client's own certificate is asked about, and whom.
    ocsp: Option<(bool, Option<Responder>)>,
}

/// Tells judges apart.
#[derive(Clone)]
pub(super) struct TrustIdentity(Arc<TrustContents>);

impl TrustIdentity {
    /// Whether both are the same. Equal ones of different generations become one, so that the next look
    /// is at their addresses only.
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
    /// One that verifies chains, and then asks responders.
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

/// What a judge says of a connection's client.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientVerdict {
    /// It presented no certificate, or was not asked for one.
    NoCertificate,
    /// This.
    Given(Result<(), Distrust>),
    /// Nothing yet.
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
    /// Those of a handshake with this judge; `None`: it did not ask for a certificate.
    pub(super) fn of(judge: Option<&ClientTrust>) -> Self {
        let handshake = RefCell::new(judge.map(|judge| judge.identity.clone()));
        Self { handshake, others: RefCell::default() }
    }
}

impl Tls {
    /// Whether the handshake was made with this judge, so that another one would lead to the same.
    pub fn is_of(&self, judge: Option<&ClientTrust>) -> bool {
        match (&mut *self.verdicts.handshake.borrow_mut(), judge) {
            (Some(own), Some(judge)) => own.is(&judge.identity),
            (None, None) => true,
            _ => false,
        }
    }

    /// What a judge says of the client.
    pub fn verdict(&self, judge: &ClientTrust) -> ClientVerdict {
        // Without one, the handshake is not complete, or had no certificate.
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
