//! Changes of `Location` and `Refresh`. nginx: `ngx_http_proxy_rewrite_redirect`.

use bytes::Bytes;
use nowait_http::conf::Regex;
use nowait_http::log::Level;
use nowait_http::request::Request;

use crate::proxy::conf::{Redirect, RedirectPattern};

/// The value with the part after its first `skip` bytes changed by the first rule that matches;
/// `None` if no rule does.
pub fn rewrite(request: &Request, rules: &[Redirect], value: &Bytes, skip: usize) -> Option<Bytes> {
    let (kept, text) = value.split_at_checked(skip)?;
    rules.iter().find_map(|rule| {
        let matched = match &rule.pattern {
            RedirectPattern::Prefix(pattern) => {
                let pattern = request.evaluate(pattern);
                text.starts_with(&pattern).then_some(pattern.len())
            }
            RedirectPattern::Regex(regex) => matches(request, regex, text).then_some(text.len()),
        }?;
        let replacement = request.evaluate(&rule.replacement);
        Some([kept, &replacement, &text[matched..]].concat().into())
    })
}

/// Whether an expression matches. An error is logged and counts as no match.
pub(super) fn matches(request: &Request, regex: &Regex, text: &[u8]) -> bool {
    regex.search_in(request, text).unwrap_or_else(|error| {
        request.log(
            Level::Alert,
            format_args!(
                "{error} on \"{}\" using \"{}\"",
                String::from_utf8_lossy(text),
                String::from_utf8_lossy(regex.pattern())
            ),
        );
        false
    })
}
