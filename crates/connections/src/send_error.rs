//! Why responses could not be sent, for every protocol.
//!
//! Used by front ends.

use std::io;

use nowait_http::log::Level;
use nowait_http::request::Request;
use nowait_http::response::BodyError;
use nowait_http::upstream_state::UpstreamState;

/// Why a response could not be sent completely.
#[derive(Debug)]
pub enum SendError {
    /// The client is gone, slow, or the network failed.
    Client(io::Error),
    /// The body could not be produced.
    Body(BodyError),
}

impl SendError {
    /// Whether the connection failed, not the body.
    pub fn is_client(&self) -> bool {
        matches!(self, Self::Client(_))
    }

    /// Whether the client accepted nothing for `send_timeout`.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Client(error) if error.kind() == io::ErrorKind::TimedOut)
    }
}

impl From<BodyError> for SendError {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

/// Logs a response that was cut short.
pub fn log_error(request: &Request, error: &SendError) {
    match error {
        SendError::Client(error) if error.kind() == io::ErrorKind::TimedOut => {
            request.log(Level::Info, format_args!("client timed out (110: Connection timed out)"));
        }
        SendError::Client(error) if error.raw_os_error().is_none() => {
            let upstream = UpstreamState::get(request.state()).and_then(|state| state.action());
            let text = upstream.map_or("", |_| ", so upstream connection is closed too");
            request.log(Level::Info, format_args!("client prematurely closed connection{text}"));
        }
        SendError::Client(error) => request
            .log(Level::Info, format_args!("send() failed {}", nowait_http::files::errno(error))),
        SendError::Body(error) => nowait_http::logs::body_error(request, error),
    }
}

/// The client has left while there was nothing to send.
pub fn left() -> SendError {
    let gone = io::ErrorKind::ConnectionReset;
    SendError::Client(io::Error::new(gone, "the client has left"))
}
