//! Requests to upstream servers.

use std::collections::HashMap;
use std::net::IpAddr;

use nowait_conf::{Level, Word};

use crate::model::{BlockKind, BlockRef, Model, Modifier};
use crate::pattern;
use crate::rule::{Rule, RuleReport};
use crate::values::{Leaf, expansions, host, is_from_client, leaves, url, variables};
use crate::words::{PASSES, field, is_this_machine, passed};

pub(crate) static RULES: &[Rule] = &[
    Rule {
        name: "host-from-client",
        level: Level::Notice,
        fixes: false,
        summary: "`Host` is passed on as the client wrote it (`$http_host`)",
        text: "`$http_host` is the field as it was received, even where the line of the request names \
               another host, which is the one the server was chosen by. Applications build links and \
               password mails from it. Most applications check the name themselves. `$host` is the name \
               that counts; with a port, `$host:$server_port`.",
        wrong: "
location / {
    proxy_set_header Host $http_host;
    proxy_pass http://127.0.0.1:8080;
}
",
        right: "
location / {
    proxy_set_header Host $host;
    proxy_pass http://127.0.0.1:8080;
}
",
        source: "https://www.rfc-editor.org/rfc/rfc9112#section-3.2.2",
        check: host_from_client,
    },
    Rule {
        name: "address-from-client",
        level: Level::Warn,
        fixes: false,
        summary: "the client's address is passed on as the client claims it",
        text: "`$http_x_real_ip` and `$http_x_forwarded_for` are what the client wrote. An application \
               that trusts the field lets every client choose its address. `$remote_addr` and \
               `$proxy_add_x_forwarded_for` contain the address of the connection; behind a proxy, \
               `set_real_ip_from` makes it that of the client.",
        wrong: "
location / {
    proxy_set_header X-Real-IP $http_x_real_ip;
    proxy_pass http://127.0.0.1:8080;
}
",
        right: "
location / {
    proxy_set_header X-Real-IP $remote_addr;
    proxy_pass http://127.0.0.1:8080;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#var_proxy_add_x_forwarded_for",
        check: address_from_client,
    },
    Rule {
        name: "cache-for-any-host",
        level: Level::Warn,
        fixes: false,
        summary: "a cache passes requests to any host that clients name",
        text: "This is how a cache in a local network works whose name server answers with its address \
               for the names of download servers. But everybody who reaches it may name any other host, \
               among them those that only this machine can reach. Name the hosts by `server_name` or a \
               `map`, let only the network in by `allow` and `deny`, and use a `resolver` that does not \
               know internal names.",
        wrong: "
proxy_cache_path /srv/cache keys_zone=lan:16m;
server {
    listen 80 default_server;
    resolver 192.0.2.53;
    location / {
        proxy_cache lan;
        proxy_pass http://$host$request_uri;
    }
}
",
        right: "
proxy_cache_path /srv/cache keys_zone=lan:16m;
server {
    listen 80 default_server;
    return 444;
}
server {
    listen 80;
    server_name .steamcontent.com;
    resolver 192.0.2.53;
    location / {
        proxy_cache lan;
        proxy_pass http://$host$request_uri;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_pass",
        check: cache_for_any_host,
    },
    Rule {
        name: "server-side-request-forgery",
        level: Level::Error,
        fixes: false,
        summary: "the client chooses the server that a request is passed to",
        text: "With the host of `proxy_pass` from the path, an argument, a cookie, a header field or an \
               unchecked `Host`, everybody can send requests through this server to any other, among \
               them those that only this machine can reach. Choose from known names by a `map`, or make \
               the location `internal`.",
        wrong: "
location ~ ^/fetch/(.*)$ {
    resolver 127.0.0.53;
    proxy_pass http://$1;
}
",
        right: "
location ~ ^/fetch/(?:one|two)/ {
    proxy_pass http://127.0.0.1:8080;
}
",
        source: "https://owasp.org/www-community/attacks/Server_Side_Request_Forgery",
        check: forgery,
    },
    Rule {
        name: "resolver-missing",
        level: Level::Notice,
        fixes: false,
        summary: "a name in a variable has to be resolved, and no `resolver` is stated",
        text: "Names that are known when the configuration is read are resolved as the system does. \
               Those in variables need a `resolver`: nginx fails with 502 without one; nowait asks the \
               servers of `/etc/resolv.conf`. State it, so that the configuration works with both.",
        wrong: "
http {
    server {
        listen 80;
        location / {
            set $backend app.internal.example;
            proxy_pass http://$backend:8080;
        }
    }
}
",
        right: "
http {
    resolver 127.0.0.53 valid=10s;
    server {
        listen 80;
        location / {
            set $backend app.internal.example;
            proxy_pass http://$backend:8080;
        }
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#resolver",
        check: resolver_missing,
    },
    Rule {
        name: "pass-uri-in-regex",
        level: Level::Error,
        fixes: false,
        summary: "`proxy_pass` with a path where no prefix can be replaced",
        text: "A path in `proxy_pass` replaces the prefix that the location matched. A regular \
               expression, a named location, `if` and `limit_except` have none, and the configuration \
               is refused. Leave the path out, or `rewrite` before.",
        wrong: "
location ~ ^/api/(v1|v2)/ {
    proxy_pass http://127.0.0.1:8080/app/;
}
",
        right: "
location ~ ^/api/(v1|v2)/ {
    proxy_pass http://127.0.0.1:8080;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_pass",
        check: uri_in_regex,
    },
    Rule {
        name: "pass-uri-with-variables",
        level: Level::Error,
        fixes: false,
        summary: "`proxy_pass` with a variable and a fixed path: all requests get this path",
        text: "Once `proxy_pass` contains a variable, its path is sent as it stands: nothing of the \
               client's path is appended. `http://$backend/` asks for `/`, no matter what the client asked \
               for. Without a path, that of the client is passed on.",
        wrong: "
location / {
    set $backend 127.0.0.1:8080;
    proxy_pass http://$backend/;
}
",
        right: "
location / {
    set $backend 127.0.0.1:8080;
    proxy_pass http://$backend;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_pass",
        check: uri_with_variables,
    },
    Rule {
        name: "pass-slash-mismatch",
        level: Level::Warn,
        fixes: false,
        summary: "slashes at the ends of location and `proxy_pass` differ",
        text: "The path of `proxy_pass` replaces exactly what the location matched. Location `/api` \
               with `http://server/` turns `/api/users` into `//users`; location `/api/` with \
               `http://server/v1` turns it into `/v1users`. End both with a slash, or none.",
        wrong: "
location /api {
    proxy_pass http://127.0.0.1:8080/;
}
",
        right: "
location /api/ {
    proxy_pass http://127.0.0.1:8080/;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_pass",
        check: slash_mismatch,
    },
    Rule {
        name: "keepalive-unused",
        level: Level::Warn,
        fixes: false,
        summary: "a group with `keepalive`, and requests that close their connections",
        text: "HTTP/1.0, `Connection: close` and FastCGI without `fastcgi_keep_conn on` end the \
               connection after each request, so that `keepalive` has nothing to keep.",
        wrong: "
upstream app {
    server 127.0.0.1:8080;
    keepalive 16;
}
server {
    listen 80;
    location / {
        proxy_http_version 1.0;
        proxy_pass http://app;
    }
}
",
        right: "
upstream app {
    server 127.0.0.1:8080;
    keepalive 16;
}
server {
    listen 80;
    location / {
        proxy_http_version 1.1;
        proxy_set_header Connection \"\";
        proxy_pass http://app;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive",
        check: keepalive_unused,
    },
    Rule {
        name: "websocket-without-connection",
        level: Level::Warn,
        fixes: false,
        summary: "`Upgrade` is passed on, `Connection` is not",
        text: "Both fields are for one connection only and not passed on by themselves. A server \
               switches protocols only if it gets both.",
        wrong: "
location /chat/ {
    proxy_set_header Upgrade $http_upgrade;
    proxy_pass http://127.0.0.1:8080;
}
",
        right: "
location /chat/ {
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection upgrade;
    proxy_pass http://127.0.0.1:8080;
}
",
        source: "https://nginx.org/en/docs/http/websocket.html",
        check: websocket_without_connection,
    },
    Rule {
        name: "websocket-for-all",
        level: Level::Notice,
        fixes: false,
        summary: "every request says `Connection: upgrade`",
        text: "A fixed `upgrade` is right for a location that serves WebSocket only. For a whole site, \
               ordinary requests ask for an upgrade, too, and idle connections to the server cannot be \
               used again. A `map` of `$http_upgrade` says it only where the client did.",
        wrong: "
location / {
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection upgrade;
    proxy_pass http://127.0.0.1:8080;
}
",
        right: "
map $http_upgrade $connection {
    default upgrade;
    \"\"      \"\";
}
server {
    listen 80;
    location / {
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection $connection;
        proxy_pass http://127.0.0.1:8080;
    }
}
",
        source: "https://nginx.org/en/docs/http/websocket.html",
        check: websocket_for_all,
    },
    Rule {
        name: "auth-request-with-body",
        level: Level::Warn,
        fixes: false,
        summary: "the subrequest of `auth_request` announces a body, and has none",
        text: "nginx passes the `Content-Length` of the request on to the authentication server, but not \
               the body, and that server waits for it. nowait sends neither. State \
               `proxy_pass_request_body off` and an empty `Content-Length` in the location of the \
               subrequest, so that the configuration works with both.",
        wrong: "
location / {
    auth_request /auth;
    proxy_pass http://127.0.0.1:8080;
}
location = /auth {
    internal;
    proxy_pass http://127.0.0.1:8081;
}
",
        right: "
location / {
    auth_request /auth;
    proxy_pass http://127.0.0.1:8080;
}
location = /auth {
    internal;
    proxy_pass http://127.0.0.1:8081;
    proxy_pass_request_body off;
    proxy_set_header Content-Length \"\";
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_auth_request_module.html",
        check: auth_request,
    },
    Rule {
        name: "upstream-certificate-unchecked",
        level: Level::Notice,
        fixes: false,
        summary: "TLS to a server of another machine, whose certificate is not verified",
        text: "`proxy_ssl_verify` is off by default: the connection is encrypted, but anybody in \
               between can be its other end. State it with the certificates to trust, and \
               `proxy_ssl_server_name on` for servers with several names.",
        wrong: "
location / {
    proxy_pass https://app.example.org;
}
",
        right: "
location / {
    proxy_pass https://app.example.org;
    proxy_ssl_server_name on;
    proxy_ssl_verify on;
    proxy_ssl_trusted_certificate /etc/ssl/certs/ca-certificates.crt;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_ssl_verify",
        check: unchecked,
    },
];

fn host_from_client(model: &Model<'_>, report: &mut RuleReport) {
    for name in ["proxy_set_header", "grpc_set_header"] {
        for (_, node) in model.directives(name) {
            let [field, value] = node.args.as_slice() else { continue };
            let is_raw = variables(&value.text).iter().any(|name| name == "http_host");
            if field.text.eq_ignore_ascii_case(b"host") && is_raw {
                report
                    .find(value.span, "\"Host\" is passed on as the client wrote it")
                    .hint("$host is the name that the server was chosen by");
            }
        }
    }
}

fn address_from_client(model: &Model<'_>, report: &mut RuleReport) {
    for name in ["proxy_set_header", "grpc_set_header"] {
        for (block, node) in model.directives(name) {
            let [field, value] = node.args.as_slice() else { continue };
            let known = ["x-real-ip", "x-forwarded-for", "x-client-ip", "true-client-ip"];
            let is_address =
                known.iter().any(|name| field.text.eq_ignore_ascii_case(name.as_bytes()));
            let names = variables(&value.text);
            let is_claim = names.len() == 1
                && ["http_x_real_ip", "http_x_forwarded_for", "http_x_client_ip"]
                    .contains(&names[0].as_str());
            if is_address && is_claim && !block.in_effect(&["set_real_ip_from"]) {
                let better = match field.text.eq_ignore_ascii_case(b"x-forwarded-for") {
                    true => "$proxy_add_x_forwarded_for",
                    false => "$remote_addr",
                };
                report
                    .find(value.span, format!("\"{field}\" is what the client claims"))
                    .hint(format!("{better} contains the address of the connection"));
            }
        }
    }
}

/// The parts of a URL's host.
fn host_leaves(block: BlockRef<'_>, text: &str) -> Vec<(Leaf, bool)> {
    let mut found = Vec::new();
    for text in expansions(block, text.as_bytes()) {
        let (authority, _) = url(&text);
        let names = host(authority);
        let is_whole = names.starts_with('$')
            && variables(names.as_bytes()).len() == 1
            && (names.ends_with('}') || names[1..].bytes().all(|b| b.is_ascii_alphanumeric()));
        found.extend(leaves(block, names.as_bytes()).into_iter().map(|leaf| (leaf, is_whole)));
    }
    found
}

/// The servers that requests are passed to, where variables choose them.
fn chosen_servers<'m>(model: &'m Model<'m>) -> impl Iterator<Item = (BlockRef<'m>, &'m Word)> {
    let passes = PASSES.iter().flat_map(|name| model.directives(name));
    let words = passes.filter_map(|(block, node)| Some((block, node.args.first()?)));
    words.filter(|(_, word)| word.text.contains(&b'$'))
}

/// Whether a block serves clients of a network from a cache, for hosts that they name by `Host`: the client
/// chooses the server by design.
fn is_network_cache(block: BlockRef<'_>, leaf: &Leaf) -> bool {
    let is_host =
        matches!(leaf, Leaf::Variable(name) if matches!(name.as_str(), "host" | "http_host"));
    let caches = block.chain().find(|outer| outer.has("proxy_cache"));
    is_host && caches.is_some_and(|outer| !outer.is_set("proxy_cache", "off"))
}

/// Whether only some clients may use a block.
fn is_restricted(block: BlockRef<'_>) -> bool {
    let denies = |outer: &BlockRef<'_>| {
        outer.own("deny").any(|node| node.args.first().is_some_and(|word| *word == *"all"))
    };
    block
        .chain()
        .find(|outer| outer.has_any(&["allow", "deny"]))
        .is_some_and(|outer| denies(&outer))
}

fn cache_for_any_host(model: &Model<'_>, report: &mut RuleReport) {
    for (block, word) in chosen_servers(model) {
        let takes_any = block.server().is_none_or(|server| server.takes_any_name());
        let mut leaves = host_leaves(block, &word.lossy()).into_iter().map(|(leaf, _)| leaf);
        let leaf = leaves.find(|leaf| is_network_cache(block, leaf));
        if let Some(leaf) = leaf.filter(|_| takes_any && !is_restricted(block)) {
            report
                .find(word.span, format!("every client chooses any server by {}", leaf.shown()))
                .hint("name the hosts by \"server_name\", or the clients by \"allow\" and \"deny all\"");
        }
    }
}

fn forgery(model: &Model<'_>, report: &mut RuleReport) {
    for (block, word) in chosen_servers(model) {
        let is_internal = block.chain().any(|outer| outer.has("internal"));
        let bad =
            host_leaves(block, &word.lossy()).into_iter().find(|(leaf, is_whole)| match leaf {
                Leaf::Variable(name) => match name.as_str() {
                    "host" | "http_host" => {
                        block.server().is_none_or(|server| server.takes_any_name())
                    }
                    name => is_from_client(name),
                },
                Leaf::Capture(_, bodies) => bodies.iter().any(|body| is_open(body, *is_whole)),
            });
        let bad = bad.filter(|(leaf, _)| !is_internal && !is_network_cache(block, leaf));
        if let Some((leaf, _)) = bad {
            report
                .find(word.span, format!("the client chooses the server by {}", leaf.shown()))
                .hint("choose from known names by a \"map\", or make the location \"internal\"");
        }
    }
}

/// Whether a group lets the client choose the host.
fn is_open(body: &str, is_whole: bool) -> bool {
    let is_choice = body.split('|').all(|name| {
        name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.\\".contains(&b))
            && !name.contains("\\w")
            && !name.contains("\\d")
            && !name.contains("\\S")
    }) && !body.contains(".*");
    !is_choice && (is_whole && !body.starts_with("\\d") || pattern::is_permissive(body))
}

fn resolver_missing(model: &Model<'_>, report: &mut RuleReport) {
    let passes = chosen_servers(model).filter(|_| !model.is_part);
    for (block, word) in passes.filter(|(block, _)| !block.in_effect(&["resolver"])) {
        let named = expansions(block, &word.text).into_iter().find_map(|text| {
            let (authority, _) = url(&text);
            let name = host(authority).to_owned();
            let is_known = name.is_empty()
                || name.starts_with("unix:")
                || name.parse::<IpAddr>().is_ok()
                || model.upstream(authority.as_bytes()).is_some()
                || model.upstream(name.as_bytes()).is_some()
                || name.contains("${server_addr}");
            (!is_known).then_some(name)
        });
        if let Some(name) = named {
            let name = name.replace("${", "$").replace('}', "");
            report
                .find(
                    word.span,
                    format!("\"{name}\" is resolved at run time, without \"resolver\""),
                )
                .hint(
                    "nginx fails with 502; state the address of a DNS server: resolver 127.0.0.53;",
                );
        }
    }
}

fn uri_in_regex(model: &Model<'_>, report: &mut RuleReport) {
    for block in model.for_requests() {
        let Some((word, text)) = passed(block, "proxy_pass") else { continue };
        let place = match (block.kind(), block.location()) {
            (BlockKind::If, _) => "an \"if\"",
            (BlockKind::LimitExcept, _) => "\"limit_except\"",
            (_, Some(location)) if location.is_regex() => "a regular expression",
            (_, Some(location)) if location.modifier == Modifier::Named => "a named location",
            _ => continue,
        };
        if url(&text).1.is_some() && !text.contains('$') {
            report
                .find(word.span, format!("\"proxy_pass\" cannot have a path under {place}"))
                .hint("leave the path out, or use \"rewrite\" before");
        }
    }
}

fn uri_with_variables(model: &Model<'_>, report: &mut RuleReport) {
    for block in model.for_requests() {
        let Some((word, text)) = passed(block, "proxy_pass") else { continue };
        let (authority, uri) = url(&text);
        let Some(uri) = uri.filter(|uri| authority.contains('$') && !uri.contains('$')) else {
            continue;
        };
        let is_one = block
            .location()
            .is_none_or(|location| matches!(location.modifier, Modifier::Exact | Modifier::Named));
        if !is_one {
            report
                .find(word.span, format!("every request is sent as \"{uri}\""))
                .label("with a variable, nothing is appended to the path")
                .hint("without a path, that of the client is passed on");
        }
    }
}

fn slash_mismatch(model: &Model<'_>, report: &mut RuleReport) {
    for block in model.all(BlockKind::Location) {
        let (Some(location), Some((word, text))) =
            (block.location().filter(|l| l.is_prefix()), passed(block, "proxy_pass"))
        else {
            continue;
        };
        let Some(uri) = url(&text).1.filter(|_| !text.contains('$')) else { continue };
        let prefix = location.lossy();
        let (has, has_other) = (prefix.ends_with('/'), uri.ends_with('/'));
        if has == has_other || uri.contains('?') {
            continue;
        }
        let (from, to) = match has {
            true => (format!("{prefix}users"), format!("{uri}users")),
            false => (format!("{prefix}/users"), format!("{uri}/users")),
        };
        report
            .find(word.span, format!("\"{from}\" becomes \"{to}\""))
            .note(location.word.span, "the path replaces exactly this");
    }
}

fn keepalive_unused(model: &Model<'_>, report: &mut RuleReport) {
    for block in model.for_requests() {
        for name in ["proxy_pass", "fastcgi_pass"] {
            let Some((word, text)) = passed(block, name) else { continue };
            let group = model.upstream(url(&text).0.as_bytes());
            let Some(keepalive) = group.and_then(|group| group.own("keepalive").next()) else {
                continue;
            };
            let connection = field(&block.effective("proxy_set_header"), "Connection");
            let why = match name {
                "fastcgi_pass" if !block.is_set("fastcgi_keep_conn", "on") => {
                    "\"fastcgi_keep_conn on\" is missing"
                }
                "fastcgi_pass" => continue,
                _ if block.is_set("proxy_http_version", "1.0") => "\"proxy_http_version\" is 1.0",
                _ if connection.is_some_and(|word| word.text.eq_ignore_ascii_case(b"close")) => {
                    "\"Connection: close\" is sent"
                }
                _ => continue,
            };
            report
                .find(word.span, format!("connections to \"{text}\" are closed after each request"))
                .label(why)
                .note(keepalive.name.span, "nothing remains to be kept");
        }
    }
}

fn websocket_without_connection(model: &Model<'_>, report: &mut RuleReport) {
    for block in model.for_requests().filter(|block| block.has("proxy_pass")) {
        let lines = block.effective("proxy_set_header");
        if let Some(upgrade) = field(&lines, "Upgrade").filter(|word| word.text.contains(&b'$'))
            && field(&lines, "Connection").is_none()
        {
            report
                .find(upgrade.span, "\"Upgrade\" without \"Connection\" has no effect")
                .hint("proxy_set_header Connection upgrade;");
        }
    }
}

fn websocket_for_all(model: &Model<'_>, report: &mut RuleReport) {
    for block in model.for_requests().filter(|block| block.has("proxy_set_header")) {
        let lines: Vec<_> = block.own("proxy_set_header").collect();
        let is_wide = match block.location() {
            Some(location) => location.is_prefix() && location.text == b"/",
            None => matches!(block.kind(), BlockKind::Http | BlockKind::Server),
        };
        if let Some(connection) = field(&lines, "Connection")
            && field(&lines, "Upgrade").is_some()
            && connection.text.eq_ignore_ascii_case(b"upgrade")
            && is_wide
        {
            report
                .find(connection.span, "every request says \"Connection: upgrade\"")
                .hint("map $http_upgrade to \"upgrade\" or to nothing, and use that");
        }
    }
}

fn auth_request(model: &Model<'_>, report: &mut RuleReport) {
    let mut known: HashMap<usize, HashMap<&[u8], BlockRef<'_>>> = HashMap::new();
    for (block, node) in model.directives("auth_request") {
        let Some(path) = node.args.first().filter(|word| word.text.starts_with(b"/")) else {
            continue;
        };
        let Some(scope) = block.server().or(block.chain().last()) else { continue };
        let targets = known.entry(scope.number()).or_insert_with(|| {
            let locations = scope.within().filter_map(|inner| Some((inner, inner.own_location()?)));
            let mut targets = HashMap::new();
            for (inner, location) in locations {
                targets.entry(location.text).or_insert(inner);
            }
            targets
        });
        let target = targets.get(&*path.text).copied();
        let Some(target) = target.filter(|target| target.has("proxy_pass")) else { continue };
        if !target.is_set("proxy_pass_request_body", "off") {
            report
                .find(
                    target.span(),
                    format!("the request to \"{path}\" announces a body, and has none"),
                )
                .note(path.span, "this asks whether the request is allowed")
                .hint("proxy_pass_request_body off; proxy_set_header Content-Length \"\";");
        }
    }
}

fn unchecked(model: &Model<'_>, report: &mut RuleReport) {
    for (name, scheme, verify) in [
        ("proxy_pass", "https://", "proxy_ssl_verify"),
        ("grpc_pass", "grpcs://", "grpc_ssl_verify"),
    ] {
        for (block, node) in model.directives(name) {
            let Some(word) = node.args.first() else { continue };
            let text = word.lossy();
            let is_tls = text.starts_with(scheme);
            if is_tls && !block.is_set(verify, "on") && !is_this_machine(block, &text) {
                report
                    .find(word.span, "the certificate of this server is not verified")
                    .hint(format!("{verify} on; with the certificates to trust"));
            }
        }
    }
}
