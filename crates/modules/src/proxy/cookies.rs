//! Changes of `Set-Cookie`. nginx: `ngx_http_proxy_rewrite_cookie`.

use std::borrow::Cow;

use bytes::Bytes;
use nowait_http::request::Request;

use super::redirect::matches;
use crate::proxy::conf::{CookieFlags, CookieName, CookiePattern, CookieRule, ProxyConf};

/// One part of a `Set-Cookie`: the cookie itself, or an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part<'a> {
    name: Cow<'a, [u8]>,
    value: Option<Cow<'a, [u8]>>,
}

/// The value of a `Set-Cookie` after the location's directives; `None` if unchanged.
pub fn rewrite(request: &Request, conf: &ProxyConf, value: &Bytes) -> Option<Bytes> {
    let mut parts = parse(value);
    // A value that is no cookie is left alone.
    parts.first()?.value.as_ref()?;
    let mut changed = false;
    for part in &mut parts[1..] {
        let rules = match &part.name.to_ascii_lowercase()[..] {
            b"domain" => &conf.cookie_domains,
            b"path" => &conf.cookie_paths,
            _ => continue,
        };
        let Some(value) = &part.value else { continue };
        if let Some(new) = attribute(request, rules, value) {
            part.value = Some(Cow::Owned(new));
            changed = true;
        }
    }
    changed |= flags(request, conf, &mut parts);
    changed.then(|| join(&parts).into())
}

/// Splits at semicolons; blanks around names and values are dropped.
fn parse(value: &[u8]) -> Vec<Part<'_>> {
    let trim = |text: &'_ [u8]| -> std::ops::Range<usize> {
        let start = text.iter().position(|&b| b != b' ').unwrap_or(text.len());
        let end = text.iter().rposition(|&b| b != b' ').map_or(start, |at| at + 1);
        start..end
    };
    let part = |text: &'_ [u8]| -> (std::ops::Range<usize>, Option<std::ops::Range<usize>>) {
        match text.iter().position(|&b| b == b'=') {
            None => (trim(text), None),
            Some(at) => {
                let value = trim(&text[at + 1..]);
                (trim(&text[..at]), Some(value.start + at + 1..value.end + at + 1))
            }
        }
    };
    let parts = value.split(|&b| b == b';').map(|text| {
        let (name, value) = part(text);
        Part {
            name: Cow::Borrowed(&text[name]),
            value: value.map(|value| Cow::Borrowed(&text[value])),
        }
    });
    parts.collect()
}

