//! `userid`: sends the cookie. nginx: `ngx_http_userid_filter`.

use bytes::Bytes;
use nowait_conf::{Cx, Scope};

use crate::module::{Module, Parts, Place};
use crate::modules::userid::conf::{UserId, UserIdConf};
use crate::outcome::Special;
use crate::request::Request;
use crate::response::Response;

/// This module.
pub(crate) static MODULE: Module = Module {
    rows: &[UserIdConf::ROWS],
    build: Some(build),
    variables: crate::modules::userid::BUILTINS,
    changeable: crate::modules::userid::CHANGEABLE,
    ..Module::EMPTY
};

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut Parts) {
    if matches!(UserIdConf::resolve(cx, chain).userid, UserId::V1 | UserId::V2) {
        parts.filter(Place::Fields, apply);
    }
}

pub(crate) fn apply(request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
    if request.is_nested() {
        return Ok(());
    }
    if let Some(cookie) = crate::modules::userid::cookie(request) {
        response.head.add("Set-Cookie", cookie);
        let policy = &request.location().userid.userid_p3p.0;
        if !policy.is_empty() {
            response.head.add("P3P", Bytes::copy_from_slice(policy));
        }
    }
    Ok(())
}
