//! The task of each worker that sends batches of spans to the collector.

use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use nowait_backend::collector::{self, Exporter};
use nowait_front::tls::https::Means;
use nowait_http::generation::Current;
use nowait_http::log::Level;
use nowait_http::services::Services;
use nowait_http::special_pages::PRODUCT_VERSION;
use nowait_runtime::task::{Either, select};
use nowait_runtime::time::timeout;
use nowait_runtime::{JoinHandle, sleep, spawn, worker};

use super::conf::ExporterConf;
use super::queue::{self, Sending};
use super::{EXPORTER, proto};

/// Longest time for the last spans when the server ends.
const LAST: Duration = Duration::from_secs(1);

/// Longest pause after a failed export.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Starts the task of this worker.
pub fn start(_services: &Rc<Services>, current: &Rc<Current>) -> Vec<JoinHandle<()>> {
    if current.conf.settings.get(&EXPORTER).is_none() {
        return Vec::new();
    }
    let mut sender = Sender { current: current.clone(), exporter: Exporter::default() };
    vec![spawn(async move {
        select(worker::stopping(), sender.run()).await;
        queue::close();
        let _ = timeout(LAST, sender.send_all()).await;
    })]
}

struct Sender {
    current: Rc<Current>,
    exporter: Exporter,
}

impl Sender {
    fn conf(&self) -> &ExporterConf {
        self.current.conf.settings.get(&EXPORTER).expect("start has found it")
    }

    async fn run(&mut self) {
        loop {
            let interval = self.conf().interval;
            // A full batch leaves at once, and the one after it goes on being filled.
            let full = poll_fn(|cx| queue::poll_full(cx));
            if let Either::Left(()) = select(sleep(interval), full).await {
                queue::close();
            }
            if !self.send_all().await {
                sleep(interval.min(PAUSE_MAX)).await;
            }
        }
    }

    /// Sends full batches until there are none. False: one was lost.
    async fn send_all(&mut self) -> bool {
        while let Some(sending) = queue::take() {
            if !self.send(sending).await {
                return false;
            }
        }
        true
    }

    async fn send(&mut self, sending: Sending) -> bool {
        let current = self.current.clone();
        let conf = current.conf.settings.get(&EXPORTER).expect("start has found it");
        let spans = sending.batch().spans;
        let message = message(&conf.resource, &sending.batch().encoded);
        let resolving = current.conf.resolving;
        let means = Means {
            resolver: current.resolvers.get(resolving.resolver).clone(),
            resolver_timeout: resolving.timeout.duration(),
            pool: current.compute_pool().clone(),
        };
        let sent = self.exporter.send(&conf.endpoint, message, &means).await;
        sending.end();
        let endpoint = &conf.endpoint.text;
        match sent {
            Ok(response) => {
                let rejected = proto::rejected_spans(&response).min(spans);
                collector::count_lost(rejected);
                if collector::count_sent(spans - rejected) {
                    let lost = collector::counts().lost;
                    current.logs.error(
                        Level::Notice,
                        format_args!(
                            "exporting spans to \"{endpoint}\" works again, {lost} were lost since \
                             the start"
                        ),
                    );
                }
                true
            }
            Err(why) => {
                if collector::count_failed(spans) {
                    current.logs.error(
                        Level::Error,
                        format_args!(
                            "exporting spans to \"{endpoint}\" failed: {why}; spans are lost \
                             until it works again"
                        ),
                    );
                }
                false
            }
        }
    }
}

/// `ExportTraceServiceRequest` with the spans of a batch.
fn message(resource: &[u8], spans: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(resource.len() + spans.len() + 64);
    // repeated ResourceSpans resource_spans = 1
    proto::nested(&mut out, 1, |out| {
        proto::bytes(out, 1, resource);
        // repeated ScopeSpans scope_spans = 2
        proto::nested(out, 2, |out| {
            // InstrumentationScope { string name = 1; string version = 2; }
            proto::nested(out, 1, |out| {
                proto::bytes(out, 1, b"nowait");
                proto::bytes(out, 2, PRODUCT_VERSION.as_bytes());
            });
            out.extend_from_slice(spans);
        });
    });
    out.into()
}
