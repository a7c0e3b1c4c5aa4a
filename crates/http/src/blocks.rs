//! The blocks `http`, `server`, `location` and `types`, and the configuration made of their scopes.
//!
//! While the tree is read, every block only keeps its scope, since directives of an outer block may
//! follow an inner one. When `http` ends, all chains of scopes are resolved. nginx:
//! `ngx_http_block`.

use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Context, Cx, Diagnostic, Node, Scope, Span, Word};
use nowait_front::listen::{ListenDirective, ListenRules};
use nowait_front::servers::{self, ConfiguredName, ServerListens, Virtual};
use nowait_sys::listen::ListenAddress;
use nowait_variables::Vocabulary;

use crate::conf;
use crate::conf::limit_except::{LimitExcept, LimitExceptLayer};
use crate::conf::location_test::LocationTest;
use crate::conf::log::{LogConf, TaskLogs, access_logs};
use crate::conf::uri_scope::{FirstServerName, PatternLayer, ServerNames};
use crate::conf::{HttpConf, Location, LocationId, Server, ServerId};
use crate::conf::{body, client, files, http2, http3, mime, pages};
use crate::location_tree::{self, Kind, LocationError, Locations, Pattern};
use crate::mime::Types;
use crate::module::{Content, ContentLayer, LocationBuilder, ModuleList};
use crate::path::{Append, FilePath};
use crate::request::Request;
use crate::slots::Settings;
use crate::variables::complex::{Complex, HttpVariables, Mentions, Table};
use crate::variables::{core, proxy_protocol, system, upstream};

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
    /// prefix is marked `^~`. Last come variables (`$variable`) in their order, unless an exact match, an
    /// expression or a prefix with `^~` was found: such a location is for requests for which the
    /// variable is neither empty nor `0`. A named location (`@name`) is reachable only by internal
    /// redirects.
    block "location" => location, in SERVER | LOCATION, take between(1, 2), args "[ = | ~ | ~* | ^~ ] uri { ... } | $variable { ... } | @name { ... }";
    /// The address, port or Unix-domain socket path on which the server accepts requests: `8080`,
    /// `127.0.0.1:8080`, `[::1]:8080`, `unix:/run/site.sock`. Host names are resolved when the
    /// configuration is read. The first server of an address, or the one marked `default_server`,
    /// responds to hosts that no other server names. A server without `listen` listens on `*:80`,
    /// or on `*:8000` if not started as root.
    ///
    /// `reuseport` gives each worker its own socket. Sizes, times and numbers set the kernel's
    /// socket options of these names; the default of `backlog` is 511. `proxy_protocol` expects the
    /// PROXY protocol, version 1 or 2, before the first request. `ssl`: connections speak TLS, with
    /// the server's `ssl_certificate`; all servers of the address do. `http2` enables HTTP/2 for all
    /// servers of the address; the directive of this name is preferred. `quic` accepts HTTP/3 over UDP,
    /// beside another `listen` of the port with `ssl`; it excludes the parameters of TCP. Each worker then
    /// has its own socket, so that `reuseport` makes no difference, and may stand in any number of servers.
    "listen" => listen, in SERVER, take at_least(1), default "*:80", args "address[:port] [default_server] [ssl] [http2 | quic] [proxy_protocol] [bind] [backlog=number] [rcvbuf=size] [sndbuf=size] [deferred] [fastopen=number] [reuseport] [ipv6only=on|off] [multipath] [so_keepalive=on|off|[idle]:[interval]:[count]]";
    /// Names of a virtual server: exact, with a wildcard at one end, or regular expressions.
    "server_name" => server_name, in SERVER, take at_least(1), default "\"\"", args "name ...";
    /// The directory with the files. The whole URI is appended: with `root /srv/www;`, the URI
    /// `/a/b` maps to `/srv/www/a/b`. A relative path is resolved against the prefix. Variables are
    /// allowed.
    "root" => root, in HTTP | SERVER | LOCATION | LOCATION_IF, take exactly(1), inheritance List, default "html", args "path";
    /// A path that replaces the location's part of the URI: in `location /i/ { alias /srv/images/;
    /// }`, the URI `/i/a.png` maps to `/srv/images/a.png`. In a location given by a regular
    /// expression, the path is the complete file name and may use captures.
    "alias" => root, in LOCATION, take exactly(1), inheritance List, args "path";
    /// Makes the location reachable only by internal redirects and subrequests; other requests get
    /// 404.
    "internal" => internal, in LOCATION, take none(), inheritance Own, args "";
    /// Maps file extensions to content types, one type and its extensions per line: `text/html html
    /// htm;`. A block replaces those of outer levels. `include mime.types;` provides the usual
    /// ones.
    block "types" => types, in HTTP | SERVER | LOCATION, take none(), inheritance List, default "{ text/html html; image/gif gif; image/jpeg jpg; }", args "{ ... }";
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
const LISTEN: ListenRules =
    ListenRules { default_port: Some(80), udp: false, ssl: true, http2: true, quic: true };

