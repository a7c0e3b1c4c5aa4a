//! The beginning of a request whose head has been received.

use nowait_fields::Priority;
use nowait_http::client::Client;
use nowait_http::conf::ServerId;
use nowait_http::conf::client::HeadConf;
use nowait_http::generation::Current;
use nowait_http::log::Level;
use nowait_http::log::error::RequestDetails;
use nowait_http::request::Request;
use nowait_message::RequestHead;

use super::FIELDS_MORE;
use super::heads::{DecodedHead, TunnelKind};

/// The bound of a list as it is sent, at least: twice that of nginx's `large_client_header_buffers` by default.
const SECTION_BYTES_MIN: u32 = 64 * 1024;

/// Bounds of heads, as their directives set them.
pub(crate) struct HeadBounds {
    /// One of `large_client_header_buffers`.
    pub(crate) string_bytes: u32,
    /// All of them.
    pub(crate) list_bytes: u32,
    /// What such a list may take as it is sent: no encoder makes it much longer than its names and values.
    pub(crate) section_bytes: u32,
    /// `max_headers`, with pseudo-fields, and cookies, which may come one by one.
    pub(crate) fields: u16,
}

impl HeadBounds {
    /// Those of a server.
    pub(crate) fn of(head: &HeadConf) -> Self {
        let bytes = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
        let buffers = &head.large_client_header_buffers;
        let fields = u16::try_from(head.max_headers).unwrap_or(u16::MAX);
        let list = buffers.size.0.saturating_mul(buffers.count as u64);
        Self {
            string_bytes: bytes(buffers.size.0),
            list_bytes: bytes(list),
            section_bytes: bytes(list.saturating_add(list / 4)).max(SECTION_BYTES_MIN),
            fields: fields.saturating_add(FIELDS_MORE),
        }
    }
}

/// What the core of the protocol says against a request; the text follows "client sent ".
pub(crate) enum Fault {
    /// More or larger fields than allowed.
    TooLarge(String),
    Malformed(String),
}

/// Writes a line about a connection to the error log of a server.
#[cold]
pub(crate) fn log(
    client: &Client,
    current: &Current,
    server: ServerId,
    level: Level,
    message: std::fmt::Arguments<'_>,
) {
    let (mut address, listen) = (Vec::new(), client.listen.to_string());
    nowait_http::address::append_ip(&client.peer, &mut address);
    let details =
        RequestDetails { client: &address, server: listen.as_bytes(), ..Default::default() };
    let about = nowait_front::logs::About {
        block: current.conf.server(server).root.0 as usize,
        connection: client.number,
        peer: &client.peer,
        details: Some(&details),
    };
    current.logs.about(about, level, message);
}

/// Counts a request of the connection.
pub(crate) fn count(client: &Client) {
    client.requests.set(client.requests.get().saturating_add(1));
}

/// The status with which a request is refused because of its head. Logs what was wrong, and what was ignored.
pub(crate) fn refusal(
    request: &Request,
    received: DecodedHead,
    fault: Option<Fault>,
) -> Option<u16> {
    for name in &received.ignored {
        let name = String::from_utf8_lossy(name);
        request.log(Level::Info, format_args!("client sent invalid header: \"{name}\""));
    }
    match (fault, received.error) {
        (Some(Fault::TooLarge(text)), _) => {
            request.log(Level::Info, format_args!("client sent {text}"));
            Some(494)
        }
        (Some(Fault::Malformed(text)), _) => {
            request.log(Level::Info, format_args!("client sent {text}"));
            Some(400)
        }
        (None, Some(error)) => {
            request.log(Level::Info, format_args!("{error}"));
            Some(400)
        }
        (None, None) if received.tunnel == Some(TunnelKind::Other) => Some(501),
        (None, None) => None,
    }
}

/// Whether the connection takes no request after this one (`keepalive_requests`, `keepalive_time`).
pub(crate) fn is_last(client: &Client, request: &Request) -> bool {
    let conf = &request.location().client;
    u64::from(client.requests.get()) >= u64::from(conf.keepalive_requests)
        || client.is_older_than(conf.keepalive_time.duration())
}

/// The priority that the request states (RFC 9218 section 5).
pub(crate) fn priority(head: &RequestHead) -> Option<Priority> {
    let mut values = head.fields().named(b"priority");
    let first = values.next()?;
    Some(match values.next() {
        None => Priority::parse(first),
        // Several lines are one list.
        Some(second) => {
            let all: Vec<&[u8]> = [first, second].into_iter().chain(values).collect();
            Priority::parse(&all.join(&b','))
        }
    })
}
