//! `userid`: sends the cookie. nginx: `ngx_http_userid_filter`.

use bytes::Bytes;

use crate::outcome::Special;
use crate::request::Request;
use crate::response::Response;

pub(super) fn apply(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    if request.is_nested() {
        return Ok(());
    }
    if let Some(cookie) = crate::userid::cookie(request) {
        response.head.add("Set-Cookie", cookie);
        let policy = &request.location().userid.userid_p3p.0;
        if !policy.is_empty() {
            response.head.add("P3P", Bytes::copy_from_slice(policy));
        }
    }
    Ok(())
}
