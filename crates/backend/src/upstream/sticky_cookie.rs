//! The cookie of `sticky cookie`, which binds a client to a peer.

use bytes::Bytes;
use nowait_conf::{Cx, Scope};
use nowait_http::conf::upstream::Upstream;
use nowait_http::module::{FilterStage, LocationBuilder, Module};
use nowait_http::outcome::StatusResponse;
use nowait_http::request::Request;
use nowait_http::response::Response;
use nowait_http::upstream_state::UpstreamState;
use nowait_upstream::Peer;
use nowait_upstream::conf::{Expires, StickyCookie};

/// This module.
pub static MODULE: Module = Module { build: Some(build), ..Module::EMPTY };

fn build(_: &mut Cx<'_>, _: &[&Scope], parts: &mut LocationBuilder) {
    parts.filter(FilterStage::Fields, send);
}

/// Adds the cookie to the response.
fn send(request: &mut Request, response: &mut Response) -> Result<(), Box<StatusResponse>> {
    if !request.is_nested()
        && let Some(cookie) = UpstreamState::get(request.state()).and_then(|state| state.cookie())
    {
        response.head.add("Set-Cookie", cookie);
    }
    Ok(())
}

/// The value of the `Set-Cookie` that binds the client to a peer, if the group uses such cookies. It is
/// added to every response to the request.
pub(super) fn set_cookie(upstream: &Upstream, request: &Request, peer: &Peer) -> Option<Bytes> {
    let cookie = upstream.cookie(request)?;
    let mut samesite = cookie.samesite;
    if samesite.as_ref().is_some_and(|text| !nowait_upstream::conf::is_samesite(text)) {
        samesite = Some(Bytes::from_static(b"strict"));
    }
    let now = nowait_runtime::clock().unix_seconds();
    let domain = cookie.domain.as_deref();
    Some(cookie_text(cookie.conf, peer.sid(), domain, samesite.as_deref(), now).into())
}

/// nginx: `ngx_http_upstream_sticky_cookie_insert`. `now`: seconds since 1970.
fn cookie_text(
    cookie: &StickyCookie,
    sid: &[u8],
    domain: Option<&[u8]>,
    samesite: Option<&[u8]>,
    now: u64,
) -> Vec<u8> {
    let mut out = [&cookie.name[..], b"=", sid].concat();
    match cookie.expires {
        Some(Expires::Max) => {
            out.extend_from_slice(b"; expires=Thu, 31-Dec-37 23:55:55 GMT; max-age=315360000");
        }
        Some(Expires::After(seconds)) => {
            out.extend_from_slice(b"; expires=");
            out.extend_from_slice(&cookie_date(now.saturating_add(seconds.0)));
            out.extend_from_slice(format!("; max-age={}", seconds.0).as_bytes());
        }
        None => {}
    }
    if let Some(domain) = domain {
        out.extend_from_slice(b"; domain=");
        out.extend_from_slice(domain);
    }
    if cookie.httponly {
        out.extend_from_slice(b"; httponly");
    }
    if cookie.secure {
        out.extend_from_slice(b"; secure");
    }
    if let Some(samesite) = samesite {
        out.extend_from_slice(b"; samesite=");
        out.extend_from_slice(samesite);
    }
    if let Some(path) = &cookie.path {
        out.extend_from_slice(b"; path=");
        out.extend_from_slice(path);
    }
    out
}

/// `Thu, 31-Dec-37 23:55:55 GMT`: old browsers understand no years after 2037, and only two digits
/// of a year. nginx: `ngx_http_cookie_time`.
fn cookie_date(unix: u64) -> Vec<u8> {
    let mut text =
        nowait_message::http_date::format(i64::try_from(unix).unwrap_or(i64::MAX)).to_vec();
    (text[7], text[11]) = (b'-', b'-');
    if &text[12..16] <= b"2037".as_slice() {
        text.drain(12..14);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_conf::Template;

    #[test]
    fn cookies() {
        let cookie = StickyCookie {
            name: Bytes::from_static(b"srv"),
            lookup: Template::literal(""),
            domain: None,
            path: Some(Bytes::from_static(b"/")),
            expires: Some(Expires::After(nowait_conf::Seconds(3600))),
            samesite: None,
            httponly: true,
            secure: true,
        };
        let text = cookie_text(&cookie, b"id", Some(b".example.com"), Some(b"lax"), 0);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "srv=id; expires=Thu, 01-Jan-70 01:00:00 GMT; max-age=3600; domain=.example.com; \
             httponly; secure; samesite=lax; path=/"
        );
    }
}
