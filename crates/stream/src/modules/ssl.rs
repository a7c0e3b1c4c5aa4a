//! `listen … ssl`, between the access and the preread phase: the TLS handshake, the choice of the
//! server by the name in it, the client's certificate, and `$ssl_*`. nginx:
//! `ngx_stream_ssl_module`.
//!
//! Directives that `http` has as well are in `nowait_front::tls::conf`.

use std::rc::Rc;
use std::sync::Arc;

use nowait_front::log::Level;
use nowait_front::resolver_directives::Resolving;
use nowait_front::servers::Virtual;
use nowait_front::tls::certificate_loader::NamedPairs;
use nowait_front::tls::conf::VerifyClient;
use nowait_front::tls::ocsp::Asking;
use nowait_front::tls::trust::{ClientTrust, ClientVerdict};
use nowait_front::tls::variables::{Fact, SessionView};
use nowait_front::tls::{
    self, Chosen, Fault, HANDSHAKES_MAX, Handshake, HandshakeError, Hello, Tls,
};
use nowait_runtime::fs::Io;
use nowait_runtime::net::Stream;

use crate::conf::ssl::StreamSslConf;
use crate::module::{Handler, Module, Phase, Step};
use crate::session::Session;
use crate::status::Status;
use crate::variables::Builtin;
use crate::variables::complex::StreamVariables;

/// This module.
pub static MODULE: Module = Module {
    rows: &[StreamSslConf::ROWS],
    handler: Some((Phase::Ssl, |_, _| Some(Box::new(Ssl)))),
    variables: BUILTINS,
};

/// Handles sessions of addresses with `ssl`.
struct Ssl;

impl Handler for Ssl {
    fn handle<'s>(&'s self, session: &'s Session) -> Step<'s, Result<(), Status>> {
        let Some(servers) = session.virtual_servers().filter(|servers| servers.ssl.is_some())
        else {
            return Step::Done(Ok(()));
        };
        match session.stream() {
            Some(stream) => Step::Wait(Box::pin(async move {
                // A connection that was passed on may speak TLS already.
                if !stream.has_layer() {
                    handshake(session, stream, servers).await?;
                }
                check_client(session, stream, servers).await
            })),
            None => Step::Done(Ok(())),
        }
    }
}

async fn handshake(session: &Session, stream: &Stream, servers: &Virtual) -> Result<(), Status> {
    session.set_action(Some("SSL handshaking"));
    let Some(_entered) = session.current.enter_handshake(HANDSHAKES_MAX) else {
        let text = format_args!("{HANDSHAKES_MAX} SSL handshakes are in progress");
        session.log(Level::Error, text);
        return Err(Status::InternalServerError);
    };
    let settings = Handshake {
        timeout: session.server().tls.timeout,
        pool: session.current.compute_pool.clone(),
        client: session.number,
    };
    let first = session.input.take();
    let choose = async |hello: &Hello| choose(session, servers, hello, &settings).await;
    match tls::accept(stream, &first, &settings, choose).await {
        Ok(()) => Ok(()),
        Err(failure) => {
            let level = match &failure {
                HandshakeError::Tls(error) if error.fault() != Fault::Peer => Level::Crit,
                HandshakeError::Pool(_) | HandshakeError::Certificate(_) => Level::Error,
                _ => Level::Info,
            };
            session.log(level, format_args!("{failure}"));
            match failure {
                // The session has done all that it is for.
                HandshakeError::Validated(_) => Err(Status::Ok),
                _ => Err(Status::InternalServerError),
            }
        }
    }
}

