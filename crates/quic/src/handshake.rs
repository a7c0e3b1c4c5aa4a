//! The handshake of a client: its hello is collected, its server chosen, and only then a connection begun. Steps that
//! take long run in the pool; what arrives meanwhile waits.
//!
//! Called by the endpoint with a client's first datagram: one task per handshake.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use nowait_runtime::now;
use nowait_runtime::pool::{Class, Op, Pool};
use nowait_runtime::time::timeout;
use nowait_tls::quic::QuicStart;
use nowait_tls::{Error, Hello, Session};
use quinn_proto::{ConnectionId, Event};

use crate::bundle::{Beginning, Bundle, Failed};
use crate::connection_id::Home;
use crate::crypto::{HandshakeState, INTERNAL_ERROR, ServerSide};
use crate::datagram::Datagram;
use crate::endpoint::Endpoint;
use crate::events::text_of;
use crate::hello::HelloCollector;
use crate::live::{Live, LiveState};
use crate::service::{Arrival, Chosen, Failure, FailureReason, Greeting, Refused};
use crate::socket::Socket;
use crate::{Connection, Counters, Settings};

/// Datagrams that wait during a handshake, at most: a client's initial window of early data, and some more.
pub const HANDSHAKE_DATAGRAMS_MAX: usize = 24;

/// Bytes of a client's first datagrams, at most. It does not know yet that its path carries more than Ethernet, but some
/// that are on the same machine send a whole Initial packet and as much early data at once.
pub const HANDSHAKE_DATAGRAM_BYTES_MAX: usize = 4096;

/// Bytes of all datagrams that wait during a handshake, at most.
const HANDSHAKE_BYTES_MAX: usize = HANDSHAKE_DATAGRAMS_MAX * 2048;

/// Datagrams that a hello may be spread over, with those of early data between them; and their bytes.
const HELLO_DATAGRAMS_MAX: usize = 16;
const HELLO_DATAGRAMS_BYTES_MAX: usize = HELLO_DATAGRAMS_MAX * 2048;

/// TLS alerts (RFC 8446, 6.2; RFC 7301, 3.2).
const UNRECOGNIZED_NAME: u8 = 112;
const NO_APPLICATION_PROTOCOL: u8 = 120;
const ILLEGAL_PARAMETER: u8 = 47;

/// A handshake in progress, as the router sees it.
pub(crate) struct Pending {
    pub(crate) slot: usize,
    /// The address and the ID of the client's first packet.
    pub(crate) first: (SocketAddr, ConnectionId),
    queue: RefCell<VecDeque<Datagram>>,
    waker: Cell<Option<Waker>>,
}

impl Pending {
    pub(crate) fn new(
        slot: usize,
        first: (SocketAddr, ConnectionId),
        datagram: Datagram,
    ) -> Rc<Pending> {
        let queue = RefCell::new(VecDeque::from([datagram]));
        Rc::new(Pending { slot, first, queue, waker: Cell::default() })
    }

    /// Takes a datagram; false: too much waits.
    pub(crate) fn put(&self, datagram: Datagram) -> bool {
        let mut queue = self.queue.borrow_mut();
        let waiting: usize = queue.iter().map(|waiting| waiting.data.len()).sum();
        let too_much = waiting + datagram.data.len() > HANDSHAKE_BYTES_MAX;
        if queue.len() >= HANDSHAKE_DATAGRAMS_MAX || too_much {
            return false;
        }
        queue.push_back(datagram);
        drop(queue);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        true
    }

