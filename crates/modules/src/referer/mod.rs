//! `valid_referers`: checks whether a request comes from a page that may link here. nginx:
//! `ngx_http_referer_module`.
//!
//! Evaluated through the variable.

pub mod conf;

use std::sync::Arc;

use nowait_conf::{Cx, Scope};
use nowait_http::log::Level;
use nowait_http::module::{LocationBuilder, Module};
use nowait_http::request::Request;
use nowait_http::slots::Key;
use nowait_http::variables::core::builtins;
use nowait_http::variables::{Builtin, SettableBuiltin};
use nowait_message::Known;

use self::conf::{REFERER_ROWS, RefererHashConf, Referers};

/// Shorter headers have no room for a scheme and a host: the length of `http://i.ru`.
const REFERER_BYTES_MIN: usize = 11;

/// Longer hosts are not valid.
const HOST_BYTES_MAX: usize = 256;

const NAME: &str = "invalid_referer";

/// This module.
pub static MODULE: Module = Module {
    rows: &[REFERER_ROWS, RefererHashConf::ROWS],
    build: Some(build),
    variables: BUILTINS,
    changeable: CHANGEABLE,
    ..Module::EMPTY
};

/// Valid origins of requests to a location.
static REFERERS: Key<Arc<Referers>> = Key::new();

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    if let Some(referers) = Referers::resolve(cx, chain) {
        parts.settings.set(&REFERERS, referers);
    }
}

/// The variables of this module.
const BUILTINS: &[Builtin] = builtins! {
    /// Empty if the `Referer` of the request is one of `valid_referers`, else `1`.
    "invalid_referer" => |r, out| {
        if let Some(value) = r.shared().changed(NAME) {
            out.extend_from_slice(&value);
        } else if is_invalid(r) {
            out.push(b'1');
        }
        true
    };
};

/// The variables that `set` may change.
const CHANGEABLE: &[SettableBuiltin] =
    &[SettableBuiltin { name: NAME, set: |r, value| r.shared().change(NAME, value) }];

fn is_invalid(request: &Request) -> bool {
    let Some(referers) = request.location().settings.get(&REFERERS) else { return false };
    if referers.hosts.is_empty() && referers.regexes.is_empty() {
        return false;
    }
    match request.head().header(Known::Referer) {
        None => !referers.none,
        Some(referer) => !is_valid(request, referers, referer),
    }
}

fn is_valid(request: &Request, referers: &Referers, referer: &[u8]) -> bool {
    let behind = |scheme: &[u8]| {
        let (start, rest) = referer.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let long = referer.len() >= REFERER_BYTES_MIN;
    let rest = behind(b"http://").or_else(|| behind(b"https://")).filter(|_| long);
    let Some(rest) = rest else { return referers.blocked };
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b':')).unwrap_or(rest.len());
    if end > HOST_BYTES_MAX {
        return false;
    }
    let host = rest[..end].to_ascii_lowercase();
    match referers.hosts.lookup(&host, |regex| regex.search_in(request, &host)) {
        Ok(Some(None)) => return true,
        Ok(Some(Some(path))) => {
            let slash = rest[end..].iter().position(|&byte| byte == b'/');
            return slash.is_some_and(|at| rest[end + at..].starts_with(path));
        }
        Ok(None) => {}
        Err(error) => {
            request.log(Level::Alert, format_args!("{error}"));
            return false;
        }
    }
    referers.regexes.iter().any(|regex| match regex.is_match(rest) {
        Ok(matches) => matches,
        Err(error) => {
            request.log(Level::Alert, format_args!("{error}"));
            false
        }
    })
}
