//! `userid`: cookies that identify clients. nginx: `ngx_http_userid_filter_module`.
//!
//! A filter sends the cookie; the variables show it. The state belongs to the main request.

pub mod conf;

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use nowait_conf::{Cx, Scope};
use nowait_http::base64;
use nowait_http::log::Level;
use nowait_http::module::{FilterStage, LocationBuilder, Module};
use nowait_http::request::Request;
use nowait_http::response::Response;
use nowait_http::slots::Key;
use nowait_http::variables::core::builtins;
use nowait_http::variables::{Builtin, SettableBuiltin};
use nowait_message::http_date::{Civil, MONTHS};

use self::conf::{CookieExpires, Flags, UserId, UserIdConf};

/// Characters of an identifier in base64, without padding.
const ENCODED_BYTES: usize = 22;

/// Distance between identifiers: the last byte distinguishes versions.
const SEQUENCE_STEP: u32 = 0x100;

/// First identifier of the second version.
const SEQUENCE_START_V2: u32 = 0x0303_0302;

/// This module.
pub static MODULE: Module = Module {
    rows: &[UserIdConf::ROWS],
    build: Some(build),
    variables: BUILTINS,
    changeable: CHANGEABLE,
    ..Module::EMPTY
};

/// The settings of locations where it is not off.
static CONF: Key<Arc<UserIdConf>> = Key::new();

/// The client's identity from its cookie.
static IDS: Key<RefCell<Option<Ids>>> = Key::new();

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let conf = UserIdConf::resolve(cx, chain);
    if conf.userid == UserId::Off {
        return;
    }
    parts.settings.set(&CONF, conf.clone());
    if conf.userid != UserId::Log {
        parts.filter(FilterStage::Fields, move |request: &mut Request, response: &mut Response| {
            if !request.is_nested()
                && let Some(cookie) = cookie(request, &conf)
            {
                response.head.add("Set-Cookie", cookie);
                if !conf.userid_p3p.0.is_empty() {
                    response.head.add("P3P", Bytes::copy_from_slice(&conf.userid_p3p.0));
                }
            }
            Ok(())
        });
    }
}

/// The variables of this module.
const BUILTINS: &[Builtin] = builtins! {
    /// Name of the cookie and identifier received from the client.
    "uid_got" => |r, out| append(r, Ids::got, out);
    /// Name of the cookie and identifier sent to the client.
    "uid_set" => |r, out| append(r, Ids::given, out);
    /// If set to a value other than empty or `0`, the client receives a new identifier; with
    /// `log`, the old one is logged.
    "uid_reset" => |r, out| {
        out.extend_from_slice(&r.shared().changed("uid_reset").unwrap_or_default());
        true
    };
};

/// The variables that `set` may change.
const CHANGEABLE: &[SettableBuiltin] =
    &[SettableBuiltin { name: "uid_reset", set: |r, value| r.shared().change("uid_reset", value) }];

/// The part of an identifier that differs between processes.
static START: LazyLock<u32> = LazyLock::new(|| {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // As in nginx: the upper part of the microseconds that fits into 16 bits.
    (since.subsec_micros() / 20) << 16 | (std::process::id() & 0xffff)
});

static SEQUENCE_V1: AtomicU32 = AtomicU32::new(1);
static SEQUENCE_V2: AtomicU32 = AtomicU32::new(SEQUENCE_START_V2);

/// An identifier: four numbers in the byte order of the machine.
type Id = [u32; 4];

/// A client's identifiers.
#[derive(Debug, Clone, Default)]
pub struct Ids {
    /// The name of the cookie it was read from.
    name: Box<[u8]>,
    cookie: Vec<u8>,
    got: Option<Id>,
    given: Option<Id>,
    was_reset: bool,
}

impl Ids {
    fn got(&self) -> Option<Id> {
        self.got
    }

    fn given(&self) -> Option<Id> {
        self.given
    }
}

/// `$uid_reset`, which `map` and similar directives may also define.
fn reset(request: &Request) -> Vec<u8> {
    let mut value = Vec::new();
    request.current().conf.variables.append_named("uid_reset", request, &mut value);
    value
}

