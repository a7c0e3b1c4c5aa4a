//! One lookup: queries several servers until one responds, and follows aliases to the end.
//!
//! The timing is nginx's: each server has [`Timing::resend`] to respond, then the next one is
//! queried as well; a late response is still accepted. The waiting caller decides when the lookup
//! ends.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use nowait_runtime::time::timeout;

use crate::answer::ResolveError;
use crate::counters::ResolverCounters;
use crate::exchange::{ExchangeResult, exchange};
use crate::message::{Question, RecordType, Records, Reply, SrvRecord};
use crate::name::DomainName;

/// Maximum number of aliases followed from one name. nginx: 50 (NGX_RESOLVER_MAX_RECURSION).
const ALIASES_MAX: usize = 16;

/// Maximum number of concurrent exchanges per query; older ones are abandoned.
const UNDER_WAY_MAX: usize = 4;

/// Maximum number of messages sent per query, however long the callers wait.
const SENDS_MAX: usize = 64;

/// The settings of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// After this time without a response the next server is queried.
    pub resend: Duration,
    /// Number of attempts per server; `None`: unlimited while a caller waits.
    pub rounds: Option<usize>,
    /// A failure of one server is no result while there are others, as in the system's resolver.
    /// For nginx it is a result.
    pub fail_over: bool,
}

/// Parameters of a lookup.
pub struct Lookup<'a> {
    /// Queried in this order.
    pub servers: &'a [SocketAddr],
    pub timing: Timing,
    pub counters: &'a ResolverCounters,
    /// Whether any caller is still waiting.
    pub wanted: &'a dyn Fn() -> bool,
    /// Called for responses that nginx treats as none.
    pub odd: &'a dyn Fn(&Question, u8),
}

/// A query in flight to a server.
type Exchange<'a> = Pin<Box<dyn Future<Output = io::Result<ExchangeResult>> + 'a>>;

