//! The body of a request, read on demand of a handler. Unread content closes the stream's window, so a
//! client can't send more.

use std::rc::Rc;

use bytes::Bytes;
use nowait_http::request::{BodyReader, ReadError};
use nowait_http::response::LocalFuture;

use super::stream::Stream;

/// Reads the body of a stream's request.
pub(super) struct Http2BodyReader {
    stream: Rc<Stream>,
    /// The client is waiting for `100 Continue`.
    expects_continue: bool,
    /// The window was enlarged.
    begun: bool,
    /// The number of bytes taken at once.
    limit: Option<usize>,
}

impl Http2BodyReader {
    /// For the request whose head has just been received.
    pub(super) fn new(stream: Rc<Stream>, expects_continue: bool) -> Self {
        Self { stream, expects_continue, begun: false, limit: None }
    }
}

impl BodyReader for Http2BodyReader {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Bytes>, ReadError>> {
        Box::pin(async move {
            if !std::mem::replace(&mut self.begun, true) {
                self.stream.invite();
            }
            self.stream.next(self.limit).await
        })
    }

    fn limit(&mut self, bytes: Option<usize>) {
        self.limit = bytes;
    }

    fn wanted(&mut self) -> LocalFuture<'_, Result<(), ReadError>> {
        // A client that is already sending its content needs no invitation.
        if std::mem::take(&mut self.expects_continue) && self.stream.input.borrow().data.is_empty()
        {
            self.stream.connection.interim(&self.stream, 100, &[]);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}
