//! The preread phase: the client's first data, where the server needs it to decide how to handle
//! the session. nginx: `ngx_stream_core_preread_phase`, `ngx_stream_ssl_preread_module`.
//!
//! The data remains part of the session's input and is passed on.

use nowait_front::log::{Level, OsError};
use nowait_runtime::net::Stream;
use nowait_runtime::now;

use crate::client_hello::{ClientHello, Reader, Step};
use crate::session::Session;
use crate::status::Status;
use crate::variables::{Builtin, builtin_rows};

/// Reads the ClientHello of a TLS client, and selects the server by the requested name.
///
/// # Errors
/// The status of a session that ends here.
pub(crate) async fn run(session: &Session) -> Result<(), Status> {
    let Some(stream) = session.stream().filter(|_| session.server().ssl_preread) else {
        return Ok(());
    };
    session.set_action(Some("prereading client data"));
    if let Some(hello) = Box::pin(receive(session, stream)).await? {
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
    let mut reader = Reader::default();
    loop {
        {
            let input = session.input.borrow();
            match reader.read(&input[..input.len().min(most)]) {
                Step::Done(hello) => return Ok(Some(hello)),
                Step::Other => return Ok(None),
                Step::More if input.len() >= most => {
                    session.log(Level::Error, format_args!("preread buffer full"));
                    return Err(Status::BadRequest);
                }
                Step::More => {}
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

/// The variables of this module.
pub const BUILTINS: &[Builtin] = builtin_rows! {
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