/// The content of `http` besides its settings.
#[derive(Default)]
struct HttpLayer {
    servers: Vec<(Scope, Span)>,
}

/// The content of `server` besides its settings.
#[derive(Default)]
pub struct ServerLayer {
    listens: Vec<ListenDirective>,
    names: Vec<ConfiguredName>,
}

/// The locations inside of a `server` or `location`.
#[derive(Default)]
struct LocationsLayer {
    locations: Vec<NestedLocation>,
}

/// A location inside of the block.
struct NestedLocation {
    pattern: Pattern,
    test: Option<LocationTest>,
    scope: Scope,
    word: Word,
    span: Span,
}

/// Paths, types and handler of a block.
#[derive(Default)]
struct OwnLayer {
    root: Option<(FilePath, Span)>,
    types: Option<Arc<Types>>,
    internal: bool,
}

/// The types without any `types` block.
struct DefaultTypes(Arc<Types>);

impl Default for DefaultTypes {
    fn default() -> Self {
        Self(Arc::new(Types::builtin()))
    }
}

/// The `http` block as it was read, until it is resolved.
#[derive(Default)]
pub struct UnresolvedHttp(Option<Scope>);

fn http(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let scope = cx.block(Context::HTTP, node.children());
    cx.global::<UnresolvedHttp>().0 = Some(scope);
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
    let test = match pattern.kind {
        Kind::Regex { caseless } => {
            let regex = conf::compile_regex(cx, &word, &pattern.text, caseless)?;
            Some(LocationTest::Regex(regex))
        }
        Kind::Variable => Some(LocationTest::variable(cx, &word)?),
        _ => None,
    };
    let mut scope = cx.new_scope(Context::LOCATION);
    scope.layer::<PatternLayer>().0 = Some(pattern.clone());
    let scope = cx.block_in(scope, node.children());
    cx.layer::<LocationsLayer>().locations.push(NestedLocation {
        pattern,
        test,
        scope,
        word,
        span: node.span,
    });
    Ok(())
}

fn server_name(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let names = servers::read_names::<HttpVariables>(cx, node)?;
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
        (true, Some(Pattern { kind: Kind::Regex { .. } | Kind::Variable, .. })) => Append::Nothing,
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
    let types = cx.layer::<OwnLayer>().types.take().unwrap_or_default();
    let mut types = Arc::unwrap_or_clone(types);
    for entry in cx.entries(node) {
        let kind = nowait_variables::interned(&entry.name.text);
        for extension in &entry.args {
            if let Some(old) = types.insert(&extension.text, kind.clone()) {
                let warning = Types::duplicate_warning(&extension.text, &kind, &old);
                cx.report(Diagnostic::warn(warning).at(extension.span));
            }
        }
    }
    cx.layer::<OwnLayer>().types = Some(Arc::new(types));
    Ok(())
}

fn accepted(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    crate::conf::value::<u32>(node, 0).map(drop)
}

