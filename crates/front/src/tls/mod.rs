//! TLS on connections: handshakes, and sessions as layers of streams.
//!
//! Called by the code that accepts or opens connections, before the first byte of another protocol. The
//! protocol itself is in `nowait_tls`; steps that take long run in a pool.

mod cache_settings;
pub mod certificate_loader;
pub mod certificates;
pub mod commands;
pub mod conf;
mod fetch;
pub mod files;
pub mod https;
pub mod kernel;
pub mod key_log;
pub mod ocsp;
pub mod quic;
pub mod settings;
pub mod trust;
pub mod upstream;
pub mod validation;
pub mod variables;

use nowait_conf::Errno;
use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nowait_resolver::ResolverLog;
use nowait_runtime::net::{Layer, OpenProgress, SendOptions, Stream};
use nowait_runtime::now;
use nowait_runtime::pool::{Class, Op, Pool, PoolError};
use nowait_runtime::time::timeout;
use nowait_tls::{Acceptor, Distrust, Session, Stop};
pub use nowait_tls::{
    Certificate, ClientOffer, ClientSettings, Error, Fault, Hello, LIBRARY, TlsClient, TlsServer,
    prepare_thread,
};

use self::kernel::{Kernel, KernelUse};
use self::key_log::KeyLogFile;
use self::ocsp::{Asking, ClientOcsp, FAILED};
use self::trust::{ClientTrust, Verdicts};

/// Handshakes in progress of a worker, at most; further connections are closed. One takes up to
/// 18 KB until the client's hello is complete, and about 20 KB then.
pub const HANDSHAKES_MAX: usize = 4096;

/// The context of a handshake.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// Maximum time from the first byte to the last.
    pub timeout: Duration,
    /// The pool for long steps.
    pub pool: Pool,
    /// The client's number in the pool, so that one client cannot occupy all threads.
    pub client: u64,
}

/// The reason why a handshake failed. The connection can only be closed, except after
/// [`HandshakeError::PlainHttp`].
#[derive(Debug)]
pub enum HandshakeError {
    /// The client uses plain HTTP and has sent these bytes.
    PlainHttp(Vec<u8>),
    /// The protocol failed; the peer was told.
    Tls(Error),
    /// The socket failed, or the peer was too slow (`TimedOut`).
    Io(io::Error),
    /// The pool takes no more work, or is shut down.
    Pool(PoolError),
    /// No server accepts this client.
    Rejected,
    /// The certificate that variables name can't be used; the text is for the log.
    Certificate(String),
    /// An issuer has validated this name; such a connection carries no application data (RFC 8737, 4).
    Validated(String),
    /// An issuer, or another client with its protocol, asks for a name without a pending validation.
    NotValidated(String),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::PlainHttp(_) => {
                f.write_str("client sent plain HTTP request to HTTPS port")
            }
            HandshakeError::Tls(error) => error.fmt(f),
            HandshakeError::Io(error) => Errno(error).fmt(f),
            HandshakeError::Pool(error) => error.fmt(f),
            HandshakeError::Rejected => f.write_str("handshake rejected"),
            HandshakeError::Certificate(text) => f.write_str(text),
            HandshakeError::Validated(name) => {
                write!(f, "challenge tls-alpn-01 was answered for {}", name.escape_debug())
            }
            HandshakeError::NotValidated(name) => {
                write!(f, "no challenge tls-alpn-01 is pending for \"{}\"", name.escape_debug())
            }
        }
    }
}

impl From<Error> for HandshakeError {
    fn from(error: Error) -> HandshakeError {
        HandshakeError::Tls(error)
    }
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        HandshakeError::Io(error)
    }
}

/// A session as the layer of a stream. Its facts: `stream.with_layer(|tls: &Tls| …)`.
#[derive(Debug)]
pub struct Tls {
    session: Session,
    offered: Option<Box<ClientOffer>>,
    /// The OCSP status of the client's certificate.
    status: Cell<Result<(), Distrust>>,
    verdicts: Verdicts,
    kernel: Kernel,
}

impl Tls {
    fn new(session: Session, offered: Option<Box<ClientOffer>>) -> Self {
        let (status, verdicts) = (Cell::new(Ok(())), Verdicts::default());
        Self { session, offered, status, verdicts, kernel: Kernel::None }
    }

