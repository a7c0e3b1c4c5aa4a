//! TLS between the client and HTTP: handshakes, and what TLS means for requests. nginx:
//! `ngx_http_ssl_handshake`, `ngx_http_ssl_servername`, and the beginning of
//! `ngx_http_process_request`.
//!
//! Called by front ends: when the first bytes of a connection have arrived, and when a request's head
//! is complete. The handshake itself is in `nowait_front::tls`.

use std::rc::Rc;
use std::time::Duration;

use nowait_front::resolver_directives::Resolving;
use nowait_front::servers::{ServerId, Virtual};
use nowait_front::tls::certificate_loader::NamedPairs;
use nowait_front::tls::conf::VerifyClient;
use nowait_front::tls::ocsp::Asking;
use nowait_front::tls::trust::ClientVerdict;
use nowait_front::tls::{self, Chosen, Fault, HANDSHAKES_MAX, Handshake, HandshakeError, Tls};
use nowait_http::client::Security;
use nowait_http::exchange::{Exchange, Greeting};
use nowait_http::generation::Current;
use nowait_http::log::Level;
use nowait_http::request::Request;
use nowait_http::special_pages::internal;
use nowait_http::variables::complex::HttpVariables;
use nowait_runtime::buf::RecvBuf;
use nowait_runtime::now;

use crate::accepted::Accepted;

/// Result of a handshake.
pub(crate) enum Handshaken {
    /// The connection speaks TLS: its first request is still to come.
    Encrypted,
    /// The client speaks plain HTTP: its request gets an error.
    Plain,
    /// The connection must be closed.
    Failed,
}

/// Whether the bytes that have arrived begin a handshake.
pub(crate) fn is_due(connection: &Accepted) -> bool {
    let client = &connection.client;
    if client.requests.get() > 0 || client.security.get() != Security::Plain {
        return false;
    }
    let current = connection.all().current();
    connection.virtual_servers(&current).is_some_and(|servers| servers.ssl.is_some())
}

/// Makes the handshake within this time. `exchange` is for logs.
pub(crate) async fn handshake(
    connection: &Accepted,
    exchange: Rc<dyn Exchange>,
    timeout: Duration,
) -> Handshaken {
    let all = connection.all();
    let current = all.current();
    let Some(servers) = connection.virtual_servers(&current) else { return Handshaken::Failed };
    let counts = &all.services.counts;
    let Some(_entered) = all.enter_handshake(HANDSHAKES_MAX) else {
        counts.handshake_refused();
        let text = format_args!("{HANDSHAKES_MAX} SSL handshakes are in progress");
        log(exchange, &current, servers, Level::Error, text);
        return Handshaken::Failed;
    };
    let settings = Handshake {
        timeout,
        pool: current.compute_pool().clone(),
        client: connection.client.number,
    };
    let first = connection.input.replace(RecvBuf::empty());
    let choose =
        async |hello: &tls::Hello| choose(&exchange, &current, servers, hello, &settings).await;
    match tls::accept(&connection.stream, &first, &settings, choose).await {
        Ok(()) => {
            connection.client.security.set(Security::Tls);
            counts.handshaken();
            Handshaken::Encrypted
        }
        Err(HandshakeError::PlainHttp(received)) => {
            connection.client.security.set(Security::PlainOnTls);
            connection.input.replace(RecvBuf::of(&received));
            Handshaken::Plain
        }
        Err(failure) => {
            match failure {
                HandshakeError::Validated(_) => counts.handshaken(),
                _ => counts.handshake_failed(),
            }
            log(exchange, &current, servers, level(&failure), format_args!("{failure}"));
            Handshaken::Failed
        }
    }
}

/// How loud a failure is. As nginx: what clients do is no news.
fn level(failure: &HandshakeError) -> Level {
    match failure {
        HandshakeError::Tls(error) if error.fault() != Fault::Peer => Level::Crit,
        HandshakeError::Pool(_) | HandshakeError::Certificate(_) => Level::Error,
        _ => Level::Info,
    }
}

fn log(
    exchange: Rc<dyn Exchange>,
    current: &Rc<Current>,
    servers: &Virtual,
    level: Level,
    text: std::fmt::Arguments<'_>,
) {
    let server = servers.default_server;
    let request = Request::new(exchange, current.clone(), server, now());
    request.log(level, format_args!("{text} while SSL handshaking"));
}

/// The server for a client's hello, with its certificate.
async fn choose(
    exchange: &Rc<dyn Exchange>,
    current: &Rc<Current>,
    servers: &Virtual,
    hello: &tls::Hello,
    handshake: &Handshake,
) -> Result<Chosen, HandshakeError> {
    let named = hello.server_name().and_then(|name| find(servers, &name));
    let default = &current.conf.server(servers.default_server).tls;
    let own = named.map_or(default, |server| &current.conf.server(server).tls);
    let (own, server) = own.or_default(default).ok_or(HandshakeError::Rejected)?;
    let mut chosen =
        own.choice(server, current.conf.wants_offers, |resolving| asking(current, resolving));
    let Some(pairs) = &own.named else { return Ok(chosen) };
    let id = named.unwrap_or(servers.default_server);
    let expected = NamedPairs::<HttpVariables>::facts(hello, server)?;
    let greeting = Rc::new(Greeting { exchange: exchange.clone(), expected });
    let request = Request::new(greeting, current.clone(), id, now());
    chosen.server = pairs.complete(server, &request, handshake, &request.io()).await?;
    Ok(chosen)
}

