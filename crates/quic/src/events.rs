//! What happens on connections, and how they end.

use std::fmt;

use bytes::Bytes;
use quinn_proto::{ApplicationClose, ConnectionError};

use crate::{Dir, StreamId};

/// What happened on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// The peer may have opened streams: [`Connection::accept`](crate::Connection::accept) returns them.
    Opened(Dir),
    /// Data, the end, or a reset arrived on a stream for which no task waits.
    Readable(StreamId),
    /// A stream for which no task waits can be written to again.
    Writable(StreamId),
    /// The peer reads no more of a stream, and gave this code.
    Stopped(StreamId, u64),
    /// The peer has received everything of a stream, up to its end.
    Finished(StreamId),
    /// More streams of this direction can be opened.
    Available(Dir),
    /// The handshake is complete, on a connection with early data.
    Confirmed,
    /// The connection has ended. The last event.
    Lost(ConnectionLost),
}

/// The reason why a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionLost {
    /// This side has closed it.
    Closed,
    /// The application of the peer has closed it, with this code and reason.
    Application(u64, Bytes),
    /// The transport of the peer has closed it, with this code and reason.
    Transport(u64, Bytes),
    /// The peer has broken the protocol; it was told. The text names the error.
    Violation(String),
    /// The peer has lost the connection (stateless reset).
    Reset,
    /// Nothing came for too long.
    TimedOut,
    /// The worker ends, the connection has moved to another one, or this program has failed.
    Dropped,
}

impl ConnectionLost {
    pub(crate) fn of(error: &ConnectionError) -> ConnectionLost {
        match error {
            ConnectionError::LocallyClosed => ConnectionLost::Closed,
            ConnectionError::ApplicationClosed(ApplicationClose { error_code, reason }) => {
                ConnectionLost::Application(error_code.into_inner(), reason.clone())
            }
            ConnectionError::ConnectionClosed(close) => {
                ConnectionLost::Transport(close.error_code.into(), close.reason.clone())
            }
            ConnectionError::Reset => ConnectionLost::Reset,
            ConnectionError::TimedOut => ConnectionLost::TimedOut,
            error => ConnectionLost::Violation(text_of(error)),
        }
    }
}

impl fmt::Display for ConnectionLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionLost::Closed => f.write_str("closed"),
            ConnectionLost::Application(code, reason) => {
                write!(f, "client closed the connection: {code:#x} {}", reason.escape_ascii())
            }
            ConnectionLost::Transport(code, reason) => {
                write!(f, "client reported a transport error: {code:#x} {}", reason.escape_ascii())
            }
            ConnectionLost::Violation(text) => f.write_str(text),
            ConnectionLost::Reset => f.write_str("client lost the connection"),
            ConnectionLost::TimedOut => f.write_str("client timed out"),
            ConnectionLost::Dropped => f.write_str("connection was dropped"),
        }
    }
}

/// The reason why a client has no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// No socket.
    Io(std::io::Error),
    /// The name or the settings are not usable, or there are too many connections.
    Settings(String),
    /// The handshake failed.
    Lost(ConnectionLost),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Io(error) => error.fmt(f),
            ConnectError::Settings(text) => f.write_str(text),
            ConnectError::Lost(lost) => lost.fmt(f),
        }
    }
}

impl std::error::Error for ConnectError {}

/// The text of an error for the log.
pub(crate) fn text_of(error: &ConnectionError) -> String {
    match error {
        ConnectionError::TransportError(error) => error.to_string(),
        ConnectionError::ConnectionClosed(close) => {
            format!("client reported a transport error: {close}")
        }
        ConnectionError::ApplicationClosed(close) => {
            format!("client closed the connection: {close}")
        }
        ConnectionError::TimedOut => "client timed out".to_owned(),
        ConnectionError::Reset => "client lost the connection".to_owned(),
        error => error.to_string(),
    }
}
