//! The body of a request, read on demand of a handler. Unread content closes the stream's window, so a
//! client can't send more.

use std::rc::Rc;

use bytes::Bytes;
use nowait_http::request::{BodyReader, ReadError};
use nowait_http::response::LocalFuture;

use super::stream::RequestStream;

/// Reads the body of a stream's request.
pub(crate) struct StreamBodyReader<S> {
    stream: Rc<S>,
    /// The client is waiting for `100 Continue`.
    expects_continue: bool,
    /// The window was enlarged.
    begun: bool,
    /// The number of bytes taken at once.
    limit: Option<usize>,
}

impl<S: RequestStream> StreamBodyReader<S> {
    /// For the request whose head has just been received.
    pub(crate) fn new(stream: Rc<S>, expects_continue: bool) -> Self {
        Self { stream, expects_continue, begun: false, limit: None }
    }
}

impl<S: RequestStream> BodyReader for StreamBodyReader<S> {
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
        if std::mem::take(&mut self.expects_continue) {
            self.stream.send_continue();
        }
        Box::pin(std::future::ready(Ok(())))
    }
}
