//! `charset`: the charset in `Content-Type`, and conversion. nginx: `ngx_http_charset_filter_module`.
//!
//! Two steps: before ranges are cut, it decides what to declare and whether to convert; after that, it
//! wraps the body.

pub mod conf;
pub mod maps;

use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Scope};
use nowait_http::filter::Pull;
use nowait_http::log::Level;
use nowait_http::mime::CHARSET;
use nowait_http::module::{Filter, FilterStage, LocationBuilder, Module};
use nowait_http::outcome::StatusResponse;
use nowait_http::request::Request;
use nowait_http::response::{Body, BodyError, BodySource, LocalFuture, Part, Response};
use nowait_http::slots::Key;

use self::conf::{CHARSET_ROWS, Charset, CharsetConf};
use self::maps::{Conversion, Maps};

/// This module.
pub static MODULE: Module =
    Module { rows: &[CharsetConf::ROWS, CHARSET_ROWS], build: Some(build), ..Module::EMPTY };

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let conf = CharsetConf::resolve(cx, chain);
    let maps = conf::maps(cx, &conf);
    if let Some(charset) = conf.constant() {
        parts.settings.set(&CHARSET, charset.clone());
    }
    // Without maps there is no conversion.
    if !maps.0.is_empty() {
        parts.filter(FilterStage::Conversion, BodyFilter(maps.clone()));
    }
    parts.filter(FilterStage::Content, Name { conf, maps });
}

/// Source and target charset if the response has to be converted.
static CONVERSION: Key<Option<(Bytes, Bytes)>> = Key::new();

/// Sets the charset, and stores the conversion for [`BodyFilter`].
struct Name {
    conf: Arc<CharsetConf>,
    maps: Arc<Maps>,
}

impl Filter for Name {
    fn apply(
        &self,
        request: &mut Request,
        response: &mut Response,
    ) -> Result<(), Box<StatusResponse>> {
        self.name(request, response);
        Ok(())
    }
}

impl Name {
    fn name(&self, request: &mut Request, response: &mut Response) {
        if !self.maps.0.is_empty() {
            request.state_mut().take(&CONVERSION);
        }
        let conf = &self.conf;
        let head = &mut response.head;
        // Most responses have no charset.
        if conf.charset == Charset::Off
            && head.charset.is_none()
            && request.override_charset().is_none()
            && !request.is_nested()
            && request.shared().charset.borrow().is_none()
        {
            return;
        }
        let Some(kind) = &head.content_type else { return };
        let asked = request.take_override_charset().filter(|asked| !asked.is_empty());
        let wanted = match (asked, &conf.charset) {
            // The response becomes a part of the main response.
            _ if request.is_nested() => request.shared().charset.borrow().clone(),
            // `X-Accel-Charset`. nginx differs: it accepts only names that occur in its configuration.
            (Some(asked), _) => Some(asked),
            (None, Charset::Off) => None,
            (None, Charset::Name(wanted)) => {
                let applies = match &head.charset {
                    Some(_) => conf.override_charset,
                    None => conf.charset_types.contains(kind),
                };
                applies.then(|| request.evaluate(wanted))
            }
        };
        if !request.is_nested() {
            let own = wanted.clone().or_else(|| head.charset.clone());
            request.shared().charset.replace(own.filter(|name| !name.is_empty()));
        }
        let Some(wanted) = wanted else { return };
        let source = match (&head.charset, &conf.source_charset) {
            (Some(own), _) => Some(own.clone()),
            (None, Some(Charset::Name(source))) => Some(request.evaluate(source)),
            (None, Some(Charset::Off) | None) => None,
        };
        if let Some(source) = source.filter(|source| !source.eq_ignore_ascii_case(&wanted)) {
            if head.content_encoding.is_some() {
                return;
            }
            let Some(conversion) = self.maps.conversion(&source, &wanted) else {
                request.log(
                    Level::Error,
                    format_args!(
                        "no \"charset_map\" between the charsets \"{}\" and \"{}\"",
                        String::from_utf8_lossy(&source),
                        String::from_utf8_lossy(&wanted)
                    ),
                );
                return;
            };
            if !conversion.keeps_length() {
                head.content_length = None;
            }
            *request.state_mut().of_mut(&CONVERSION) = Some((source, wanted.clone()));
        }
        // nginx: browsers of the past applied a redirect's charset to the next page.
        let redirect = matches!(head.status, 301 | 302);
        head.charset = Some(wanted).filter(|wanted| !redirect && !wanted.is_empty());
        head.content_type_text = None;
    }
}

/// Wraps the body if it has to be converted.
struct BodyFilter(Arc<Maps>);

impl Filter for BodyFilter {
    fn apply(
        &self,
        request: &mut Request,
        response: &mut Response,
    ) -> Result<(), Box<StatusResponse>> {
        if let Some((from, to)) = request.state_mut().take(&CONVERSION).flatten()
            && !response.body.is_empty()
        {
            let maps = self.0.clone();
            let pull = Pull::new(std::mem::take(&mut response.body).safe(request));
            let source = ConvertedBody { pull, maps, from, to, rest: Vec::new() };
            response.body = Body::Stream(Box::new(source));
        }
        Ok(())
    }
}

/// A body that is converted while it is sent.
struct ConvertedBody {
    pull: Pull,
    maps: Arc<Maps>,
    from: Bytes,
    to: Bytes,
    /// The beginning of an incomplete character.
    rest: Vec<u8>,
}

impl BodySource for ConvertedBody {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async move {
            loop {
                let Some(piece) = self.pull.next().await? else {
                    // The rest of an incomplete character becomes an unknown one.
                    let rest = std::mem::take(&mut self.rest);
                    return Ok((!rest.is_empty()).then(|| Part::Bytes(Bytes::from_static(b"?"))));
                };
                let conversion = self.maps.conversion(&self.from, &self.to);
                let out = conversion.map_or_else(
                    || piece.to_vec(),
                    |known: &Conversion| known.convert(&piece, &mut self.rest),
                );
                if !out.is_empty() {
                    return Ok(Some(Part::Bytes(out.into())));
                }
            }
        })
    }

    fn is_urgent(&self) -> bool {
        self.pull.is_urgent()
    }
}
