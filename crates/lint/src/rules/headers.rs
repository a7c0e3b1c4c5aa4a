//! Header fields of responses, and fields that reach them from requests.

use nowait_conf::{Inheritance, Level, Node, Word};

use crate::model::{BlockKind, BlockRef, Model, Modifier};
use crate::pattern;
use crate::rule::{Rule, RuleReport};
use crate::values::{Leaf, condition, leaves, variables};
use crate::words::{field, is_field};

pub(crate) static RULES: &[Rule] = &[
    Rule {
        name: "inherited-list-lost",
        level: Level::Warn,
        fixes: false,
        summary: "`add_header`, `proxy_set_header` or `fastcgi_param` in an inner block drops the outer ones",
        text: "These directives are inherited only by blocks that have none of them. One line in a \
               location, and the security headers of the server, the `Host` of the request or all \
               parameters of the script are gone. Repeat the outer lines (an `include` helps), or \
               state `add_header_inherit merge;`.",
        wrong: "
server {
    listen 80;
    root /srv/site;
    add_header X-Frame-Options DENY always;
    location /downloads/ {
        add_header Content-Disposition attachment;
    }
}
",
        right: "
server {
    listen 80;
    root /srv/site;
    add_header X-Frame-Options DENY always;
    location /downloads/ {
        add_header X-Frame-Options DENY always;
        add_header Content-Disposition attachment;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_headers_module.html#add_header",
        check: list_lost,
    },
    Rule {
        name: "header-not-always",
        level: Level::Notice,
        fixes: true,
        summary: "a security header without `always` is missing from error pages",
        text: "Without `always`, `add_header` works for successful responses and redirects only. Error \
               pages show content of the site, too, and need the same protection.",
        wrong: "
add_header X-Content-Type-Options nosniff;
",
        right: "
add_header X-Content-Type-Options nosniff always;
",
        source: "https://nginx.org/en/docs/http/ngx_http_headers_module.html#add_header",
        check: not_always,
    },
    Rule {
        name: "hsts-without-tls",
        level: Level::Notice,
        fixes: false,
        summary: "`Strict-Transport-Security` from a server without TLS",
        text: "Browsers ignore the field in responses that came without TLS, and a server must not \
               send it there. Put it into the server that listens with `ssl`.",
        wrong: "
server {
    listen 80;
    root /srv/site;
    add_header Strict-Transport-Security max-age=31536000 always;
}
",
        right: "
server {
    listen 443 ssl;
    ssl_certificate site.pem;
    ssl_certificate_key site.key;
    root /srv/site;
    add_header Strict-Transport-Security max-age=31536000 always;
}
",
        source: "https://www.rfc-editor.org/rfc/rfc6797#section-7.2",
        check: hsts_without_tls,
    },
    Rule {
        name: "hsts-without-age",
        level: Level::Warn,
        fixes: false,
        summary: "`Strict-Transport-Security` without `max-age`",
        text: "The directive `max-age` is required; browsers ignore the whole field without it.",
        wrong: "
add_header Strict-Transport-Security includeSubDomains always;
",
        right: "
add_header Strict-Transport-Security \"max-age=31536000; includeSubDomains\" always;
",
        source: "https://www.rfc-editor.org/rfc/rfc6797#section-6.1",
        check: hsts_without_age,
    },
    Rule {
        name: "header-twice",
        level: Level::Warn,
        fixes: false,
        summary: "a header field that may occur once is added twice",
        text: "Every `add_header` adds a line. Of two `Strict-Transport-Security` the first one counts, \
               two `Access-Control-Allow-Origin` make browsers refuse the response.",
        wrong: "
add_header X-Frame-Options DENY always;
add_header X-Frame-Options SAMEORIGIN always;
",
        right: "
add_header X-Frame-Options DENY always;
",
        source: "https://www.rfc-editor.org/rfc/rfc9110#section-5.3",
        check: twice,
    },
    Rule {
        name: "content-type-added",
        level: Level::Warn,
        fixes: false,
        summary: "`add_header Content-Type` adds a second one",
        text: "The type of a response is known already; a second field contradicts it, and clients \
               choose one. `default_type` and `types` set the type.",
        wrong: "
location = /hello {
    add_header Content-Type text/plain;
    return 200 hello;
}
",
        right: "
location = /hello {
    default_type text/plain;
    return 200 hello;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#default_type",
        check: content_type,
    },
    Rule {
        name: "header-line-break",
        level: Level::Error,
        fixes: false,
        summary: "a header field whose value contains line ends",
        text: "A value that spans several lines is an obsolete form that recipients have to refuse or \
               to repair, and HTTP/2 forbids it. Write the value in one line.",
        wrong: "
add_header Content-Security-Policy \"default-src 'self';
    img-src *\" always;
",
        right: "
add_header Content-Security-Policy \"default-src 'self'; img-src *\" always;
",
        source: "https://www.rfc-editor.org/rfc/rfc9112#section-5.2",
        check: line_break,
    },
    Rule {
        name: "cache-control-twice",
        level: Level::Warn,
        fixes: false,
        summary: "`expires` and an `add_header Cache-Control` that says something else",
        text: "`expires` adds `Cache-Control: max-age=...`. A second field with `max-age`, `no-cache` \
               or `no-store` contradicts it.",
        wrong: "
location /assets/ {
    root /srv/site;
    expires 1h;
    add_header Cache-Control max-age=86400;
}
",
        right: "
location /assets/ {
    root /srv/site;
    expires 1d;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_headers_module.html#expires",
        check: cache_control_twice,
    },
    Rule {
        name: "cors-any-origin",
        level: Level::Error,
        fixes: false,
        summary: "every origin may read responses with the user's credentials",
        text: "`Access-Control-Allow-Origin: $http_origin` with `Access-Control-Allow-Credentials: \
               true` lets any site read what the user sees when logged in. With `*`, browsers refuse \
               the responses to requests with credentials. Allow the origins that are known, by a `map`.",
        wrong: "
add_header Access-Control-Allow-Origin $http_origin always;
add_header Access-Control-Allow-Credentials true always;
",
        right: "
map $http_origin $allowed {
    https://app.example.org $http_origin;
}
add_header Access-Control-Allow-Origin $allowed always;
add_header Access-Control-Allow-Credentials true always;
",
        source: "https://fetch.spec.whatwg.org/#http-access-control-allow-credentials",
        check: cors,
    },
    Rule {
        name: "header-obsolete",
        level: Level::Notice,
        fixes: false,
        summary: "a header field that browsers no longer know",
        text: "`X-XSS-Protection`, `Public-Key-Pins`, `Expect-CT` and `X-Frame-Options: ALLOW-FROM` \
               have no effect in today's browsers, or harm. `Content-Security-Policy` with \
               `frame-ancestors` replaces the last one.",
        wrong: "
add_header X-Frame-Options \"ALLOW-FROM https://example.org\" always;
",
        right: "
add_header Content-Security-Policy \"frame-ancestors https://example.org\" always;
",
        source: "https://www.rfc-editor.org/rfc/rfc7034, https://www.w3.org/TR/CSP3/",
        check: obsolete,
    },
    Rule {
        name: "header-injection",
        level: Level::Error,
        fixes: true,
        summary: "a decoded path in a header field lets clients write fields of their own",
        text: "`$uri` and `$document_uri` are decoded: `%0d%0a` in a request is a line end there. In \
               nginx, it ends the line of a redirect or another field, and the rest of the path becomes a \
               field or a body of the client's choice. So does a group such as `[^/]+` that matched the \
               path. Nowait writes a space instead, or `%0A` in the line of a request, so that only the \
               value is wrong. `$request_uri` is as the client sent it, without line ends.",
        wrong: "
server {
    listen 80;
    return 301 https://example.org$uri$is_args$args;
}
",
        right: "
server {
    listen 80;
    return 301 https://example.org$request_uri;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#var_uri",
        check: injection,
    },
    Rule {
        name: "origin-regex-open",
        level: Level::Warn,
        fixes: false,
        summary: "an expression for `Origin` or `Referer` that other sites match, too",
        text: "Without `^` and `$`, or with a bare dot, `example\\.org` also matches \
               `https://example.org.evil.example`. Write the whole origin.",
        wrong: "
location /api/ {
    if ($http_origin !~ example\\.org) {
        return 403;
    }
    root /srv/site;
}
",
        right: "
location /api/ {
    if ($http_origin !~ ^https://(www\\.)?example\\.org$) {
        return 403;
    }
    root /srv/site;
}
",
        source: "https://www.rfc-editor.org/rfc/rfc6454#section-7",
        check: origin_regex,
    },
];

/// Lists whose loss in an inner block is hardly ever meant.
const LISTS: &[&str] = &[
    "add_header",
    "add_trailer",
    "proxy_set_header",
    "grpc_set_header",
    "fastcgi_param",
    "scgi_param",
    "uwsgi_param",
];

fn list_lost(model: &Model<'_>, report: &mut RuleReport) {
    for name in LISTS.iter().filter(|name| model.inheritance(name) == Inheritance::List) {
        for block in model.for_requests() {
            let own: Vec<&Node> = block.own(name).collect();
            let (Some(first), Some(parent)) = (own.first(), block.parent()) else { continue };
            let Some((_, outer)) = parent.effective_in(name) else { continue };
            let lost: Vec<&Word> = outer
                .iter()
                .filter_map(|node| node.args.first())
                .filter(|word| !own.iter().any(|node| is_field(node, &word.lossy())))
                .collect();
            let inherit = format!("{name}_inherit");
            // "off" shows the intention.
            let is_stated = block.is_set(&inherit, "merge") || block.has(&inherit);
            if lost.is_empty() || is_stated {
                continue;
            }
            let mut names: Vec<String> =
                lost.iter().map(|word| word.lossy().into_owned()).collect();
            names.dedup();
            let shown = match names.len() {
                0..=4 => names.join(", "),
                count => format!("{} and {} more", names[..3].join(", "), count - 3),
            };
            let message = format!("\"{name}\" here drops those of the outer block: {shown}");
            report
                .find(first.name.span, message)
                .note(outer[0].name.span, "inherited by blocks without such a line only");
        }
    }
}

fn added<'m>(model: &'m Model<'m>) -> impl Iterator<Item = (BlockRef<'m>, &'m Node, &'m Word)> {
    let lines = model.directives("add_header");
    lines.filter_map(|(block, node)| Some((block, node, node.args.get(1)?)))
}

fn not_always(model: &Model<'_>, report: &mut RuleReport) {
    const SECURITY: &[&str] = &[
        "Content-Security-Policy",
        "Cross-Origin-Embedder-Policy",
        "Cross-Origin-Opener-Policy",
        "Cross-Origin-Resource-Policy",
        "Permissions-Policy",
        "Referrer-Policy",
        "Strict-Transport-Security",
        "X-Content-Type-Options",
        "X-Frame-Options",
    ];
    for (_, node, value) in added(model) {
        let is_security = SECURITY.iter().any(|name| is_field(node, name));
        if is_security && node.args.len() == 2 {
            let name = &node.args[0];
            report
                .find(name.span, format!("\"{name}\" is missing from error pages"))
                .label("\"always\" adds it to every response")
                .insert(value.span, " always");
        }
    }
}

fn hsts_without_tls(model: &Model<'_>, report: &mut RuleReport) {
    for (block, node, _) in added(model).filter(|(_, node, _)| is_field(node, HSTS)) {
        let Some(server) = block.server() else { continue };
        let is_on_80 = server.listens().iter().any(|listen| listen.port == Some(80));
        // A proxy in front may speak TLS.
        let is_behind = block.in_effect(&["set_real_ip_from"]);
        if is_on_80 && server.is_plain() && !server.is_tls() && !is_behind {
            report
                .find(node.args[0].span, "browsers ignore this field without TLS")
                .note(server.span(), "this server listens without \"ssl\"");
        }
    }
}

const HSTS: &str = "Strict-Transport-Security";

fn hsts_without_age(model: &Model<'_>, report: &mut RuleReport) {
    for (_, node, value) in added(model).filter(|(_, node, _)| is_field(node, HSTS)) {
        let text = value.lossy().to_ascii_lowercase();
        if !text.contains("max-age=") && !text.contains('$') && !text.is_empty() {
            report
                .find(value.span, format!("\"{}\" needs \"max-age=SECONDS\"", node.args[0]))
                .label("browsers ignore the field");
        }
    }
}

fn twice(model: &Model<'_>, report: &mut RuleReport) {
    const ONCE: &[&str] = &[
        "Access-Control-Allow-Credentials",
        "Access-Control-Allow-Origin",
        "ETag",
        "Location",
        HSTS,
        "X-Content-Type-Options",
        "X-Frame-Options",
    ];
    for block in model.for_requests() {
        for name in ONCE {
            let lines: Vec<&Node> =
                block.own("add_header").filter(|node| is_field(node, name)).collect();
            // Fields with empty values are not added: variables may exclude each other.
            let is_certain = lines
                .iter()
                .all(|node| node.args.get(1).is_some_and(|word| !word.text.contains(&b'$')));
            if let [first, second, ..] = lines.as_slice()
                && is_certain
            {
                report
                    .find(second.args[0].span, format!("a second \"{name}\" is added"))
                    .note(first.args[0].span, "the first one");
            }
        }
    }
}

fn content_type(model: &Model<'_>, report: &mut RuleReport) {
    for (_, node, value) in added(model).filter(|(_, node, _)| is_field(node, "Content-Type")) {
        report
            .find(node.args[0].span, "a second \"Content-Type\" is added")
            .hint(format!("default_type {value};"));
    }
}

fn line_break(model: &Model<'_>, report: &mut RuleReport) {
    // Parameters of FastCGI and its kin are no header fields: PHP_VALUE has a setting in each line.
    for name in LISTS.iter().filter(|name| !name.ends_with("_param")) {
        for (_, node) in model.directives(name) {
            let Some(value) = node.args.get(1) else { continue };
            if value.text.iter().any(|b| matches!(b, b'\n' | b'\r')) {
                report
                    .find(
                        value.span,
                        format!("the value of \"{}\" has several lines", node.args[0]),
                    )
                    .label("write it in one line");
            }
        }
    }
}

fn cache_control_twice(model: &Model<'_>, report: &mut RuleReport) {
    for block in model.for_requests() {
        if !block.has_any(&["expires", "add_header"]) {
            continue;
        }
        let Some(expires) = block.effective("expires").last().copied() else { continue };
        let Some(value) = field(&block.effective("add_header"), "Cache-Control") else { continue };
        let text = value.lossy().to_ascii_lowercase();
        let time = expires.args.last().map(Word::lossy).unwrap_or_default();
        let is_never = time.starts_with('-') || time == "epoch";
        let is_other = match is_never {
            true => text.contains("max-age=") && !text.contains("max-age=0"),
            false => ["max-age=", "no-cache", "no-store"].iter().any(|part| text.contains(part)),
        };
        if time != "off" && !time.contains('$') && is_other && !text.contains("s-maxage=") {
            report
                .find(value.span, format!("\"{value}\" contradicts \"expires {time}\""))
                .note(expires.name.span, "this adds \"Cache-Control\" as well");
        }
    }
}

fn cors(model: &Model<'_>, report: &mut RuleReport) {
    for block in model.for_requests() {
        let lines: Vec<&Node> = block.own("add_header").collect();
        let (Some(origin), Some(credentials)) = (
            field(&lines, "Access-Control-Allow-Origin"),
            field(&lines, "Access-Control-Allow-Credentials"),
        ) else {
            continue;
        };
        let is_any = *origin == *"*" || *origin == *"$http_origin";
        // Inside of an "if" the origin may have been checked.
        let is_checked = block.chain().any(|outer| {
            condition(outer).is_some_and(|words| words.iter().any(|w| w.contains("$http_origin")))
        });
        if is_any && *credentials == *"true" && !is_checked {
            let message = match *origin == *"*" {
                true => "with \"*\", browsers refuse responses to requests with credentials",
                false => "any site may read responses with the user's credentials",
            };
            report
                .find(origin.span, message)
                .note(credentials.span, "because of this")
                .hint("map $http_origin to itself for known origins only");
        }
    }
}

fn obsolete(model: &Model<'_>, report: &mut RuleReport) {
    for (_, node, value) in added(model) {
        let text = value.lossy().to_ascii_lowercase();
        let is_old = is_field(node, "X-XSS-Protection") && text != "0"
            || is_field(node, "Public-Key-Pins")
            || is_field(node, "Expect-CT")
            || is_field(node, "X-Frame-Options") && text.starts_with("allow-from");
        if is_old {
            let message =
                format!("\"{}: {value}\" has no effect in today's browsers", node.args[0]);
            report.find(node.args[0].span, message);
        }
    }
}

fn injection(model: &Model<'_>, report: &mut RuleReport) {
    let mut places: Vec<(BlockRef<'_>, &Node, &Word)> = Vec::new();
    for (block, node) in model.directives("return") {
        match node.args.as_slice() {
            [word] if !word.text.first().is_some_and(u8::is_ascii_digit) => {
                places.push((block, node, word));
            }
            [code, word] if code.text.starts_with(b"3") => places.push((block, node, word)),
            _ => {}
        }
    }
    for name in ["add_header", "add_trailer", "proxy_set_header", "grpc_set_header"] {
        let lines = model.directives(name);
        places.extend(lines.filter_map(|(block, node)| Some((block, node, node.args.get(1)?))));
    }
    for (block, node) in model.directives("proxy_pass") {
        places.extend(node.args.first().map(|word| (block, node, word)));
    }
    for (block, node, word) in places {
        let bad = leaves(block, &word.text).into_iter().find(|leaf| match leaf {
            Leaf::Variable(name) => matches!(name.as_str(), "uri" | "document_uri"),
            Leaf::Capture(_, bodies) => bodies.iter().any(|body| pattern::matches_line_ends(body)),
        });
        let Some(leaf) = bad else { continue };
        let shown = leaf.shown();
        let message = match node.name == "proxy_pass" {
            true => format!("{shown} is decoded, and may end the line of the request"),
            false => format!("{shown} is decoded, and may end the line of \"{}\"", node.name),
        };
        let finding = report.find(word.span, message);
        finding.label(
            "nginx ends the line at \"%0a\" in the path; nowait escapes it, or writes a space",
        );
        let text = word.lossy();
        let ends = ["$uri$is_args$args", "$uri?$args", "$uri?$query_string"];
        let end = ends.iter().find_map(|end| text.strip_suffix(end).map(|rest| (end, rest)));
        if let Some((end, rest)) = end
            && let Some(place) = crate::words::place_in(word, rest.len())
            && node.name == "return"
            && variables(rest.as_bytes()).iter().all(|name| name != "uri")
            && is_as_sent(block)
        {
            let whole = nowait_conf::Span { end: place.start + end.len() as u32, ..place };
            finding.replace(whole, "$request_uri");
        }
        if matches!(leaf, Leaf::Variable(_)) {
            finding.hint("$request_uri is as the client sent it");
        } else {
            finding.hint("exclude white space from the group: [^/\\s]+");
        }
    }
}

/// Whether `$uri` in a block is the path that the client sent: no directive on the way rewrites it.
fn is_as_sent(block: BlockRef<'_>) -> bool {
    const REWRITE: &[&str] =
        &["try_files", "error_page", "index", "random_index", "auth_request", "mirror"];
    // Without the server's own braces, its other contents are unknown.
    let Some(server) = block.server().filter(|server| server.node().is_some()) else {
        return false;
    };
    let is_named = block.location().is_some_and(|location| location.modifier == Modifier::Named);
    let is_internal = block.chain().any(|outer| outer.has("internal"));
    let stays = |node: &Node| {
        let is_redirect = |word: &Word| *word == *"redirect" || *word == *"permanent";
        let is_elsewhere = |word: &Word| {
            ["http://", "https://", "$scheme"].iter().any(|s| word.text.starts_with(s.as_bytes()))
        };
        node.args.get(2).is_some_and(is_redirect) || node.args.get(1).is_some_and(is_elsewhere)
    };
    !is_named
        && !is_internal
        && !server.in_effect(REWRITE)
        && !server.within().any(|inner| inner.has_any(REWRITE) || !inner.own("rewrite").all(stays))
}

fn origin_regex(model: &Model<'_>, report: &mut RuleReport) {
    let mut found = Vec::new();
    for block in model.all(BlockKind::If) {
        let words = condition(block).unwrap_or_default();
        let [variable, operator, pattern] = words.as_slice() else { continue };
        if operator.contains('~') {
            let node = block.node().and_then(|node| node.args.last());
            let span = node.map_or(block.span(), |word| word.span);
            found.push((variable.clone(), pattern.clone(), span));
        }
    }
    for node in model.blocks().filter(|b| b.kind() == BlockKind::Data).filter_map(BlockRef::node) {
        if node.name == "map" && node.args.len() == 2 {
            for entry in node.children() {
                let key = entry.name.lossy();
                if let Some(pattern) = key.strip_prefix('~') {
                    let pattern = pattern.trim_start_matches('*').to_owned();
                    found.push((node.args[0].lossy().into_owned(), pattern, entry.name.span));
                }
            }
        }
    }
    for (variable, pattern, span) in found {
        let is_origin = variable == "$http_origin";
        let names_host = pattern.contains("\\.") || pattern.contains('.');
        if !(is_origin || variable == "$http_referer") || !names_host {
            continue;
        }
        let is_open = !pattern.starts_with('^')
            || is_origin && !pattern.ends_with('$') && !pattern.ends_with("$)")
            || bare_dot_in_name(&pattern);
        if is_open {
            report
                .find(span, format!("\"{pattern}\" matches other sites, too"))
                .hint("write all of it, such as ^https://example\\.org$");
        }
    }
}

/// A dot between letters that is not escaped.
fn bare_dot_in_name(pattern: &str) -> bool {
    let bytes = pattern.as_bytes();
    bytes.windows(3).any(|window| {
        window[1] == b'.' && window[0].is_ascii_alphanumeric() && window[2].is_ascii_alphanumeric()
    })
}
