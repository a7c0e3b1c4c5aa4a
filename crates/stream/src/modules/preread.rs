//! `ssl_preread`, the preread phase: the first message of a TLS client, for variables and for the
//! choice of the server. nginx: `ngx_stream_ssl_preread_module`.
//!
//! The data remains part of the session's input and is passed on.

use nowait_conf::{Cx, Scope};
use nowait_front::log::{Level, OsError};
use nowait_runtime::net::Stream;
use nowait_runtime::now;

use crate::client_hello::{self, ClientHello, HelloReader};
use crate::module::{Handler, Module, Phase, Step};
use crate::session::Session;
use crate::status::Status;
use crate::variables::{Builtin, builtin_rows};

/// This module.
pub static MODULE: Module = Module {
    rows: &[SslPrereadConf::ROWS],
    handler: Some((Phase::PreRead, handler)),
    variables: BUILTINS,
};

nowait_conf::directives! {
    /// Whether the ClientHello is read.
    #[derive(Debug)]
    module "stream_ssl_preread";
    pub struct SslPrereadConf with SslPrereadLayer;

    /// Reads the first message of a TLS client before the session is routed, without taking part in
    /// the TLS connection: for the `$ssl_preread_` variables, and for the choice among the servers
    /// of an address by `server_name`. Clients of other protocols are served too; silent clients
    /// wait until `preread_timeout`. What was read goes to the upstream server, or with `pass` to the other
    /// listening socket. In a server with `listen … ssl`, the decrypted data is examined, which has a
    /// ClientHello only if TLS is used within TLS.
    ssl_preread: bool = "off", in STREAM | STREAM_SERVER, args "on | off";
}

/// Reads the ClientHello of TLS clients.
struct SslPreread;

fn handler(cx: &mut Cx<'_>, chain: &[&Scope]) -> Option<Box<dyn Handler>> {
    SslPrereadConf::resolve(cx, chain).ssl_preread.then(|| Box::new(SslPreread) as _)
}

impl Handler for SslPreread {
    fn handle<'s>(&'s self, session: &'s Session) -> Step<'s, Result<(), Status>> {
        match session.stream() {
            Some(stream) => Step::Wait(Box::pin(run(session, stream))),
            None => Step::Done(Ok(())),
        }
    }
}

/// Reads the ClientHello of a TLS client, and selects the server by the requested name.
///
/// # Errors
/// The status of a session that ends here.
async fn run(session: &Session, stream: &Stream) -> Result<(), Status> {
    session.set_action(Some("prereading client data"));
    if let Some(hello) = receive(session, stream).await? {
        choose_server(session, &hello.server_name)?;
        // The cell is filled here only, once.
        let _ = session.hello.set(Box::new(hello));
    }
    Ok(())
}

/// `None`: not TLS.
async fn receive(session: &Session, stream: &Stream) -> Result<Option<ClientHello>, Status> {
    let core = &session.server().core;
    let most = usize::try_from(core.preread_buffer_size.0).unwrap_or(usize::MAX);
    let until = now() + core.preread_timeout.duration();
    let mut reader = HelloReader::default();
    loop {
        {
            let input = session.input.borrow();
            match reader.read(&input[..input.len().min(most)]) {
                client_hello::ParseStep::Done(hello) => return Ok(Some(hello)),
                client_hello::ParseStep::Other => return Ok(None),
                client_hello::ParseStep::More if input.len() >= most => {
                    session.log(Level::Error, format_args!("preread buffer full"));
                    return Err(Status::BadRequest);
                }
                client_hello::ParseStep::More => {}
            }
        }
        let left = until.saturating_duration_since(now());
        match stream.recv(left).await {
            Ok(received) if received.is_empty() => return Err(Status::Ok),
            Ok(received) => session.input.borrow_mut().extend_from_slice(&received),
            Err(error) => {
                if error.raw_os_error().is_some() {
                    session.log(Level::Info, format_args!("recv() failed{}", OsError(&error)));
                }
                return Err(Status::Ok);
            }
        }
    }
}

/// nginx: `ngx_stream_ssl_preread_servername`.
fn choose_server(session: &Session, name: &[u8]) -> Result<(), Status> {
    let Some(name) = host(name) else { return Ok(()) };
    let Some(servers) = session.virtual_servers() else { return Ok(()) };
    match servers.names.lookup(&name, |regex| regex.search_in(session, &name)) {
        Ok(Some(&server)) => session.set_server(server),
        Ok(None) => {}
        Err(error) => {
            session.log(Level::Alert, format_args!("{error}"));
            return Err(Status::InternalServerError);
        }
    }
    Ok(())
}

/// Normalizes a host name as servers have it: lower case, without a trailing dot. `None`: not a
/// valid host name. nginx: `ngx_stream_validate_host`.
fn host(name: &[u8]) -> Option<Vec<u8>> {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(byte);
    let valid = !name.is_empty()
        && name.iter().all(fits)
        && !name.windows(2).any(|two| two == b"..")
        && !name.ends_with(b".");
    valid.then(|| name.to_ascii_lowercase())
}

const BUILTINS: &[Builtin] = builtin_rows! {
    /// The protocols offered by a TLS client (ALPN), separated by commas. Needs `ssl_preread`.
    "ssl_preread_alpn_protocols" => |s, out| said(s, out, |hello| &hello.alpn);
    /// The highest version that a TLS client supports: `SSLv2`, `SSLv3`, `TLSv1`, `TLSv1.1`,
    /// `TLSv1.2` or `TLSv1.3`. Needs `ssl_preread`.
    "ssl_preread_protocol" => |s, out| said(s, out, |hello| hello.version_name().as_bytes());
    /// The server name requested by a TLS client (SNI). Needs `ssl_preread`.
    "ssl_preread_server_name" => |s, out| said(s, out, |hello| &hello.server_name);
};

fn said(session: &Session, out: &mut Vec<u8>, what: fn(&ClientHello) -> &[u8]) -> bool {
    let Some(hello) = session.hello.get() else { return false };
    out.extend_from_slice(what(hello));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hosts() {
        assert_eq!(host(b"A.Example.").unwrap(), b"a.example");
        assert_eq!(host(b"a_b").unwrap(), b"a_b");
        for wrong in [&b""[..], b".", b"a..b", b"a b", b"a/b", b"a\0", b"a.."] {
            assert_eq!(host(wrong), None);
        }
    }
}
