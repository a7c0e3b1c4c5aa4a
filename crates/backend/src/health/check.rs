//! One check: a probe, and the evaluation of its response.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use nowait_http::client::Client;
use nowait_http::exchange::NoClient;
use nowait_http::generation::Current;
use nowait_http::log::OsError;
use nowait_http::request::{Request, RequestBody};
use nowait_http::services::Services;
use nowait_runtime::net::{Address, ConnectError};
use nowait_runtime::now;
use nowait_upstream::Peer;

use super::grpc;
use super::matcher::Lacks;
use crate::health::conf::{Check, HealthCheck};
use crate::upstream::probe::{PROBING, ProbeFault, Prober};

/// The field with the status of a call.
const GRPC_STATUS: &[u8] = b"grpc-status";

/// Maximum number of bytes of the body that are tested.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of bytes of the body that are read only to keep the connection.
const DRAIN_BYTES_MAX: usize = 64 * 1024;

/// The reason why a check has failed.
pub struct Failure {
    kind: Kind,
    action: Action,
}

enum Kind {
    /// There is no complete response.
    Fault(ProbeFault),
    /// The response failed a test.
    Lacks(Lacks),
}

/// The step at which the check failed.
#[derive(Clone, Copy)]
enum Action {
    ReadingHead,
    ReadingBody,
}

impl Failure {
    fn new(kind: Kind, action: Action) -> Self {
        Self { kind, action }
    }

    /// The fault, unless a test has failed.
    pub fn fault(&self) -> Option<String> {
        let Kind::Fault(fault) = &self.kind else { return None };
        let network = |what, error: &io::Error| match error.kind() {
            io::ErrorKind::TimedOut => timed_out(),
            _ => format!("{what} failed{}", OsError(error)),
        };
        Some(match fault {
            ProbeFault::Connect(ConnectError::TimedOut) => timed_out(),
            ProbeFault::Connect(ConnectError::Bind(error)) => {
                format!("bind() failed{}", OsError(error))
            }
            ProbeFault::Connect(
                ConnectError::Connect(error)
                | ConnectError::Socket(error)
                | ConnectError::Option(_, error),
            ) => format!("connect() failed{}", OsError(error)),
            ProbeFault::Tls(failure) if failure.is_timeout() => timed_out(),
            ProbeFault::Tls(failure) => failure.to_string(),
            ProbeFault::Send(error) => network("send()", error),
            ProbeFault::Receive(error) => network("recv()", error),
            ProbeFault::Protocol(fault) => fault.to_string(),
            ProbeFault::Ours(status) => format!("the request can't be made ({status})"),
        })
    }

    /// The step at which the check failed.
    pub fn action(&self) -> impl fmt::Display {
        match (&self.kind, self.action) {
            (Kind::Lacks(lacks), _) => lacks.to_string(),
            (Kind::Fault(ProbeFault::Connect(_)), _) => "connecting to upstream".to_owned(),
            (Kind::Fault(ProbeFault::Tls(_)), _) => "SSL handshaking to upstream".to_owned(),
            (Kind::Fault(ProbeFault::Send(_) | ProbeFault::Ours(_)), _) => {
                "sending request to upstream".to_owned()
            }
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
    /// For variables; not sent by a client.
    request: Request,
    check: Check,
    prober: Prober,
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
        let exchange = NoClient::new(client, services.clone());
        let server = health_check.server;
        let mut request = Request::new(exchange, current.clone(), server, now());
        request.enter_location(health_check.location);
        request.replace_path(health_check.check.uri.to_vec());
        if let Some(grpc) = &health_check.check.grpc {
            request.replace_path(grpc::PATH.to_vec());
            request.set_body(RequestBody::Memory(grpc.message()));
            grpc::prepare(request.head_mut());
        }
        // Without them, there are no servers.
        current.conf.location(health_check.location).settings.get(&PROBING)?;
        // For variables of its destination.
        request.enter_content();
        let prober = Prober::default();
        Some(Self { request, check: health_check.check.clone(), prober })
    }

    /// Sends a probe to a server, and reads the response as far as its tests need it.
    ///
    /// # Errors
    /// [`Failure`]
    pub async fn check(&mut self, peer: &Peer) -> Result<(), Failure> {
        self.request.set_started(now());
        let address = match (peer.address(), self.check.port) {
            (Address::Inet(address), Some(port)) => {
                Address::Inet(SocketAddr::new(address.ip(), port))
            }
            (address, _) => address.clone(),
        };
        let check = &self.check;
        let fault = |fault| Failure::new(Kind::Fault(fault), Action::ReadingHead);
        if check.only_connects {
            return Prober::connect(&self.request, &address).await.map_err(fault);
        }
        let keepalive = check.keepalive_time.unwrap_or_default();
        let (method, uri) = match check.grpc {
            Some(_) => ("POST", Bytes::from_static(grpc::PATH)),
            None => ("GET", check.uri.clone()),
        };
        let probe = self.prober.probe(&mut self.request, &address, (method, uri), keepalive);
        let mut probed = probe.await.map_err(fault)?;
        let tests = &check.tests;
        let lacks = |lacks| Failure::new(Kind::Lacks(lacks), Action::ReadingHead);
        if let Some(grpc) = &check.grpc {
            let fault = |fault| Failure::new(Kind::Fault(fault), Action::ReadingBody);
            let body = probed.body(BODY_BYTES_MAX).await.map_err(fault)?;
            let status = probed.head.field(GRPC_STATUS).map(Bytes::copy_from_slice);
            let status = status.or_else(|| probed.trailer(GRPC_STATUS));
            return match grpc.passes(status.as_deref(), &body) {
                true => Ok(()),
                false => Err(lacks(Lacks::Grpc)),
            };
        }
        tests.head(&probed.head, !check.match_name.is_empty()).map_err(lacks)?;
        if !tests.require.is_empty() {
            probed.tell_variables(&mut self.request);
            tests.variables(&self.request).map_err(lacks)?;
        }
        let fault = |fault| Failure::new(Kind::Fault(fault), Action::ReadingBody);
        if tests.wants_body() {
            let body = probed.body(BODY_BYTES_MAX).await.map_err(fault)?;
            tests.body(&body).map_err(lacks)?;
        } else if check.keepalive_time.is_some() {
            probed.body(DRAIN_BYTES_MAX).await.map_err(fault)?;
        }
        if check.keepalive_time.is_some() {
            self.prober.keep(probed);
        }
        Ok(())
    }
}
