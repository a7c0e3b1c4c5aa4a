//! The directives of OpenTelemetry.

use nowait_backend::collector::{Endpoint, EndpointTarget, ExportProtocol};
use nowait_conf::{Cx, Diagnostic, Msec, Node, Setting, Value, Word, arity, number};
use nowait_front::tls::https::Https;
use nowait_http::conf::values::complex;
use nowait_http::variables::complex::Complex;
use std::time::Duration;

use super::proto;
use super::queue::BatchLimits;

/// The method of gRPC that takes spans.
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Most spans of a batch.
const BATCH_SIZE_MAX: usize = 65_536;

/// Most batches.
const BATCH_COUNT_MAX: usize = 1024;

nowait_conf::directives! {
    /// Which requests are traced, and how.
    #[derive(Debug)]
    module "otel";
    pub struct OtelConf with OtelConfLayer;

    /// Traces requests for which the value is `on` or `1`. Variables allow to choose, for instance a part by
    /// `split_clients`, or those whose client traces them: `$otel_parent_sampled`.
    otel_trace: Option<Complex>, in HTTP | SERVER | LOCATION, args "on | off | $variable";
    /// How contexts of traces travel, in the fields `traceparent` and `tracestate` of the W3C: `extract` takes the
    /// client's as the parent of the span; `inject` replaces them in the request, so that servers behind this one
    /// receive the context of the span; `propagate` does both; `ignore` neither.
    otel_trace_context: ContextUse = "ignore", in HTTP | SERVER | LOCATION, args "extract | inject | propagate | ignore";
    /// Names spans; by default, after the location.
    otel_span_name: Option<Complex>, in HTTP | SERVER | LOCATION, args "name";
    /// Adds an attribute to spans. The values of `http.request.header.*` and `http.response.header.*` are arrays
    /// with one text. Attributes of an outer block are inherited unless the block has its own.
    otel_span_attr: Vec<SpanAttribute>, in HTTP | SERVER | LOCATION, args "name value";
}

nowait_conf::setting_enum! {
    /// `otel_trace_context`
    pub enum ContextUse {
        /// `ignore`
        Ignore = "ignore",
        /// `extract`
        Extract = "extract",
        /// `inject`
        Inject = "inject",
        /// `propagate`
        Propagate = "propagate",
    }
}

impl ContextUse {
    /// Whether the client's context is used.
    pub fn extracts(self) -> bool {
        matches!(self, Self::Extract | Self::Propagate)
    }

    /// Whether requests carry the span's context on.
    pub fn injects(self) -> bool {
        matches!(self, Self::Inject | Self::Propagate)
    }
}

/// `otel_span_attr`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanAttribute {
    /// The name.
    pub name: Box<str>,
    /// The value.
    pub value: Complex,
    /// The value is an array with one text: a field of a message.
    pub is_array: bool,
}

impl Setting for SpanAttribute {
    const ARITY: arity::Arity = arity::exactly(2);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let [name, value] = node.args.as_slice() else { return Err(node.arity_error()) };
        let text = name.to_str()?;
        if text.is_empty() {
            return Err(name.error("invalid name \"\" of an attribute"));
        }
        let arrays = ["http.request.header.", "http.response.header."];
        let is_array = arrays.iter().any(|prefix| text.starts_with(prefix));
        Ok(Self { name: text.into(), value: complex(value, cx)?, is_array })
    }
}

