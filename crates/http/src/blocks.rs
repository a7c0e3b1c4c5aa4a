//! The blocks: `http`, `server`, `location`, `types`; and how their scopes become one
//! configuration.
//!
//! While the tree is read, every block only keeps its scope, since directives of an outer block may
//! follow an inner one. When `http` ends, all chains of scopes are resolved. nginx:
//! `ngx_http_block`.

use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Context, Cx, Diagnostic, Node, Scope, Span, Word};
use nowait_front::listen::{ListenDirective, Rules};
use nowait_front::servers::{self, Named, ServerListens, Virtual};
use nowait_sys::listen::ListenAddress;

use crate::conf;
use crate::conf::access::{LimitExcept, LimitExceptLayer};
use crate::conf::log::{LogConf, access_logs};
use crate::conf::place::PatternLayer;
use crate::conf::proxy::{Pass, PassLayer, ProxyConf};
use crate::conf::{HttpConf, Location, LocationId, Regex, Server, ServerId};
use crate::conf::{body, client, content, files, pages, rewrite};
use crate::location_tree::{self, Kind, LocationError, Locations, Pattern};
use crate::mime::Types;
use crate::module::{Content, ContentLayer, Parts, Phase};
use crate::modules;
use crate::path::{Append, FilePath};
use crate::request::Request;
use crate::variables::complex::Complex;
use crate::variables::{Mentions, Table};

nowait_conf::rows! {
    pub static HTTP_ROWS, module "core";

    /// The HTTP server: its settings and virtual servers.
    block "http" => http, in MAIN, take none(), args "{ ... }";
    /// A virtual server: responds to requests for certain names (`server_name`) on certain
    /// addresses (`listen`).
    block "server" => server, in HTTP, take none(), args "{ ... }";
    /// Settings for some of the URIs: those that begin with `uri`, equal it (`=`), or match a
    /// regular expression (`~`; `~*` ignores case). An exact match wins. Otherwise the longest
    /// matching prefix is remembered, and the first matching expression wins over it, unless the
    /// prefix is marked `^~`. A named location (`@name`) is reachable only by internal redirects.
    block "location" => location, in SERVER | LOCATION, take between(1, 2), args "[ = | ~ | ~* | ^~ ] uri { ... } | @name { ... }";
    /// The address, port or Unix-domain socket path on which the server accepts requests: `8080`,
    /// `127.0.0.1:8080`, `[::1]:8080`, `unix:/run/site.sock`. Host names are resolved when the
    /// configuration is read. The first server of an address, or the one marked `default_server`,
    /// responds to hosts that no other server names. A server without `listen` listens on `*:80`,
    /// or on `*:8000` if not started as root.
    ///
    /// `reuseport` gives each worker its own socket. Sizes, times and numbers set the kernel's
    /// socket options of these names; the default of `backlog` is 511. `proxy_protocol` expects the
    /// PROXY protocol, version 1 or 2, before the first request.
    "listen" => listen, in SERVER, take at_least(1), default "*:80", args "address[:port] [default_server] [proxy_protocol] [bind] [backlog=number] [rcvbuf=size] [sndbuf=size] [deferred] [fastopen=number] [reuseport] [ipv6only=on|off] [multipath] [so_keepalive=on|off|[idle]:[interval]:[count]]";
    /// Names of a virtual server: exact, with a wildcard at one end, or regular expressions.
    "server_name" => server_name, in SERVER, take at_least(1), default "\"\"", args "name ...";
    /// The directory with the files. The whole URI is appended: with `root /srv/www;`, the URI
    /// `/a/b` maps to `/srv/www/a/b`. A relative path is resolved against the prefix. Variables are
    /// allowed.
    "root" => root, in HTTP | SERVER | LOCATION | LOCATION_IF, take exactly(1), default "html", args "path";
    /// A path that replaces the location's part of the URI: in `location /i/ { alias /srv/images/;
    /// }`, the URI `/i/a.png` maps to `/srv/images/a.png`. In a location given by a regular
    /// expression, the path is the complete file name and may use captures.
    "alias" => root, in LOCATION, take exactly(1), args "path";
    /// Makes the location reachable only by internal redirects and subrequests; other requests get
    /// 404.
    "internal" => internal, in LOCATION, take none(), args "";
    /// Maps file extensions to content types, one type and its extensions per line: `text/html html
    /// htm;`. A block replaces those of outer levels. `include mime.types;` provides the usual
    /// ones.
    block "types" => types, in HTTP | SERVER | LOCATION, take none(), default "{ text/html html; image/gif gif; image/jpeg jpg; }", args "{ ... }";
    /// Accepted for compatibility: the table needs no tuning.
    "server_names_hash_max_size" => accepted, in HTTP, take exactly(1), default "512", args "size";
    /// Accepted for compatibility: the table needs no tuning.
    "server_names_hash_bucket_size" => accepted, in HTTP, take exactly(1), default "64", args "size";
    /// Accepted for compatibility: the table needs no tuning.
    "variables_hash_max_size" => accepted, in HTTP, take exactly(1), default "1024", args "size";
    /// Accepted for compatibility: the table needs no tuning.
    "variables_hash_bucket_size" => accepted, in HTTP, take exactly(1), default "64", args "size";
}