fn append(request: &Request, which: fn(&Ids) -> Option<Id>, out: &mut Vec<u8>) -> bool {
    let Some(conf) = request.location().settings.get(&CONF) else { return false };
    let Some(id) = which(&ids(request, conf)) else { return false };
    out.extend_from_slice(&conf.userid_name.0);
    let [a, b, c, d] = id;
    out.extend_from_slice(format!("={a:08X}{b:08X}{c:08X}{d:08X}").as_bytes());
    true
}

/// The client's identifiers; a new one is assigned if needed.
fn ids(request: &Request, conf: &UserIdConf) -> Ids {
    let state = request.shared().state.of(&IDS);
    let known = state.borrow().clone().filter(|ids| ids.name == conf.userid_name.0);
    let mut ids = known.unwrap_or_else(|| read(request, conf));
    if matches!(conf.userid, UserId::V1 | UserId::V2) {
        give(request, conf, &mut ids);
    }
    state.replace(Some(ids.clone()));
    ids
}

/// Reads the cookie.
fn read(request: &Request, conf: &UserIdConf) -> Ids {
    let name = &conf.userid_name.0;
    let mut ids = Ids { name: name.clone(), ..Ids::default() };
    let Some(cookie) = nowait_http::variables::core::cookie_value(request, name) else {
        return ids;
    };
    ids.cookie = cookie.to_vec();
    let Some(encoded) = cookie.get(..ENCODED_BYTES) else {
        request.log(
            Level::Error,
            format_args!(
                "client sent too short userid cookie \"{}\"",
                String::from_utf8_lossy(cookie)
            ),
        );
        return ids;
    };
    // A mark or garbage may follow.
    let decoded = base64::decode(encoded).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    match decoded {
        Some(bytes) => ids.got = Some(from_bytes(bytes)).filter(|id| id[3] != 0),
        None => request.log(
            Level::Error,
            format_args!(
                "client sent invalid userid cookie \"{}\"",
                String::from_utf8_lossy(cookie)
            ),
        ),
    }
    ids
}

/// Chooses the identifier to send, if any.
fn give(request: &Request, conf: &UserIdConf, ids: &mut Ids) {
    if ids.given.is_some() {
        return;
    }
    if let Some(got) = ids.got {
        let reset = reset(request);
        if reset.is_empty() || reset == b"0" {
            let padding = ids.cookie.get(ENCODED_BYTES..ENCODED_BYTES + 2);
            let marked = |mark: u8| padding == Some(&[mark, b'='][..]);
            if conf.userid_mark.0.is_some_and(|mark| !marked(mark)) {
                ids.given = Some(got);
            }
            return;
        }
        ids.was_reset = true;
        if reset == b"log" {
            let [a, b, c, d] = got;
            request.log(
                Level::Notice,
                format_args!(
                    "userid cookie \"{}={a:08X}{b:08X}{c:08X}{d:08X}\" was reset",
                    String::from_utf8_lossy(&conf.userid_name.0)
                ),
            );
        }
    }
    let now = nowait_runtime::clock().unix_seconds();
    let now = u32::try_from(now & 0xffff_ffff).unwrap_or(0);
    let service = conf.userid_service.map(|service| service.0);
    ids.given = Some(if conf.userid == UserId::V1 {
        let sequence = SEQUENCE_V1.fetch_add(SEQUENCE_STEP, Ordering::Relaxed);
        [service.unwrap_or(0), now, *START, sequence]
    } else {
        let next = |sequence: u32| {
            let next = sequence.wrapping_add(SEQUENCE_STEP);
            Some(if next < SEQUENCE_START_V2 { SEQUENCE_START_V2 } else { next })
        };
        let (relaxed, either) =
            (Ordering::Relaxed, |before: Result<u32, u32>| before.unwrap_or_else(|before| before));
        let sequence = either(SEQUENCE_V2.fetch_update(relaxed, relaxed, next));
        let service = service.map_or_else(|| address(request), u32::to_be);
        [service, now.to_be(), START.to_be(), sequence.to_be()]
    });
}

