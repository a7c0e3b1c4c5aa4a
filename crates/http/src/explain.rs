//! `nowait explain`: how the configuration handles a request.
//!
//! A request is made from a [`Question`], the listening socket and the virtual server are chosen as
//! for a connection, and the request goes through the [phases](crate::phases::explained) on a worker
//! that has no sockets. The result is plain data with spans; who prints it has the texts. Nothing is
//! sent, no file is written, and no log is opened.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use nowait_conf::Span;
use nowait_front::log::access::AccessLogs;
use nowait_front::log::error::ErrorLog;
use nowait_front::log::writer::Writer;
use nowait_front::logs::{BlockLogs, Logs};
use nowait_front::resolvers::Resolvers;
use nowait_message::request::ControlData;
use nowait_message::uri::Shape;
use nowait_message::{FieldPosition, Known, Method, RequestHead, Version};
use nowait_runtime::driver::DriverKind;
use nowait_runtime::net::Address;
use nowait_runtime::now;
use nowait_runtime::pool::{Pool, PoolConfig};
use nowait_runtime::worker::{self, WorkerConfig, Workers};
use nowait_sys::listen::ListenAddress;

use crate::client::{Client, Security};
use crate::conf::{HttpConf, Listen};
use crate::exchange::NoClient;
use crate::generation::{Contents, Current, DEFAULT_POOL, Generation};
use crate::interpret;
use crate::limit_rate::Rate;
use crate::phases::explained::{self, Ended};
use crate::post_action;
use crate::request::Request;
use crate::response::Head;
use crate::services::Services;
use crate::trace::{Trace, TraceSubject};

/// A request to explain.
#[derive(Clone, Debug)]
pub struct Question {
    /// `https`
    pub tls: bool,
    /// Host of the URL, and its port.
    pub host: String,
    /// The port to connect to; `None`: that of the first socket.
    pub port: Option<u16>,
    /// The port is part of `Host`.
    pub port_given: bool,
    /// Path and query string as a client sends them.
    pub target: String,
    /// The method.
    pub method: String,
    /// Fields: name and value. `Host` replaces that of the URL.
    pub fields: Vec<(String, String)>,
    /// The client's address.
    pub from: SocketAddr,
}

/// The handling of a request.
#[derive(Debug)]
pub struct Explanation {
    /// The listening socket.
    pub listen: String,
    /// Whether the connection uses TLS.
    pub is_tls: bool,
    /// Remarks about the choice of the socket.
    pub remarks: Vec<String>,
    /// The host that the server was chosen by.
    pub host: String,
    /// The position of the server.
    pub server: Span,
    /// Whether it is the default server of the address.
    pub is_default: bool,
    /// Servers of the address.
    pub servers: usize,
    /// A record for DNS by which clients find HTTP/3 before their first connection (RFC 9460), if the server has it.
    pub https_record: Option<String>,
    /// The way of the request.
    pub trace: Trace,
    /// The path at the end.
    pub path: String,
    /// The end.
    pub end: Finish,
}

/// The end of the request.
#[derive(Debug)]
pub enum Finish {
    /// With a response: status and fields.
    Response(u16, Vec<(String, String)>),
    /// The connection is closed.
    Closed,
    /// An upstream server responds. A response with status 200 would get these fields.
    Elsewhere(Vec<(String, String)>),
    /// The handler can't predict the response.
    Unknown,
}

/// Explains a request. `pools` are the names of all thread pools.
///
/// # Errors
/// The message for the operator: no socket has this port, or the request is malformed.
pub fn explain(
    conf: HttpConf,
    pools: &[String],
    question: &Question,
) -> Result<Explanation, String> {
    let make = |name: &str| {
        let config = PoolConfig { name: name.to_owned(), threads: 1, max_queue: 64 };
        (name.to_owned(), Pool::new(config))
    };
    let names = pools.iter().map(String::as_str).filter(|name| *name != DEFAULT_POOL);
    let pools: HashMap<_, _> = names.chain([DEFAULT_POOL]).map(make).collect();
    let writer = Writer::start().map_err(|error| format!("cannot start a thread: {error}"))?;
    // No block has logs: no line may reach a file or a syslog server.
    let access = AccessLogs::default();
    let blocks = conf.locations().iter().map(|_| BlockLogs { access: &access, error: &[] });
    let main = ErrorLog::new(Vec::new());
    let logs = Logs::open(blocks, Arc::new(writer), main, Default::default(), &mut |_| None);
    let resolvers = Resolvers::new(&conf.resolvers, &pools[DEFAULT_POOL], None);
    let generation = Arc::new(Generation::new(Contents {
        number: 1,
        caches: Vec::new(),
        resolvers,
        conf,
        pools,
        logs,
        sessions: None,
        quic: None,
        lifeline: Box::new(()),
    }));
    let (tell, told) = std::sync::mpsc::channel();
    let config = WorkerConfig::new(0, DriverKind::Epoll);
    let workers = Workers::new(1).map_err(|error| error.to_string())?;
    let question = question.clone();
    let ended = worker::run(config, &workers, |remote| async move {
        let current = Current::new(generation);
        // The receiver waits for it.
        let _ = tell.send(answer(&current, &question).await);
        remote.stop();
    });
    ended.map_err(|error| format!("cannot start an event loop: {error}"))?;
    told.recv().map_err(|_| "the request could not be explained".to_owned())?
}