/// Rules for the parameters of `listen`.
const LISTEN: Rules = Rules { default_port: Some(80), udp: false };

/// The content of `http` besides its settings.
#[derive(Default)]
struct HttpLayer {
    servers: Vec<(Scope, Span)>,
}

/// The content of `server` besides its settings.
#[derive(Default)]
pub struct ServerLayer {
    listens: Vec<ListenDirective>,
    names: Vec<Named>,
}

/// The locations inside of a `server` or `location`.
#[derive(Default)]
struct LocationsLayer {
    locations: Vec<Nested>,
}

/// A location inside of the block.
struct Nested {
    pattern: Pattern,
    regex: Option<Regex>,
    scope: Scope,
    word: Word,
}

/// Paths, types and handler of a block.
#[derive(Default)]
struct OwnLayer {
    root: Option<(FilePath, Span)>,
    types: Option<Types>,
    internal: bool,
}

/// The `http` block as it was read, until it is resolved.
#[derive(Default)]
pub struct Pending(Option<Scope>);

fn http(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let scope = cx.block(Context::HTTP, node.children());
    cx.global::<Pending>().0 = Some(scope);
    Ok(())
}

fn server(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let scope = cx.block(Context::SERVER, node.children());
    cx.layer::<HttpLayer>().servers.push((scope, node.span));
    Ok(())
}

fn location(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let args: Vec<&[u8]> = node.args.iter().map(Word::as_bytes).collect();
    let word = node.args.last().cloned().ok_or_else(|| node.arity_error())?;
    let pattern = Pattern::parse(&args).map_err(|error| word.error(error.to_string()))?;
    if let Some(outer) = cx.layer::<PatternLayer>().0.clone() {
        pattern.check_inside(&outer).map_err(|error| word.error(error.to_string()))?;
    }
    let regex = match pattern.kind {
        Kind::Regex { caseless } => Some(conf::compile_regex(cx, &word, &pattern.text, caseless)?),
        _ => None,
    };
    let mut scope = cx.new_scope(Context::LOCATION);
    scope.layer::<PatternLayer>().0 = Some(pattern.clone());
    let scope = cx.block_in(scope, node.children());
    cx.layer::<LocationsLayer>().locations.push(Nested { pattern, regex, scope, word });
    Ok(())
}

fn server_name(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let names = servers::read_names::<Request>(cx, node)?;
    cx.layer::<ServerLayer>().names.extend(names);
    Ok(())
}

fn listen(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let listens = nowait_front::listen::read(cx, node, LISTEN)?;
    cx.layer::<ServerLayer>().listens.extend(listens);
    Ok(())
}

