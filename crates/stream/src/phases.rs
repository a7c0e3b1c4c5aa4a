//! The life of a session: phases named and ordered as nginx's.
//!
//! 1. post-accept: the client's address;
//! 2. preaccess: limits;
//! 3. access: access rules;
//! 4. preread: the client's first data, where the server's settings require it;
//! 5. content: the proxy, `return` or `pass`;
//! 6. log: one line, when the session is dropped.
//!
//! nginx: `ngx_stream_core_run_phases`.

use std::time::Duration;

use nowait_front::access::{Verdict, by_address};
use nowait_front::log::{Level, OsError};
use nowait_front::proxy_protocol;
use nowait_runtime::net::{SendOptions, Stream};
use nowait_runtime::now;
use nowait_runtime::task::{Either, select};
use nowait_variables::Subject;

use crate::conf::{Complex, Content};
use crate::modules::{limit_conn, pass, preread, proxy, realip};
use crate::session::{Session, Transport};
use crate::status::Status;

/// Maximum number of bytes of an invalid PROXY protocol header that are logged.
const SHOWN_BYTES: usize = 107;

/// Maximum time for a client to receive the text of `return`.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves a session until it ends.
pub async fn serve(session: &Session) {
    session.log_bare(
        Level::Info,
        format_args!(
            "{}client {} connected to {}",
            session.kind(),
            session.connection_peer,
            session.listen
        ),
    );
    let status = match session.current.shutdown_timeout {
        None => run(session).await,
        Some(_) => {
            let current = session.current.clone();
            let expired = std::pin::pin!(current.expired());
            match select(std::pin::pin!(run(session)), expired).await {
                Either::Left(status) => status,
                Either::Right(()) => {
                    session.log(Level::Info, format_args!("shutdown timeout"));
                    Status::Ok
                }
            }
        }
    };
    session.set_status(status);
}

async fn run(session: &Session) -> Status {
    session.log(Level::Debug, format_args!("{}session begins", session.kind()));
    let proxied = session.virtual_servers().is_some_and(|servers| servers.proxy_protocol);
    if let Some(stream) = session.stream()
        && proxied
        && let Err(status) = Box::pin(receive_header(session, stream)).await
    {
        return status;
    }
    match before_content(session).await {
        Ok(()) => content(session).await,
        Err(status) => status,
    }
}

/// All phases before content.
///
/// # Errors
/// The status of a session that ends here.
pub(crate) async fn before_content(session: &Session) -> Result<(), Status> {
    realip::apply(session);
    for set in &session.server().sets {
        session.set_slot(set.slot, Some(session.evaluate(&set.value)));
    }
    limit_conn::ask(session)?;
    if by_address(&session.server().access.rules, session.peer()) == Verdict::Refused {
        session.log(Level::Error, format_args!("access forbidden by rule"));
        return Err(Status::Forbidden);
    }
    preread::run(session).await
}

/// `return`. nginx: `ngx_stream_return_handler`.
async fn answer(session: &Session, text: &Complex) -> Status {
    session.set_action(Some("returning text"));
    let text = session.evaluate(text);
    if text.is_empty() {
        return Status::Ok;
    }
    let length = text.len() as u64;
    let sent = match &session.transport {
        Transport::Tcp(stream) => stream.send(text, SendOptions::new(ANSWER_TIMEOUT)).await,
        Transport::Udp(client) => client.send(&text),
        Transport::Gone => return Status::InternalServerError,
    };
    match sent {
        Ok(()) => session.count_sent(length),
        Err(error) => session.log(Level::Info, format_args!("send() failed{}", OsError(&error))),
    }
    Status::Ok
}

/// nginx: `ngx_stream_core_content_phase`.
async fn content(session: &Session) -> Status {
    session.set_action(None);
    let server = session.server();
    if let Some(stream) = session.stream()
        && server.core.tcp_nodelay != session.has_nodelay()
    {
        // If the option can't be set, the socket is already gone.
        let _ = stream.set_nodelay(server.core.tcp_nodelay);
    }
    match &server.content {
        Content::Nothing => Status::InternalServerError,
        Content::Pass(to) => pass::run(session, to),
        Content::Return(text) => answer(session, text).await,
        Content::Proxy(pass) => match &session.transport {
            Transport::Tcp(stream) => proxy::tcp(session, stream, pass).await,
            Transport::Udp(client) => proxy::udp::udp(session, client, pass).await,
            Transport::Gone => Status::InternalServerError,
        },
    }
}

/// Receives the PROXY protocol header. nginx: `ngx_stream_proxy_protocol_handler`.
async fn receive_header(session: &Session, stream: &Stream) -> Result<(), Status> {
    session.set_action(Some("reading PROXY protocol"));
    let until = now() + session.server().core.proxy_protocol_timeout.duration();
    // A connection handed over by `pass` may already have data.
    let mut bytes = session.input.take();
    loop {
        match proxy_protocol::parse(&bytes) {
            Ok(Some((header, length))) => {
                session.input.replace(bytes.split_off(length));
                if let Some(header) = header {
                    // The cell is filled here only, once.
                    let _ = session.proxy_protocol.set(Box::new(header));
                }
                session.set_action(Some("initializing session"));
                return Ok(());
            }
            Ok(None) if bytes.len() < proxy_protocol::HEADER_BYTES_MAX => {}
            Ok(None) | Err(proxy_protocol::Broken) => {
                let shown = bytes[..bytes.len().min(SHOWN_BYTES)].escape_ascii();
                session.log(Level::Error, format_args!("broken header: \"{shown}\""));
                return Err(Status::BadRequest);
            }
        }
        let left = until.saturating_duration_since(now());
        match stream.recv(left).await {
            Ok(received) if received.is_empty() => return Err(Status::BadRequest),
            Ok(received) => bytes.extend_from_slice(&received),
            Err(error) => {
                let timed_out = error.kind() == std::io::ErrorKind::TimedOut;
                match timed_out && error.raw_os_error().is_none() {
                    true => session.log(
                        Level::Info,
                        format_args!("client timed out (110: Connection timed out)"),
                    ),
                    false => {
                        session.log(Level::Info, format_args!("recv() failed{}", OsError(&error)))
                    }
                }
                return Err(Status::Ok);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of a function's result.
    fn size<A, R>(_: impl FnOnce(A) -> R) -> usize {
        size_of::<R>()
    }

    #[test]
    fn an_idle_session_is_small() {
        // Together with the session it is one allocation of the worker, for as long as the session
        // is idle.
        let session = size_of::<Session>();
        let future = size::<&'static Session, _>(serve);
        assert!(session + future <= 3 * 1024, "{session} + {future}");
    }
}
