//! The thread that makes reports for all pages.
//!
//! On a server with thousands of zones, collecting and formatting a report takes a tenth of a second, in which an event
//! loop could serve nobody. The thread belongs to none of the configured pools, which a hanging disk may occupy: reports
//! must arrive while it does. Never: touches files.

use std::sync::{Arc, LazyLock};

use nowait_http::generation::Generation;
use nowait_http::log::Level;
use nowait_http::request::Request;
use nowait_runtime::pool::{Class, Op, Pool, PoolConfig, PoolError};

use super::report::{Report, collect};

/// Requests that may wait for the thread; further ones get 503.
const QUEUE_MAX: usize = 256;

/// Name of the thread.
const POOL: &str = "reports";

static MAKER: LazyLock<Pool> = LazyLock::new(|| {
    Pool::computing(PoolConfig { name: POOL.to_owned(), threads: 1, max_queue: QUEUE_MAX })
});

/// Makes something of the report for a request, on the thread. `None`: that failed, mostly because too many wait; the
/// reason is in the error log.
pub async fn make<T: Send + 'static>(
    request: &Request,
    format: impl FnOnce(Report) -> T + Send + 'static,
) -> Option<T> {
    let generation = request.current().generation().upgrade()?;
    let client = request.client();
    let made = make_for(&generation, client.listen.to_string(), client.number, format).await;
    let log = |error: &PoolError| request.log(Level::Error, format_args!("no report: {error}"));
    made.inspect_err(log).ok()
}

/// The same for a request to this address; `owner` is the number of its client.
///
/// # Errors
/// Those of [`Pool::run`].
pub async fn make_for<T: Send + 'static>(
    generation: &Arc<Generation>,
    address: String,
    owner: u64,
    format: impl FnOnce(Report) -> T + Send + 'static,
) -> Result<T, PoolError> {
    let generation = generation.clone();
    let work = move || format(collect(&generation, address));
    MAKER.run(Class::Bulk, owner, Op::Blocking, work).await
}
