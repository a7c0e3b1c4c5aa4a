//! Memory for futures of requests: a connection uses it again for its next stream.
//!
//! Most requests are done at the first step of their future, which then never becomes a task.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use nowait_http::request::Request;
use nowait_runtime::pool::metered;

use super::serving;
use super::stream::Stream;

/// The future of a request, or memory for the next one.
pub(super) trait RequestFuture: Future<Output = ()> + Unpin {
    /// Begins to serve a request, as [`serving::serve`] does.
    fn begin(&mut self, stream: Rc<Stream>, request: Box<Request>, refused: Option<u16>);
}

/// Memory for futures.
pub(super) fn memory() -> Box<dyn RequestFuture> {
    let make = |stream, request: Box<Request>, refused| {
        metered(request.spent().clone(), serving::serve(stream, request, refused))
    };
    Box::new(RequestSlot { make, future: Box::pin(None) })
}

struct RequestSlot<M, F> {
    make: M,
    future: Pin<Box<Option<F>>>,
}

impl<M, F> RequestFuture for RequestSlot<M, F>
where
    M: Fn(Rc<Stream>, Box<Request>, Option<u16>) -> F + Unpin,
    F: Future<Output = ()>,
{
    fn begin(&mut self, stream: Rc<Stream>, request: Box<Request>, refused: Option<u16>) {
        self.future.set(Some((self.make)(stream, request, refused)));
    }
}

impl<M: Unpin, F: Future<Output = ()>> Future for RequestSlot<M, F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(serving) = self.future.as_mut().as_pin_mut() else { return Poll::Ready(()) };
        let polled = serving.poll(cx);
        if polled.is_ready() {
            self.future.set(None);
        }
        polled
    }
}