/// Resolves the `http` block, if there is one.
///
/// Errors are reported to `cx`; the result is usable only if there were none.
pub fn build(cx: &mut Cx<'_>, main: &Scope, modules: ModuleList) -> Option<HttpConf> {
    let mut http = cx.global::<UnresolvedHttp>().0.take()?;
    let servers = std::mem::take(&mut http.layer::<HttpLayer>().servers);
    let locations = Vec::new();
    let mut build = Build { locations, in_server_with_locations: false, main, modules };
    let mut made = Vec::new();
    let mut listens = Vec::new();
    for (n, (mut scope, span)) in servers.into_iter().enumerate() {
        let id = ServerId(u32::try_from(n).unwrap_or(u32::MAX));
        let ServerLayer { listens: directives, names } = scope.take::<ServerLayer>();
        let mut directives = if directives.is_empty() {
            // nginx: `ngx_http_core_server`.
            let port = if nowait_sys::process::is_root() { 80 } else { 8000 };
            vec![ListenDirective::of_port(port, span)]
        } else {
            directives
        };
        let obsolete = crate::conf::tls::HttpSslConf::resolve(cx, &[&http, &scope]).ssl;
        if obsolete.is_some_and(|ssl| ssl.0) {
            directives.iter_mut().for_each(ListenDirective::add_ssl);
        }
        let name = names.first().map(|name| name.shown.clone()).unwrap_or_default();
        let mut names = names;
        if names.is_empty() {
            names.push(ConfiguredName::none(span));
        }
        cx.global::<FirstServerName>().0 = name.clone();
        cx.global::<ServerNames>().0 = names.iter().map(|name| name.name.clone()).collect();
        made.push(build.server(cx, &http, (scope, span), name, &directives));
        listens.push(ServerListens { id, listens: directives, names });
    }
    let locations = build.finish();
    let mut listens = servers::build(cx, &listens);
    crate::conf::tls::check(cx, &listens, &made);
    for listen in &mut listens {
        // Accepted connections inherit it, which saves a call for each.
        let root = |server: ServerId| made[server.0 as usize].root.0 as usize;
        let nodelay = |only: &Virtual| locations[root(only.default_server)].client.tcp_nodelay;
        let inet = matches!(listen.spec.address, ListenAddress::Inet(_));
        listen.spec.nodelay = inet && listen.only().is_none_or(nodelay);
    }
    let upstreams = cx.take_global::<crate::conf::upstream::Groups>().resolve(cx);
    let resolving = crate::conf::resolver::resolve(cx, &[&http]);
    let resolvers =
        cx.global::<nowait_front::resolver_directives::NamedResolvers>().settings().to_vec();
    let variables = match cx.global::<Table>().resolve() {
        Ok(variables) => variables,
        Err(unknown) => {
            report_unknown(cx, &unknown);
            crate::variables::complex::Resolved::default()
        }
    };
    let wants_realpath = cx.global::<Table>().mentions("realpath_root");
    let offers = nowait_front::tls::variables::OFFERS;
    let wants_offers = offers.iter().any(|name| cx.global::<Table>().mentions(name));
    let temp_paths = cx.take_global::<body::TempPaths>().0;
    let mut conf = HttpConf {
        servers: made.into(),
        locations: locations.into(),
        listens: listens.into(),
        task_logs: TaskLogs::new(LogConf::resolve(cx, &[&http]).error_log.clone()),
        variables,
        wants_realpath,
        wants_offers,
        resolvers,
        resolving,
        upstreams,
        temp_paths,
        state_paths: Vec::new(),
        sessions: cx.take_global::<nowait_front::tls::conf::SharedTls>(),
        settings: Settings::default(),
        modules,
    };
    modules.finish(cx, &mut conf);
    Some(conf)
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
        if let Some(near) = cx.global::<Table>().nearest(name) {
            error = error.hint(format!("did you mean \"${near}\"?"));
        } else {
            error = error.hint("nothing defines it: \"set\", \"map\" and the like do");
        }
        cx.report(error);
    }
}

struct Build<'a> {
    /// The locations by number; `None`: made when the enclosing one is complete.
    locations: Vec<Option<BuiltLocation>>,
    /// The settings being resolved are those of a server that has locations.
    in_server_with_locations: bool,
    main: &'a Scope,
    modules: ModuleList,
}

/// A location, and what names the handler of its content.
struct BuiltLocation {
    location: Location,
    content: Option<Content>,
}

