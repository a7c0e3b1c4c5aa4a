//! The HTTP proxy as a [`Protocol`] of backends.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use nowait_backend::ProxyHandler;
use nowait_backend::conf::Backend;
use nowait_backend::protocol::{Protocol, Server, Transport};
use nowait_backend::response::Rewriter;
use nowait_backend::upstream::CodecFactory;
use nowait_backend::url::{self, Url, UrlError};
use nowait_conf::{Cx, Scope};
use nowait_http::conf::Location;
use nowait_http::conf::upstream::GroupId;
use nowait_http::log::Level;
use nowait_http::module::LocationBuilder;
use nowait_http::request::{BodyLength, Request};
use nowait_http::upstream_state::LogUri;

use super::codec::HttpFactory;
use super::conf::{CACHE, HttpVersion, Pass, ProxyConf, SCHEMES, TLS_SCHEME};
use super::context;
use super::target::{self, Form};
use super::{cookies, hops, redirect, request_head};

/// The content of a location with `proxy_pass`, with the settings of a chain of blocks.
pub(super) fn content(
    cx: &mut Cx<'_>,
    chain: &[&Scope],
    parts: &mut LocationBuilder,
    pass: Pass,
) -> ProxyHandler<ProxyConf> {
    let cache = parts.settings.get(&CACHE).cloned();
    let strict = cache.as_ref().is_some_and(|cache| cache.strict);
    let conf = Arc::new(ProxyConf::resolve(cx, chain, pass, strict));
    parts.settings.set(&context::CONF, conf.clone());
    ProxyHandler::new(conf, cache, parts)
}

impl Protocol for ProxyConf {
    const CODECS: &'static dyn CodecFactory = &HttpFactory;

    fn of_location(location: &Location) -> Option<&Arc<Self>> {
        context::of_location(location)
    }

    fn backend(&self) -> &Backend {
        &self.backend
    }

    fn group(&self) -> Option<GroupId> {
        match &self.pass {
            Pass::Static(pass) => Some(pass.group),
            Pass::Variable { .. } => None,
        }
    }

    fn evaluate(&self, request: &mut Request) -> Result<Server, u16> {
        let Pass::Variable { url, .. } = &self.pass else { return Err(500) };
        let text = request.evaluate(url);
        let parsed = Url::parse(&text, SCHEMES).map_err(|error| {
            let shown = String::from_utf8_lossy(&text);
            match error {
                UrlError::Server(problem) => {
                    let server = String::from_utf8_lossy(url::after_scheme(&text));
                    let text = format_args!("{problem} in upstream \"{server}\"");
                    request.log(Level::Error, text);
                }
                UrlError::Prefix => {
                    request.log(Level::Error, format_args!("invalid URL prefix in \"{shown}\""));
                }
            }
            500u16
        })?;
        context::of_mut(request).destination = Some(Rc::new(parsed.destination));
        let Url { server, host, port, default_port, .. } = parsed;
        Ok(Server::Named { server, host, port, default_port: Some(default_port) })
    }

    fn refusal(&self, request: &Request) -> Option<u16> {
        hops::ends_here(request, self).then_some(204)
    }

    fn transport(&self, request: &Request) -> Transport {
        match (context::destination_of(request, self), &self.backend.settings.tls) {
            (Some(destination), Some(tls)) if destination.tls => {
                let wish = Box::new(tls.wish(request, &destination.host));
                Transport { scheme: TLS_SCHEME, tls: Some(wish) }
            }
            _ => Transport { scheme: SCHEMES.plain, tls: None },
        }
    }

    fn uri(&self, request: &Request) -> Result<LogUri, u16> {
        let destination = context::destination_of(request, self).ok_or(500u16)?;
        match target::uri(request, &self.pass, destination) {
            Some(target::Target::Unparsed) => Ok(LogUri::Unparsed),
            Some(target::Target::Text(text)) => Ok(LogUri::Text(text)),
            None => {
                request.log(Level::Error, format_args!("zero length URI to proxy"));
                Err(500)
            }
        }
    }

    fn fields(&self, request: &Request, put: &mut dyn FnMut(&[u8], &[u8])) {
        request_head::fields(request, self, put);
    }

    /// nginx: `r->request_body_no_buffering`.
    fn streams(&self, request: &Request) -> bool {
        self.set_body.is_none()
            && self.backend.pass_request_body
            // HTTP/1.0 can't send a body of unknown length.
            && (request.body_length() != BodyLength::Unknown
                || self.http_version != HttpVersion::Http10)
            && !self.pass.depends_on_content(request)
            && !self.method.as_ref().is_some_and(|text| request.depends_on_content(text))
            && !self.headers.depend_on_content(request)
    }

    fn default_key(&self, request: &Request, out: &mut Vec<u8>) {
        let Some(destination) = context::destination_of(request, self) else {
            return out.extend_from_slice(request.head().uri());
        };
        out.extend_from_slice(&destination.key_start);
        match target::append(request, &self.pass, destination, out) {
            Some(Form::Text) => {}
            // Without a URI, sending the request fails later.
            Some(Form::Unparsed) | None => out.extend_from_slice(request.head().uri()),
        }
    }

    fn passes_trailers(&self) -> bool {
        self.pass_trailers
    }
}

impl Rewriter for ProxyConf {
    fn rewrites_redirects(&self) -> bool {
        !self.redirects.is_empty()
    }

    fn redirect(&self, request: &Request, value: &Bytes, skip: usize) -> Option<Bytes> {
        redirect::rewrite(request, &self.redirects, value, skip)
    }

    fn cookie(&self, request: &Request, value: &Bytes) -> Option<Bytes> {
        if self.rewrites_cookies() { cookies::rewrite(request, self, value) } else { None }
    }
}