nowait_conf::rows! {
    pub static EXPORTER_ROWS, module "otel";

    /// Sends spans to a collector of OpenTelemetry:
    ///
    /// * `endpoint [http:// | https://]host:port;`: by OTLP over gRPC, with `https` over TLS. Required. With a path,
    ///   such as `http://127.0.0.1:4318/v1/traces`, by OTLP over HTTP. `unix:path` is a Unix-domain socket.
    /// * `trusted_certificate file;`: the authorities that verify the collector, in PEM (default: those of the
    ///   system).
    /// * `header name value;`: a further field of each export, such as a key. May be repeated.
    /// * `interval time;`: the longest time between two exports (default `5s`).
    /// * `batch_size number;`: a worker sends so many spans together (default 512).
    /// * `batch_count number;`: a worker has at most so many batches, the one that is being sent included (default
    ///   4). Spans beyond are lost.
    ///
    /// Requests never wait for the collector. Spans that it does not take within 10 seconds are lost; `status_api` and
    /// `metrics` count them, and the error log says when exports begin to fail and when they work again.
    block "otel_exporter" => otel_exporter, in HTTP, take none(), args "{ ... }";
    /// The attribute `service.name` of the resource that spans belong to.
    "otel_service_name" => otel_service_name, in HTTP, take exactly(1),
    default "unknown_service:nowait", args "name";
    /// Adds an attribute to the resource that spans belong to. May be repeated.
    "otel_resource_attr" => otel_resource_attr, in HTTP, take exactly(2), inheritance List, args "name value";
}

/// The exporter of a configuration.
pub struct ExporterConf {
    /// The collector.
    pub endpoint: Endpoint,
    /// The longest time between two exports.
    pub interval: Duration,
    /// The size of batches.
    pub limits: BatchLimits,
    /// The resource that spans belong to, encoded.
    pub resource: Vec<u8>,
}

/// The exporter, while the configuration is read.
#[derive(Default)]
pub struct ExporterDraft {
    block: Option<Block>,
    service: Option<String>,
    attributes: Vec<(String, String)>,
}

struct Block {
    endpoint: Endpoint,
    interval: Duration,
    limits: BatchLimits,
}

impl ExporterDraft {
    /// Whether there is an exporter.
    pub fn is_configured(&self) -> bool {
        self.block.is_some()
    }

    /// The complete exporter, if there is one.
    pub fn complete(self) -> Option<ExporterConf> {
        let Self { block, service, mut attributes } = self;
        let Block { endpoint, interval, limits } = block?;
        let has_name = attributes.iter().any(|(name, _)| name == "service.name");
        if let Some(service) = service {
            attributes.retain(|(name, _)| name != "service.name");
            attributes.push(("service.name".into(), service));
        } else if !has_name {
            attributes.push(("service.name".into(), "unknown_service:nowait".into()));
        }
        let mut resource = Vec::new();
        for (name, value) in &attributes {
            // Resource { repeated KeyValue attributes = 1; }
            proto::nested(&mut resource, 1, |out| proto::text_attribute(out, name, value));
        }
        Some(ExporterConf { endpoint, interval, limits, resource })
    }
}

fn otel_service_name(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let name = node.args.first().ok_or_else(|| node.arity_error())?.to_str()?.to_owned();
    cx.global::<ExporterDraft>().service = Some(name);
    Ok(())
}

fn otel_resource_attr(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [name, value] = node.args.as_slice() else { return Err(node.arity_error()) };
    let (name, value) = (name.to_str()?.to_owned(), value.to_str()?.to_owned());
    let attributes = &mut cx.global::<ExporterDraft>().attributes;
    attributes.retain(|(known, _)| *known != name);
    attributes.push((name, value));
    Ok(())
}

/// What the block says until it ends.
#[derive(Default)]
struct Entries<'n> {
    endpoint: Option<&'n Word>,
    trusted: Option<&'n Word>,
    fields: Vec<(String, String)>,
    interval: Option<Duration>,
    batch_size: Option<usize>,
    batch_count: Option<usize>,
}

