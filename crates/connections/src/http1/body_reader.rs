//! The body of an HTTP/1.1 request, read when a handler asks for it.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use nowait_h1::encode::CONTINUE;
use nowait_h1::{BodyEvent, RequestError};
use nowait_http::request::{BodyReader, ReadError};
use nowait_http::response::LocalFuture;
use nowait_runtime::buf::{RECV_BUF_BYTES, ReceivedBuf, RecvBuf};
use nowait_runtime::net::{NO_TIMEOUT, SendOptions};

use super::connection::Connection;

/// Reads the body of a connection's current request.
pub struct Reader {
    connection: Rc<Connection>,
    /// The client is waiting for `100 Continue`.
    expects_continue: bool,
    /// For sending `100 Continue`.
    send_timeout: Duration,
    /// How much is received at once.
    limit: usize,
}

impl Reader {
    /// For the request whose head the connection has just received.
    pub fn new(connection: Rc<Connection>, expects_continue: bool, send_timeout: Duration) -> Self {
        Self { connection, expects_continue, send_timeout, limit: RECV_BUF_BYTES }
    }

    /// Receives when it is polled: a plain receive may complete while nobody asks, because the server
    /// behind takes nothing, and its memory would wait with the content.
    async fn receive(&self) -> io::Result<RecvBuf> {
        Ok(match self.connection.stream.recv_large(NO_TIMEOUT, self.limit).await? {
            ReceivedBuf::Lent(received) => received,
            received => RecvBuf::of(&received),
        })
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

/// Framing that is wrong, as the log says it.
fn malformed(error: RequestError) -> ReadError {
    ReadError::Malformed(error.as_str())
}

impl BodyReader for Reader {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Bytes>, ReadError>> {
        Box::pin(async move {
            let connection = &self.connection;
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
                connection.input.replace(received);
            }
        })
    }

    fn limit(&mut self, bytes: Option<usize>) {
        self.limit = bytes.unwrap_or(RECV_BUF_BYTES).min(RECV_BUF_BYTES);
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
