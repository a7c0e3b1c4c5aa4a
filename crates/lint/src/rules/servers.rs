//! The choice of the server: `listen`, `server_name`.

use std::collections::{HashMap, HashSet};

use nowait_conf::{Level, Node, Span, Word};

use crate::model::{BlockKind, BlockRef, Model};
use crate::rule::{Rule, RuleReport};
use crate::words::has_word;

pub(crate) static RULES: &[Rule] = &[
    Rule {
        name: "server-name-wildcard",
        level: Level::Error,
        fixes: false,
        summary: "an asterisk in the middle of a name, or beside letters",
        text: "A wildcard stands for whole labels at the beginning (`*.example.org`) or at the end \
               (`www.example.*`). Anywhere else the name is refused. Regular expressions begin with \
               `~`.",
        wrong: "
server {
    listen 80;
    server_name www.*.example.org;
}
",
        right: "
server {
    listen 80;
    server_name ~^www\\.[a-z]+\\.example\\.org$;
}
",
        source: "https://nginx.org/en/docs/http/server_names.html",
        check: wildcard,
    },
    Rule {
        name: "server-name-url",
        level: Level::Error,
        fixes: true,
        summary: "a server name with a scheme, a port or a path",
        text: "The name is compared with the host of the request, which has none of these. Such a name \
               never matches. The port belongs to `listen`.",
        wrong: "
server {
    listen 8080;
    server_name http://example.org:8080/;
}
",
        right: "
server {
    listen 8080;
    server_name example.org;
}
",
        source: "https://nginx.org/en/docs/http/server_names.html",
        check: url,
    },
    Rule {
        name: "server-name-underscore",
        level: Level::Warn,
        fixes: false,
        summary: "`server_name _` in a server that is not the default",
        text: "`_` is no wildcard, but a name that no client asks for. Requests for unknown names come to \
               the default server of the address, which is the first one unless `default_server` \
               chooses another.",
        wrong: "
server {
    listen 80;
    server_name example.org;
}
server {
    listen 80;
    server_name _;
    return 444;
}
",
        right: "
server {
    listen 80;
    server_name example.org;
}
server {
    listen 80 default_server;
    server_name _;
    return 444;
}
",
        source: "https://nginx.org/en/docs/http/server_names.html",
        check: underscore,
    },
    Rule {
        name: "server-name-twice",
        level: Level::Warn,
        fixes: false,
        summary: "two servers of one address have the same name",
        text: "The first of them answers; the name of the other is ignored.",
        wrong: "
server {
    listen 80;
    server_name example.org www.example.org;
}
server {
    listen 80;
    server_name www.example.org;
}
",
        right: "
server {
    listen 80;
    server_name example.org;
}
server {
    listen 80;
    server_name www.example.org;
}
",
        source: "https://nginx.org/en/docs/http/request_processing.html",
        check: twice,
    },
    Rule {
        name: "default-server-missing",
        level: Level::Notice,
        fixes: false,
        summary: "several TLS servers at one address, and none is the default",
        text: "A client that asks for an unknown name, or for none, gets the certificate and the site \
               of the server that happens to be read first, for example because of its file's name. \
               State `default_server`, best in a server of its own with `ssl_reject_handshake on`.",
        wrong: "
server {
    listen 443 ssl;
    server_name one.example.org;
    ssl_certificate one.pem;
    ssl_certificate_key one.key;
}
server {
    listen 443 ssl;
    server_name two.example.org;
    ssl_certificate two.pem;
    ssl_certificate_key two.key;
}
",
        right: "
server {
    listen 443 ssl default_server;
    ssl_reject_handshake on;
}
server {
    listen 443 ssl;
    server_name one.example.org;
    ssl_certificate one.pem;
    ssl_certificate_key one.key;
}
server {
    listen 443 ssl;
    server_name two.example.org;
    ssl_certificate two.pem;
    ssl_certificate_key two.key;
}
",
        source: "https://nginx.org/en/docs/http/request_processing.html",
        check: default_missing,
    },
    Rule {
        name: "listen-http2",
        level: Level::Notice,
        fixes: true,
        summary: "`listen ... http2` is deprecated",
        text: "The parameter is for the address, and with it for all its servers. `http2 on;` says it \
               for a server.",
        wrong: "
http {
    server {
        listen 443 ssl http2;
        ssl_certificate site.pem;
        ssl_certificate_key site.key;
    }
}
",
        right: "
http {
    server {
        listen 443 ssl;
        http2 on;
        ssl_certificate site.pem;
        ssl_certificate_key site.key;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_v2_module.html#http2",
        check: listen_http2,
    },
    Rule {
        name: "ssl-directive",
        level: Level::Warn,
        fixes: true,
        summary: "`ssl on` is obsolete: `listen ... ssl`",
        text: "nginx refuses the directive since 1.25.1; Nowait takes it as it was meant. `listen 443 ssl;` says \
               it for each address, so that one server can answer with and without TLS.",
        wrong: "
server {
    listen 443;
    ssl on;
    ssl_certificate site.pem;
    ssl_certificate_key site.key;
}
",
        right: "
server {
    listen 443 ssl;
    ssl_certificate site.pem;
    ssl_certificate_key site.key;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_ssl_module.html#ssl",
        check: ssl_directive,
    },
    Rule {
        name: "directive-obsolete",
        level: Level::Warn,
        fixes: false,
        summary: "a directive that has no effect any more, or was renamed",
        text: "Directives of former releases are refused or ignored. The finding names what replaces \
               them.",
        wrong: "
http2_push_preload on;
",
        right: "
early_hints 1;
",
        source: "https://nginx.org/en/CHANGES",
        check: obsolete,
    },
];

/// The names of servers with their addresses.
fn names<'m>(model: &'m Model<'m>) -> impl Iterator<Item = &'m Word> {
    model.servers().flat_map(BlockRef::names).filter(|word| !word.text.starts_with(b"~"))
}

fn wildcard(model: &Model<'_>, report: &mut RuleReport) {
    for word in names(model) {
        let text = word.lossy();
        let rest = text.strip_prefix("*.").unwrap_or(&text);
        let rest = rest.strip_suffix(".*").unwrap_or(rest);
        if rest.contains('*') {
            let finding = report.find(word.span, format!("\"{text}\" is no valid wildcard"));
            finding.label("\"*\" stands for whole labels, at the beginning or at the end");
        }
    }
}

fn url(model: &Model<'_>, report: &mut RuleReport) {
    for word in names(model) {
        let text = word.lossy();
        let name = text.split_once("://").map_or(&*text, |(_, rest)| rest);
        let name = name.split('/').next().unwrap_or_default();
        let name = match name.rsplit_once(':') {
            Some((host, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
                host
            }
            _ => name,
        };
        if name == text || name.is_empty() || name.contains(':') {
            continue;
        }
        let finding = report.find(word.span, format!("\"{text}\" never matches a host"));
        // Other characters might need quotes, and don't occur in hosts.
        if name.chars().all(|c| c.is_alphanumeric() || "-._*".contains(c)) {
            finding.hint(format!("write \"{name}\"")).replace(word.span, name);
        }
    }
}

fn underscore(model: &Model<'_>, report: &mut RuleReport) {
    for server in model.servers() {
        let names = server.names();
        let [name] = names.as_slice() else { continue };
        let is_default = server.listens().iter().any(|listen| {
            model.default_server(&listen.address).is_none_or(|(default, _)| default == server)
        });
        if **name == *"_" && !is_default {
            report
                .find(name.span, "\"_\" is no wildcard: no request comes to this server")
                .hint("listen ... default_server; makes it answer for unknown names");
        }
    }
}

fn twice(model: &Model<'_>, report: &mut RuleReport) {
    let mut known: HashMap<(String, Vec<u8>), (BlockRef<'_>, &Word)> = HashMap::new();
    for server in model.servers() {
        let listens = server.listens();
        for word in server.names().into_iter().filter(|word| !word.text.is_empty()) {
            let mut is_reported = *word == *"_";
            for listen in listens {
                let key = (listen.address.clone(), word.text.to_ascii_lowercase());
                let Some((other, first)) = known.get(&key).filter(|(_, w)| w.span != word.span)
                else {
                    known.insert(key, (server, word));
                    continue;
                };
                if !is_reported {
                    let what = if *other == server { "twice here" } else { "in another server" };
                    report
                        .find(word.span, format!("\"{word}\" on {} is {what}", listen.address))
                        .note(first.span, "this one counts");
                }
                is_reported = true;
            }
        }
    }
}

fn default_missing(model: &Model<'_>, report: &mut RuleReport) {
    let mut at: HashMap<&str, Vec<(BlockRef<'_>, Span)>> = HashMap::new();
    for server in model.servers() {
        for listen in server.listens().iter().filter(|listen| listen.is_ssl) {
            let servers = at.entry(&listen.address).or_default();
            // Several lines of one server count as one.
            if servers.last().is_none_or(|(other, _)| *other != server) {
                servers.push((server, listen.node.name.span));
            }
        }
    }
    let mut at: Vec<_> = at.into_iter().filter(|(_, servers)| servers.len() > 1).collect();
    at.sort_by_key(|(address, _)| *address);
    let mut reported = HashSet::new();
    for (address, servers) in at {
        let (first, span) = servers[0];
        // A first server for any name is meant to be the default.
        let is_any = |name: &Word| name.text.is_empty() || *name == *"_";
        let is_meant = first.names().is_empty() || first.names().iter().any(|name| is_any(name));
        let is_chosen = model.default_server(address).is_some_and(|(_, is_chosen)| is_chosen);
        // IPv4 and IPv6 are merged to one finding.
        if !is_chosen && !is_meant && reported.insert(first.span()) {
            let message = format!("requests for unknown names reach this server on {address}");
            report.find(span, message).note(servers[1].1, "another server of the address").hint(
                "state \"default_server\", best in a server with \"ssl_reject_handshake on\"",
            );
        }
    }
}

fn listen_http2(model: &Model<'_>, report: &mut RuleReport) {
    for server in model.servers() {
        let listens = server.listens();
        let with: Vec<(&Node, &Word)> = listens
            .iter()
            .filter_map(|listen| {
                let word = listen.node.args.iter().skip(1).find(|word| **word == *"http2")?;
                Some((listen.node, word))
            })
            .collect();
        let quic = listens.iter().filter(|listen| has_word(listen.node, "quic")).count();
        let is_on = server.is_set("http2", "on");
        // The directive is for every address of the server, the parameter for every server of the
        // address.
        let is_for_all =
            with.len() + quic == listens.len() && !server.in_effect(&["http2"]) && !model.is_part;
        let is_alone = listens.iter().all(|listen| model.servers_at(&listen.address) == 1);
        for (index, (_, word)) in with.iter().enumerate() {
            let finding = report.find(word.span, "the parameter \"http2\" is deprecated");
            finding.hint("write \"http2 on;\" in the server");
            // All lines of a server are changed together.
            if index == 0 && is_alone && !model.is_part && (is_on || is_for_all) {
                if !is_on {
                    finding.insert(with[0].0.span, " http2 on;");
                }
                for (node, word) in &with {
                    finding.remove(node, &[word]);
                }
            }
        }
    }
}

fn ssl_directive(model: &Model<'_>, report: &mut RuleReport) {
    for (block, node) in model.directives("ssl") {
        if !node.args.first().is_some_and(|word| *word == *"on") {
            continue;
        }
        let finding = report.find(node.name.span, "\"ssl on\" is obsolete");
        finding.hint("listen 443 ssl;");
        let listens: Vec<&Node> = block.own("listen").collect();
        // Without the server's own braces, it may have other addresses in another file. Braces of the
        // directive itself are an error, and their contents may be intended.
        let is_whole = block.node().is_some() && node.block.is_none();
        if block.kind() == BlockKind::Server && is_whole && !listens.is_empty() {
            let has_tls = |listen: &Node| has_word(listen, "ssl") || has_word(listen, "quic");
            for listen in listens.iter().filter(|listen| !has_tls(listen)) {
                if let Some(last) = listen.args.last() {
                    finding.insert(last.span, " ssl");
                }
            }
            // The directive with its semicolon.
            finding.replace(node.span, "");
        }
    }
}

fn obsolete(model: &Model<'_>, report: &mut RuleReport) {
    const TABLE: &[(&str, &str)] = &[
        ("http2_idle_timeout", "use \"keepalive_timeout\""),
        ("http2_max_field_size", "use \"large_client_header_buffers\""),
        ("http2_max_header_size", "use \"large_client_header_buffers\""),
        ("http2_max_requests", "use \"keepalive_requests\""),
        ("http2_push", "use 103 Early Hints; browsers no longer accept pushes"),
        ("http2_push_preload", "use 103 Early Hints; browsers no longer accept pushes"),
        ("http2_recv_timeout", "use \"client_header_timeout\""),
        ("limit_zone", "use \"limit_conn_zone\""),
        ("open_file_cache_retest", "use \"open_file_cache_valid\""),
        ("optimize_server_names", "use \"server_name_in_redirect\""),
        ("proxy_upstream_fail_timeout", "use \"fail_timeout\" of the server"),
        ("spdy_chunk_size", "use \"http2 on\""),
        ("spdy_headers_comp", "use \"http2 on\""),
        ("ssl_dhparam_file", "use \"ssl_dhparam\""),
    ];
    for block in model.for_requests() {
        for node in block.nodes() {
            if let Some((name, advice)) = TABLE.iter().find(|(name, _)| node.name == **name) {
                report.find(node.name.span, format!("\"{name}\" is obsolete")).hint(*advice);
            }
            let spdy = node.args.iter().skip(1).find(|word| **word == *"spdy");
            if let Some(word) = spdy.filter(|_| node.name == "listen") {
                report.find(word.span, "SPDY is obsolete").hint("use \"http2 on\"");
            }
        }
    }
}
