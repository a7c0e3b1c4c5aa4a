//! `gunzip`: decompression for clients that do not accept gzip. nginx: `ngx_http_gunzip_filter_module`.
//!
//! The client pulls the text piece by piece, so no more than one piece is ever in memory.

use bytes::Bytes;
use nowait_coding::Gunzip;
use nowait_conf::{Buffers, Cx, Scope};
use nowait_http::accept_encoding::{is_accepted, set_varies};
use nowait_http::filter::{Pull, recode};
use nowait_http::module::{FilterStage, LocationBuilder, Module};
use nowait_http::outcome::StatusResponse;
use nowait_http::request::Request;
use nowait_http::response::{Body, BodyError, BodySource, LocalFuture, Part, Response};
use nowait_runtime::yield_now;

nowait_conf::directives! {
    /// Decompression of responses.
    #[derive(Debug)]
    module "gunzip";
    pub struct GunzipConf with GunzipConfLayer;

    /// Enables or disables decompression of responses with `Content-Encoding: gzip` for clients
    /// that do not accept it. It works piece by piece, so little of a long text is in memory.
    gunzip: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Accepted for compatibility: each piece is sent before the next is produced.
    gunzip_buffers: Buffers = "32 4k", in HTTP | SERVER | LOCATION, args "number size";
}

/// This module.
pub static MODULE: Module =
    Module { rows: &[GunzipConf::ROWS], build: Some(build), ..Module::EMPTY };

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    if GunzipConf::resolve(cx, chain).gunzip {
        parts.filter(FilterStage::Decoding, apply);
    }
}

fn apply(request: &mut Request, response: &mut Response) -> Result<(), Box<StatusResponse>> {
    let coding = response.head.content_encoding.as_deref();
    if !coding.is_some_and(|coding| coding.eq_ignore_ascii_case(b"gzip")) {
        return Ok(());
    }
    set_varies(request);
    if is_accepted(request, &response.head) {
        return Ok(());
    }
    response.head.content_encoding = None;
    recode(response);
    if !response.body.is_empty() && !request.header_only() {
        let pull = Pull::new(std::mem::take(&mut response.body).safe(request));
        let gunzip = Gunzip::default();
        response.body =
            Body::Stream(Box::new(DecompressedBody { pull, rest: Bytes::new(), gunzip }));
    }
    Ok(())
}

/// A body that is decompressed while it is sent.
struct DecompressedBody {
    pull: Pull,
    /// The rest of the last piece.
    rest: Bytes,
    gunzip: Gunzip,
}

impl BodySource for DecompressedBody {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async move {
            loop {
                if self.rest.is_empty() && !self.gunzip.has_more() {
                    match self.pull.next().await? {
                        Some(piece) => self.rest = piece,
                        None if self.gunzip.is_complete() => return Ok(None),
                        None => {
                            let text = "inflate() found no end of the stream at the response's end";
                            return Err(BodyError::Coding(text.into()));
                        }
                    }
                }
                let step = self.gunzip.step(&mut self.rest);
                let out = step.map_err(|error| BodyError::Coding(error.to_string()))?;
                // Neither a long text nor many empty members may monopolise the loop.
                yield_now().await;
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