fn otel_exporter(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let mut entries = Entries::default();
    for entry in cx.entries(node) {
        let read = entries.read(entry);
        cx.accept(read);
    }
    let Some(word) = entries.endpoint else {
        let error = node.error("\"otel_exporter\" requires \"endpoint\"");
        return Err(error.hint("add the address of a collector: endpoint localhost:4317;"));
    };
    let (mut endpoint, is_tls) = parse_endpoint(word)?;
    endpoint.fields = entries.fields;
    if is_tls {
        let protocols: &[&[u8]] = match endpoint.protocol {
            ExportProtocol::Grpc(_) => &[b"h2"],
            ExportProtocol::Http(_) => &[],
        };
        let https = Https::offering(cx, entries.trusted, true, protocols);
        endpoint.tls = Some(https.map_err(|error| error.or_at(node.name.span))?);
    }
    let limits = BatchLimits {
        spans: entries.batch_size.unwrap_or(512),
        batches: entries.batch_count.unwrap_or(4),
    };
    let interval = entries.interval.unwrap_or(Duration::from_secs(5));
    cx.global::<ExporterDraft>().block = Some(Block { endpoint, interval, limits });
    Ok(())
}

impl<'n> Entries<'n> {
    fn read(&mut self, entry: &'n Node) -> Result<(), Diagnostic> {
        let count = if entry.name.text == b"header" { 2 } else { 1 };
        if !known(entry) {
            let error = entry
                .name
                .error(format!("unknown directive \"{}\" in \"otel_exporter\"", entry.name));
            return Err(error.expected(
                "endpoint, trusted_certificate, header, interval, batch_size or batch_count",
            ));
        }
        if entry.args.len() != count {
            return Err(entry.arity_error());
        }
        let word = &entry.args[0];
        match &entry.name.text[..] {
            b"endpoint" => once(entry, &mut self.endpoint, word),
            b"trusted_certificate" => once(entry, &mut self.trusted, word),
            b"header" => {
                self.fields.push(field(word, &entry.args[1])?);
                Ok(())
            }
            b"interval" => {
                let interval = Msec::from_word(&word.text).ok().map(Msec::duration);
                let interval = interval.filter(|time| !time.is_zero()).ok_or_else(|| {
                    word.error(format!("invalid time \"{word}\"")).expected("a time such as 5s")
                })?;
                once(entry, &mut self.interval, interval)
            }
            b"batch_size" => once(entry, &mut self.batch_size, between(word, BATCH_SIZE_MAX)?),
            _ => once(entry, &mut self.batch_count, between(word, BATCH_COUNT_MAX)?),
        }
    }
}

fn known(entry: &Node) -> bool {
    const NAMES: [&str; 6] =
        ["endpoint", "trusted_certificate", "header", "interval", "batch_size", "batch_count"];
    NAMES.iter().any(|name| entry.name == *name)
}

fn once<T>(entry: &Node, place: &mut Option<T>, value: T) -> Result<(), Diagnostic> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(entry.name.error(format!("\"{}\" directive is duplicate", entry.name))),
    }
}

fn between(word: &Word, most: usize) -> Result<usize, Diagnostic> {
    let count = number(&word.text).and_then(|count| usize::try_from(count).ok());
    count.filter(|count| (1..=most).contains(count)).ok_or_else(|| {
        word.error(format!("invalid number \"{word}\"")).expected(format!("1 to {most}"))
    })
}

/// A field of exports.
fn field(name: &Word, value: &Word) -> Result<(String, String), Diagnostic> {
    const OURS: [&str; 8] = [
        "connection",
        "content-length",
        "content-type",
        "host",
        "te",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    ];
    let text = name.to_str()?.to_ascii_lowercase();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if text.is_empty() || !text.bytes().all(is_name) || OURS.contains(&&*text) {
        return Err(name.error(format!("invalid header name \"{name}\"")));
    }
    if !value.text.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(value.error(format!("invalid header value \"{value}\"")));
    }
    Ok((text, value.to_str()?.trim().to_owned()))
}