    /// The verification result of the client's certificate by the server of the handshake; `None` without a
    /// certificate. For requests, see [`verdict`](Self::verdict).
    fn trust(&self) -> Option<Result<(), Distrust>> {
        self.session.trust().map(|trust| trust.and(self.status.get()))
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The client's offer, if [`Chosen`] requests it.
    pub fn offered(&self) -> Option<&ClientOffer> {
        self.offered.as_deref()
    }
}

impl Tls {
    /// The properties of a session known before it begins, for variables in the names of certificates.
    pub(crate) fn expected(hello: &Hello, server: &TlsServer) -> Result<Self, HandshakeError> {
        let session = hello.expected(server)?;
        Ok(Self::new(session, Some(Box::new(hello.offered()))))
    }
}

/// The choice of a server for a client's hello.
pub struct Chosen {
    /// The server.
    pub server: TlsServer,
    /// Keep what the client offers: variables show it.
    pub keeps_offers: bool,
    /// The verifier of the client's certificate; `None`: no certificate is requested.
    pub judge: Option<Arc<ClientTrust>>,
    /// The client's certificate is checked by OCSP (`ssl_ocsp`).
    pub ocsp: Option<OcspCheck>,
    /// The log of secrets (`ssl_key_log`).
    pub key_log: Option<KeyLogging>,
    /// The connections that the kernel seals.
    pub kernel: KernelUse,
    /// Reports the warning that the kernel does not support the configured sealing.
    pub kernel_log: Option<ResolverLog>,
}

/// A file for secrets, and the means to write it.
pub struct KeyLogging {
    /// The file.
    pub file: Arc<KeyLogFile>,
    /// The pool for writing it.
    pub pool: Pool,
    /// Takes errors.
    pub log: ResolverLog,
}

/// Checks the certificate of a client by OCSP.
pub struct OcspCheck {
    /// The settings.
    pub of: Arc<ClientOcsp>,
    /// The means of OCSP requests.
    pub asking: Asking,
}

impl Layer for Tls {
    fn open(
        &mut self,
        input: &mut [u8],
        plain: &mut [u8],
        output: &mut Vec<u8>,
    ) -> io::Result<OpenProgress> {
        let opened = self.session.open(input, plain, output, true).map_err(io_error)?;
        let nowait_tls::OpenProgress { consumed, written, stop } = opened;
        if stop == Stop::Ended && self.session.needs_keys() {
            kernel::keys_refused();
        }
        Ok(OpenProgress { consumed, written, ended: stop == Stop::Ended })
    }

    fn seal(&mut self, plain: &[&[u8]], output: &mut Vec<u8>, at: usize) -> io::Result<usize> {
        self.session.seal_over(plain, output, at).map_err(io_error)
    }

    fn end(&mut self, output: &mut Vec<u8>) {
        self.session.end(output);
    }

    fn offloads_from(&self) -> Option<u64> {
        self.kernel.offloads_from()
    }

    fn offload(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        self.kernel.offload(&mut self.session, socket)
    }

    fn transmit(&mut self, socket: BorrowedFd<'_>, messages: &[u8]) -> io::Result<usize> {
        kernel::transmit(&mut self.session, socket, messages)
    }

