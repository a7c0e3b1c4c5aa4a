//! A collector of telemetry: where it is, the connection to it, and how exports fare.
//!
//! Each worker has a connection of its own, made when there is something to send and kept for the next time. The
//! counters belong to the process, and are read by monitoring. Nothing is repeated: what a collector does not take is
//! lost, and counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use nowait_front::tls::Tls;
use nowait_front::tls::https::{self, Https, Means};
use nowait_runtime::net::{Address, Stream};
use nowait_runtime::time::timeout;

use crate::upstream::{CallResponse, Line, OwnConnection};

/// Longest time for an export, with its connection.
pub const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection closes after this time without an export.
const IDLE: Duration = Duration::from_secs(60);

/// Longest response that is read, bytes; the rest is ignored.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// Longest message of a collector in the log, bytes.
const MESSAGE_BYTES_MAX: usize = 200;

/// The collector of a configuration.
#[derive(Debug)]
pub struct Endpoint {
    /// As it was written, for messages.
    pub text: String,
    /// Its address.
    pub target: EndpointTarget,
    /// What `Host` or `:authority` says.
    pub authority: String,
    /// The client for TLS; `None`: plain connections.
    pub tls: Option<Https>,
    /// The protocol.
    pub protocol: ExportProtocol,
    /// Further fields of each request, with names in lower case.
    pub fields: Vec<(String, String)>,
}

/// The address of a collector.
#[derive(Debug)]
pub enum EndpointTarget {
    /// A host, whose name is resolved for each connection, and a port.
    Host(String, u16),
    /// A Unix-domain socket.
    Unix(Box<[u8]>),
}

/// How exports travel.
#[derive(Debug, PartialEq, Eq)]
pub enum ExportProtocol {
    /// gRPC: a call of this method, such as `/package.Service/Method`.
    Grpc(&'static str),
    /// HTTP/1.1: POST to this path.
    Http(String),
}

/// A worker's connection to a collector.
#[derive(Default)]
pub struct Exporter {
    grpc: Option<OwnConnection>,
    http: Option<Stream>,
}

/// Exports of this process.
static SENT: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);
static FAILING: AtomicBool = AtomicBool::new(false);

/// How exports fare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Spans that a collector has taken.
    pub sent: u64,
    /// Spans that were lost: no collector took them, or too many were waiting.
    pub lost: u64,
    /// The last export has failed.
    pub is_failing: bool,
}

/// The counts of this process.
pub fn counts() -> ExportCounts {
    let is_failing = FAILING.load(Relaxed);
    ExportCounts { sent: SENT.load(Relaxed), lost: LOST.load(Relaxed), is_failing }
}

/// Counts spans that were taken. True: exports had failed before.
pub fn count_sent(spans: u64) -> bool {
    SENT.fetch_add(spans, Relaxed);
    FAILING.swap(false, Relaxed)
}

/// Counts spans that were lost by a failed export. True: it is the first to fail.
pub fn count_failed(spans: u64) -> bool {
    LOST.fetch_add(spans, Relaxed);
    !FAILING.swap(true, Relaxed)
}

/// Counts spans for which there was no room.
pub fn count_lost(spans: u64) {
    LOST.fetch_add(spans, Relaxed);
}

impl Exporter {
    /// Sends an export, and returns the message of the response.
    ///
    /// # Errors
    /// The reason why the collector has not taken it, for the log.
    pub async fn send(
        &mut self,
        to: &Endpoint,
        message: Bytes,
        means: &Means,
    ) -> Result<Vec<u8>, String> {
        let sent = timeout(EXPORT_TIMEOUT, self.exchange(to, message, means)).await;
        let sent = sent.unwrap_or_else(|_| Err("timed out".to_owned()));
        if sent.is_err() {
            *self = Self::default();
        }
        sent
    }

    async fn exchange(
        &mut self,
        to: &Endpoint,
        message: Bytes,
        means: &Means,
    ) -> Result<Vec<u8>, String> {
        match &to.protocol {
            ExportProtocol::Grpc(method) => self.call(to, method, message, means).await,
            ExportProtocol::Http(path) => self.post(to, path, message, means).await,
        }
    }