/// The collector of an endpoint, and whether it speaks TLS.
fn parse_endpoint(word: &Word) -> Result<(Endpoint, bool), Diagnostic> {
    let text = word.to_str()?;
    let invalid = || {
        word.error(format!("invalid endpoint \"{word}\""))
            .expected("[http:// | https://]host:port, with a path for OTLP over HTTP, or unix:path")
    };
    let endpoint = |target, authority: &str, protocol| Endpoint {
        text: text.to_owned(),
        target,
        authority: authority.to_owned(),
        tls: None,
        protocol,
        fields: Vec::new(),
    };
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains('@') {
        return Err(invalid());
    }
    if let Some(path) = text.strip_prefix("unix:") {
        // The longest path of a Unix-domain socket has 107 bytes.
        if !(1..=107).contains(&path.len()) {
            return Err(invalid());
        }
        let target = EndpointTarget::Unix(path.as_bytes().into());
        return Ok((endpoint(target, "localhost", ExportProtocol::Grpc(METHOD)), false));
    }
    let scheme = |prefix: &str| {
        let head = text.get(..prefix.len()).filter(|head| head.eq_ignore_ascii_case(prefix));
        head.map(|_| &text[prefix.len()..])
    };
    let (rest, is_tls, port) = match (scheme("https://"), scheme("http://")) {
        (Some(rest), _) => (rest, true, Some(443)),
        (None, Some(rest)) => (rest, false, Some(80)),
        (None, None) => (text, false, None),
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let protocol = match path {
        "" | "/" => ExportProtocol::Grpc(METHOD),
        path if port.is_some() && path.starts_with('/') && !path.contains('#') => {
            ExportProtocol::Http(path.to_owned())
        }
        _ => return Err(invalid()),
    };
    // Only HTTP has default ports.
    let default = port.filter(|_| matches!(protocol, ExportProtocol::Http(_)));
    let colon = authority.rfind(':').filter(|colon| !authority[*colon..].contains(']'));
    let (host, port) = match colon {
        Some(colon) => (&authority[..colon], authority[colon + 1..].parse().ok()),
        None => (authority, default),
    };
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    match port.filter(|port| *port > 0 && !host.is_empty()) {
        Some(port) => {
            let target = EndpointTarget::Host(host.to_owned(), port);
            Ok((endpoint(target, authority, protocol), is_tls))
        }
        None => Err(invalid()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(String, bool, bool), String> {
        let (endpoint, is_tls) =
            parse_endpoint(&Word::built_in(text)).map_err(|error| error.message().to_owned())?;
        let is_grpc = endpoint.protocol == ExportProtocol::Grpc(METHOD);
        let target = match endpoint.target {
            EndpointTarget::Host(host, port) => format!("{host}|{port}"),
            EndpointTarget::Unix(path) => String::from_utf8_lossy(&path).into_owned(),
        };
        Ok((target, is_tls, is_grpc))
    }

    #[test]
    fn endpoints() {
        let is = |target: &str, is_tls, is_grpc| Ok((target.to_owned(), is_tls, is_grpc));
        assert_eq!(parse("localhost:4317"), is("localhost|4317", false, true));
        assert_eq!(parse("http://127.0.0.1:4317"), is("127.0.0.1|4317", false, true));
        assert_eq!(parse("HTTPS://c.test:4317/"), is("c.test|4317", true, true));
        assert_eq!(parse("[::1]:4317"), is("::1|4317", false, true));
        assert_eq!(parse("https://c.test/v1/traces"), is("c.test|443", true, false));
        assert_eq!(parse("http://c.test:4318/v1/traces"), is("c.test|4318", false, false));
        assert_eq!(parse("unix:/run/otel"), is("/run/otel", false, true));
        for bad in [
            "localhost",
            "http://c.test",
            "a:b",
            ":1",
            "c:1/v1",
            "http://c/x#y",
            "unix:",
            "a b:1",
            "u@c:1",
        ] {
            assert_eq!(parse(bad).unwrap_err(), format!("invalid endpoint \"{bad}\""));
        }
    }

    #[test]
    fn fields() {
        let read = |name: &str, value: &str| field(&Word::built_in(name), &Word::built_in(value));
        assert_eq!(read("X-Key", "a b").unwrap(), ("x-key".to_owned(), "a b".to_owned()));
        for (name, value) in [("", "a"), ("a b", "c"), ("Host", "a"), ("a", "b\r\nc: d")] {
            assert!(read(name, value).is_err(), "{name}: {value}");
        }
    }
}