    /// The next datagram.
    async fn next(&self) -> Datagram {
        poll_fn(|cx| match self.queue.borrow_mut().pop_front() {
            Some(datagram) => Poll::Ready(datagram),
            None => {
                self.waker.set(Some(cx.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }

    /// All that have arrived.
    fn take(&self) -> VecDeque<Datagram> {
        self.queue.take()
    }
}

/// A handshake that led to nothing.
struct Unfinished {
    reason: FailureReason,
    context: Option<Box<dyn Any>>,
}

impl From<FailureReason> for Unfinished {
    fn from(reason: FailureReason) -> Unfinished {
        Unfinished { reason, context: None }
    }
}

/// What a handshake leads to.
struct Established {
    bundle: Box<Bundle>,
    confirmed: bool,
    session: Session,
    context: Box<dyn Any>,
    settings: Settings,
}

/// The place of a handshake; freed if it leads to nothing.
struct PendingGuard {
    endpoint: Rc<Endpoint>,
    pending: Rc<Pending>,
    armed: bool,
}

impl Drop for PendingGuard {
    fn drop(&mut self) {
        if self.armed {
            self.endpoint.give_up(&self.pending);
        }
    }
}

/// Makes the handshake of a client, and has its connection served.
pub(crate) async fn run(
    endpoint: Rc<Endpoint>,
    pending: Rc<Pending>,
    socket: Rc<Socket>,
    arrival: Arrival,
    limit: Duration,
) {
    let (place, guarded) = (endpoint.clone(), pending.clone());
    let mut guard = PendingGuard { endpoint: place, pending: guarded, armed: true };
    let handshake = Handshake { endpoint: &endpoint, pending: &pending, socket: &socket };
    let result = match timeout(limit, handshake.make(&arrival)).await {
        Ok(result) => result,
        Err(_) => Err(FailureReason::TimedOut.into()),
    };
    let service = endpoint.service.clone();
    match result {
        Ok(established) => {
            guard.armed = false;
            Counters::add(&endpoint.counters().handshakes, 1);
            let listen = arrival.listen;
            let connection = handshake.establish(established, listen);
            service.serve(connection);
        }
        Err(Unfinished { reason, context }) => {
            drop(guard);
            Counters::add(&endpoint.counters().handshakes_failed, 1);
            service.failed(Failure { arrival, context, reason });
        }
    }
}

/// The means of a handshake.
struct Handshake<'a> {
    endpoint: &'a Rc<Endpoint>,
    pending: &'a Rc<Pending>,
    socket: &'a Rc<Socket>,
}

impl Handshake<'_> {
    async fn make(&self, arrival: &Arrival) -> Result<Established, Unfinished> {
        let (hello, datagrams) = self.collect(arrival).await?;
        let hello = Rc::new(hello);
        let greeting = Greeting { arrival: arrival.clone(), hello: hello.clone() };
        let chosen = self.endpoint.service.clone().choose(greeting).await;
        let refused = |reason: Refused| {
            let alert = match &reason {
                Refused::Name => UNRECOGNIZED_NAME,
                Refused::Protocol => NO_APPLICATION_PROTOCOL,
                Refused::Internal => INTERNAL_ERROR,
            };
            (alert, FailureReason::Refused(reason))
        };
        let Chosen { server, settings, pool, client, context } = match chosen {
            Ok(chosen) => chosen,
            Err(reason) => {
                let (alert, reason) = refused(reason);
                self.refuse(alert, datagrams, arrival.validated);
                return Err(reason.into());
            }
        };
        let (start, session) = match hello.begin_quic(&server) {
            Ok(begun) => begun,
            Err(error) => {
                self.refuse(NO_APPLICATION_PROTOCOL, datagrams, arrival.validated);
                let reason = FailureReason::Tls(error);
                return Err(Unfinished { reason, context: Some(context) });
            }
        };
        let beginning = self.beginning(start, &settings, arrival.validated);
        match self.complete(beginning, datagrams, &pool, client).await {
            Ok((bundle, confirmed)) => {
                Ok(Established { bundle, confirmed, session, context, settings })
            }
            Err(reason) => Err(Unfinished { reason, context: Some(context) }),
        }
    }

    /// Collects the hello. Also returns the datagrams that came until then.
    async fn collect(&self, arrival: &Arrival) -> Result<(Hello, Vec<Datagram>), FailureReason> {
        let id = self.pending.first.1;
        let mut collector = HelloCollector::new(&id);
        let mut datagrams = Vec::new();
        let mut bytes = 0;
        loop {
            let datagram = self.pending.next().await;
            let taken = collector.take(&datagram.data, &id);
            bytes += datagram.data.len();
            datagrams.push(datagram);
            let fits = datagrams.len() < HELLO_DATAGRAMS_MAX && bytes < HELLO_DATAGRAMS_BYTES_MAX;
            let (alert, error) = match taken {
                Ok(Some(hello)) => return Ok((hello, datagrams)),
                // A client begins with a piece of its hello (RFC 9000, 17.2.2). This may be the late answer to a
                // refusal, or nothing: it takes no place until the time is up.
                Ok(None) if !collector.has_begun() => {
                    let reason = "client sent a first packet without a hello";
                    return Err(FailureReason::Lost(reason.to_owned()));
                }
                Ok(None) if fits => continue,
                Ok(None) => (ILLEGAL_PARAMETER, Error::TooLong),
                Err(refusal) => {
                    let alert = refusal.alert.last().copied();
                    (alert.unwrap_or(ILLEGAL_PARAMETER), refusal.error)
                }
            };
            Counters::add(&self.endpoint.counters().hellos_refused, 1);
            self.refuse(alert, datagrams, arrival.validated);
            return Err(FailureReason::Tls(error));
        }
    }

    fn beginning(&self, start: QuicStart, settings: &Settings, validated: bool) -> Beginning {
        let state = Arc::new(HandshakeState::new(start.is_slow()));
        let crypto = ServerSide::Start {
            start: Mutex::new(Some(Box::new(start))),
            state: state.clone(),
            ids_max: settings.active_connection_id_limit,
        };
        self.beginning_with(crypto, state, settings.clone(), validated)
    }

    fn beginning_with(
        &self,
        crypto: ServerSide,
        state: Arc<HandshakeState>,
        settings: Settings,
        validated: bool,
    ) -> Beginning {
        let home: Home = self.endpoint.home(self.pending.slot);
        let keys = self.endpoint.directory().keys();
        let dont_fragment = self.socket.dont_fragment();
        Beginning { keys, home, settings, crypto, state, validated, dont_fragment }
    }

    /// Ends the handshake with an alert, which the client gets once.
    fn refuse(&self, alert: u8, datagrams: Vec<Datagram>, validated: bool) {
        let (crypto, state) = (ServerSide::Refuse(alert), Arc::default());
        let beginning = self.beginning_with(crypto, state, Settings::default(), validated);
        match begin(beginning, datagrams) {
            Ok(mut bundle) => self.send(&mut bundle),
            Err(failed) => self.send_last(*failed),
        }
    }

    fn send_last(&self, failed: Failed) {
        if let Some((transmit, buffer)) = failed.last {
            self.socket.send(&buffer, &transmit, self.endpoint.counters());
        }
    }

    /// Goes on until the handshake is complete, or early data of a client with a proven address can be read. True: it is
    /// complete.
    async fn complete(
        &self,
        beginning: Beginning,
        datagrams: Vec<Datagram>,
        pool: &Pool,
        client: u64,
    ) -> Result<(Box<Bundle>, bool), FailureReason> {
        let state = beginning.state.clone();
        let validated = beginning.validated;
        let begun = match state.is_slow() {
            false => begin(beginning, datagrams),
            true => {
                let step = move || begin(beginning, datagrams);
                let done = pool.run(Class::Bulk, client, Op::Blocking, step).await;
                done.map_err(|_| FailureReason::Pool)?
            }
        };
        let mut bundle = match begun {
            Ok(bundle) => bundle,
            Err(failed) => {
                let reason = reason_of(&state, failed.reason.clone());
                self.send_last(*failed);
                return Err(reason);
            }
        };
        loop {
            let mut connected = false;
            let mut lost = None;
            while let Some(event) = bundle.event() {
                match event {
                    Event::Connected => connected = true,
                    Event::ConnectionLost { reason } => lost = Some(text_of(&reason)),
                    _ => {}
                }
            }
            self.send(&mut bundle);
            if let Some(text) = lost {
                return Err(reason_of(&state, text));
            }
            // Until its address is proven, a client's early data could act in another's name.
            if connected || (validated && state.has_early_data()) {
                return Ok((bundle, connected));
            }
            let datagrams = self.wait(&mut bundle).await;
            bundle = match state.is_slow() {
                false => go_on(bundle, datagrams),
                true => {
                    let step = move || go_on(bundle, datagrams);
                    let done = pool.run(Class::Bulk, client, Op::Blocking, step).await;
                    done.map_err(|_| FailureReason::Pool)?
                }
            };
        }
    }

    /// Waits for datagrams, or for time to have an effect.
    async fn wait(&self, bundle: &mut Bundle) -> VecDeque<Datagram> {
        let first = match bundle.timeout() {
            None => Some(self.pending.next().await),
            Some(at) => {
                let left = at.saturating_duration_since(now());
                timeout(left, self.pending.next()).await.ok()
            }
        };
        let mut datagrams = self.pending.take();
        match first {
            Some(first) => datagrams.push_front(first),
            None => bundle.time_out(now()),
        }
        datagrams
    }

    /// Sends what the library has.
    fn send(&self, bundle: &mut Bundle) {
        let mut buffer = Vec::new();
        for _ in 0..FLIGHT_SENDS_MAX {
            let datagrams = self.socket.datagrams_max(bundle.connection.current_mtu());
            buffer.clear();
            let Some(transmit) = bundle.transmit(datagrams, &mut buffer, now()) else { break };
            self.socket.send(&buffer, &transmit, self.endpoint.counters());
        }
        bundle.settle();
    }

    /// Hands the connection over to the endpoint.
    fn establish(
        &self,
        established: Established,
        listen: Arc<nowait_sys::listen::ListenAddress>,
    ) -> Rc<Connection> {
        let Established { bundle, confirmed, session, context, settings } = established;
        let (endpoint, pending) = (self.endpoint, self.pending);
        let live = Live::new(
            endpoint,
            (pending.slot, Some(pending.first)),
            self.socket.clone(),
            bundle.connection.local_ip(),
            settings.idle_timeout,
            LiveState::new(bundle, confirmed),
        );
        endpoint.establish(pending, &live);
        for datagram in pending.take() {
            drop(live.receive(datagram, None));
        }
        live.absorb(endpoint.counters());
        endpoint.touch(&live);
        Connection::new(live, listen, Some(session), Some(context))
    }
}

/// Sends of a flight, at most; a certificate chain needs a few datagrams.
const FLIGHT_SENDS_MAX: usize = 32;

/// Begins a connection with the datagrams of the hello.
fn begin(beginning: Beginning, datagrams: Vec<Datagram>) -> Result<Box<Bundle>, Box<Failed>> {
    let now = now();
    let mut datagrams = datagrams.into_iter();
    let Some(first) = datagrams.next() else {
        let reason = "there is no first datagram".to_owned();
        return Err(Box::new(Failed { reason, last: None }));
    };
    let mut bundle = Box::new(Bundle::accept(beginning, first, now)?);
    for datagram in datagrams {
        drop(bundle.receive(datagram, now));
    }
    bundle.settle();
    Ok(bundle)
}

/// Goes on with further datagrams.
fn go_on(mut bundle: Box<Bundle>, datagrams: VecDeque<Datagram>) -> Box<Bundle> {
    let now = now();
    for datagram in datagrams {
        drop(bundle.receive(datagram, now));
    }
    bundle.settle();
    bundle
}

/// The reason why a handshake has failed: that of TLS, or else the transport's.
fn reason_of(state: &HandshakeState, text: String) -> FailureReason {
    match state.take_failure() {
        Some(error) => FailureReason::Tls(error),
        None => FailureReason::Lost(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_in_datagrams_and_in_bytes() {
        let from = "127.0.0.1:1".parse().unwrap();
        let datagram = |len| Datagram { data: vec![0; len][..].into(), from, local: None, ecn: 0 };
        let pending = Pending::new(0, (from, ConnectionId::new(&[1; 8])), datagram(1200));
        // A client for which the handshake is complete may send any length that its path carries.
        assert!(pending.put(datagram(HANDSHAKE_BYTES_MAX / 2)));
        assert!(!pending.put(datagram(HANDSHAKE_BYTES_MAX / 2)));
        while pending.put(datagram(1)) {}
        assert_eq!(pending.take().len(), HANDSHAKE_DATAGRAMS_MAX);
    }
}