/// `root` and `alias`.
fn root(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let alias = node.name == *"alias";
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    let layer = cx.layer::<OwnLayer>();
    if let Some((path, first)) = &layer.root {
        let error = if path.is_alias() == alias {
            node.directive_error("is duplicate")
        } else {
            let first = if path.is_alias() { "alias" } else { "root" };
            node.error(format!(
                "\"{}\" directive is duplicate, \"{first}\" directive was specified earlier",
                node.name
            ))
        };
        return Err(error.note(*first, "first given here"));
    }
    let pattern = cx.layer::<PatternLayer>().0.clone();
    if alias && pattern.as_ref().is_some_and(|pattern| pattern.kind == Kind::Named) {
        return Err(node.error("the \"alias\" directive cannot be used inside the named location"));
    }
    for forbidden in ["document_root", "realpath_root"] {
        let dollar = format!("${forbidden}");
        let braced = format!("${{{forbidden}}}");
        let text = word.lossy();
        if text.contains(&dollar) || text.contains(&braced) {
            return Err(word.error(format!(
                "the ${forbidden} variable cannot be used in the \"{}\" directive",
                node.name
            )));
        }
    }
    let mut text = word.clone();
    if !alias {
        while text.text.last() == Some(&b'/') {
            text.text.pop();
        }
    }
    let prefix = Bytes::copy_from_slice(cx.paths().prefix());
    let mut base = crate::conf::complex(&text, cx)?;
    if let Some(path) = base.literal() {
        base = Complex::from_literal(cx.paths().full(path));
    }
    let append = match (alias, &pattern) {
        (false, _) => Append::Uri,
        (true, Some(Pattern { kind: Kind::Regex { .. }, .. })) => Append::Nothing,
        (true, Some(pattern)) => Append::After(pattern.text.len()),
        (true, None) => Append::Uri,
    };
    cx.layer::<OwnLayer>().root = Some((FilePath { base, append, prefix }, node.name.span));
    Ok(())
}

fn internal(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    cx.layer::<OwnLayer>().internal = true;
    Ok(())
}

fn types(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let mut types = cx.layer::<OwnLayer>().types.take().unwrap_or_default();
    for entry in cx.entries(node) {
        let kind = nowait_variables::interned(&entry.name.text);
        for extension in &entry.args {
            if let Some(old) = types.insert(&extension.text, kind.clone()) {
                let warning = Types::duplicate_warning(&extension.text, &kind, &old);
                cx.report(Diagnostic::warn(warning).at(extension.span));
            }
        }
    }
    cx.layer::<OwnLayer>().types = Some(types);
    Ok(())
}

fn accepted(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    crate::conf::value::<u32>(node, 0).map(drop)
}