    fn sent(&mut self, bytes: u64, output: &mut Vec<u8>) -> io::Result<()> {
        self.session.sealed(kernel::records(bytes), output).map_err(io_error)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn io_error(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Makes the handshake of a server on a connection of which `first` was already received. `choose`
/// finds the server by the client's hello, and may have to load its certificate. Afterwards the
/// stream has a [`Tls`] layer.
///
/// With early data, the handshake may be completed by later receives.
///
/// # Errors
/// [`HandshakeError`]
pub async fn accept(
    stream: &Stream,
    first: &[u8],
    handshake: &Handshake,
    choose: impl AsyncFnOnce(&Hello) -> Result<Chosen, HandshakeError>,
) -> Result<(), HandshakeError> {
    let wire = Wire::new(stream, handshake);
    let mut acceptor = Acceptor::default();
    let mut received = acceptor.receive(first);
    let hello = loop {
        match received {
            Ok(Some(hello)) => break hello,
            Ok(None) => {}
            Err(refusal) if refusal.error == Error::PlainHttp => {
                return Err(HandshakeError::PlainHttp(acceptor.received().to_vec()));
            }
            Err(refusal) => {
                wire.send_alert(refusal.alert).await;
                return Err(refusal.error.into());
            }
        }
        received = acceptor.receive(&wire.receive().await?);
    };
    if validation::is_asked(&hello) {
        return Err(validate(&wire, hello).await);
    }
    let chosen = timeout(wire.left(), choose(&hello)).await;
    let chosen = chosen.unwrap_or_else(|elapsed| Err(HandshakeError::Io(elapsed.into())));
    let Chosen { server, keeps_offers, judge, ocsp, key_log, kernel, kernel_log } = match chosen {
        Ok(chosen) => chosen,
        Err(failure) => {
            let refusal = match failure {
                HandshakeError::Rejected => hello.reject(),
                _ => hello.fail(),
            };
            wire.send_alert(refusal.alert).await;
            return Err(failure);
        }
    };
    let offered = keeps_offers.then(|| Box::new(hello.offered()));
    let (session, input) = hello.begin(&server)?;
    // A message of the kernel's could not follow it.
    let keeps = kernel != KernelUse::Always;
    let completed = wire.complete(session, offered, input, keeps).await;
    if let Some(KeyLogging { file, pool, log }) = key_log {
        file.flush(&pool, &log);
    }
    let Completed { mut tls, input, output } = completed?;
    tls.kernel = Kernel::Wanted(kernel);
    tls.verdicts = Verdicts::of(judge.as_deref());
    match kernel {
        KernelUse::Never => {}
        // There is time until a large file is sent.
        KernelUse::LargeFiles => kernel::learn_meanwhile(&handshake.pool),
        KernelUse::Always => {
            // If it takes too long, the first records are sealed here.
            let _ = timeout(wire.left(), kernel::learn(&handshake.pool)).await;
        }
    }
    if let Some(log) = kernel_log {
        kernel::report_missing(&log);
    }
    if let Some(check) = ocsp {
        // Until a handshake with early data is complete, there is no certificate to check, and none is
        // trusted.
        tls.status.set(Err(FAILED));
        if !tls.session.is_handshaking() {
            tls.status.set(check.of.check(tls.session.path(), &check.asking).await);
        }
    }
    stream.set_layer_behind(Box::new(tls), &input, output);
    Ok(())
}

/// Makes a handshake that proves control of a name, and ends the connection (RFC 8737).
async fn validate(wire: &Wire<'_>, hello: Hello) -> HandshakeError {
    let name = hello.server_name().unwrap_or_default();
    let Some(server) = validation::find(&name) else {
        wire.send_alert(hello.refuse_protocols().alert).await;
        return HandshakeError::NotValidated(name);
    };
    let completed = match hello.begin(&server) {
        Ok((session, input)) => wire.complete(session, None, input, false).await,
        Err(error) => return error.into(),
    };
    match completed {
        Ok(Completed { mut tls, .. }) => {
            let mut end = Vec::new();
            tls.end(&mut end);
            wire.send_alert(end).await;
            HandshakeError::Validated(name)
        }
        Err(failure) => failure,
    }
}

/// Makes the handshake of a client's session. Afterwards the stream has a [`Tls`] layer.
///
/// # Errors
/// [`HandshakeError`]
pub async fn connect(
    stream: &Stream,
    session: Session,
    handshake: &Handshake,
) -> Result<(), HandshakeError> {
    let wire = Wire::new(stream, handshake);
    let Completed { tls, input, .. } = wire.complete(session, None, Vec::new(), false).await?;
    stream.set_layer(Box::new(tls), &input);
    Ok(())
}

/// A complete handshake.
struct Completed {
    tls: Tls,
    /// Received behind it.
    input: Vec<u8>,
    /// Its last messages, if they were not sent.
    output: Vec<u8>,
}

/// A connection during its handshake.
struct Wire<'a> {
    stream: &'a Stream,
    handshake: &'a Handshake,
    started: std::time::Instant,
}

impl Wire<'_> {
    fn new<'a>(stream: &'a Stream, handshake: &'a Handshake) -> Wire<'a> {
        Wire { stream, handshake, started: now() }
    }

    fn left(&self) -> Duration {
        self.handshake.timeout.saturating_sub(now().saturating_duration_since(self.started))
    }

    async fn receive(&self) -> Result<impl std::ops::Deref<Target = [u8]>, HandshakeError> {
        let received = self.stream.recv(self.left()).await?;
        if received.is_empty() { Err(Error::Eof.into()) } else { Ok(received) }
    }

    async fn send(&self, output: Vec<u8>) -> io::Result<()> {
        match output.is_empty() {
            true => Ok(()),
            false => self.stream.send(Bytes::from(output), SendOptions::new(self.left())).await,
        }
    }

    /// The connection is closed anyway.
    async fn send_alert(&self, alert: Vec<u8>) {
        let _ = self.send(alert).await;
    }

    /// `keeps`: with TLS 1.3, the last messages, which are tickets, are not sent if data of the next protocol have
    /// come already: they can leave with the answer. With TLS 1.2, a client that sends data before the end of the
    /// handshake still waits for that.
    async fn complete(
        &self,
        mut session: Session,
        offered: Option<Box<ClientOffer>>,
        mut input: Vec<u8>,
        keeps: bool,
    ) -> Result<Completed, HandshakeError> {
        let mut slow = false;
        loop {
            let mut output = Vec::new();
            let opened = match slow {
                false => session.open(&mut input, &mut [], &mut output, false),
                true => {
                    let step = move || {
                        let opened = session.open(&mut input, &mut [], &mut output, true);
                        (session, input, output, opened)
                    };
                    let Handshake { pool, client, .. } = self.handshake;
                    let done = pool.run(Class::Bulk, *client, Op::Blocking, step).await;
                    let done = done.map_err(HandshakeError::Pool)?;
                    (session, input, output) = (done.0, done.1, done.2);
                    done.3
                }
            };
            let opened = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    self.send_alert(output).await;
                    return Err(error.into());
                }
            };
            input.drain(..opened.consumed);
            slow = opened.stop == Stop::Slow;
            let complete = !session.is_handshaking();
            if keeps && complete && opened.stop == Stop::Room && session.is_tls13() {
                return Ok(Completed { tls: Tls::new(session, offered), input, output });
            }
            self.send(output).await?;
            match opened.stop {
                Stop::Slow => {}
                // Data of the next protocol may follow at once.
                Stop::Room => break,
                Stop::Input if complete => break,
                Stop::Input => input.extend_from_slice(&self.receive().await?),
                Stop::Ended => return Err(Error::Eof.into()),
            }
        }
        Ok(Completed { tls: Tls::new(session, offered), input, output: Vec::new() })
    }
}
