//! Results of operations on streams.

use bytes::Bytes;

/// The result of reading from a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The next bytes; never empty.
    Data(Bytes),
    /// The peer has sent everything.
    End,
    /// Nothing has arrived yet.
    Blocked,
}

/// The reason why nothing can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The peer has reset the stream with this code.
    Reset(u64),
    /// The connection has ended.
    Lost,
    /// The stream has ended before, or was stopped here.
    Closed,
}

/// The reason why nothing can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The peer reads no more of the stream, and gave this code (STOP_SENDING).
    Stopped(u64),
    /// The connection has ended.
    Lost,
    /// The stream was finished or reset before.
    Closed,
}