/// Resolves the `http` block, if there is one.
///
/// Errors are reported to `cx`; the result is usable only if there were none.
pub fn build(cx: &mut Cx<'_>, main: &Scope) -> Option<HttpConf> {
    let mut http = cx.global::<Pending>().0.take()?;
    let servers = std::mem::take(&mut http.layer::<HttpLayer>().servers);
    let mut build = Build {
        locations: Vec::new(),
        contents: Vec::new(),
        in_server_with_locations: false,
        main,
    };
    let mut made = Vec::new();
    let mut first_locations = Vec::new();
    let mut listens = Vec::new();
    for (n, (mut scope, span)) in servers.into_iter().enumerate() {
        let id = ServerId(u32::try_from(n).unwrap_or(u32::MAX));
        let ServerLayer { listens: directives, names } = scope.take::<ServerLayer>();
        let directives = if directives.is_empty() {
            // nginx: `ngx_http_core_server`.
            let port = if nowait_sys::process::is_root() { 80 } else { 8000 };
            vec![ListenDirective::of_port(port, span)]
        } else {
            directives
        };
        let name = names.first().map(|name| name.shown.clone()).unwrap_or_default();
        let mut names = names;
        if names.is_empty() {
            names.push(Named::none(span));
        }
        cx.global::<crate::modules::referer::conf::ServerNames>().0 =
            names.iter().map(|name| name.name.clone()).collect();
        listens.push(ServerListens { id, listens: directives, names });
        first_locations.push(build.locations.len());
        made.push(build.server(cx, &http, scope, name));
    }
    let mut listens = servers::build(cx, &listens);
    for listen in &mut listens {
        // Accepted connections inherit it, which saves a call for each.
        let root = |server: ServerId| made[server.0 as usize].root.0 as usize;
        let nodelay =
            |only: &Virtual| build.locations[root(only.default_server)].client.tcp_nodelay;
        let inet = matches!(listen.spec.address, ListenAddress::Inet(_));
        listen.spec.nodelay = inet && listen.only().is_none_or(nodelay);
    }
    let caches = cx.take_global::<crate::conf::cache_path::CachePaths>().resolve(cx);
    let limit_zones = cx.take_global::<crate::modules::limit::conf::Named>().resolve(cx);
    let upstreams = cx.take_global::<crate::conf::upstream::Groups>().resolve(cx);
    // The locations of a server are consecutive.
    let server_of = |location: LocationId| {
        let after = first_locations.partition_point(|first| *first <= location.0 as usize);
        ServerId(u32::try_from(after.saturating_sub(1)).unwrap_or(u32::MAX))
    };
    let passes =
        |location: LocationId| match &build.locations[location.0 as usize].proxy.as_ref()?.pass {
            Pass::Static(pass) => Some(pass.group),
            Pass::Variable { .. } => None,
        };
    let health_checks = cx.take_global::<crate::conf::health::Pending>();
    let health_checks = health_checks.resolve(cx, &passes, &server_of);
    let resolving = crate::conf::resolver::resolve(cx, &[&http]);
    let resolvers = cx.global::<nowait_front::resolving::Named>().settings().to_vec();
    let variables = match cx.global::<Table>().resolve() {
        Ok(variables) => variables,
        Err(unknown) => {
            report_unknown(cx, &unknown);
            crate::variables::Resolved::default()
        }
    };
    crate::conf::proxy::warn_of_schemes(cx);
    let charset_maps =
        crate::conf::charset::maps(cx, build.locations.iter().map(|location| &location.charset));
    let wants_realpath = cx.global::<Table>().mentions("realpath_root");
    let mut temp_paths: Vec<body::TempPath> = Vec::new();
    for location in &build.locations {
        let proxied = location.proxy.iter().map(|proxy| &proxy.backend.settings.temp_path);
        for path in std::iter::once(&location.body.client_body_temp_path).chain(proxied) {
            if !temp_paths.contains(path) {
                temp_paths.push(path.clone());
            }
        }
    }
    Some(HttpConf {
        servers: made.into(),
        locations: build.locations.into(),
        listens: listens.into(),
        variables,
        wants_realpath,
        charset_maps,
        limit_zones,
        caches,
        health_checks,
        resolvers,
        resolving,
        upstreams,
        temp_paths,
    })
}

fn report_unknown(cx: &mut Cx<'_>, unknown: &[String]) {
    let mentions = std::mem::take(&mut cx.global::<Mentions>().names);
    for name in unknown {
        let span =
            mentions.iter().find(|(mentioned, _)| mentioned.eq_ignore_ascii_case(name.as_bytes()));
        let mut error = Diagnostic::emerg(format!("unknown \"{name}\" variable"));
        if let Some((_, span)) = span {
            error = error.at(*span);
        }
        let known = crate::modules::builtins().map(|row| row.name);
        if let Some(near) = nowait_conf::nearest(name, known) {
            error = error.hint(format!("did you mean \"${near}\"?"));
        }
        cx.report(error);
    }
}

struct Build<'a> {
    locations: Vec<Location>,
    /// What names the handlers of their contents.
    contents: Vec<Option<Content>>,
    /// The settings being resolved are those of a server that has locations.
    in_server_with_locations: bool,
    main: &'a Scope,
}

