//! One check: a connection, a request, and what the response says about the server.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_message::ResponseHead;
use nowait_runtime::buf::{Chain, OutBuf};
use nowait_runtime::net::{Address, ConnectError, ConnectOptions, SendOptions, Stream};
use nowait_runtime::now;
use nowait_upstream::Peer;

use super::matcher::Lacks;
use crate::client::Client;
use crate::exchange::Nobody;
use crate::generation::Current;
use crate::health::conf::{Check, HealthCheck};
use crate::log::OsError;
use crate::request::Request;
use crate::services::Services;
use crate::upstream::probe::{PROBING, Probing};
use crate::upstream::{BodyEvent, Codec, Fault, HeadEvent, Settings, State};

/// Most bytes of the body that are tested.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// Most bytes of the body that are read only to keep the connection.
const DRAIN_BYTES_MAX: usize = 64 * 1024;

/// Why a check has failed.
pub struct Failure {
    kind: Kind,
    action: Action,
}

enum Kind {
    Connect(ConnectError),
    Network(io::Error),
    Protocol(Fault),
    /// The request can't be made; the status.
    Ours(u16),
    /// The response failed a test.
    Lacks(Lacks),
}

/// The step at which the check failed.
#[derive(Clone, Copy)]
enum Action {
    Connecting,
    Sending,
    ReadingHead,
    ReadingBody,
}

impl Failure {
    fn new(kind: Kind, action: Action) -> Self {
        Self { kind, action }
    }

    /// The fault, unless a test has failed.
    pub fn fault(&self) -> Option<String> {
        Some(match &self.kind {
            Kind::Connect(ConnectError::TimedOut) => timed_out(),
            Kind::Connect(ConnectError::Bind(error)) => format!("bind() failed{}", OsError(error)),
            Kind::Connect(
                ConnectError::Connect(error)
                | ConnectError::Socket(error)
                | ConnectError::Option(_, error),
            ) => format!("connect() failed{}", OsError(error)),
            Kind::Network(error) if error.kind() == io::ErrorKind::TimedOut => timed_out(),
            Kind::Network(error) => match self.action {
                Action::Sending => format!("send() failed{}", OsError(error)),
                _ => format!("recv() failed{}", OsError(error)),
            },
            Kind::Protocol(fault) => fault.to_string(),
            Kind::Ours(status) => format!("the request can't be made ({status})"),
            Kind::Lacks(_) => return None,
        })
    }

    /// The step at which the check failed.
    pub fn action(&self) -> impl fmt::Display {
        match (&self.kind, self.action) {
            (Kind::Lacks(lacks), _) => lacks.to_string(),
            (_, Action::Connecting) => "connecting to upstream".to_owned(),
            (_, Action::Sending) => "sending request to upstream".to_owned(),
            (_, Action::ReadingHead) => "reading response header from upstream".to_owned(),
            (_, Action::ReadingBody) => "reading upstream".to_owned(),
        }
    }
}

fn timed_out() -> String {
    "upstream timed out (110: Connection timed out)".to_owned()
}

/// Checks a server.
pub struct Checker {
    /// For variables; no client has sent it.
    request: Request,
    check: Check,
    settings: Arc<Settings>,
    /// The connection kept from the last check, and when it was opened.
    kept: Option<(Stream, Instant)>,
}

impl Checker {
    /// With the settings of the check's location. `None` without a listening socket
    /// or a backend.
    pub fn new(
        services: &Rc<Services>,
        current: &Rc<Current>,
        health_check: &HealthCheck,
    ) -> Option<Self> {
        let listen = current.conf.listens().first()?;
        let listen = Arc::new(listen.spec.address.clone());
        let peer = Address::Unix(Box::default());
        let client = Client::new(services.next_number(), peer, listen, now());
        let nobody = Nobody::new(client, services.clone());
        let server = health_check.server;
        let mut request = Request::new(nobody, current.clone(), server, now());
        request.location = health_check.location;
        request.uri.path = health_check.check.uri.to_vec();
        let probing = current.conf.location(health_check.location).settings.get(&PROBING)?;
        probing.prepare(&mut request);
        let settings = probing.settings().clone();
        Some(Self { request, check: health_check.check.clone(), settings, kept: None })
    }

    /// Sends a probe to a server.
    ///
    /// # Errors
    /// [`Failure`]
    pub async fn check(&mut self, peer: &Peer) -> Result<(), Failure> {
        self.request.started = now();
        let fresh = |opened: &Instant| {
            let limit = self.check.keepalive_time.unwrap_or_default();
            now().saturating_duration_since(*opened) < limit
        };
        let kept = self.kept.take().filter(|(_, opened)| fresh(opened));
        if let Some((stream, opened)) = kept {
            match self.exchange(&stream).await {
                // The server may have closed it meanwhile, which is no fault.
                Err(Failure { kind: Kind::Network(_) | Kind::Protocol(_), .. }) => {}
                result => return self.end(result, stream, opened),
            }
        }
        let opened = now();
        let stream = self.connect(peer).await?;
        let result = self.exchange(&stream).await;
        self.end(result, stream, opened)
    }

    /// Keeps the connection, if possible.
    fn end(
        &mut self,
        result: Result<bool, Failure>,
        stream: Stream,
        opened: Instant,
    ) -> Result<(), Failure> {
        if result? && self.check.keepalive_time.is_some() {
            self.kept = Some((stream, opened));
        }
        Ok(())
    }

