//! Caches that store nothing, or too much.

use nowait_conf::Level;

use crate::model::{BlockRef, Model};
use crate::rule::{Rule, RuleReport};
use crate::values::variables;
use crate::words::field;

pub(crate) static RULES: &[Rule] = &[
    Rule {
        name: "cache-without-buffering",
        level: Level::Warn,
        fixes: false,
        summary: "`proxy_cache` with `proxy_buffering off`",
        text: "Responses that are not buffered are not stored: the cache stays empty.",
        wrong: "
proxy_cache_path /var/cache/site keys_zone=site:10m;
server {
    listen 80;
    location / {
        proxy_pass http://127.0.0.1:8080;
        proxy_cache site;
        proxy_buffering off;
    }
}
",
        right: "
proxy_cache_path /var/cache/site keys_zone=site:10m;
server {
    listen 80;
    location / {
        proxy_pass http://127.0.0.1:8080;
        proxy_cache site;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffering",
        check: without_buffering,
    },
    Rule {
        name: "cache-key-without-host",
        level: Level::Warn,
        fixes: false,
        summary: "requests for several hosts share cached responses",
        text: "The default key contains `$proxy_host`, which is the name in `proxy_pass`, not the host \
               that the client asked for. If the client's host is passed on, and the server answers \
               for several, the first response for a path is given to visitors of all of them. Put \
               `$host` into the key.",
        wrong: "
proxy_cache_path /var/cache/sites keys_zone=sites:10m;
server {
    listen 80;
    server_name one.example.org two.example.org;
    location / {
        proxy_set_header Host $host;
        proxy_pass http://127.0.0.1:8080;
        proxy_cache sites;
    }
}
",
        right: "
proxy_cache_path /var/cache/sites keys_zone=sites:10m;
server {
    listen 80;
    server_name one.example.org two.example.org;
    location / {
        proxy_set_header Host $host;
        proxy_pass http://127.0.0.1:8080;
        proxy_cache sites;
        proxy_cache_key $scheme$host$request_uri;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_key",
        check: key_without_host,
    },
    Rule {
        name: "cached-cookies",
        level: Level::Error,
        fixes: false,
        summary: "responses with `Set-Cookie` are stored, and given to everybody",
        text: "A response with `Set-Cookie` is not stored, because the cookie is for one visitor. With \
               `proxy_ignore_headers Set-Cookie` it is, and all visitors get the same session, unless \
               the field is hidden as well.",
        wrong: "
proxy_cache_path /var/cache/site keys_zone=site:10m;
server {
    listen 80;
    location / {
        proxy_pass http://127.0.0.1:8080;
        proxy_cache site;
        proxy_ignore_headers Set-Cookie;
    }
}
",
        right: "
proxy_cache_path /var/cache/site keys_zone=site:10m;
server {
    listen 80;
    location / {
        proxy_pass http://127.0.0.1:8080;
        proxy_cache site;
        proxy_ignore_headers Set-Cookie;
        proxy_hide_header Set-Cookie;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_valid",
        check: cookies,
    },
];

const FAMILIES: &[&str] = &["proxy", "fastcgi", "uwsgi", "scgi"];

/// Blocks that pass requests on through a cache, with the family of their directives.
fn cached<'m>(model: &'m Model<'m>) -> impl Iterator<Item = (BlockRef<'m>, &'static str)> {
    model.for_requests().flat_map(|block| {
        let families = FAMILIES.iter().copied();
        families
            .filter(move |family| {
                let zone = block.setting(&format!("{family}_cache"));
                block.has(&format!("{family}_pass")) && zone.is_some_and(|zone| *zone != *"off")
            })
            .map(move |family| (block, family))
    })
}

fn without_buffering(model: &Model<'_>, report: &mut RuleReport) {
    for (block, family) in cached(model) {
        let name = format!("{family}_buffering");
        if let Some(word) = block.setting(&name).filter(|word| **word == *"off") {
            let cache = block.setting(&format!("{family}_cache"));
            report
                .find(word.span, format!("\"{name} off\": the cache stores nothing"))
                .note(cache.map_or(word.span, |word| word.span), "this cache");
        }
    }
}

fn key_without_host(model: &Model<'_>, report: &mut RuleReport) {
    /// Variables that do not depend on the host of the request.
    const OTHERS: &[&str] = &[
        "args",
        "arg",
        "document_uri",
        "is_args",
        "proxy_host",
        "proxy_port",
        "query_string",
        "request",
        "request_method",
        "request_uri",
        "scheme",
        "slice_range",
        "uri",
        "fastcgi_script_name",
    ];
    for (block, family) in cached(model) {
        let key = block.setting(&format!("{family}_cache_key"));
        if key.is_none() && family != "proxy" {
            continue;
        }
        let names = key.map(|word| variables(&word.text)).unwrap_or_default();
        let has_host = names.iter().any(|name| !OTHERS.contains(&name.as_str()));
        let passes_host = family != "proxy"
            || field(&block.effective("proxy_set_header"), "Host").is_some_and(|word| {
                variables(&word.text).iter().any(|n| matches!(n.as_str(), "host" | "http_host"))
            });
        let has_several = block.server().is_some_and(|server| {
            let names = server.names();
            let is_wide = |text: &[u8]| {
                text.contains(&b'*') || text.starts_with(b"~") || text.starts_with(b".")
            };
            names.len() != 1 || names.iter().any(|word| is_wide(&word.text) || **word == *"_")
        });
        if has_host || !passes_host || !has_several {
            continue;
        }
        let zone = block.setting(&format!("{family}_cache"));
        let span = key.or(zone).map_or(block.span(), |word| word.span);
        let message = match key {
            Some(key) => format!("the key \"{key}\" is the same for all hosts"),
            None => "the default key is the same for all hosts".to_owned(),
        };
        report.find(span, message).hint(format!("{family}_cache_key $scheme$host$request_uri;"));
    }
}

fn cookies(model: &Model<'_>, report: &mut RuleReport) {
    let is_cookie = |word: &&nowait_conf::Word| word.text.eq_ignore_ascii_case(b"set-cookie");
    for (block, family) in cached(model) {
        let ignored = block.effective(&format!("{family}_ignore_headers"));
        let Some(word) = ignored.iter().flat_map(|node| &node.args).find(is_cookie) else {
            continue;
        };
        let hidden = block.effective(&format!("{family}_hide_header"));
        if !hidden.iter().flat_map(|node| &node.args).any(|word| is_cookie(&word)) {
            report
                .find(word.span, "the cookie of one visitor is given to all")
                .hint(format!("{family}_hide_header Set-Cookie; or do not ignore the field"));
        }
    }
}