impl Build<'_> {
    fn server(&mut self, cx: &mut Cx<'_>, http: &Scope, mut scope: Scope, name: Bytes) -> Server {
        let nested = scope.take::<LocationsLayer>().locations;
        let code = scope.take::<rewrite::Code>();
        let head = client::HeadConf::resolve(cx, &[http, &scope]);
        let early_read = crate::conf::predicates::EarlyReadConf::resolve(cx, &[http, &scope]);
        let early_read = early_read.client_body_early_read.unwrap_or_default();
        let chain = [self.main, http, &scope];
        self.in_server_with_locations = !nested.is_empty();
        let root = self.location(cx, &chain, Bytes::new(), None);
        self.in_server_with_locations = false;
        self.compile(cx, root, &chain, code, Phase::ServerRewrite);
        let locations = self.locations(cx, &chain, nested);
        Server { name, head, early_read, root, locations }
    }

    fn locations(
        &mut self,
        cx: &mut Cx<'_>,
        outer: &[&Scope],
        nested: Vec<Nested>,
    ) -> Locations<LocationId, Regex> {
        let mut builder = location_tree::Builder::new();
        let mut words = Vec::new();
        for Nested { pattern, regex, mut scope, word } in nested {
            let inner = scope.take::<LocationsLayer>().locations;
            let code = scope.take::<rewrite::Code>();
            let limit = scope.take::<LimitExceptLayer>().0;
            let mut chain = outer.to_vec();
            chain.push(&scope);
            let name = Bytes::copy_from_slice(&pattern.text);
            let id = self.location(cx, &chain, name, None);
            self.compile(cx, id, &chain, code, Phase::Rewrite);
            if let Some((except, scope)) = limit {
                let location = self.inside(cx, id, &chain, &scope);
                self.at(id).limit_except = Some(LimitExcept { except, location });
            }
            let inner = (!inner.is_empty()).then(|| self.locations(cx, &chain, inner));
            words.push(word);
            // A proxied location that ends with a slash is a directory: `/a` redirects to `/a/`.
            let auto_redirect = self.at(id).proxy.is_some() && pattern.text.last() == Some(&b'/');
            let value = id;
            let location = location_tree::Location { value, regex, auto_redirect, nested: inner };
            builder.add(pattern, location);
        }
        match builder.build() {
            Ok(locations) => locations,
            Err(errors) => {
                for error in errors {
                    let message = error.to_string();
                    cx.report(match &error {
                        LocationError::Duplicate { index, first, .. } => words[*index]
                            .error(message)
                            .note(words[*first].span, "first defined here"),
                        _ => Diagnostic::emerg(message),
                    });
                }
                Locations::default()
            }
        }
    }

    fn at(&mut self, id: LocationId) -> &mut Location {
        &mut self.locations[id.0 as usize]
    }

    /// Compiles the rewrite code of a location, and creates locations for the `if` blocks in it.
    fn compile(
        &mut self,
        cx: &mut Cx<'_>,
        id: LocationId,
        chain: &[&Scope],
        code: rewrite::Code,
        phase: Phase,
    ) {
        let log = self.at(id).rewrite.rewrite_log;
        let program = code.compile(log, &mut |scope| self.inside(cx, id, chain, scope));
        if let Some(program) = program {
            self.at(id).handlers.insert(phase, program);
        }
    }

    /// Creates the location for a block without its own URI (`if`, `limit_except`) in another
    /// location: unset values are inherited, including the handler.
    fn inside(
        &mut self,
        cx: &mut Cx<'_>,
        around: LocationId,
        chain: &[&Scope],
        scope: &Scope,
    ) -> LocationId {
        let mut chain = chain.to_vec();
        chain.push(scope);
        let name = self.at(around).name.clone();
        let content = self.contents[around.0 as usize].clone();
        self.location(cx, &chain, name, content)
    }

    /// Resolves a chain of scopes. `content` names the handler if the last scope names none.
    fn location(
        &mut self,
        cx: &mut Cx<'_>,
        chain: &[&Scope],
        name: Bytes,
        content: Option<Content>,
    ) -> LocationId {
        let own: Vec<&OwnLayer> = chain.iter().filter_map(|scope| scope.get()).collect();
        let path = own.iter().rev().find_map(|own| own.root.as_ref().map(|(path, _)| path.clone()));
        let path = path.unwrap_or_else(|| FilePath {
            base: Complex::from_literal(cx.paths().full(b"html")),
            append: Append::Uri,
            prefix: Bytes::copy_from_slice(cx.paths().prefix()),
        });
        let types = own.iter().rev().find_map(|own| own.types.clone());
        let log = LogConf::resolve(cx, chain);
        // These three belong to the location and are never inherited.
        let last = chain.last().and_then(|scope| scope.get::<OwnLayer>());
        let named = chain.last().and_then(|scope| scope.get::<ContentLayer>()?.0.clone());
        let content = named.or(content);
        let handler = content.as_ref().and_then(|content| content.make(cx, chain));
        let mut parts = Parts::new(self.in_server_with_locations);
        modules::build(cx, chain, &mut parts);
        let (handlers, filters, settings) = parts.finish(handler);
        let is_proxy = content.as_ref().is_some_and(|content| &*content.name == "proxy_pass");
        let location = Location {
            proxy: self.proxy(cx, chain, is_proxy),
            early_hints: crate::conf::predicates::EarlyHintsConf::resolve(cx, chain)
                .early_hints
                .unwrap_or_default(),
            name,
            internal: last.is_some_and(|own| own.internal),
            path,
            types: Arc::new(types.unwrap_or_else(Types::builtin)),
            client: client::ClientConf::resolve(cx, chain),
            body: body::BodyConf::resolve(cx, chain),
            files: files::FileConf::resolve(cx, chain),
            pages: pages::PagesConf::resolve(cx, chain),
            charset: crate::conf::charset::CharsetConf::resolve(cx, chain),
            gzip: crate::conf::gzip::GzipConf::resolve(cx, chain),
            gunzip: crate::conf::gzip::GunzipConf::resolve(cx, chain),
            brotli: crate::conf::codings::BrotliConf::resolve(cx, chain),
            zstd: crate::conf::codings::ZstdConf::resolve(cx, chain),
            resolving: crate::conf::resolver::resolve(cx, chain),
            rewrite: rewrite::RewriteConf::resolve(cx, chain),
            ssi: crate::conf::ssi::SsiConf::resolve(cx, chain),
            limit_except: None,
            cache: crate::conf::proxy::cache(cx, chain),
            slice: crate::conf::slice::SliceConf::resolve(cx, chain),
            mime: content::MimeConf::resolve(cx, chain),
            access_logs: access_logs(cx, &log, chain),
            log,
            handlers,
            filters,
            settings,
        };
        self.locations.push(location);
        self.contents.push(content);
        let id = LocationId(u32::try_from(self.locations.len() - 1).unwrap_or(u32::MAX));
        crate::conf::health::Pending::note(cx, chain, id);
        id
    }
}