impl Lookup<'_> {
    /// The addresses of a name, IPv4 first.
    ///
    /// As in nginx: both families are queried at once; an error of either is an error of the whole;
    /// an alias is followed, for both, only if neither has an address.
    ///
    /// # Errors
    /// The servers' errors, with the time for which they may be cached.
    pub async fn addresses(
        &self,
        name: &DomainName,
        ipv4: bool,
        ipv6: bool,
    ) -> Result<(Vec<IpAddr>, Duration), (ResolveError, Option<Duration>)> {
        let (mut name, mut least) = (name.clone(), Duration::MAX);
        for _ in 0..=ALIASES_MAX {
            let one = |kind, wanted: bool| {
                let question = Question::new(name.clone(), kind);
                async move { if wanted { Some(self.ask(&question).await) } else { None } }
            };
            let replies = join(one(RecordType::A, ipv4), one(RecordType::Aaaa, ipv6)).await;
            let (mut list, mut ttl) = (Vec::new(), least);
            let (mut alias, mut negative) = (None, None);
            for reply in [replies.0, replies.1].into_iter().flatten() {
                match reply.map_err(|error| (error, None))? {
                    Reply::Found(Records::Addresses(some), valid) => {
                        list.extend(some);
                        ttl = ttl.min(valid);
                    }
                    Reply::Alias(target, valid) => alias = Some((target, valid)),
                    Reply::NoName(valid) | Reply::Empty(valid) => negative = negative.max(valid),
                    Reply::Failed(error) => return Err((error, None)),
                    Reply::Found(Records::Services(_), _) | Reply::Odd(_) | Reply::Truncated => {
                        return Err((ResolveError::ServerFailure, None));
                    }
                }
            }
            if !list.is_empty() {
                return Ok((list, ttl));
            }
            let Some((target, valid)) = alias else {
                let negative = negative.map(|negative: Duration| negative.min(least));
                return Err((ResolveError::NotFound, negative));
            };
            name = target;
            least = least.min(valid);
        }
        Err((ResolveError::NotFound, None))
    }

    /// The services under a name, by priority.
    ///
    /// # Errors
    /// The servers' errors, with the time for which they may be cached.
    pub async fn services(
        &self,
        name: &DomainName,
    ) -> Result<(Vec<SrvRecord>, Duration), (ResolveError, Option<Duration>)> {
        let (mut name, mut ttl) = (name.clone(), Duration::MAX);
        for _ in 0..=ALIASES_MAX {
            let question = Question::new(name, RecordType::Srv);
            match self.ask(&question).await.map_err(|error| (error, None))? {
                Reply::Found(Records::Services(list), least) => return Ok((list, ttl.min(least))),
                Reply::Alias(target, least) => {
                    name = target;
                    ttl = ttl.min(least);
                }
                Reply::NoName(negative) | Reply::Empty(negative) => {
                    return Err((ResolveError::NotFound, negative.map(|one| one.min(ttl))));
                }
                Reply::Failed(error) => return Err((error, None)),
                Reply::Found(Records::Addresses(_), _) | Reply::Odd(_) | Reply::Truncated => {
                    return Err((ResolveError::ServerFailure, None));
                }
            }
        }
        Err((ResolveError::NotFound, None))
    }

    /// Queries servers until one responds.
    async fn ask(&self, question: &Question) -> Result<Reply, ResolveError> {
        let servers = self.servers.len();
        if servers == 0 {
            return Err(ResolveError::NoServers);
        }
        let sends_max = self.timing.rounds.map_or(SENDS_MAX, |rounds| rounds * servers);
        let mut under_way: Vec<Exchange<'_>> = Vec::with_capacity(1);
        // Consecutive servers that could not be reached, or reported a failure.
        let mut failed = 0;
        let mut last = ResolveError::TimedOut;
        for send in 0..sends_max.min(SENDS_MAX) {
            if !(self.wanted)() {
                return Err(ResolveError::TimedOut);
            }
            if under_way.len() == UNDER_WAY_MAX {
                drop(under_way.remove(0));
            }
            self.counters.asked(question.kind);
            under_way.push(Box::pin(exchange(question, self.servers[send % servers])));
            let resend = timeout(self.timing.resend, self.first(question, &mut under_way));
            match resend.await {
                Ok(Ok(Reply::Failed(error))) if self.timing.fail_over => {
                    failed += 1;
                    last = error;
                    if failed >= servers {
                        return Err(error);
                    }
                }
                Ok(Ok(reply)) => return Ok(reply),
                // The port is closed: another server may respond. If none does, a server may still
                // come up while the callers are waiting.
                Ok(Err(_)) => {
                    failed += 1;
                    last = ResolveError::ServerFailure;
                    if failed % servers == 0 && self.timing.rounds.is_none() {
                        nowait_runtime::sleep(self.timing.resend).await;
                    }
                }
                Err(_) => {
                    failed = 0;
                    last = ResolveError::TimedOut;
                }
            }
        }
        Err(last)
    }

    /// The first response of those in flight. An exchange that fails, or yields no result, is
    /// removed.
    async fn first(
        &self,
        question: &Question,
        under_way: &mut Vec<Exchange<'_>>,
    ) -> io::Result<Reply> {
        let error = Cell::new(None);
        let reply = poll_fn(|cx| {
            let mut at = 0;
            while at < under_way.len() {
                match under_way[at].as_mut().poll(cx) {
                    Poll::Pending => at += 1,
                    Poll::Ready(result) => {
                        drop(under_way.swap_remove(at));
                        match result {
                            Ok(exchanged) => {
                                self.counters.answered(&exchanged);
                                if let Reply::Odd(code) = exchanged.reply {
                                    (self.odd)(question, code);
                                } else {
                                    return Poll::Ready(Some(exchanged.reply));
                                }
                            }
                            Err(failure) => error.set(Some(failure)),
                        }
                    }
                }
            }
            if under_way.is_empty() && error.take().is_some() {
                return Poll::Ready(None);
            }
            Poll::Pending
        });
        reply.await.ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
    }
}

/// Waits for both.
async fn join<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut left, mut right) = (None, None);
    poll_fn(|cx| {
        if left.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(cx)
        {
            left = Some(output);
        }
        if right.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(cx)
        {
            right = Some(output);
        }
        match (left.take(), right.take()) {
            (Some(left), Some(right)) => Poll::Ready((left, right)),
            (first, second) => {
                (left, right) = (first, second);
                Poll::Pending
            }
        }
    })
    .await
}
