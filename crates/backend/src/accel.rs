//! `X-Accel-Redirect`: the upstream server names the location that responds. nginx: the first part of
//! `ngx_http_upstream_process_headers`.

use nowait_http::log::Level;
use nowait_http::outcome::{Outcome, RedirectTarget};
use nowait_http::path;
use nowait_http::request::Request;
use nowait_http::response::{Head, Header};
use nowait_message::{Known, ResponseHead};

use super::response::{Rewriter, Single};

/// Redirects to the location, whose response takes over some header fields of this one.
pub(super) fn redirect(
    request: &mut Request,
    rewriter: &dyn Rewriter,
    received: &ResponseHead,
    fields: &Single,
    to: &[u8],
) -> Outcome {
    let target = if to.first() == Some(&b'@') {
        RedirectTarget::Named(to.to_vec())
    } else {
        match path::from_outside(to) {
            Some((path, args)) => {
                request.switch_to_get();
                RedirectTarget::Uri { path, args }
            }
            None => {
                let to = String::from_utf8_lossy(to);
                request.log(Level::Error, format_args!("unsafe URI \"{to}\" was detected"));
                return Outcome::status(404);
            }
        }
    };
    let mut kept = Head::default();
    for field in fields.of(received) {
        let value = match field.known {
            Some(Known::ContentType) => {
                kept.set_content_type(received.share(field.value));
                continue;
            }
            Some(Known::SetCookie) => rewriter.cookie(request, &received.share(field.value)),
            Some(
                Known::ContentDisposition
                | Known::CacheControl
                | Known::Expires
                | Known::AcceptRanges,
            ) => None,
            _ => continue,
        };
        let value = value.unwrap_or_else(|| received.share(field.value));
        kept.headers.push(Header { name: received.share(field.name), value });
    }
    request.hand_fields_over(Box::new(kept));
    Outcome::Redirect(target)
}