fn join(parts: &[Part<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (n, part) in parts.iter().enumerate() {
        if n > 0 {
            out.extend_from_slice(b"; ");
        }
        out.extend_from_slice(&part.name);
        if let Some(value) = &part.value {
            out.push(b'=');
            out.extend_from_slice(value);
        }
    }
    out
}

/// The value of an attribute, changed by the first rule that matches.
fn attribute(request: &Request, rules: &[CookieRule], value: &[u8]) -> Option<Vec<u8>> {
    rules.iter().find_map(|rule| {
        let (skip, length) = match &rule.pattern {
            CookiePattern::Domain(pattern) => {
                let domain = value.strip_prefix(b".").unwrap_or(value);
                let wanted = request.evaluate(pattern);
                domain
                    .eq_ignore_ascii_case(&wanted)
                    .then_some((value.len() - domain.len(), domain.len()))?
            }
            CookiePattern::Prefix(pattern) => {
                let wanted = request.evaluate(pattern);
                value.starts_with(&wanted).then_some((0, wanted.len()))?
            }
            CookiePattern::Regex(regex) => {
                matches(request, regex, value).then_some((0, value.len()))?
            }
        };
        let replacement = request.evaluate(&rule.replacement);
        Some([&value[..skip], &replacement, &value[skip + length..]].concat())
    })
}

/// Adds and removes flags; returns whether any rule applied.
fn flags(request: &Request, conf: &ProxyConf, parts: &mut Vec<Part<'_>>) -> bool {
    let rule = conf.cookie_flags.iter().find(|rule| match &rule.cookie {
        CookieName::Exact(name) => request.evaluate(name).eq_ignore_ascii_case(&parts[0].name),
        CookieName::Regex(regex) => matches(request, regex, &parts[0].name),
    });
    let Some(rule) = rule else { return false };
    let mut flags = CookieFlags::default();
    rule.flags.iter().for_each(|flag| flags.add(&request.evaluate(flag)));
    if flags == CookieFlags::default() {
        return false;
    }
    edit(parts, flags);
    true
}

/// nginx: `ngx_http_proxy_edit_cookie_flags`.
fn edit(parts: &mut Vec<Part<'_>>, flags: CookieFlags) {
    let is = |part: &Part<'_>, name: &str| part.name.eq_ignore_ascii_case(name.as_bytes());
    for (name, wanted) in [("Secure", flags.secure), ("HttpOnly", flags.http_only)] {
        let has = parts[1..].iter().any(|part| is(part, name));
        match wanted {
            Some(true) if !has => {
                parts.push(Part { name: Cow::Borrowed(name.as_bytes()), value: None });
            }
            Some(false) => retain_attributes(parts, |part| !is(part, name)),
            _ => {}
        }
    }
    match flags.same_site {
        None => {}
        Some(None) => retain_attributes(parts, |part| !is(part, "SameSite")),
        Some(Some(value)) => {
            let new = || Some(Cow::Borrowed(value.as_bytes()));
            match parts[1..].iter_mut().find(|part| is(part, "SameSite")) {
                Some(old) => {
                    let same = old
                        .value
                        .as_ref()
                        .is_some_and(|v| v.eq_ignore_ascii_case(value.as_bytes()));
                    if !same {
                        *old = Part { name: Cow::Borrowed(b"SameSite"), value: new() };
                    }
                }
                None => parts.push(Part { name: Cow::Borrowed(b"SameSite"), value: new() }),
            }
        }
    }
}

/// Drops attributes; a cookie of any name stays.
fn retain_attributes(parts: &mut Vec<Part<'_>>, keep: impl Fn(&Part<'_>) -> bool) {
    let mut n = 0;
    parts.retain(|part| {
        n += 1;
        n == 1 || keep(part)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(value: &str, flags: &[&str]) -> String {
        let mut parts = parse(value.as_bytes());
        let mut all = CookieFlags::default();
        flags.iter().for_each(|flag| all.add(flag.as_bytes()));
        edit(&mut parts, all);
        String::from_utf8(join(&parts)).unwrap()
    }

    #[test]
    fn parts_are_split_and_joined() {
        let parts = parse(b"a = b=c ;Path= /x; secure ;");
        assert_eq!(parts.len(), 4);
        assert_eq!(join(&parts), b"a=b=c; Path=/x; secure; ");
        assert_eq!(parse(b"just text")[0].value, None);
    }

    #[test]
    fn flags_are_added_once_and_removed() {
        assert_eq!(edited("a=1", &["Secure", "httponly"]), "a=1; Secure; HttpOnly");
        assert_eq!(edited("a=1; secure", &["secure"]), "a=1; secure");
        assert_eq!(edited("a=1; SECURE; Path=/", &["nosecure"]), "a=1; Path=/");
        assert_eq!(edited("secure=1; HttpOnly", &["nosecure", "nohttponly"]), "secure=1");
    }

    #[test]
    fn same_site_is_replaced() {
        assert_eq!(edited("a=1", &["samesite=lax"]), "a=1; SameSite=Lax");
        assert_eq!(edited("a=1; samesite=STRICT", &["samesite=strict"]), "a=1; samesite=STRICT");
        assert_eq!(edited("a=1; samesite=none", &["SameSite=Strict"]), "a=1; SameSite=Strict");
        assert_eq!(edited("a=1; SameSite=none", &["nosamesite"]), "a=1");
        assert_eq!(edited("a=1", &["samesite=none", "samesite=strict"]), "a=1; SameSite=Strict");
    }
}
