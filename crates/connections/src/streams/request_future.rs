//! Memory for futures of requests: a connection uses it again for its next stream.
//!
//! Most requests are done at the first step of their future, which then never becomes a task.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use nowait_http::request::Request;
use nowait_runtime::pool::metered;

/// The future of a request, or memory for the next one.
pub(crate) trait RequestFuture<S>: Future<Output = ()> + Unpin {
    /// Begins to serve a request, by its stream; `refused`: with this status.
    fn begin(&mut self, stream: Rc<S>, request: Box<Request>, refused: Option<u16>);
}

/// Memory for futures that `serve` makes.
pub(crate) fn memory<S: 'static, F: Future<Output = ()> + 'static>(
    serve: fn(Rc<S>, Box<Request>, Option<u16>) -> F,
) -> Box<dyn RequestFuture<S>> {
    let make = move |stream, request: Box<Request>, refused| {
        metered(request.spent().clone(), serve(stream, request, refused))
    };
    Box::new(RequestSlot { make, future: Box::pin(None) })
}

struct RequestSlot<M, F> {
    make: M,
    future: Pin<Box<Option<F>>>,
}

impl<S, M, F> RequestFuture<S> for RequestSlot<M, F>
where
    M: Fn(Rc<S>, Box<Request>, Option<u16>) -> F + Unpin,
    F: Future<Output = ()>,
{
    fn begin(&mut self, stream: Rc<S>, request: Box<Request>, refused: Option<u16>) {
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
