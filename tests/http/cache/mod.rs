//! `proxy_cache` and its family: what is stored, for how long, for whom, and who waits for whom. With a few
//! exceptions the tests run twice, the second time as tests of `fastcgi_cache` and its family.

mod bodies;
mod conf;
mod contents;
mod damaged;
mod filling;
mod limits;
mod paths;
mod purge;
mod read_only;
mod resuming;
mod slice;
mod stale;
mod storing;
mod strict;

use nowait_testkit::origin::Step;
use nowait_testkit::{Driver, Origin, Response, Server, ServerBuilder, check_on, wait};

use crate::fastcgi;
use crate::proxy::wire;
use crate::stage::{asks_nginx, send, site};
use crate::transport::{self, Transport};

/// One exchange with a server that caches.
pub struct Case<'a> {
    /// What the client sends, as in [`nowait_testkit::check`].
    pub exchange: &'a str,
    /// What the origin answers, with `\n` as line end up to the body; `None`: it is not asked.
    pub reply: Option<&'a str>,
    /// What the client gets, as in [`nowait_testkit::check`].
    pub expected: &'a str,
}

/// The module whose cache is tested. Tests are written for the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Proxy,
    FastCgi,
}

impl Backend {
    /// Those that have the directives of this configuration. nginx is asked about the proxy alone.
    fn of(content: &str) -> impl Iterator<Item = Backend> {
        // The last one is a URI that replaces the request's.
        let others =
            ["proxy_set_header", "proxy_cookie_path", "proxy_cache_convert_head", "%%ORIGIN%%/"];
        let only_proxy = asks_nginx() || others.iter().any(|name| content.contains(name));
        [Backend::Proxy, Backend::FastCgi].into_iter().take(if only_proxy { 1 } else { 2 })
    }

    /// The configuration with the directives of this module.
    fn conf(self, content: &str) -> String {
        match self {
            Backend::Proxy => content.to_owned(),
            Backend::FastCgi => {
                content.replace("proxy_pass http://", "fastcgi_pass ").replace("proxy_", "fastcgi_")
            }
        }
    }

    /// Waits for a whole request without a body.
    pub fn asked(self) -> Step {
        match self {
            Backend::Proxy => Step::expect("\r\n\r\n"),
            Backend::FastCgi => Step::expect(fastcgi::ASKED),
        }
    }

    /// A reply of HTTP in the form that the origin has to send.
    pub fn reply(self, text: &str) -> Step {
        match self {
            Backend::Proxy => Step::reply(wire(text)),
            Backend::FastCgi => {
                Step::reply([self.stdout(&wire(&cgi(text))), fastcgi::end()].concat())
            }
        }
    }

    /// The beginning of a reply.
    pub fn begin(self, text: &str) -> Step {
        match self {
            Backend::Proxy => Step::reply(wire(text)),
            Backend::FastCgi => Step::reply(self.stdout(&wire(&cgi(text)))),
        }
    }

    /// The rest of a reply.
    pub fn finish(self, text: &str) -> Step {
        match self {
            Backend::Proxy => Step::reply(text),
            Backend::FastCgi => Step::reply([self.stdout(text), fastcgi::end()].concat()),
        }
    }

    fn stdout(self, text: &str) -> Vec<u8> {
        text.as_bytes().chunks(60_000).flat_map(|part| fastcgi::record(6, part)).collect()
    }

    /// The target of a request that an origin has received.
    pub fn target(self, received: &[u8]) -> String {
        match self {
            Backend::Proxy => {
                let text = String::from_utf8_lossy(received);
                text.split(' ').nth(1).unwrap_or_default().to_owned()
            }
            Backend::FastCgi => {
                let asked = fastcgi::FastCgiRequest::all(received).pop().expect("a request");
                asked.param("REQUEST_URI").unwrap_or_default().to_owned()
            }
        }
    }

    /// The value of a field in a request that an origin has received.
    pub fn field(self, received: &[u8], name: &str) -> Option<String> {
        match self {
            Backend::Proxy => {
                let text = String::from_utf8_lossy(received);
                let mut lines = text.lines().filter_map(|line| line.split_once(": "));
                let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.to_owned())
            }
            Backend::FastCgi => {
                let asked = fastcgi::FastCgiRequest::all(received).pop().expect("a request");
                let name = format!("HTTP_{}", name.to_ascii_uppercase().replace('-', "_"));
                asked.param(&name).map(str::to_owned)
            }
        }
    }
}

/// A reply of HTTP as an application sends it.
fn cgi(text: &str) -> String {
    match text.strip_prefix("HTTP/1.1 ") {
        Some(reply) => format!("Status: {}", reply.replacen("\nConnection: close", "", 1)),
        None => text.to_owned(),
    }
}

/// A server whose locations have a cache, with these settings; `X-Cache` tells its status.
pub fn builder(content: &str, origin: &str) -> ServerBuilder {
    Backend::Proxy.builder(content, origin)
}

impl Backend {
    /// The same for this module.
    pub fn builder(self, content: &str, origin: &str) -> ServerBuilder {
        let text = self.text(content, origin);
        site(&text.replace("%%LISTEN%%", "listen 127.0.0.1:%%PORT%%;"))
    }

    /// The same with a server that clients reach over each transport.
    fn builder_for_all(self, content: &str, origin: &str) -> ServerBuilder {
        transport::site(&self.text(content, origin))
    }