    async fn call(
        &mut self,
        to: &Endpoint,
        method: &str,
        message: Bytes,
        means: &Means,
    ) -> Result<Vec<u8>, String> {
        let connection = match self.grpc.take_if(|known| known.is_open()) {
            Some(known) => known,
            None => {
                let stream = to.open(means).await?;
                let is_h2 = |tls: &Tls| tls.session().alpn() == Some(b"h2");
                if to.tls.is_some() && stream.with_layer(is_h2) != Some(true) {
                    return Err("the server does not offer HTTP/2".to_owned());
                }
                OwnConnection::new(stream, IDLE, EXPORT_TIMEOUT)
            }
        };
        let connection = self.grpc.insert(connection);
        let line = Line {
            method: b"POST",
            scheme: if to.tls.is_some() { b"https" } else { b"http" },
            authority: to.authority.as_bytes(),
            path: method.as_bytes(),
            protocol: None,
        };
        let length = u32::try_from(message.len()).map_err(|_| "the export is too large")?;
        let mut body = Vec::with_capacity(message.len() + 5);
        body.push(0);
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(&message);
        let called = connection.call(
            &line,
            |fields| {
                fields.field(b"te", b"trailers");
                fields.field(b"content-type", b"application/grpc");
                fields.field(b"user-agent", USER_AGENT.as_bytes());
                for (name, value) in &to.fields {
                    fields.field(name.as_bytes(), value.as_bytes());
                }
            },
            body.into(),
            RESPONSE_BYTES_MAX,
        );
        grpc_message(&called.await?)
    }

    async fn post(
        &mut self,
        to: &Endpoint,
        path: &str,
        message: Bytes,
        means: &Means,
    ) -> Result<Vec<u8>, String> {
        let mut head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: {USER_AGENT}\r\n\
             Content-Type: application/x-protobuf\r\nContent-Length: {}\r\n",
            to.authority,
            message.len(),
        );
        for (name, value) in &to.fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let request = Bytes::from([head.as_bytes(), &message].concat());
        if let Some(kept) = self.http.take() {
            // The server may have closed it meanwhile, which is not a failure.
            if let Ok(answer) = https::exchange(&kept, request.clone(), RESPONSE_BYTES_MAX).await {
                return self.posted(kept, answer);
            }
        }
        let stream = to.open(means).await?;
        let answer = https::exchange(&stream, request, RESPONSE_BYTES_MAX).await?;
        self.posted(stream, answer)
    }

    fn posted(
        &mut self,
        stream: Stream,
        answer: https::FetchedResponse,
    ) -> Result<Vec<u8>, String> {
        if answer.status != 200 {
            return Err(format!("the collector responded with status {}", answer.status));
        }
        self.http = answer.keeps_connection.then_some(stream);
        Ok(answer.body)
    }
}

/// What requests say about the program.
const USER_AGENT: &str = concat!("nowait/", env!("CARGO_PKG_VERSION"));

/// The message of a successful call.
fn grpc_message(response: &CallResponse) -> Result<Vec<u8>, String> {
    if response.head.status != 200 {
        return Err(format!("the collector responded with status {}", response.head.status));
    }
    match response.trailer(b"grpc-status") {
        Some(b"0") => Ok(response.body.get(5..).unwrap_or_default().to_vec()),
        Some(status) => {
            let message = response.trailer(b"grpc-message").unwrap_or_default();
            let message = &message[..message.len().min(MESSAGE_BYTES_MAX)];
            let (status, message) = (status.escape_ascii(), message.escape_ascii());
            Err(format!("the collector responded with gRPC status {status}: {message}"))
        }
        None => Err("the collector's response has no gRPC status".to_owned()),
    }
}

impl Endpoint {
    async fn open(&self, means: &Means) -> Result<Stream, String> {
        match &self.target {
            EndpointTarget::Host(host, port) => {
                https::open(host, *port, self.tls.as_ref(), means).await
            }
            EndpointTarget::Unix(path) => {
                let address = Address::Unix(path.clone());
                let opened = Stream::connect(&address, EXPORT_TIMEOUT).await;
                opened.map_err(|error| format!("connect() failed ({})", nowait_conf::Errno(&error)))
            }
        }
    }
}
