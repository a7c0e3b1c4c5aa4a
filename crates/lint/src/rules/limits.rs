//! Sizes, rates, connections, compression, logs.

use nowait_conf::{Level, Word};

use crate::model::{BlockKind, Model};
use crate::rule::{Rule, RuleReport};
use crate::values::variables;
use crate::words::has_word;

pub(crate) static RULES: &[Rule] = &[
    Rule {
        name: "body-size-unlimited",
        level: Level::Notice,
        fixes: false,
        summary: "`client_max_body_size 0` for a whole server",
        text: "Zero means no limit: any client can fill the disk with the body of a request. Raise the \
               limit in the location that takes uploads.",
        wrong: "
server {
    listen 80;
    client_max_body_size 0;
    location / {
        proxy_pass http://127.0.0.1:8080;
    }
}
",
        right: "
server {
    listen 80;
    location / {
        proxy_pass http://127.0.0.1:8080;
    }
    location /upload/ {
        client_max_body_size 2g;
        proxy_pass http://127.0.0.1:8080;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#client_max_body_size",
        check: body_unlimited,
    },
    Rule {
        name: "body-size-for-uploads",
        level: Level::Warn,
        fixes: false,
        summary: "uploads by PUT, with the default limit of one megabyte",
        text: "Without `client_max_body_size`, bodies of more than 1 MB are refused with 413.",
        wrong: "
http {
    server {
        listen 127.0.0.1:80;
        location /files/ {
            root /srv;
            dav_methods PUT;
        }
    }
}
",
        right: "
http {
    server {
        listen 127.0.0.1:80;
        location /files/ {
            root /srv;
            dav_methods PUT;
            client_max_body_size 1g;
        }
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#client_max_body_size",
        check: body_for_uploads,
    },
    Rule {
        name: "limit-key-from-client",
        level: Level::Warn,
        fixes: false,
        summary: "a limit by something that the client writes itself",
        text: "`limit_req` and `limit_conn` count by the key. A client that sends another header field, \
               argument or cookie with each request has a new key each time, and no limit; many keys \
               fill the zone besides. Use `$binary_remote_addr`, behind a proxy with \
               `set_real_ip_from`.",
        wrong: "
limit_req_zone $http_x_forwarded_for zone=clients:10m rate=10r/s;
",
        right: "
limit_req_zone $binary_remote_addr zone=clients:10m rate=10r/s;
",
        source: "https://nginx.org/en/docs/http/ngx_http_limit_req_module.html#limit_req_zone",
        check: limit_key,
    },
    Rule {
        name: "connections-exceed-files",
        level: Level::Warn,
        fixes: false,
        summary: "more `worker_connections` than `worker_rlimit_nofile` allows",
        text: "Every connection is an open file, and so is the connection to an upstream server. Once \
               the limit is reached, no connection is accepted. Both values are for each worker: nowait, \
               whose workers are threads of one process, multiplies the limit by their number.",
        wrong: "
worker_rlimit_nofile 1024;
events {
    worker_connections 4096;
}
",
        right: "
worker_rlimit_nofile 65536;
events {
    worker_connections 4096;
}
",
        source: "https://nginx.org/en/docs/ngx_core_module.html#worker_rlimit_nofile",
        check: connections,
    },
    Rule {
        name: "compressed-again",
        level: Level::Notice,
        fixes: true,
        summary: "types that are compressed already are compressed again",
        text: "Images, videos, archives and WOFF fonts do not become smaller; the attempt takes time and \
               may make them larger.",
        wrong: "
gzip_types text/css image/png;
",
        right: "
gzip_types text/css;
",
        source: "https://nginx.org/en/docs/http/ngx_http_gzip_module.html#gzip_types",
        check: compressed_again,
    },
    Rule {
        name: "compressed-html",
        level: Level::Notice,
        fixes: true,
        summary: "`text/html` among the types to compress",
        text: "`text/html` is always compressed; naming it is reported as a duplicate each time the \
               configuration is read.",
        wrong: "
gzip_types text/html text/css;
",
        right: "
gzip_types text/css;
",
        source: "https://nginx.org/en/docs/http/ngx_http_gzip_module.html#gzip_types",
        check: compressed_html,
    },
    Rule {
        name: "error-log-off",
        level: Level::Warn,
        fixes: true,
        summary: "`error_log off` writes to a file called `off`",
        text: "`access_log off` exists, `error_log off` does not: `off` is a file name, and the log goes \
               there. `/dev/null` discards it; better raise the level.",
        wrong: "
error_log off;
",
        right: "
error_log /dev/null;
",
        source: "https://nginx.org/en/docs/ngx_core_module.html#error_log",
        check: error_log_off,
    },
    Rule {
        name: "merge-slashes-off",
        level: Level::Warn,
        fixes: false,
        summary: "`merge_slashes off` lets `//admin/` pass by `location /admin/`",
        text: "Locations are compared with the path as it is. If slashes are not merged, `//admin/` \
               matches none of the prefixes that protect `/admin/`, and an application or a file \
               system takes both for the same.",
        wrong: "
server {
    listen 80;
    merge_slashes off;
    location /admin/ {
        return 403;
    }
}
",
        right: "
server {
    listen 80;
    location /admin/ {
        return 403;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#merge_slashes",
        check: merge_slashes,
    },
];

fn body_unlimited(model: &Model<'_>, report: &mut RuleReport) {
    for (block, node) in model.directives("client_max_body_size") {
        let is_wide = matches!(block.kind(), BlockKind::Http | BlockKind::Server);
        let is_zero = node.args.first().is_some_and(|word| {
            matches!(&*word.text, b"0" | b"0k" | b"0m" | b"0g" | b"0K" | b"0M" | b"0G")
        });
        // A server for files to be written is another matter.
        let is_for_files = block.within().any(|inner| inner.has("dav_methods"));
        if is_wide && is_zero && !is_for_files {
            report
                .find(node.args[0].span, "bodies of requests have no limit")
                .hint("raise it in the location that takes uploads");
        }
    }
}

fn body_for_uploads(model: &Model<'_>, report: &mut RuleReport) {
    for (block, node) in model.directives("dav_methods") {
        if has_word(node, "PUT") && !model.is_part && !block.in_effect(&["client_max_body_size"]) {
            report
                .find(node.name.span, "uploads of more than 1 MB are refused")
                .hint("client_max_body_size 1g;");
        }
    }
}

fn limit_key(model: &Model<'_>, report: &mut RuleReport) {
    for name in ["limit_req_zone", "limit_conn_zone"] {
        for (_, node) in model.directives(name) {
            let Some(key) = node.args.first() else { continue };
            let from_client = variables(&key.text).into_iter().find(|name| {
                ["http_", "arg_", "cookie_"].iter().any(|prefix| name.starts_with(prefix))
            });
            if let Some(variable) = from_client {
                report
                    .find(key.span, format!("${variable} has any value that the client writes"))
                    .label("each value has a limit of its own")
                    .hint("$binary_remote_addr is the address of the connection");
            }
        }
    }
}

fn connections(model: &Model<'_>, report: &mut RuleReport) {
    let number = |word: &Word| word.to_str().ok().and_then(|text| text.parse::<u64>().ok());
    let Some(main) = model.all(BlockKind::Main).next() else { return };
    let files = main.own("worker_rlimit_nofile").last().and_then(|node| node.args.first());
    let events = model.all(BlockKind::Events).next();
    let connections = events
        .and_then(|events| events.own("worker_connections").last())
        .and_then(|node| node.args.first());
    let (Some(files), Some(connections)) = (files, connections) else { return };
    if let (Some(limit), Some(each)) = (number(files), number(connections))
        && each > limit
    {
        report
            .find(connections.span, format!("{each} connections exceed {limit} open files"))
            .note(files.span, "the limit of open files");
    }
}

/// The lists of types to compress.
const TYPES: &[&str] = &["gzip_types", "brotli_types", "zstd_types"];

fn is_html(word: &Word) -> bool {
    *word == *"text/html"
}

/// Whether files of this type are compressed already.
fn is_compressed(word: &Word) -> bool {
    const TYPES_OF_FILES: &[&str] = &[
        "application/gzip",
        "application/x-gzip",
        "application/zip",
        "application/x-7z-compressed",
        "application/x-rar-compressed",
        "application/zstd",
        "application/font-woff",
        "application/font-woff2",
        "application/x-font-woff",
        "font/woff",
        "font/woff2",
    ];
    let text = word.lossy().to_ascii_lowercase();
    let is_plain = ["svg", "icon", "bmp", "wav", "midi"].iter().any(|part| text.contains(part))
        || text.ends_with("/*");
    let kind = text.split('/').next().unwrap_or_default();
    !is_plain && matches!(kind, "image" | "video" | "audio")
        || TYPES_OF_FILES.contains(&text.as_str())
}

fn compressed_again(model: &Model<'_>, report: &mut RuleReport) {
    for name in TYPES {
        for (_, node) in model.directives(name) {
            let words: Vec<&Word> = node.args.iter().filter(|word| is_compressed(word)).collect();
            let Some(first) = words.first() else { continue };
            let names: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            let message = format!("compressed already: {}", names.join(", "));
            let finding = report.find(first.span, message);
            if node.args.iter().any(|word| !is_compressed(word) && !is_html(word)) {
                finding.remove(node, &words);
            }
        }
    }
}

fn compressed_html(model: &Model<'_>, report: &mut RuleReport) {
    for name in TYPES {
        for (_, node) in model.directives(name) {
            let words: Vec<&Word> = node.args.iter().filter(|word| is_html(word)).collect();
            let Some(first) = words.first() else { continue };
            let finding = report.find(first.span, "\"text/html\" is always compressed");
            // An empty list would be an error after "compressed-again" is fixed as well.
            if node.args.iter().any(|word| !is_compressed(word) && !is_html(word)) {
                finding.remove(node, &words);
            }
        }
    }
}

fn error_log_off(model: &Model<'_>, report: &mut RuleReport) {
    let lines = model.blocks().flat_map(|block| block.own("error_log"));
    for word in lines.filter_map(|node| node.args.first()).filter(|word| **word == *"off") {
        report
            .find(word.span, "\"off\" is the name of a file here")
            .hint("error_log /dev/null; or a level such as crit")
            .replace(word.span, "/dev/null");
    }
}

fn merge_slashes(model: &Model<'_>, report: &mut RuleReport) {
    for (_, node) in model.directives("merge_slashes") {
        if has_word(node, "off") {
            report
                .find(node.name.span, "locations do not match paths with \"//\"")
                .label("\"//admin/\" is not below \"/admin/\"");
        }
    }
}
