//! The life of a session: phases named and ordered as nginx's.
//!
//! 1. post-accept: the client's address;
//! 2. preaccess: `set`, then limits;
//! 3. access: access rules;
//! 4. ssl: the TLS handshake, if the listening socket has `ssl`;
//! 5. preread: the client's first data, where the server's settings require it;
//! 6. content: the proxy, `return` or `pass`;
//! 7. log: one line, when the session is dropped.
//!
//! What happens in them is up to [`modules`](crate::modules). nginx: `ngx_stream_core_run_phases`.

use nowait_front::log::{Level, OsError};
use nowait_front::proxy_protocol;
use nowait_runtime::net::Stream;
use nowait_runtime::now;
use nowait_runtime::task::{Either, select};

use crate::session::Session;
use crate::status::Status;

/// Maximum number of bytes of an invalid PROXY protocol header that are logged.
const SHOWN_BYTES: usize = 107;

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
async fn before_content(session: &Session) -> Result<(), Status> {
    for handler in &session.server().handlers {
        handler.handle(session).finish().await?;
    }
    Ok(())
}

/// nginx: `ngx_stream_core_content_phase`.
async fn content(session: &Session) -> Status {
    session.set_action(None);
    let server = session.server();
    if let Some(stream) = session.stream()
        && server.core.tcp_nodelay != session.has_nodelay()
    {
        // If the option can't be set, the socket is already closed.
        let _ = stream.set_nodelay(server.core.tcp_nodelay);
    }
    match &server.content {
        None => Status::InternalServerError,
        Some(content) => content.serve(session).finish().await,
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