impl Build<'_> {
    /// The proxy settings of a location, if it has `proxy_pass`. An `if` uses those of the
    /// surrounding location unless it has its own.
    fn proxy(&self, cx: &mut Cx<'_>, chain: &[&Scope], is_proxy: bool) -> Option<Box<ProxyConf>> {
        if !is_proxy {
            return None;
        }
        let pass = chain.iter().rev().find_map(|scope| scope.get::<PassLayer>()?.pass.clone())?;
        ProxyConf::resolve(cx, chain, pass)
    }
}

/// Rows of all tables of this crate, for the registry and the reference.
pub fn rows() -> Vec<&'static [nowait_conf::Row]> {
    let core = [
        HTTP_ROWS,
        conf::client::HeadConf::ROWS,
        conf::client::ClientConf::ROWS,
        conf::body::BodyConf::ROWS,
        conf::files::FileConf::ROWS,
        conf::pages::PagesConf::ROWS,
        conf::access::LIMIT_EXCEPT_ROWS,
        conf::rewrite::RewriteConf::ROWS,
        conf::rewrite::REWRITE_ROWS,
        conf::cache::ProxyCacheConf::ROWS,
        conf::cache_path::PROXY_CACHE_PATH_ROWS,
        conf::variables::MAP_ROWS,
        conf::variables::GEO_ROWS,
        conf::variables::SPLIT_CLIENTS_ROWS,
        conf::resolver::ResolverConf::ROWS,
        conf::health::HEALTH_ROWS,
        conf::upstream::UPSTREAM_ROWS,
        nowait_upstream::conf::ROWS,
        nowait_upstream::conf::HTTP_ROWS,
        conf::predicates::EarlyReadConf::ROWS,
        conf::predicates::EarlyHintsConf::ROWS,
        conf::content::MimeConf::ROWS,
        conf::log::LogConf::ROWS,
        conf::log::LOG_ROWS,
    ];
    core.into_iter().chain(modules::rows()).collect()
}
