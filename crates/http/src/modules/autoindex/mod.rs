//! `autoindex`: listings of directories. nginx: `ngx_http_autoindex_module`.

pub mod conf;
mod listing;

use std::collections::VecDeque;

use bytes::Bytes;
use nowait_conf::{Cx, Scope};
use nowait_message::Method;
use nowait_runtime::fs::{self, Kind, Listing, ReadDirOptions};

use self::conf::{AutoindexConf, ListingFormat};
use crate::directories::{ENTRIES_MAX, refuse};
use crate::log::Level;
use crate::mime::CHARSET;
use crate::module::{Handler, Module, Parts, Phase, Step};
use crate::outcome::Outcome;
use crate::request::Request;
use crate::response::{Body, Head, Part, Response};
use listing::{Entry, Format, Options};

/// This module.
pub static MODULE: Module =
    Module { rows: &[AutoindexConf::ROWS], build: Some(build), ..Module::EMPTY };

/// Lists directories.
struct Autoindex(AutoindexConf);

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut Parts) {
    let conf = AutoindexConf::resolve(cx, chain);
    if conf.autoindex {
        parts.handler(Phase::Content, Autoindex(conf));
    }
}

impl Handler for Autoindex {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let wanted = request.uri.path.last() == Some(&b'/')
            && matches!(request.method, Method::Get | Method::Head);
        if !wanted {
            return Step::Next(request);
        }
        Step::wait(async move {
            let outcome = run(request, &self.0).await;
            Step::Done(request, outcome)
        })
    }
}

/// Responds with a listing of the request's directory.
async fn run(request: &mut Request, conf: &AutoindexConf) -> Outcome {
    let format = match format(request, conf) {
        Ok(format) => format,
        Err(outcome) => return outcome,
    };
    let mut path = Vec::new();
    request.append_file(&mut path);
    let io = request.io();
    let options = ReadDirOptions { entries_max: ENTRIES_MAX, metadata: true };
    let listing = match fs::read_dir(&io, &path, &options).await {
        Ok(listing) => listing,
        Err(error) => return refuse(request, &path, &error),
    };
    if listing.truncated {
        request.log(
            Level::Warn,
            format_args!(
                "\"{}\" has more than {ENTRIES_MAX} entries, the listing is incomplete",
                String::from_utf8_lossy(&path)
            ),
        );
    }
    respond(request, conf, &format, listing)
}

fn format(request: &Request, conf: &AutoindexConf) -> Result<Format, Outcome> {
    Ok(match conf.autoindex_format {
        ListingFormat::Html => Format::Html,
        ListingFormat::Json => Format::Json { callback: None },
        ListingFormat::Xml => Format::Xml,
        ListingFormat::Jsonp => {
            let argument = crate::variables::core::argument_value(request, b"callback");
            return listing::callback(argument).map_err(|error| {
                request.log(Level::Error, format_args!("{error}"));
                Outcome::status(400)
            });
        }
    })
}

fn respond(request: &Request, conf: &AutoindexConf, format: &Format, listing: Listing) -> Outcome {
    nowait_runtime::stats::set_label("autoindex");
    let mut entries: Vec<Entry> = listing
        .entries
        .into_iter()
        .filter(|entry| listing::listed(&entry.name))
        .map(|entry| {
            let kind = entry.metadata.as_ref().map_or(entry.kind, |meta| meta.kind);
            Entry {
                kind: match kind {
                    Kind::Directory => listing::Kind::Directory,
                    Kind::File => listing::Kind::File,
                    _ => listing::Kind::Other,
                },
                size: entry.metadata.as_ref().map_or(0, |meta| meta.size),
                mtime: entry.metadata.as_ref().map_or(0, |meta| meta.mtime),
                name: entry.name,
            }
        })
        .collect();
    let offset = nowait_runtime::clock().utc_offset_seconds();
    let local = conf.autoindex_localtime && *format == Format::Html;
    let charset = request.location().settings.get(&CHARSET);
    let options = Options {
        exact_size: conf.autoindex_exact_size,
        offset_seconds: if local { offset } else { 0 },
        utf8: charset.is_some_and(|name| name.eq_ignore_ascii_case(b"utf-8")),
    };
    let chunks = listing::render(format, &request.uri.path, &mut entries, options);
    let mut head = Head::new(200);
    head.content_type = Some(Bytes::from_static(format.content_type().as_bytes()));
    if *format == Format::Xml {
        head.charset = Some(Bytes::from_static(b"utf-8"));
    }
    let parts: VecDeque<Part> = chunks.into_iter().map(Part::Bytes).collect();
    Response { head, body: Body::Parts(parts) }.into()
}
