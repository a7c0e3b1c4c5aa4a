//! `autoindex`: listings of directories. nginx: `ngx_http_autoindex_module`.

mod archive;
mod archive_body;
pub mod conf;
mod listing;
mod page;
mod readme;
mod sort;

use std::sync::Arc;

use archive::ArchiveFormat;
use archive_body::{Tree, TreeError};
use bytes::Bytes;
use listing::{Entry, Format, Options, Renderer};
use nowait_conf::{Cx, Scope};
use nowait_http::directories::{ENTRIES_MAX, UPLOADS, refuse};
use nowait_http::files;
use nowait_http::log::Level;
use nowait_http::mime::CHARSET;
use nowait_http::module::{Handler, HandlerExplanation, LocationBuilder, Module, Phase, Step};
use nowait_http::outcome::Outcome;
use nowait_http::page_style;
use nowait_http::request::Request;
use nowait_http::response::{Body, BodyError, BodySource, Head, LocalFuture, Part, Response};
use nowait_http::trace::Trace;
use nowait_http::variables::core::argument_value;
use nowait_message::{Known, Method, escape};
use nowait_runtime::fs::{self, FileKind, ListingEntry, Name, ReadDirOptions};
use nowait_runtime::pool;
use page::PageSettings;
use sort::Sorting;

use self::conf::{ArchiveFormats, AutoindexConf, ListingFormat};

/// A larger directory is sorted in a pool, and rendered while it is sent.
const SMALL_ENTRIES: usize = 256;

/// This module.
pub static MODULE: Module =
    Module { rows: &[AutoindexConf::ROWS], build: Some(build), ..Module::EMPTY };

/// Lists directories.
struct Autoindex(Arc<AutoindexConf>);

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let conf = AutoindexConf::resolve(cx, chain);
    if conf.autoindex {
        parts.handler(Phase::Content, Autoindex(conf));
    }
}

impl Handler for Autoindex {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let wanted = request.uri().path.last() == Some(&b'/')
            && matches!(request.method(), Method::Get | Method::Head);
        if !wanted {
            return Step::Next(request);
        }
        Step::wait(async move {
            let outcome = run(request, &self.0).await;
            Step::Done(request, outcome)
        })
    }

    fn explain<'a>(
        &'a self,
        _: &'a mut Request,
        _: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        HandlerExplanation::run()
    }
}

/// Responds with a listing of the request's directory.
async fn run(request: &mut Request, conf: &AutoindexConf) -> Outcome {
    if let Some(format) = archive_format(request, conf) {
        return archive(request, format).await;
    }
    let mut format = match format(request, conf) {
        Ok(format) => format,
        Err(outcome) => return outcome,
    };
    let mut path = Vec::new();
    request.append_file(&mut path);
    let symlinks = files::symlinks(request, &path);
    let name = Name { path, symlinks };
    let io = request.io();
    let options = ReadDirOptions { entries_max: ENTRIES_MAX, metadata: true };
    let listing = match fs::read_dir(&io, &name, &options).await {
        Ok(listing) => listing,
        Err(error) => return refuse(request, &name.path, &error),
    };
    if listing.truncated {
        request.log(
            Level::Warn,
            format_args!(
                "\"{}\" has more than {ENTRIES_MAX} entries, the listing is incomplete",
                String::from_utf8_lossy(&name.path)
            ),
        );
        if let Format::Page(page) = &mut format {
            page.truncated = true;
        }
    }
    if let Format::Page(page) = &mut format
        && conf.autoindex_readme
    {
        page.readme = readme(request, &name.path, &listing.entries).await;
    }
    nowait_runtime::stats::set_label("autoindex");
    let head = head(conf, &format);
    let options = options_of(request, conf, &format);
    let uri = request.uri().path.clone();
    let entries = listing.entries;
    if entries.len() <= SMALL_ENTRIES {
        let mut renderer = Renderer::new(format, uri, listed(entries), options);
        let parts = std::iter::from_fn(|| renderer.next_chunk()).map(Part::Bytes).collect();
        return Response { head, body: Body::Parts(parts) }.into();
    }
    let sorted =
        pool::blocking(&io.pool, move || Renderer::new(format, uri, listed(entries), options));
    match sorted.await {
        Ok(renderer) => {
            Response { head, body: Body::Stream(Box::new(ListingBody(renderer))) }.into()
        }
        Err(error) => {
            request.log(Level::Error, format_args!("{error}"));
            Outcome::status(500)
        }
    }
}

/// The archive that a request asks for, if the location offers it.
fn archive_format(request: &Request, conf: &AutoindexConf) -> Option<ArchiveFormat> {
    let (flag, format) = match argument_value(request, b"archive")? {
        b"tar" => (ArchiveFormats::TAR, ArchiveFormat::Tar),
        b"zip" => (ArchiveFormats::ZIP, ArchiveFormat::Zip),
        _ => return None,
    };
    conf.autoindex_archive.contains(flag).then_some(format)
}