    async fn connect(&self, peer: &Peer) -> Result<Stream, Failure> {
        let address = match (peer.address(), self.check.port) {
            (Address::Inet(address), Some(port)) => {
                Address::Inet(SocketAddr::new(address.ip(), port))
            }
            (address, _) => address.clone(),
        };
        let bind = probing(&self.request).and_then(|probing| probing.bind(&self.request));
        let own = bind.map(|(address, _)| Address::Inet(address));
        let mut options = ConnectOptions::new(self.settings.connect_timeout);
        options.keepalive = self.settings.socket_keepalive;
        options.bind = own.as_ref();
        options.transparent = bind.is_some_and(|(_, transparent)| transparent);
        let stream = Stream::connect_with(&address, &options).await;
        stream.map_err(|error| Failure::new(Kind::Connect(error), Action::Connecting))
    }

    /// Sends the request and reads the response as far as its tests need it. True: the connection
    /// can be reused.
    async fn exchange(&mut self, stream: &Stream) -> Result<bool, Failure> {
        let Some(probing) = probing(&self.request) else {
            return Err(Failure::new(Kind::Ours(500), Action::Sending));
        };
        let mut codec = probing.codec(&self.request, self.check.uri.clone());
        let mut head = OutBuf::new();
        let failed = |kind, action| Failure::new(kind, action);
        codec
            .begin(&self.request, &mut head)
            .map_err(|status| failed(Kind::Ours(status), Action::Sending))?;
        let options = SendOptions::new(self.settings.send_timeout);
        let sent = stream.send(Chain::from(head), options).await;
        sent.map_err(|error| failed(Kind::Network(error), Action::Sending))?;
        let mut input = Input { stream, timeout: self.settings.read_timeout, bytes: Vec::new() };
        let head = input.head(&mut *codec).await?;
        let tests = self.check.tests.clone();
        let lacks = |lacks| failed(Kind::Lacks(lacks), Action::ReadingHead);
        tests.head(&head, !self.check.match_name.is_empty()).map_err(lacks)?;
        if !tests.require.is_empty() {
            self.tell_variables(head);
            tests.variables(&self.request).map_err(lacks)?;
        }
        let mut reusable = false;
        if tests.wants_body() {
            let (body, complete) = input.body(&mut *codec, BODY_BYTES_MAX).await?;
            tests.body(&body).map_err(lacks)?;
            reusable = complete;
        } else if self.check.keepalive_time.is_some() {
            reusable = input.body(&mut *codec, DRAIN_BYTES_MAX).await?.1;
        }
        Ok(reusable && codec.is_reusable(!input.bytes.is_empty()))
    }

    /// Makes the response available to `$upstream_…` variables.
    fn tell_variables(&mut self, head: Rc<ResponseHead>) {
        let state = Rc::new(State::default());
        state.clone().share(&mut self.request.state);
        let number = state.begin_try(None);
        state.update(number, |one| one.status = head.status);
        state.set_head(Some(head));
    }
}

/// The backend of a probe's location.
fn probing(request: &Request) -> Option<&dyn Probing> {
    request.location().settings.get(&PROBING).map(|probing| &**probing)
}

/// Input from a server.
struct Input<'a> {
    stream: &'a Stream,
    timeout: Duration,
    /// Received but not used.
    bytes: Vec<u8>,
}

impl Input<'_> {
    /// Receives more; false: the server has closed its side.
    async fn more(&mut self, action: Action) -> Result<bool, Failure> {
        let received = self.stream.recv(self.timeout).await;
        let received = received.map_err(|error| Failure::new(Kind::Network(error), action))?;
        self.bytes.extend_from_slice(&received);
        Ok(!received.is_empty())
    }

    async fn head(&mut self, codec: &mut dyn Codec) -> Result<Rc<ResponseHead>, Failure> {
        let action = Action::ReadingHead;
        let protocol = |fault| Failure::new(Kind::Protocol(fault), action);
        loop {
            while !self.bytes.is_empty() {
                let step = codec.receive_head(&self.bytes).map_err(protocol)?;
                self.bytes.drain(..step.consumed);
                match step.event {
                    HeadEvent::Final(head) => return Ok(head),
                    HeadEvent::Interim(_) => {}
                    HeadEvent::NeedMore => break,
                }
            }
            if !self.more(action).await? {
                return Err(protocol(Fault::PrematureClose));
            }
        }
    }

    /// The body, up to this many bytes; and whether that was all.
    async fn body(
        &mut self,
        codec: &mut dyn Codec,
        most: usize,
    ) -> Result<(Vec<u8>, bool), Failure> {
        let action = Action::ReadingBody;
        let protocol = |fault| Failure::new(Kind::Protocol(fault), action);
        let mut body = Vec::new();
        loop {
            loop {
                let step = codec.receive_body(&self.bytes).map_err(protocol)?;
                match step.event {
                    BodyEvent::Data(range) => {
                        let room = most - body.len();
                        let data = &self.bytes[range];
                        body.extend_from_slice(&data[..data.len().min(room)]);
                    }
                    BodyEvent::End => {
                        self.bytes.drain(..step.consumed);
                        return Ok((body, true));
                    }
                    BodyEvent::NeedMore => {
                        self.bytes.drain(..step.consumed);
                        break;
                    }
                }
                self.bytes.drain(..step.consumed);
                if body.len() >= most {
                    return Ok((body, false));
                }
            }
            if !self.more(action).await? {
                codec.receive_eof().map_err(protocol)?;
                return Ok((body, false));
            }
        }
    }
}
