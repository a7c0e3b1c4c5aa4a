//! The body of an HTTP/1.1 request, read on demand of a handler.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use nowait_h1::encode::CONTINUE;
use nowait_h1::{BodyEvent, RequestError};
use nowait_http::request::{BodyReader, ReadError};
use nowait_http::response::LocalFuture;
use nowait_runtime::buf::{
    LARGE_BUF_BYTES, RECV_BUF_BYTES, ReceivedBuf, RecvBuf, large_bytes_in_use,
};
use nowait_runtime::net::{NO_TIMEOUT, SendOptions};

use super::connection::Http1Connection;

/// Reads the body of a connection's current request.
pub struct Http1BodyReader {
    connection: Rc<Http1Connection>,
    /// The client is waiting for `100 Continue`.
    expects_continue: bool,
    /// For sending `100 Continue`.
    send_timeout: Duration,
    /// The size of a receive.
    limit: usize,
    /// The last receive was full: more may have arrived.
    more: bool,
}

/// While more large memory than this holds received data, the content of requests is received in regular
/// buffers.
const LARGE_BYTES_MAX: usize = 4 * 1024 * 1024;

impl Http1BodyReader {
    /// For the request whose head the connection has just received.
    pub fn new(
        connection: Rc<Http1Connection>,
        expects_continue: bool,
        send_timeout: Duration,
    ) -> Self {
        Self { connection, expects_continue, send_timeout, limit: RECV_BUF_BYTES, more: false }
    }

    /// Receives only when polled: a plain receive could complete while the upstream server accepts no data,
    /// and would hold memory with the content. More than a regular buffer holds is content alone.
    async fn receive(&mut self) -> io::Result<ReceivedBuf> {
        let stream = &self.connection.stream;
        if std::mem::take(&mut self.more) {
            let left = self.connection.h1().body().remaining().unwrap_or(0);
            let bytes = self.limit.min(usize::try_from(left).unwrap_or(usize::MAX));
            if bytes > RECV_BUF_BYTES
                && large_bytes_in_use() < LARGE_BYTES_MAX
                && let Some(received) = stream.try_recv_large(bytes)?
            {
                self.more = received.len() == bytes;
                return Ok(received);
            }
        }
        let bytes = self.limit.min(RECV_BUF_BYTES);
        let received = stream.recv_large(NO_TIMEOUT, bytes).await?;
        self.more = received.is_full();
        Ok(received)
    }

    /// The content in large memory, without a copy. There should be nothing else in it; if there is, it stays
    /// input of the connection.
    fn content(&self, mut received: ReceivedBuf) -> Result<Option<Bytes>, ReadError> {
        let connection = &self.connection;
        let step = connection.h1().receive_body(&received).map_err(malformed)?;
        if step.consumed < received.len() {
            connection.input.replace(RecvBuf::of(&received[step.consumed..]));
        }
        let BodyEvent::Data(range) = step.event else { return Ok(None) };
        received.truncate(range.end);
        received.advance(range.start);
        Ok(Some(received.into_compact_bytes()))
    }

    /// Appends the content of all further chunks that have arrived, as one piece.
    fn take_chunks(&self, data: &mut Vec<u8>) -> Result<(), ReadError> {
        let connection = &self.connection;
        let mut input = connection.input.borrow_mut();
        while !input.is_empty() {
            let step = connection.h1().receive_body(&input).map_err(malformed)?;
            let BodyEvent::Data(range) = step.event else {
                input.advance(step.consumed);
                break;
            };
            data.extend_from_slice(&input[range]);
            input.advance(step.consumed);
        }
        Ok(())
    }
}

/// The log message about malformed framing.
fn malformed(error: RequestError) -> ReadError {
    ReadError::Malformed(error.as_str())
}

impl BodyReader for Http1BodyReader {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Bytes>, ReadError>> {
        Box::pin(async move {
            let connection = self.connection.clone();
            loop {
                {
                    let mut input = connection.input.borrow_mut();
                    let step = connection.h1().receive_body(&input).map_err(malformed)?;
                    match step.event {
                        BodyEvent::End => {
                            input.advance(step.consumed);
                            return Ok(None);
                        }
                        BodyEvent::Data(range) => {
                            let mut data = Vec::with_capacity(input.len());
                            data.extend_from_slice(&input[range]);
                            input.advance(step.consumed);
                            drop(input);
                            self.take_chunks(&mut data)?;
                            connection.release_input();
                            return Ok(Some(data.into()));
                        }
                        BodyEvent::NeedMore => input.advance(step.consumed),
                    }
                }
                connection.release_input();
                let received = self.receive().await.map_err(ReadError::Closed)?;
                if received.is_empty() {
                    return Err(ReadError::Closed(io::ErrorKind::UnexpectedEof.into()));
                }
                match received {
                    ReceivedBuf::Lent(received) => drop(connection.input.replace(received)),
                    large => {
                        if let Some(content) = self.content(large)? {
                            return Ok(Some(content));
                        }
                    }
                }
            }
        })
    }

    fn limit(&mut self, bytes: Option<usize>) {
        self.limit = bytes.unwrap_or(RECV_BUF_BYTES).min(LARGE_BUF_BYTES);
    }

    fn wanted(&mut self) -> LocalFuture<'_, Result<(), ReadError>> {
        Box::pin(async move {
            // A client that is already sending its content needs no invitation.
            if std::mem::take(&mut self.expects_continue)
                && self.connection.input.borrow().is_empty()
            {
                let options = SendOptions::new(self.send_timeout);
                let line = nowait_runtime::buf::Chunk::from(CONTINUE);
                self.connection.stream.send(line, options).await.map_err(ReadError::Closed)?;
            }
            Ok(())
        })
    }
}
