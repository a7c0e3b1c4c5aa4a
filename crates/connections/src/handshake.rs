//! The TLS handshake with a client: when it is due, the server that the client names, its certificate.
//! nginx: `ngx_http_ssl_handshake`, `ngx_http_ssl_servername`.
//!
//! Called when the first bytes of a connection have arrived. The handshake itself is in
//! `nowait_front::tls`; what its result means for requests is in [`admission`](crate::admission).

use std::rc::Rc;
use std::time::Duration;

use nowait_front::resolver_directives::Resolving;
use nowait_front::servers::{ServerId, Virtual};
use nowait_front::tls::certificate_loader::NamedPairs;
use nowait_front::tls::ocsp::Asking;
use nowait_front::tls::{self, Chosen, Fault, HANDSHAKES_MAX, Handshake, HandshakeError, Tls};
use nowait_http::client::Security;
use nowait_http::exchange::{Exchange, HandshakeExchange};
use nowait_http::generation::Current;
use nowait_http::log::Level;
use nowait_http::request::Request;
use nowait_http::variables::complex::HttpVariables;
use nowait_runtime::buf::RecvBuf;
use nowait_runtime::now;

use crate::connection::Connection;

/// Result of a handshake.
pub(crate) enum HandshakeResult {
    /// The connection uses TLS, and waits for its first request.
    Encrypted,
    /// The client uses plain HTTP: its request gets an error.
    Plain,
    /// The connection must be closed.
    Failed,
}

/// Whether the bytes that have arrived begin a handshake.
pub(crate) fn is_due(connection: &Connection) -> bool {
    let client = &connection.client;
    if client.requests.get() > 0 || client.security.get() != Security::Plain {
        return false;
    }
    let current = connection.all().current();
    connection.virtual_servers(&current).is_some_and(|servers| servers.ssl.is_some())
}

/// Makes the handshake within this time.
pub(crate) async fn handshake(connection: &Rc<Connection>, timeout: Duration) -> HandshakeResult {
    let exchange: Rc<dyn Exchange> = connection.clone();
    let all = connection.all();
    let current = all.current();
    let Some(servers) = connection.virtual_servers(&current) else {
        return HandshakeResult::Failed;
    };
    let counts = &all.services.counts;
    let Some(_entered) = all.enter_handshake(HANDSHAKES_MAX) else {
        counts.handshake_refused();
        let text = format_args!("{HANDSHAKES_MAX} SSL handshakes are in progress");
        log(exchange, &current, servers, Level::Error, text);
        return HandshakeResult::Failed;
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
            HandshakeResult::Encrypted
        }
        Err(HandshakeError::PlainHttp(received)) => {
            connection.client.security.set(Security::PlainOnTls);
            connection.input.replace(RecvBuf::of(&received));
            HandshakeResult::Plain
        }
        Err(failure) => {
            match failure {
                HandshakeError::Validated(_) => counts.handshaken(),
                _ => counts.handshake_failed(),
            }
            log(exchange, &current, servers, level(&failure), format_args!("{failure}"));
            HandshakeResult::Failed
        }
    }
}

/// The log level of a handshake failure; client faults are `info`, as in nginx.
fn level(failure: &HandshakeError) -> Level {
    match failure {
        HandshakeError::Tls(error) if error.fault() != Fault::Peer => Level::Crit,
        HandshakeError::Pool(_) | HandshakeError::Certificate(_) => Level::Error,
        _ => Level::Info,
    }
}

pub(crate) fn log(
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
pub(crate) async fn choose(
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
    let greeting = Rc::new(HandshakeExchange { exchange: exchange.clone(), expected });
    let request = Request::new(greeting, current.clone(), id, now());
    chosen.server = pairs.complete(server, &request, handshake, &request.io()).await?;
    Ok(chosen)
}

/// The server of a name, unless it is the default server.
pub(crate) fn find(servers: &Virtual, name: &str) -> Option<ServerId> {
    let found = servers.names.lookup(name.as_bytes(), |regex| regex.is_match(name.as_bytes()));
    found.ok().flatten().copied()
}

/// The server that the handshake of a connection named, or the default server.
pub(crate) fn named_server(tls: &Tls, servers: &Virtual) -> ServerId {
    let named = || find(servers, tls.session().server_name()?);
    let named = if servers.has_choice { named() } else { None };
    named.unwrap_or(servers.default_server)
}

/// The server whose settings hold until a request names its own: that of the name in the handshake,
/// or the default server.
pub(crate) fn server_of(connection: &Connection, servers: &Virtual) -> ServerId {
    let named = || {
        let name = |tls: &Tls| find(servers, tls.session().server_name()?);
        connection.stream.with_layer(name).flatten()
    };
    match connection.client.security.get() {
        Security::Tls if servers.has_choice => named().unwrap_or(servers.default_server),
        Security::Tls | Security::Plain | Security::PlainOnTls => servers.default_server,
    }
}

pub(crate) fn asking(current: &Rc<Current>, resolving: Resolving) -> Asking {
    Asking {
        resolver: current.resolvers.get(resolving.resolver).clone(),
        pool: current.compute_pool().clone(),
        files: current.default_pool().clone(),
        log: current.error_log(),
    }
}
