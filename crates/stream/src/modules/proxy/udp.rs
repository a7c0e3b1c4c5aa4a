//! Forwarding of datagrams: one local socket per session, connected to the server. nginx: the parts
//! of `ngx_stream_proxy_module` for `SOCK_DGRAM`.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nowait_front::log::{Level, OsError};
use nowait_runtime::net::{Address, ConnectError, Datagram};
use nowait_runtime::{now, sleep};
use nowait_upstream::{SelectedPeer, Times};

use super::conf::{Proxy, ProxyConf};
use super::{Search, log_removed, rate, session_start, until_removed};
use crate::session::Session;
use crate::status::Status;
use crate::udp::client::UdpClient;

/// Forwards the datagrams of a client until the session is over.
pub async fn udp(session: &Session, client: &UdpClient, proxy: &Proxy) -> Status {
    let conf = &proxy.conf;
    let (socket, peer, began) = match connect(session, proxy).await {
        Ok(connected) => connected,
        Err(status) => return status,
    };
    session.set_action(Some("proxying connection"));
    let removed = pin!(conf.session_drop.then(|| peer.removed()));
    let relay = Relay {
        session,
        client,
        proxy,
        conf,
        socket,
        peer: RefCell::new(peer),
        began,
        requests: Cell::new(0),
        responses: Cell::new(0),
        first_byte: Cell::new(None),
        moved: Cell::new(now()),
        held_up: Cell::new(0),
    };
    let end = until_removed(removed, pin!(relay.run())).await;
    if end.is_none() {
        log_removed(session);
    }
    relay.finish(end.unwrap_or(UdpEnd::Removed))
}

/// A socket connected to a server. Connecting sends no packets, so it does not prove reachability.
async fn connect(
    session: &Session,
    proxy: &Proxy,
) -> Result<(Datagram, SelectedPeer, Instant), Status> {
    let mut search = Search::new(session, proxy).await?;
    loop {
        let peer = search.next().await?;
        let began = now();
        let connected = match peer.address() {
            Address::Inet(address) => Datagram::connect_with(*address, &search.options()),
            Address::Unix(_) => {
                let error = io::Error::other("datagrams go to IP addresses only");
                Err(ConnectError::Connect(error))
            }
        };
        match connected {
            Ok(socket) => {
                let time = now().saturating_duration_since(began);
                session.update_try(|last| last.connect = Some(time));
                search.log_connected(|| socket.local_addr().ok().map(Address::Inet), &peer);
                return Ok((socket, peer, began));
            }
            Err(error) => search.missed(peer, began, error)?,
        }
    }
}

/// The reason for the end of a session.
enum UdpEnd {
    /// All expected datagrams have arrived.
    Done,
    /// No datagram was received for too long.
    Idle,
    /// The server is unreachable.
    Broken,
    /// The server has left its group.
    Removed,
}

/// A session in progress.
struct Relay<'a> {
    session: &'a Session,
    client: &'a UdpClient,
    proxy: &'a Proxy,
    conf: &'a ProxyConf,
    socket: Datagram,
    peer: RefCell<SelectedPeer>,
    /// The time at which the peer was chosen.
    began: Instant,
    /// Number of datagrams from the client and from the server.
    requests: Cell<u64>,
    responses: Cell<u64>,
    first_byte: Cell<Option<Duration>>,
    /// The time of the last received datagram.
    moved: Cell<Instant>,
    /// Number of directions held back by their rate limit.
    held_up: Cell<u8>,
}