/// Switches to the server that the client's hello names, and loads its certificate.
async fn choose(
    session: &Session,
    servers: &Virtual,
    hello: &Hello,
    handshake: &Handshake,
) -> Result<Chosen, HandshakeError> {
    if let Some(name) = hello.server_name() {
        let found = servers
            .names
            .lookup(name.as_bytes(), |regex| regex.search_in(session, name.as_bytes()));
        match found {
            Ok(Some(&server)) => session.set_server(server),
            Ok(None) => {}
            Err(error) => session.log(Level::Alert, format_args!("{error}")),
        }
    }
    let own = &session.server().tls.server;
    let default = &session.current.conf.server(servers.default_server).tls.server;
    let (own, server) = own.or_default(default).ok_or(HandshakeError::Rejected)?;
    let current = &session.current;
    let mut chosen =
        own.choice(server, current.conf.wants_offers, |resolving| asking(session, resolving));
    let Some(pairs) = &own.named else { return Ok(chosen) };
    let facts = NamedPairs::<StreamVariables>::facts(hello, server)?;
    session.expected.replace(Some(Box::new(facts)));
    let io = Rc::new(Io::new(session.current.default_pool.clone()));
    let completed = pairs.complete(server, session, handshake, &io).await;
    session.expected.take();
    chosen.server = completed?;
    Ok(chosen)
}

fn asking(session: &Session, resolving: Resolving) -> Asking {
    let current = &session.current;
    let logs = current.logs.clone();
    Asking {
        resolver: current.resolvers.get(resolving.resolver).clone(),
        pool: current.compute_pool.clone(),
        files: current.default_pool.clone(),
        log: Arc::new(move |message| logs.error(Level::Error, message)),
    }
}

/// The judge of the client's certificate for the session's server.
fn judge_of<'s>(session: &'s Session, servers: Option<&Virtual>) -> Option<&'s ClientTrust> {
    let default = || Some(&session.current.conf.server(servers?.default_server).tls.server);
    session.server().tls.server.judge_or_default(default).map(|judge| &**judge)
}

/// Whether the client's certificate is what the server demands. The handshake of a connection that was
/// passed on was made by another server, perhaps with other authorities.
async fn check_client(session: &Session, stream: &Stream, servers: &Virtual) -> Result<(), Status> {
    let tls = &session.server().tls.server;
    let verify = tls.verify;
    let judge = judge_of(session, Some(servers));
    let verdict = match judge {
        Some(judge) => judge_client(session, stream, judge, tls.resolving).await?,
        None => ClientVerdict::NoCertificate,
    };
    match verdict {
        ClientVerdict::Given(Err(why))
            if verify != VerifyClient::Off
                && (verify != VerifyClient::OptionalNoCa || !why.is_missing_ca()) =>
        {
            let text = format_args!("client SSL certificate verify error: ({why})");
            session.log(Level::Info, text);
            Err(Status::InternalServerError)
        }
        ClientVerdict::NoCertificate if verify == VerifyClient::On => {
            session.log(Level::Info, format_args!("client sent no required SSL certificate"));
            Err(Status::InternalServerError)
        }
        _ => Ok(()),
    }
}

/// The verdict of a judge about the client, computed if it is not known yet.
async fn judge_client(
    session: &Session,
    stream: &Stream,
    judge: &ClientTrust,
    resolving: Resolving,
) -> Result<ClientVerdict, Status> {
    let known = stream.with_layer(|tls: &Tls| {
        let chain = || tls.session().peer_certificates().to_vec();
        match tls.verdict(judge) {
            ClientVerdict::Pending => Err(chain()),
            verdict => Ok(verdict),
        }
    });
    let chain = match known {
        None => return Ok(ClientVerdict::NoCertificate),
        Some(Ok(verdict)) => return Ok(verdict),
        Some(Err(chain)) => chain,
    };
    match judge.verify(chain, session.number, &asking(session, resolving)).await {
        Ok(verdict) => {
            stream.with_layer(|tls: &Tls| tls.remember(judge, verdict));
            Ok(ClientVerdict::Given(verdict))
        }
        Err(failure) => {
            let text = format_args!("{failure} while verifying client SSL certificate");
            session.log(Level::Error, text);
            Err(Status::InternalServerError)
        }
    }
}

const BUILTINS: &[Builtin] = nowait_front::tls_variables!(Builtin, of);

fn of(session: &Session, out: &mut Vec<u8>, fact: Fact) -> bool {
    let judge = judge_of(session, session.virtual_servers());
    if let Some(tls) = &*session.expected.borrow() {
        return fact(SessionView { tls, judge }, out);
    }
    let look = |tls: &Tls| fact(SessionView { tls, judge }, out);
    session.stream().and_then(|stream| stream.with_layer(look)).unwrap_or(false)
}