/// Responds with the request's directory as an archive.
async fn archive(request: &mut Request, format: ArchiveFormat) -> Outcome {
    let mut path = Vec::new();
    request.append_file(&mut path);
    let root = Name { symlinks: files::symlinks(request, &path), path };
    let uri = request.uri().path.clone();
    let name = uri.split(|&b| b == b'/').rfind(|segment| !segment.is_empty()).unwrap_or(b"files");
    let shown = root.path.clone();
    let tree = match Tree::read(request, root, name).await {
        Ok(tree) => tree,
        Err(TreeError::Unreadable(error)) => return refuse(request, &shown, &error),
        Err(TreeError::TooLarge) => {
            request.log(
                Level::Error,
                format_args!(
                    "\"{}\" has more than {ENTRIES_MAX} entries: too many for an archive",
                    String::from_utf8_lossy(&shown)
                ),
            );
            return Outcome::status(413);
        }
    };
    nowait_runtime::stats::set_label("archive");
    let (kind, extension) = match format {
        ArchiveFormat::Tar => ("application/x-tar", "tar"),
        ArchiveFormat::Zip => ("application/zip", "zip"),
    };
    let mut head = Head::new(200);
    head.content_type = Some(Bytes::from_static(kind.as_bytes()));
    // RFC 8187: the name in UTF-8, percent-encoded.
    let mut disposition = b"attachment; filename*=UTF-8''".to_vec();
    escape::push_uri(&mut disposition, escape::Set::Component, name);
    disposition.extend_from_slice(format!(".{extension}").as_bytes());
    head.add("Content-Disposition", Bytes::from(disposition));
    let io = request.io().for_client(request.client().number);
    match tree.body(format, io).await {
        Ok((body, length)) => {
            head.content_length = Some(length);
            Response { head, body: Body::Stream(Box::new(body)) }.into()
        }
        Err(error) => refuse(request, &shown, &error),
    }
}

/// The README of a directory as HTML. The list does not fail because of it.
async fn readme(request: &Request, directory: &[u8], entries: &[ListingEntry]) -> Option<Vec<u8>> {
    let readable = entries.iter().filter(|entry| {
        entry.metadata.as_ref().is_some_and(|metadata| {
            metadata.kind == FileKind::File
                && (1..=readme::BYTES_MAX as u64).contains(&metadata.size)
        })
    });
    let found = readable.filter_map(|entry| Some((readme::rank(&entry.name)?, entry)));
    let ((_, kind), entry) = found.min_by_key(|((rank, _), entry)| (*rank, &entry.name))?;
    let path = [directory, &entry.name].concat();
    let io = request.io();
    let file = files::open(request, &path).await.ok()?;
    // The file may have changed since.
    let (mut text, mut at) = (Vec::new(), 0);
    while text.len() <= readme::BYTES_MAX {
        let piece = file.read_at(&io, at, readme::BYTES_MAX + 1 - text.len()).await.ok()?;
        if piece.is_empty() {
            break;
        }
        at += piece.len() as u64;
        text.extend_from_slice(&piece);
    }
    if text.len() > readme::BYTES_MAX {
        return None;
    }
    pool::blocking(&io.pool, move || readme::render(&text, kind)).await.ok()
}

/// A large listing.
struct ListingBody(Renderer);

impl BodySource for ListingBody {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(std::future::ready(Ok(self.0.next_chunk().map(Part::Bytes))))
    }

    fn is_urgent(&self) -> bool {
        false
    }
}

fn format(request: &Request, conf: &AutoindexConf) -> Result<Format, Outcome> {
    Ok(match conf.autoindex_format {
        ListingFormat::Html => Format::Html,
        ListingFormat::Page if page_style::is_for_people(request.head().header(Known::Accept)) => {
            let argument = |name| argument_value(request, name);
            Format::Page(PageSettings {
                sorting: Sorting::of(argument(b"sort"), argument(b"order")),
                server: request.location().server_tokens().text(),
                truncated: false,
                readme: None,
                archives: conf.autoindex_archive,
                uploads: request.location().settings.get(&UPLOADS).copied(),
            })
        }
        ListingFormat::Page => Format::Html,
        ListingFormat::Json => Format::Json { callback: None },
        ListingFormat::Xml => Format::Xml,
        ListingFormat::Jsonp => {
            let argument = argument_value(request, b"callback");
            return listing::callback(argument).map_err(|error| {
                request.log(Level::Error, format_args!("{error}"));
                Outcome::status(400)
            });
        }
    })
}

/// The entries that are shown.
fn listed(entries: Vec<ListingEntry>) -> Vec<Entry> {
    let shown = entries.into_iter().filter(|entry| listing::listed(&entry.name));
    let shown = shown.map(|entry| {
        let kind = entry.metadata.as_ref().map_or(entry.kind, |meta| meta.kind);
        Entry {
            kind: match kind {
                FileKind::Directory => listing::Kind::Directory,
                FileKind::File => listing::Kind::File,
                _ => listing::Kind::Other,
            },
            size: entry.metadata.as_ref().map_or(0, |meta| meta.size),
            mtime: entry.metadata.as_ref().map_or(0, |meta| meta.mtime),
            name: entry.name,
        }
    });
    shown.collect()
}

fn options_of(request: &Request, conf: &AutoindexConf, format: &Format) -> Options {
    let offset = nowait_runtime::clock().utc_offset_seconds();
    let local = conf.autoindex_localtime && matches!(format, Format::Html | Format::Page(_));
    let charset = request.location().settings.get(&CHARSET);
    Options {
        exact_size: conf.autoindex_exact_size,
        offset_seconds: if local { offset } else { 0 },
        utf8: charset.is_some_and(|name| name.eq_ignore_ascii_case(b"utf-8")),
    }
}

fn head(conf: &AutoindexConf, format: &Format) -> Box<Head> {
    let mut head = Head::new(200);
    head.content_type = Some(Bytes::from_static(format.content_type().as_bytes()));
    if matches!(format, Format::Xml | Format::Page(_)) {
        head.charset = Some(Bytes::from_static(b"utf-8"));
    }
    if conf.autoindex_format == ListingFormat::Page {
        head.add("Vary", "Accept");
    }
    if let Format::Page(page) = format {
        head.add("Content-Security-Policy", page.policy());
    }
    head
}