impl Relay<'_> {
    async fn run(&self) -> UdpEnd {
        let mut up = pin!(self.up());
        let mut down = pin!(self.down());
        let mut silence = pin!(self.silence());
        std::future::poll_fn(|cx| {
            if let Poll::Ready(end) = up.as_mut().poll(cx) {
                return Poll::Ready(end);
            }
            if let Poll::Ready(end) = down.as_mut().poll(cx) {
                return Poll::Ready(end);
            }
            silence.as_mut().poll(cx)
        })
        .await
    }

    /// From the client to the server.
    async fn up(&self) -> UdpEnd {
        let rate = rate(self.session, self.conf.upload_rate.as_deref());
        // The PROXY protocol header precedes the first datagram.
        let header = session_start(self.session, self.proxy);
        let mut header: Vec<u8> = header.iter().flat_map(|chunk| chunk.memory().to_vec()).collect();
        let mut taken = 0;
        loop {
            let mut data = self.client.receive().await;
            // The first one was counted when the session began.
            if self.requests.get() > 0 {
                self.session.count_received(data.len() as u64);
            }
            taken += data.len() as u64;
            self.moved.set(now());
            self.requests.set(self.requests.get() + 1);
            let bytes = data.len() as u64;
            if !header.is_empty() {
                header.extend_from_slice(&data);
                data = Bytes::from(std::mem::take(&mut header));
            }
            if let Err(error) = self.socket.send(&data).await {
                self.failed("proxying and sending to upstream", "send()", &error);
                return UdpEnd::Broken;
            }
            self.session.update_try(|last| last.sent += data.len() as u64);
            if self.is_done() {
                return UdpEnd::Done;
            }
            self.hold_up(rate, bytes, taken).await;
        }
    }

    /// From the server to the client.
    async fn down(&self) -> UdpEnd {
        let rate = rate(self.session, self.conf.download_rate.as_deref());
        let mut taken = 0;
        loop {
            let data = match self.socket.recv_packet().await {
                Ok(packet) => packet.data,
                Err(error) => {
                    self.failed("proxying and reading from upstream", "recv()", &error);
                    return UdpEnd::Broken;
                }
            };
            let bytes = data.len() as u64;
            taken += bytes;
            self.moved.set(now());
            self.responses.set(self.responses.get() + 1);
            if self.first_byte.get().is_none() {
                let time = now().saturating_duration_since(self.began);
                self.first_byte.set(Some(time));
                self.session.update_try(|last| last.first_byte = Some(time));
                self.peer.borrow_mut().header_received(now(), time);
            }
            self.session.update_try(|last| last.received += bytes);
            match self.client.send(&data) {
                Ok(()) => self.session.count_sent(bytes),
                Err(error) => {
                    self.session.set_action(Some("proxying and sending to client"));
                    self.session.log(Level::Info, format_args!("send() failed{}", OsError(&error)));
                    self.session.set_action(Some("proxying connection"));
                }
            }
            if self.is_done() {
                return UdpEnd::Done;
            }
            self.hold_up(rate, bytes, taken).await;
        }
    }

    /// Whether all expected datagrams have arrived. nginx: `ngx_stream_proxy_test_finalize`.
    fn is_done(&self) -> bool {
        self.requests.get() >= u64::from(self.conf.requests) && self.has_responses()
    }

    /// Whether all expected responses have arrived; without an expected number, more may always
    /// follow.
    fn has_responses(&self) -> bool {
        self.conf.responses.is_some_and(|each| {
            self.responses.get() >= u64::from(each).saturating_mul(self.requests.get())
        })
    }

    /// Waits until the rate limit allows more.
    async fn hold_up(&self, rate: u64, bytes: u64, taken: u64) {
        if rate == 0 {
            return;
        }
        let pause = |bytes: u64| {
            let ms = u128::from(bytes) * 1000 / u128::from(rate);
            Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
        };
        self.held_up.set(self.held_up.get() + 1);
        sleep(pause(bytes)).await;
        loop {
            let seconds = now().saturating_duration_since(self.began).as_secs() + 1;
            let allowed = rate.saturating_mul(seconds);
            if allowed > taken {
                break;
            }
            sleep(pause(taken - allowed) + Duration::from_millis(1)).await;
        }
        self.held_up.set(self.held_up.get() - 1);
        self.moved.set(now());
    }

    /// Resolves when no datagram was received for too long.
    async fn silence(&self) -> UdpEnd {
        let limit = self.conf.timeout.duration();
        loop {
            let idle = now().saturating_duration_since(self.moved.get());
            let left = limit.saturating_sub(idle);
            if !left.is_zero() {
                sleep(left.min(Duration::from_secs(86_400))).await;
            } else if self.held_up.get() > 0 {
                self.moved.set(now());
            } else {
                return UdpEnd::Idle;
            }
        }
    }

    fn failed(&self, action: &'static str, call: &str, error: &io::Error) {
        self.session.set_action(Some(action));
        self.session.log(Level::Error, format_args!("{call} failed{}", OsError(error)));
        self.session.set_action(Some("proxying connection"));
    }

    /// The outcome of the session.
    fn finish(self, end: UdpEnd) -> Status {
        let response = now().saturating_duration_since(self.began);
        let (mut received, mut sent) = (0, 0);
        self.session.update_try(|last| {
            last.session = Some(response);
            (received, sent) = (last.received, last.sent);
        });
        let complete = match end {
            UdpEnd::Done | UdpEnd::Removed => true,
            UdpEnd::Idle => self.conf.responses.is_none() || self.has_responses(),
            UdpEnd::Broken => false,
        };
        let what = match end {
            UdpEnd::Done => Some("udp done"),
            UdpEnd::Idle if complete => Some("udp timed out"),
            UdpEnd::Idle => {
                let text = format_args!("upstream timed out (110: Connection timed out)");
                self.session.log(Level::Error, text);
                None
            }
            UdpEnd::Broken | UdpEnd::Removed => None,
        };
        if let Some(what) = what {
            let (requests, responses) = (self.requests.get(), self.responses.get());
            let totals = self.session.totals();
            let text =
                format_args!("{what}, packets from/to client:{requests}/{responses}, {totals}");
            self.session.log_bare(Level::Info, text);
        }
        let times = self.first_byte.get().map(|header| Times { header, response });
        let peer = self.peer.into_inner();
        peer.count_bytes(sent, received);
        if complete {
            peer.succeeded(now(), times);
            return Status::Ok;
        }
        if peer.failed(now()) {
            self.session.log(Level::Warn, format_args!("upstream server temporarily disabled"));
        }
        Status::BadGateway
    }
}