async fn answer(current: &Rc<Current>, question: &Question) -> Result<Explanation, String> {
    let conf = &current.conf;
    let mut remarks = Vec::new();
    let listen = socket(conf.listens(), question, &mut remarks)?;
    let local = local(listen, question);
    let servers = listen.at(&local);
    let peer = Address::Inet(question.from);
    let services = Rc::new(Services::default());
    let address = Arc::new(listen.spec.address.clone());
    let client = Client::new(services.next_number(), peer, address, now());
    client.requests.set(1);
    let _ = client.local.set(Box::new(local));
    match (question.tls, servers.ssl.is_some()) {
        (true, true) => client.security.set(Security::Tls),
        (false, true) => {
            remarks.push("the address speaks TLS: plain HTTP gets 400".to_owned());
            client.security.set(Security::PlainOnTls);
        }
        (true, false) => remarks.push("the address does not speak TLS".to_owned()),
        (false, false) => {}
    }
    if servers.proxy_protocol {
        remarks
            .push("connections begin with the PROXY protocol, which is left out here".to_owned());
    }
    let exchange = NoClient::new(client, services);
    let mut request = Request::new(exchange, current.clone(), servers.default_server, now());
    *request.head_mut() = head(question)?;
    interpret::choose_server(&mut request, servers);
    if !interpret::head(&mut request) {
        return Err("the URL is malformed: the server responds with 400".to_owned());
    }
    let server = request.server_id();
    let (span, host) = (conf.server(server).span, shown(request.host()));
    let is_default = server == servers.default_server;
    let count = servers.all.len();
    let mut trace = Trace::default();
    let end = match interpret::refused_method(&request) {
        Some(status) => Finish::Response(status, Vec::new()),
        None => match explained::explain(&mut request, current, &mut trace).await {
            Ended::Response(Some(head)) => Finish::Response(head.status, fields(&head)),
            Ended::Response(None) => Finish::Closed,
            Ended::Unknown => Finish::Unknown,
            Ended::Elsewhere(head) => Finish::Elsewhere(fields(&head)),
        },
    };
    if matches!(end, Finish::Response(..) | Finish::Elsewhere(_)) {
        sending_rate(&request, &mut trace);
        post_action::explain(&request, &mut trace).await;
    }
    Ok(Explanation {
        listen: listen.spec.address.to_string(),
        is_tls: question.tls && servers.ssl.is_some(),
        remarks,
        host,
        server: span,
        is_default,
        servers: count,
        https_record: https_record(&request, listen, question),
        trace,
        path: shown(&request.uri().path),
        end,
    })
}

/// The HTTPS record of the URL's host.
fn https_record(request: &Request, listen: &Listen, question: &Question) -> Option<String> {
    let port = listen.spec.address.inet()?.port();
    let server = request.server();
    let is_own = |other: &Listen| {
        other.spec.quic
            && other.spec.address.inet().is_some_and(|address| address.port() == port)
            && other.all().any(|servers| servers.all.contains(&request.server_id()))
    };
    let listens = request.current().conf.listens();
    let has_it = server.http3.http3 && listens.iter().any(is_own);
    let host = question.host.trim_end_matches('.');
    if !has_it || !question.tls || ip(question).is_some() || !host.contains('.') {
        return None;
    }
    let alpn = if server.http2.http2 { "h3,h2" } else { "h3" };
    // Section 9.1: the port stands before the name unless it is that of the scheme.
    Some(match port {
        443 => format!("{host}. 3600 IN HTTPS 1 . alpn=\"{alpn}\""),
        port => format!("_{port}._https.{host}. 3600 IN HTTPS 1 {host}. alpn=\"{alpn}\""),
    })
}

/// The rate of sending the response.
fn sending_rate(request: &Request, trace: &mut Trace) {
    let Some(rate) = Rate::of(request) else { return };
    // A variable that was set has no directive.
    trace.by = if request.limit_rate().is_none() { "limit_rate" } else { "" };
    trace.add(TraceSubject::Limit, None, format!("limit_rate: {rate}"));
}

