//! `proxy_cache` and its family: what is stored, for how long, for whom, and who waits for whom.

mod conf;
mod damaged;
mod filling;
mod limits;
mod paths;
mod purge;
mod slice;
mod stale;
mod storing;
mod strict;

use nowait_testkit::origin::Step;
use nowait_testkit::{Driver, Origin, Response, Server, check_on};

use crate::proxy::wire;
use crate::stage::{send, site};

/// One exchange with a server that caches.
pub struct Case<'a> {
    /// What the client sends, as in [`nowait_testkit::check`].
    pub exchange: &'a str,
    /// What the origin answers, with `\n` as line end up to the body; `None`: it is not asked.
    pub reply: Option<&'a str>,
    /// What the client gets, as in [`nowait_testkit::check`].
    pub expected: &'a str,
}

/// A server whose locations have a cache, with these settings; `X-Cache` tells its status.
pub fn builder(content: &str, origin: &str) -> nowait_testkit::ServerBuilder {
    let content = content.replace("%%ORIGIN%%", origin);
    let (http, server) = content.split_once("%%SERVER%%").unwrap_or(("", &content));
    site(&format!(
        "proxy_cache_path %%DIR%%/cache levels=1:2 keys_zone=one:1m;
         add_header X-Cache $upstream_cache_status always;
         {http}
         server {{
             listen 127.0.0.1:%%PORT%%;
             proxy_cache one;
             {server}
         }}"
    ))
}

/// The scripts of an origin that answers each connection once.
pub fn scripts(replies: &[&str]) -> Vec<Vec<Step>> {
    let script = |reply: &&str| vec![Step::expect("\r\n\r\n"), Step::reply(wire(reply))];
    replies.iter().map(script).collect()
}

/// Runs a test on each driver with an origin that answers like this, one connection each.
#[track_caller]
pub fn with_origin(content: &str, replies: &[&str], test: impl Fn(&mut Server, &Origin)) {
    for driver in [Driver::Epoll, Driver::IoUring] {
        eprintln!("driver: {driver:?}");
        let origin = Origin::start(scripts(replies));
        let address = origin.addr().to_string();
        let mut server = builder(content, &address).driver(driver).start();
        test(&mut server, &origin);
        let nginx = server.binary().is_nginx();
        server.stop();
        assert_eq!(origin.received().len(), replies.len(), "the origin was asked");
        origin.finish();
        if nginx {
            break;
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

/// As [`cached`], for GET: target and further lines, what the origin answers, what is expected.
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