impl Build<'_> {
    /// All locations, which are complete.
    fn finish(self) -> Vec<Location> {
        let all = self.locations.into_iter();
        all.map(|made| {
            made.expect("every number is assigned to a location that is then made").location
        })
        .collect()
    }

    // nginx differs: it offers HTTP/2 on the addresses with the parameter only.
    fn server(
        &mut self,
        cx: &mut Cx<'_>,
        http: &Scope,
        (mut scope, span): (Scope, Span),
        name: Bytes,
        listens: &[ListenDirective],
    ) -> Server {
        let listens_http2 = listens.iter().any(ListenDirective::has_http2);
        let nested = scope.take::<LocationsLayer>().locations;
        let head = client::HeadConf::resolve(cx, &[http, &scope]);
        let http2 = http2::Http2Conf::resolve(cx, &[http, &scope]);
        let http3 = http3::Http3Conf::resolve(cx, &[http, &scope]);
        *cx.global::<http3::AdvertisedPorts>() = http3.advertised(listens);
        let tls =
            crate::conf::tls::resolve(cx, &[http, &scope], http2.http2 || listens_http2, &http3);
        let early_read = crate::conf::predicates::EarlyReadConf::resolve(cx, &[http, &scope]);
        let early_read = early_read.client_body_early_read.clone().unwrap_or_default();
        let chain = [self.main, http, &scope];
        self.in_server_with_locations = !nested.is_empty();
        let first = self.locations.len();
        let root = self.location(cx, &chain, Bytes::new(), span);
        self.in_server_with_locations = false;
        let locations = self.locations(cx, &chain, nested);
        let made = self.locations[first..].iter().flatten();
        let takes_connect = made.into_iter().any(|made| made.location.takes_connect);
        Server { name, span, head, tls, http2, http3, early_read, takes_connect, root, locations }
    }

    fn locations(
        &mut self,
        cx: &mut Cx<'_>,
        outer: &[&Scope],
        nested: Vec<NestedLocation>,
    ) -> Locations<LocationId, LocationTest> {
        let mut builder = location_tree::Builder::new();
        let mut words = Vec::new();
        for NestedLocation { pattern, test, mut scope, word, span } in nested {
            let inner = scope.take::<LocationsLayer>().locations;
            let limit = scope.take::<LimitExceptLayer>().0;
            let mut chain = outer.to_vec();
            chain.push(&scope);
            let name = Bytes::copy_from_slice(&pattern.text);
            let id = self.location(cx, &chain, name, span);
            if let Some((except, scope, span)) = limit {
                let location = self.reserve();
                self.inside(cx, location, id, &chain, &scope);
                self.at(id).location.limit_except = Some(LimitExcept { except, location, span });
            }
            let inner = (!inner.is_empty()).then(|| self.locations(cx, &chain, inner));
            words.push(word);
            let BuiltLocation { location, content, .. } = self.at(id);
            let auto_redirect = match location.pages.auto_redirect {
                pages::AutoRedirect::On => true,
                pages::AutoRedirect::Off => false,
                pages::AutoRedirect::Default => {
                    content.as_ref().is_some_and(|content| content.auto_redirect)
                }
            };
            let auto_redirect = auto_redirect && pattern.text.last() == Some(&b'/');
            let value = id;
            let location =
                location_tree::LocationNode { value, test, auto_redirect, nested: inner };
            builder.add(pattern, location);
        }
        match builder.build() {
            Ok(locations) => {
                locations.frequent().for_each(LocationTest::prepare);
                locations
            }
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

    /// A location that has been made.
    fn at(&mut self, id: LocationId) -> &mut BuiltLocation {
        self.locations[id.0 as usize].as_mut().expect("those around a location are made first")
    }

    /// The number that the next location will have.
    fn next(&self) -> LocationId {
        LocationId(u32::try_from(self.locations.len()).unwrap_or(u32::MAX))
    }

    /// Gives a location its number before it is made.
    fn reserve(&mut self) -> LocationId {
        let id = self.next();
        self.locations.push(None);
        id
    }

    /// Resolves a chain of scopes.
    fn location(
        &mut self,
        cx: &mut Cx<'_>,
        chain: &[&Scope],
        name: Bytes,
        span: Span,
    ) -> LocationId {
        let id = self.reserve();
        self.make(cx, id, chain, (name, span), None);
        id
    }

    /// Makes the location of a block without its own URI (`if`, `limit_except`) in another
    /// location: unset values are inherited, including the handler.
    fn inside(
        &mut self,
        cx: &mut Cx<'_>,
        id: LocationId,
        around: LocationId,
        chain: &[&Scope],
        scope: &Scope,
    ) {
        let mut chain = chain.to_vec();
        chain.push(scope);
        let around = self.at(around);
        let named = (around.location.name.clone(), around.location.span);
        let content = around.content.clone();
        self.make(cx, id, &chain, named, content);
    }

    /// Resolves a chain of scopes to a location. `content` names the handler if the last scope names
    /// none.
    fn make(
        &mut self,
        cx: &mut Cx<'_>,
        id: LocationId,
        chain: &[&Scope],
        (name, span): (Bytes, Span),
        content: Option<Content>,
    ) {
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
        let body = body::BodyConf::resolve(cx, chain);
        cx.global::<body::TempPaths>().add(&body.client_body_temp_path);
        let mut parts = LocationBuilder::new(self.in_server_with_locations, self.next());
        if cx.global::<Table>().mentions("request_phase_times") {
            parts.note_times();
        }
        self.modules.build(cx, chain, &mut parts);
        let handler = content.as_ref().map(|content| content.make(cx, chain, &mut parts));
        let (follows_rfcs, takes_connect) = (parts.follows_rfcs, parts.takes_connect);
        let inside: Vec<_> =
            parts.take_inside().into_iter().map(|scope| (self.reserve(), scope)).collect();
        let (handlers, filters, settings) = parts.finish(handler);
        let location = Location {
            name,
            span,
            internal: last.is_some_and(|own| own.internal),
            path,
            types: types.unwrap_or_else(|| cx.global::<DefaultTypes>().0.clone()),
            client: client::ClientConf::resolve(cx, chain),
            http2: http2::Http2LocationConf::resolve(cx, chain),
            body,
            files: files::FileConf::resolve(cx, chain),
            pages: pages::PagesConf::resolve(cx, chain),
            accept_encoding: conf::accept_encoding::AcceptEncodingConf::resolve(cx, chain),
            resolving: crate::conf::resolver::resolve(cx, chain),
            limit_except: None,
            follows_rfcs,
            takes_connect,
            mime: mime::MimeConf::resolve(cx, chain),
            access_logs: access_logs(cx, &log, chain),
            log,
            handlers,
            filters,
            settings,
        };
        self.locations[id.0 as usize] = Some(BuiltLocation { location, content });
        for (inner, scope) in inside {
            self.inside(cx, inner, id, chain, &scope);
        }
    }
}

/// Registers the variables of requests. Called before the directives are read.
pub fn prepare(cx: &mut Cx<'_>, modules: ModuleList) {
    cx.set_global(Table::new(vocabulary(modules)));
}

/// The variables of requests: those of the core, then module by module.
pub fn vocabulary(modules: ModuleList) -> Vocabulary<Request> {
    let mut all = Vocabulary::default();
    all.add(core::BUILTINS, core::FAMILIES, core::CHANGEABLE);
    all.add(system::BUILTINS, &[], &[]);
    all.add(proxy_protocol::BUILTINS, proxy_protocol::FAMILIES, &[]);
    all.add(upstream::BUILTINS, upstream::FAMILIES, &[]);
    for module in modules.iter() {
        all.add(module.variables, module.families, module.changeable);
        let names = module.variables.iter().map(|row| row.name);
        all.replaceable(names.filter(|name| (module.replaceable)(name)));
    }
    all
}

/// Rows of all tables of the core and of these modules, for the registry and the reference.
pub fn rows(modules: ModuleList) -> Vec<&'static [nowait_conf::Row]> {
    let core = [
        HTTP_ROWS,
        conf::client::HeadConf::ROWS,
        conf::client::ClientConf::ROWS,
        nowait_front::tls::conf::SslConf::ROWS,
        conf::tls::HttpSslConf::ROWS,
        conf::http2::Http2Conf::ROWS,
        conf::http2::Http2LocationConf::ROWS,
        conf::http2::HTTP2_ROWS,
        conf::http3::Http3Conf::ROWS,
        conf::body::BodyConf::ROWS,
        conf::files::FileConf::ROWS,
        conf::pages::PagesConf::ROWS,
        conf::limit_except::LIMIT_EXCEPT_ROWS,
        conf::accept_encoding::AcceptEncodingConf::ROWS,
        conf::resolver::ResolverConf::ROWS,
        conf::upstream::UPSTREAM_ROWS,
        nowait_upstream::conf::ROWS,
        nowait_upstream::conf::HTTP_ROWS,
        conf::predicates::EarlyReadConf::ROWS,
        conf::predicates::EarlyHintsConf::ROWS,
        conf::mime::MimeConf::ROWS,
        conf::log::LogConf::ROWS,
        conf::log::LOG_ROWS,
    ];
    core.into_iter().chain(modules.rows()).collect()
}
