//! The body of a request, read when a handler asks for it. What was not read closes the stream's window,
//! so a client can't send more than that.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;

use bytes::Bytes;

use super::stream::Stream;
use crate::request::{BodyReader, ReadError};
use crate::response::LocalFuture;

/// The window of a stream whose body is being read, in bytes. Before, it is
/// `http2_body_preread_size`.
const WINDOW: u32 = 256 * 1024;

/// Reads the body of a stream's request.
pub(super) struct Reader {
    stream: Rc<Stream>,
    /// The client is waiting for `100 Continue`.
    expects_continue: bool,
    /// The window was enlarged.
    begun: bool,
    /// How much is taken at once.
    limit: Option<usize>,
}

impl Reader {
    /// For the request whose head has just been received.
    pub(super) fn new(stream: Rc<Stream>, expects_continue: bool) -> Self {
        Self { stream, expects_continue, begun: false, limit: None }
    }

    fn take(&mut self) -> Option<Result<Option<Bytes>, ReadError>> {
        let stream = &self.stream;
        let mut input = stream.input.borrow_mut();
        if !input.data.is_empty() {
            let bytes = input.data.len().min(self.limit.unwrap_or(usize::MAX).max(1));
            let taken = input.data.split_to(bytes).freeze();
            drop(input);
            stream.connection.taken(stream.id, bytes);
            return Some(Ok(Some(taken)));
        }
        if input.faulty {
            return Some(Err(ReadError::Malformed("client sent malformed request body")));
        }
        if input.ended {
            return Some(Ok(None));
        }
        stream.is_gone().then(|| Err(ReadError::Closed(io::ErrorKind::UnexpectedEof.into())))
    }
}

impl BodyReader for Reader {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Bytes>, ReadError>> {
        Box::pin(async move {
            if !std::mem::replace(&mut self.begun, true) && !self.stream.input.borrow().ended {
                self.stream.connection.grow_window(self.stream.id, WINDOW);
            }
            loop {
                if let Some(taken) = self.take() {
                    return taken;
                }
                poll_fn(|cx| self.stream.poll_input(cx)).await;
            }
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