/// The server of a name, if there is one besides the default server.
fn find(servers: &Virtual, name: &str) -> Option<ServerId> {
    let found = servers.names.lookup(name.as_bytes(), |regex| regex.is_match(name.as_bytes()));
    found.ok().flatten().copied()
}

/// The server whose settings hold until a request names its own: that of the name in the handshake,
/// or the default server.
pub(crate) fn server_of(connection: &Accepted, servers: &Virtual) -> ServerId {
    let named = || {
        let name = |tls: &Tls| find(servers, tls.session().server_name()?);
        connection.stream.with_layer(name).flatten()
    };
    match connection.client.security.get() {
        Security::Tls if servers.has_choice => named().unwrap_or(servers.default_server),
        Security::Tls | Security::Plain | Security::PlainOnTls => servers.default_server,
    }
}

/// Whether the request's server demands what the handshake did not ask for: it was made with
/// another server. The status, if the request must be refused.
pub(crate) fn misdirected(request: &Request, servers: &Virtual) -> Option<u16> {
    if !request.client().is_tls() {
        return None;
    }
    let host = request.head.host().unwrap_or_default();
    if host.is_empty() {
        return None;
    }
    let mut is_other = false;
    request.exchange.with_tls(&mut |tls| {
        is_other = tls
            .session()
            .server_name()
            .is_some_and(|name| name.as_bytes() != host && find(servers, name).is_some());
    });
    if !is_other {
        return None;
    }
    let named = std::str::from_utf8(host).ok().and_then(|host| find(servers, host));
    let server = request.current.conf.server(named.unwrap_or(servers.default_server));
    if server.tls.verify == VerifyClient::Off {
        return None;
    }
    request.log(
        Level::Info,
        format_args!(
            "client attempted to request the server name different from the one that was \
             negotiated while reading client request headers"
        ),
    );
    Some(421)
}

/// Whether a request may pass.
pub(crate) enum Admission {
    /// It may.
    Passed,
    /// It must be refused with this status.
    Refused(u16),
    /// The client's certificate has not been judged by those whom the request's server trusts: ask
    /// [`judge`].
    Pending,
}

/// Whether the connection is what the request's server demands: encrypted, with a certificate of the
/// client.
pub(crate) fn check(request: &Request) -> Admission {
    match request.client().security.get() {
        Security::Plain => return Admission::Passed,
        Security::PlainOnTls => {
            let text = "client sent plain HTTP request to HTTPS port";
            let step = "while reading client request headers";
            request.log(Level::Info, format_args!("{text} {step}"));
            return Admission::Refused(internal::TO_HTTPS);
        }
        Security::Tls => {}
    }
    let (verify, judge) = (request.server().tls.verify, request.client_trust());
    if verify == VerifyClient::Off && judge.is_none() {
        return Admission::Passed;
    }
    let (mut verdict, mut is_own) = (ClientVerdict::NoCertificate, true);
    request.exchange.with_tls(&mut |tls| {
        verdict = judge.map_or(ClientVerdict::NoCertificate, |judge| tls.verdict(judge));
        is_own = tls.is_of(judge);
    });
    if verdict == ClientVerdict::Pending {
        return Admission::Pending;
    }
    match refusal(verify, &verdict) {
        None => Admission::Passed,
        Some((status, reason)) => {
            let step = "while reading client request headers";
            request.log(Level::Info, format_args!("{reason} {step}"));
            // The handshake was made with other authorities: another one may lead to something else.
            Admission::Refused(if is_own { status } else { 421 })
        }
    }
}

/// Why a request can't pass with such a verdict: the status, and the text for the log.
fn refusal(verify: VerifyClient, verdict: &ClientVerdict) -> Option<(u16, String)> {
    match (verify, verdict) {
        (VerifyClient::Off, _) => None,
        (VerifyClient::OptionalNoCa, ClientVerdict::Given(Err(why))) if why.is_missing_ca() => None,
        (_, ClientVerdict::Given(Err(why))) => {
            Some((internal::CERT_ERROR, format!("client SSL certificate verify error: ({why})")))
        }
        (VerifyClient::On, ClientVerdict::NoCertificate) => {
            Some((internal::NO_CERT, "client sent no required SSL certificate".to_owned()))
        }
        _ => None,
    }
}

/// Has the certificate that the client presented in its handshake judged for the request's server.
/// Afterwards, the result is that of [`check`].
pub(crate) async fn judge(request: &Request) -> Option<u16> {
    let judge = request.client_trust()?;
    let mut chain = Vec::new();
    request.exchange.with_tls(&mut |tls| chain = tls.session().peer_certificates().to_vec());
    let tls = &request.server().tls;
    let asking = asking(&request.current, tls.resolving);
    let verdict = match judge.verify(chain, request.client().number, &asking).await {
        Ok(verdict) => verdict,
        Err(failure) => {
            let text = "while verifying client SSL certificate";
            request.log(Level::Error, format_args!("{failure} {text}"));
            return Some(503);
        }
    };
    request.exchange.with_tls(&mut |tls| tls.remember(judge, verdict));
    match check(request) {
        Admission::Passed => None,
        Admission::Refused(status) => Some(status),
        // Other requests of the connection have displaced the verdict meanwhile.
        Admission::Pending => Some(421),
    }
}

fn asking(current: &Rc<Current>, resolving: Resolving) -> Asking {
    Asking {
        resolver: current.resolvers.get(resolving.resolver).clone(),
        pool: current.compute_pool().clone(),
        files: current.default_pool().clone(),
        log: current.error_log(),
    }
}