/// The last four bytes of the server's address.
fn address(request: &Request) -> u32 {
    match request.exchange().local().inet().map(|inet| inet.ip()) {
        Some(std::net::IpAddr::V4(ip)) => u32::from_ne_bytes(ip.octets()),
        Some(std::net::IpAddr::V6(ip)) => {
            let octets = ip.octets();
            u32::from_ne_bytes([octets[12], octets[13], octets[14], octets[15]])
        }
        None => 0,
    }
}

fn from_bytes(bytes: [u8; 16]) -> Id {
    let number =
        |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    [number(0), number(4), number(8), number(12)]
}

/// The value of `Set-Cookie`; `None` if the client keeps its cookie.
fn cookie(request: &Request, conf: &UserIdConf) -> Option<Bytes> {
    let ids = ids(request, conf);
    let given = ids.given?;
    let mut out = conf.userid_name.0.to_vec();
    out.push(b'=');
    if ids.got.is_none() || ids.was_reset {
        let bytes: Vec<u8> = given.iter().flat_map(|number| number.to_ne_bytes()).collect();
        out.extend_from_slice(&base64::encode(&bytes));
        if let Some(mark) = conf.userid_mark.0 {
            let padding = out.len() - 2;
            out[padding] = mark;
        }
    } else {
        out.extend_from_slice(&ids.cookie[..ENCODED_BYTES]);
        out.push(conf.userid_mark.0.unwrap_or(b'='));
        out.push(b'=');
    }
    match conf.userid_expires {
        CookieExpires::Off => {}
        CookieExpires::Max => out.extend_from_slice(b"; expires=Thu, 31-Dec-37 23:55:55 GMT"),
        CookieExpires::After(seconds) => {
            let at = nowait_runtime::clock().unix_seconds().saturating_add(seconds);
            let at = i64::try_from(at).unwrap_or(i64::MAX);
            out.extend_from_slice(b"; expires=");
            out.extend_from_slice(cookie_time(at).as_bytes());
        }
    }
    if !conf.userid_domain.0.is_empty() {
        out.extend_from_slice(b"; domain=");
        out.extend_from_slice(&conf.userid_domain.0);
    }
    out.extend_from_slice(b"; path=");
    out.extend_from_slice(&conf.userid_path.0);
    let has = |flag: &(Flags, &str)| conf.userid_flags.contains(flag.0);
    let plain = [(Flags::SECURE, "; secure"), (Flags::HTTPONLY, "; httponly")];
    let same_site = [
        (Flags::STRICT, "; samesite=strict"),
        (Flags::LAX, "; samesite=lax"),
        (Flags::NONE, "; samesite=none"),
    ];
    // Only one of the latter can apply.
    for (_, text) in plain.iter().filter(|f| has(f)).chain(same_site.iter().find(|f| has(f))) {
        out.extend_from_slice(text.as_bytes());
    }
    Some(out.into())
}

/// nginx: `ngx_http_cookie_time`.
fn cookie_time(unix: i64) -> String {
    let civil = Civil::from_unix(unix);
    let month = MONTHS.get(civil.month as usize - 1).unwrap_or(&MONTHS[0]);
    let month = std::str::from_utf8(&month[..]).unwrap_or_default();
    let Civil { day, hour, minute, second, year, .. } = civil;
    let week = civil.weekday();
    let year = if year > 2037 { format!("{year}") } else { format!("{:02}", year % 100) };
    format!("{week}, {day:02}-{month}-{year} {hour:02}:{minute:02}:{second:02} GMT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_cookies() {
        assert_eq!(cookie_time(2_145_916_555), "Thu, 31-Dec-37 23:55:55 GMT");
        assert_eq!(cookie_time(784_111_777), "Sun, 06-Nov-94 08:49:37 GMT");
        assert_eq!(cookie_time(2_145_916_800), "Fri, 01-Jan-2038 00:00:00 GMT");
    }

    #[test]
    fn identifiers_keep_their_byte_order() {
        let id = from_bytes([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        let bytes: Vec<u8> = id.iter().flat_map(|number| number.to_ne_bytes()).collect();
        assert_eq!(bytes, (1..=16).collect::<Vec<u8>>());
        assert_eq!(base64::encode(&bytes).len(), ENCODED_BYTES + 2);
    }
}
