//! Automatic certificates. nginx: `ngx_http_acme_module`.
//!
//! The protocol is in `nowait_acme`. One worker orders and renews for the whole process: [`issuer_task`] decides
//! when, [`orders`] talks to the issuer, [`name_check`] to the server itself, [`state_directory`] keeps the state. All workers answer challenges (those by
//! TLS in `nowait_front::tls::validation`), also those of other instances ([`responses`]), and offer the certificates, which reloads keep ([`state`]).

mod conf;
mod dns_hook;
mod issuer_task;
mod name_check;
mod orders;
mod responses;
mod state;
mod state_directory;

use std::cell::OnceCell;
use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Scope};
use nowait_http::conf::HttpConf;
use nowait_http::log::Level;
use nowait_http::module::{Handler, LocationBuilder, Module, Phase, Step};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Body, Head, Response};
use nowait_http::slots::Key;
use nowait_http::variables::Builtin;
use nowait_http::variables::core::builtins;

use self::conf::{ACME_ROWS, CertificateLayer, NUMBER, UnresolvedIssuers};
use self::state::{CertifiedKey, ISSUERS, Issuers};

/// This module.
pub static MODULE: Module = Module {
    rows: &[ACME_ROWS],
    build: Some(build),
    variables: BUILTINS,
    finish: Some(finish),
    adopt: Some(adopt),
    start: Some(issuer_task::start),
    ..Module::EMPTY
};

/// The path prefix of `http-01` challenges (RFC 8555, 8.3).
const WELL_KNOWN: &[u8] = b"/.well-known/acme-challenge/";

const BUILTINS: &[Builtin] = builtins! {
    /// The certificate of the server's `acme_certificate`, as a value of `ssl_certificate`.
    "acme_certificate" => |r, out| pair(r, out);
    /// The private key of the server's `acme_certificate`, as a value of `ssl_certificate_key`.
    "acme_certificate_key" => |r, out| pair(r, out);
};

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let number = chain.iter().rev().find_map(|scope| scope.get::<CertificateLayer>());
    if let Some(CertificateLayer(number)) = number {
        conf::complete(cx, *number);
        parts.settings.set(&NUMBER, *number);
    }
    if cx.global::<UnresolvedIssuers>().has_issuers() {
        parts.handler(Phase::PostRead, Challenges);
    }
}

fn finish(cx: &mut Cx<'_>, conf: &mut HttpConf) {
    let issuers = cx.take_global::<UnresolvedIssuers>().resolve(cx);
    conf.state_paths = issuers.all.iter().filter_map(|one| one.state_path.clone()).collect();
    conf.settings.set(&ISSUERS, issuers);
}

fn adopt(conf: &mut HttpConf, previous: &HttpConf) {
    if let (Some(issuers), Some(previous)) =
        (conf.settings.get_mut(&ISSUERS), previous.settings.get(&ISSUERS))
    {
        issuers.adopt(previous);
    }
}

/// The certificate selected in a handshake, kept so that certificate and key match.
static PAIR: Key<OnceCell<Option<Arc<CertifiedKey>>>> = Key::new();

/// The certificate with its key.
fn pair(request: &Request, out: &mut Vec<u8>) -> bool {
    let found = request.state().of(&PAIR).get_or_init(|| {
        let issuers: &Issuers = request.current().conf.settings.get(&ISSUERS)?;
        let number = request.location().settings.get(&NUMBER)?;
        let (issuer, certificate) = issuers.certificate(*number)?;
        let pair = issuer.shared.pair(&certificate.file);
        if pair.is_none() {
            let (name, issuer) = (certificate.name(), &issuer.name);
            request.log(
                Level::Error,
                format_args!("no certificate for {name} yet: issuer \"{issuer}\" is being asked"),
            );
        }
        pair
    });
    if let Some(pair) = found {
        out.extend_from_slice(b"data:");
        out.extend_from_slice(pair.text.as_bytes());
    }
    found.is_some()
}

/// Answers challenges before any other processing of the request.
struct Challenges;

impl Handler for Challenges {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let Some(token) = request.uri().path.strip_prefix(WELL_KNOWN) else {
            return Step::Next(request);
        };
        let Some(issuers) = request.current().conf.settings.get(&ISSUERS) else {
            return Step::Next(request);
        };
        if let Some(answer) = issuers.answer(token) {
            return Step::Done(request, response(answer));
        }
        let (paths, token) = (responses::paths(issuers, token), token.to_vec());
        if paths.is_empty() {
            return Step::Next(request);
        }
        Step::wait(async move {
            let answer = responses::find(request.current(), paths, &token).await;
            Step::of(request, answer.map(response))
        })
    }
}

fn response(answer: String) -> Outcome {
    let mut head = Head::new(200);
    head.content_type = Some(Bytes::from_static(b"text/plain"));
    head.content_length = Some(answer.len() as u64);
    Response { head, body: Body::Bytes(answer.into()) }.into()
}