/// The socket that a client of the URL connects to.
fn socket<'l>(
    listens: &'l [Listen],
    question: &Question,
    remarks: &mut Vec<String>,
) -> Result<&'l Listen, String> {
    let inet = |listen: &Listen| match &listen.spec.address {
        ListenAddress::Inet(address) => {
            question.port.is_none_or(|port| port == address.port()).then_some(*address)
        }
        _ => None,
    };
    let all: Vec<(&Listen, SocketAddr)> =
        listens.iter().filter_map(|listen| Some((listen, inet(listen)?))).collect();
    let ip = ip(question);
    let exact = all.iter().find(|(_, address)| ip == Some(address.ip()));
    let wildcard = all.iter().find(|(_, address)| {
        address.ip().is_unspecified() && ip.is_none_or(|ip| ip.is_ipv4() == address.is_ipv4())
    });
    if let Some((listen, _)) = exact.or(wildcard) {
        return Ok(listen);
    }
    if let (Some((listen, address)), None) = (all.first(), ip) {
        remarks.push(format!("assumes that \"{}\" resolves to {}", question.host, address.ip()));
        return Ok(listen);
    }
    let mut known: Vec<String> =
        listens.iter().map(|listen| listen.spec.address.to_string()).collect();
    known.dedup();
    let known = match known.is_empty() {
        true => "the configuration listens on no address".to_owned(),
        false => format!("the configuration listens on {}", known.join(", ")),
    };
    let port = question.port.map(|port| format!(" to port {port} of this host"));
    Err(format!("no socket accepts connections{}; {known}", port.unwrap_or_default()))
}

/// The address in the URL.
fn ip(question: &Question) -> Option<IpAddr> {
    question.host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// The local address of the connection.
fn local(listen: &Listen, question: &Question) -> Address {
    match (&listen.spec.address, ip(question)) {
        (ListenAddress::Inet(address), Some(ip)) => {
            Address::Inet(SocketAddr::new(ip, address.port()))
        }
        (ListenAddress::Inet(address), None) => Address::Inet(*address),
        _ => Address::Unix(Box::default()),
    }
}

/// The head of the request, as HTTP/1.1 has it.
fn head(question: &Question) -> Result<RequestHead, String> {
    let mut head = RequestHead::new();
    let mut text = Vec::new();
    let mut put = |bytes: &[u8]| {
        let start = text.len();
        text.extend_from_slice(bytes);
        nowait_message::Span::new(start, text.len())
    };
    let Question { method, target, .. } = question;
    let line = put(format!("{method} {target} HTTP/1.1").as_bytes());
    let begin = method.len() + 1;
    let target_span = nowait_message::Span::new(begin, begin + target.len());
    let (shape, length) = Shape::scan(target.as_bytes());
    if length != target.len() {
        return Err("the URL contains characters that a request cannot have".to_owned());
    }
    let control = ControlData {
        method: Method::from_bytes(method.as_bytes()),
        method_name: nowait_message::Span::new(0, method.len()),
        target: target_span,
        uri: target_span,
        shape,
        version: Version::Http11,
        protocol: nowait_message::Span::new(begin + target.len() + 1, begin + target.len() + 9),
        line,
        ..ControlData::default()
    };
    let host = match question.port.filter(|_| question.port_given) {
        Some(port) => format!("{}:{port}", question.host),
        None => question.host.clone(),
    };
    let own_host = question.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = (!own_host).then(|| ("Host".to_owned(), host));
    let fields: Vec<_> = host.iter().chain(&question.fields).collect();
    let places: Vec<FieldPosition> = fields
        .iter()
        .map(|(name, value)| FieldPosition {
            known: Known::from_bytes(name.as_bytes()),
            name: put(name.as_bytes()),
            value: put(value.as_bytes()),
        })
        .collect();
    head.set_control(&text, control).map_err(|_| "the host is malformed".to_owned())?;
    for (place, (name, value)) in places.into_iter().zip(fields) {
        head.add(&text, place)
            .map_err(|error| format!("malformed field \"{name}: {value}\" ({error:?})"))?;
    }
    let length = text.len();
    *head.text_mut() = text;
    head.finish(length).map_err(|error| format!("malformed field ({error:?})"))?;
    Ok(head)
}

/// The fields of a head that do not depend on its connection.
fn fields(head: &Head) -> Vec<(String, String)> {
    let mut list = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        list.extend(value.map(|value| (name.to_owned(), value)));
    };
    let text = |bytes: &Option<bytes::Bytes>| bytes.as_deref().map(shown);
    let charset = text(&head.charset).map(|charset| format!("; charset={charset}"));
    let kind = text(&head.content_type_text)
        .or_else(|| text(&head.content_type).map(|kind| kind + &charset.unwrap_or_default()));
    add("Content-Type", kind);
    add("Content-Length", head.content_length.map(|length| length.to_string()));
    add("Content-Encoding", text(&head.content_encoding));
    add("Location", text(&head.location));
    add("ETag", text(&head.etag));
    for header in &head.headers {
        add(&shown(&header.name), Some(shown(&header.value)));
    }
    list
}

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