    /// The `http` block, in which `%%LISTEN%%` stands for listening.
    fn text(self, content: &str, origin: &str) -> String {
        let content = content.replace("%%ORIGIN%%", origin);
        let (http, server) = content.split_once("%%SERVER%%").unwrap_or(("", &content));
        let own = match self {
            Backend::Proxy => "",
            // There is no default.
            Backend::FastCgi => {
                "fastcgi_cache_key $request_uri;
                 fastcgi_param REQUEST_URI $request_uri;
                 fastcgi_param REQUEST_METHOD $request_method;"
            }
        };
        let text = format!(
            "proxy_cache_path %%DIR%%/cache levels=1:2 keys_zone=one:1m;
             add_header X-Cache $upstream_cache_status always;
             {http}
             server {{
                 %%LISTEN%%
                 proxy_cache one;
                 {server}
             }}"
        );
        format!("{own}\n{}", self.conf(&text))
    }

    /// The scripts of an origin that answers each connection once.
    pub fn scripts(self, replies: &[&str]) -> Vec<Vec<Step>> {
        replies.iter().map(|reply| vec![self.asked(), self.reply(reply)]).collect()
    }
}

/// The scripts of an origin that answers each connection once, by HTTP.
pub fn scripts(replies: &[&str]) -> Vec<Vec<Step>> {
    Backend::Proxy.scripts(replies)
}

/// Runs a test for each module and driver with an origin that answers like this, one connection each.
#[track_caller]
pub fn with_origin(content: &str, replies: &[&str], test: impl Fn(&mut Server, &Origin)) {
    on_each(content, replies, |_, server, origin| test(server, origin));
}

/// Like [`with_origin`], for a test that needs to know the module.
#[track_caller]
pub fn on_each(content: &str, replies: &[&str], test: impl Fn(Backend, &mut Server, &Origin)) {
    run(content, replies, |backend, address| backend.builder(content, address), test);
}

/// Like [`with_origin`], with clients of each transport.
#[track_caller]
pub fn over_each(content: &str, replies: &[&str], test: impl Fn(&mut Server, Transport)) {
    for transport in Transport::ALL {
        eprintln!("transport: {transport:?}");
        let builder = |backend: Backend, address: &str| backend.builder_for_all(content, address);
        run(content, replies, builder, |_, server, _| test(server, transport));
    }
}

#[track_caller]
fn run(
    content: &str,
    replies: &[&str],
    builder: impl Fn(Backend, &str) -> ServerBuilder,
    test: impl Fn(Backend, &mut Server, &Origin),
) {
    // Codings of the transfer are HTTP's.
    let chunked = replies.iter().any(|reply| reply.contains("\nTransfer-Encoding:"));
    for backend in Backend::of(content).take(if chunked { 1 } else { 2 }) {
        for driver in [Driver::Epoll, Driver::IoUring] {
            eprintln!("backend: {backend:?}, driver: {driver:?}");
            let origin = Origin::start(backend.scripts(replies));
            let address = origin.addr().to_string();
            let mut server = builder(backend, &address).driver(driver).start();
            test(backend, &mut server, &origin);
            let nginx = server.binary().is_nginx();
            server.stop();
            assert_eq!(origin.received().len(), replies.len(), "the origin was asked");
            origin.finish();
            if nginx {
                break;
            }
        }
    }
}

/// Has exchanges one after the other.
#[track_caller]
pub fn cached(content: &str, cases: &[Case<'_>]) {
    let replies: Vec<String> = cases.iter().filter_map(|case| case.reply).map(closing).collect();
    let replies: Vec<&str> = replies.iter().map(String::as_str).collect();
    with_origin(content, &replies, |server, _| {
        for case in cases {
            eprintln!("exchange: {}", case.exchange);
            check_on(server, case.exchange, case.expected);
        }
    });
}

/// Like [`cached`], for GET: target and further lines, what the origin answers, what is expected.
#[track_caller]
pub fn gets(content: &str, cases: &[(&str, Option<&str>, &str)]) {
    let exchanges: Vec<String> = cases
        .iter()
        .map(|(target, ..)| {
            let (target, lines) = target.split_once('\n').unwrap_or((target, ""));
            format!("GET {target} HTTP/1.1\nHost: localhost\n{lines}")
        })
        .collect();
    let cases: Vec<Case<'_>> = cases
        .iter()
        .zip(&exchanges)
        .map(|((_, reply, expected), exchange)| Case { exchange, reply: *reply, expected })
        .collect();
    cached(content, &cases);
}

/// The reply with `Connection: close` and, unless it says otherwise, its length.
fn closing(reply: &str) -> String {
    let (head, body) = reply.split_once("\n\n").unwrap_or((reply, ""));
    let framed = head.contains("Content-Length:") || head.contains("Transfer-Encoding:");
    let length = match framed || head.contains(" 304") || head.contains(" 204") {
        true => String::new(),
        false => format!("\nContent-Length: {}", body.len()),
    };
    format!("HTTP/1.1 {head}{length}\nConnection: close\n\n{body}")
}

/// Waits until so many objects are stored: a response reaches its client before. The server has
/// `location = /objects { status_api; }`.
pub fn wait_objects(server: &Server, count: u64) {
    wait::until("objects to be stored", wait::PATIENCE, || {
        let report: serde_json::Value =
            serde_json::from_str(&server.get("/objects").text()).ok()?;
        let cache = &report["caches"][0];
        (cache["objects"] == count && cache["filling"] == 0).then_some(())
    });
}

/// Requests a target on a connection of its own.
#[track_caller]
pub fn get(server: &Server, target: &str) -> Response {
    let mut client = server.client();
    send(&mut client, target, &[]);
    client.response()
}

/// The time in Unix seconds.
pub fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("a clock after 1970").as_secs()
}
