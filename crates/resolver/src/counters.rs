//! Counters of a resolver: nginx's numbers (`/resolvers/` of its API).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::answer::ResolveError;
use crate::exchange::ExchangeResult;
use crate::message::{RecordType, Reply};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters that all workers add to.
        #[derive(Debug, Default)]
        pub struct ResolverCounters { $(pub(crate) $name: AtomicU64,)* }

        /// A snapshot of the counters.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Statistics { $($(#[$doc])* pub $name: u64,)* }

        impl ResolverCounters {
            /// The current values.
            pub fn snapshot(&self) -> Statistics {
                Statistics { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Address queries.
    name,
    /// Service queries.
    srv,
    /// Successful responses.
    noerror,
    /// "Format error".
    formerr,
    /// "Server failure".
    servfail,
    /// "Host not found".
    nxdomain,
    /// "Unimplemented".
    notimp,
    /// "Operation refused".
    refused,
    /// Lookups without a response in time.
    timedout,
    /// Responses with other errors.
    unknown,
    /// Messages that did not match a query.
    rejected,
    /// Lookups answered from the cache.
    cached,
    /// Lookups refused because too many were in flight.
    overloaded,
}

impl ResolverCounters {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a sent query.
    pub(crate) fn asked(&self, kind: RecordType) {
        Self::add(match kind {
            RecordType::A | RecordType::Aaaa => &self.name,
            RecordType::Srv => &self.srv,
        });
    }

    /// Counts a response.
    pub(crate) fn answered(&self, exchanged: &ExchangeResult) {
        self.rejected.fetch_add(exchanged.rejected as u64, Ordering::Relaxed);
        Self::add(match exchanged.reply {
            Reply::Found(..) | Reply::Alias(..) | Reply::Empty(_) | Reply::Truncated => {
                &self.noerror
            }
            Reply::NoName(_) => &self.nxdomain,
            Reply::Failed(ResolveError::ServerFailure) => &self.servfail,
            Reply::Failed(ResolveError::NotImplemented) => &self.notimp,
            Reply::Failed(ResolveError::Refused) => &self.refused,
            Reply::Odd(1) => &self.formerr,
            Reply::Failed(_) | Reply::Odd(_) => &self.unknown,
        });
    }
}
