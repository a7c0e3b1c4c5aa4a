//! The mapping of requests to files: `root`, `alias`, `try_files`, `types`.

use std::collections::{HashMap, HashSet};

use nowait_conf::{Level, Node, Word};

use crate::model::{BlockKind, BlockRef, Model, Modifier};
use crate::rule::{Rule, RuleReport};
use crate::values::{Leaf, leaves};
use crate::words::append;

pub(crate) static RULES: &[Rule] = &[
    Rule {
        name: "alias-traversal",
        level: Level::Error,
        fixes: false,
        summary: "`alias` with a trailing slash under a location without one opens the parent directory",
        text: "The part of the path that the location matched is replaced by the alias. With location \
               `/img` and alias `/srv/img/`, the path `/img../secret` becomes `/srv/img/../secret`: \
               every file beside the directory can be fetched. End both with a slash.",
        wrong: "
location /img {
    alias /srv/img/;
}
",
        right: "
location /img/ {
    alias /srv/img/;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#alias",
        check: alias_traversal,
    },
    Rule {
        name: "path-from-client",
        level: Level::Error,
        fixes: false,
        summary: "an argument, a cookie or a header field chooses the directory of files",
        text: "Unlike the path of a request, these values are used as they are: `../` in them leads out of \
               the directory, to every file that the server may read. Choose from known names by a `map`.",
        wrong: "
location /img/ {
    alias /srv/img/$arg_size/;
}
",
        right: "
map $arg_size $size {
    large large;
    default small;
}
server {
    location /img/ {
        alias /srv/img/$size/;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#alias",
        check: path_from_client,
    },
    Rule {
        name: "alias-without-slash",
        level: Level::Error,
        fixes: true,
        summary: "`alias` without a trailing slash under a location with one joins names",
        text: "With location `/img/` and alias `/srv/img`, the path `/img/logo.png` becomes \
               `/srv/imglogo.png`. End both with a slash.",
        wrong: "
location /img/ {
    alias /srv/img;
}
",
        right: "
location /img/ {
    alias /srv/img/;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#alias",
        check: alias_without_slash,
    },
    Rule {
        name: "alias-in-regex",
        level: Level::Warn,
        fixes: false,
        summary: "`alias` to a directory under a regular expression, without its groups",
        text: "Under a regular expression the alias is the whole name of the file: nothing of the path \
               is appended. A directory without `$1` therefore answers every request alike. Use `root`, \
               or capture the rest of the path.",
        wrong: "
location ~ ^/download/.*\\.zip$ {
    alias /srv/files/;
}
",
        right: "
location ~ ^/download/(.*\\.zip)$ {
    alias /srv/files/$1;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#alias",
        check: alias_in_regex,
    },
    Rule {
        name: "root-in-each-location",
        level: Level::Notice,
        fixes: false,
        summary: "the same `root` in several locations, and none around them",
        text: "A request that matches none of these locations is looked up in the default directory. \
               One `root` in the server is inherited by all locations; those that need another one \
               have their own.",
        wrong: "
server {
    listen 80;
    location / {
        root /srv/site;
    }
    location /images/ {
        root /srv/site;
        expires 7d;
    }
    location /scripts/ {
        root /srv/site;
        expires 1d;
    }
}
",
        right: "
server {
    listen 80;
    root /srv/site;
    location /images/ {
        expires 7d;
    }
    location /scripts/ {
        expires 1d;
    }
}
",
        source: "https://www.nginx.com/resources/wiki/start/topics/tutorials/config_pitfalls/",
        check: root_in_each,
    },
    Rule {
        name: "root-missing",
        level: Level::Warn,
        fixes: false,
        summary: "`try_files` looks for files, but there is no `root`",
        text: "Without `root` files are looked up in `html` below the prefix of the installation, \
               which is hardly the directory of the site.",
        wrong: "
http {
    server {
        listen 80;
        location / {
            try_files $uri $uri/ =404;
        }
    }
}
",
        right: "
http {
    server {
        listen 80;
        root /srv/site;
        location / {
            try_files $uri $uri/ =404;
        }
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#root",
        check: root_missing,
    },
    Rule {
        name: "root-too-wide",
        level: Level::Error,
        fixes: false,
        summary: "a directory of the system is served",
        text: "Everything below `root` can be fetched unless a location forbids it. Directories such \
               as `/`, `/etc` or `/home` contain passwords, keys and other people's files. Serve a \
               directory that holds the site and nothing else.",
        wrong: "
server {
    listen 80;
    root /;
}
",
        right: "
server {
    listen 80;
    root /srv/site;
}
",
        source: "https://www.nginx.com/resources/wiki/start/topics/tutorials/config_pitfalls/",
        check: root_too_wide,
    },
    Rule {
        name: "dot-files-reachable",
        level: Level::Notice,
        fixes: false,
        summary: "the directory of a project is served, with what begins with a dot",
        text: "Projects contain `.git`, `.env` and the like, with their history and their passwords. \
               Serve the directory that is meant for the public (often `public`), or refuse such \
               names.",
        wrong: "
server {
    listen 80;
    root /home/app/project;
}
",
        right: "
server {
    listen 80;
    root /home/app/project;
    location ~ /\\.(?!well-known/) {
        return 404;
    }
}
",
        source: "https://www.rfc-editor.org/rfc/rfc8615 (.well-known)",
        check: dot_files,
    },
    Rule {
        name: "try-files-loop",
        level: Level::Error,
        fixes: false,
        summary: "the last argument of `try_files` leads back to the same place",
        text: "If no file exists, the last argument is an internal redirect, which looks for a \
               location again. If it is the same path again, or the same named location, the request \
               goes round until the limit of ten redirects, and fails with 500. End with `=404` or \
               with a path that is certain to exist.",
        wrong: "
location /files/ {
    root /srv;
    try_files $uri $uri/ $uri;
}
",
        right: "
location /files/ {
    root /srv;
    try_files $uri $uri/ =404;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#try_files",
        check: try_files_loop,
    },
    Rule {
        name: "try-files-fallback",
        level: Level::Error,
        fixes: true,
        summary: "the last argument of `try_files` is not a URI, a named location or `=CODE`",
        text: "The last argument is not looked up as a file: it is a path for an internal redirect, a \
               named location, or `=CODE`. Without a slash at the beginning no location fits.",
        wrong: "
location / {
    root /srv/site;
    try_files $uri index.html;
}
",
        right: "
location / {
    root /srv/site;
    try_files $uri /index.html;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#try_files",
        check: try_files_fallback,
    },
    Rule {
        name: "try-files-without-arguments",
        level: Level::Notice,
        fixes: false,
        summary: "a fallback to a script loses the arguments of the request",
        text: "The internal redirect to `/index.php` has no arguments unless they are written: the \
               script sees an empty query string.",
        wrong: "
server {
    listen 80;
    root /srv/app/public;
    location / {
        try_files $uri /index.php;
    }
    location = /index.php {
        fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        fastcgi_pass 127.0.0.1:9000;
    }
}
",
        right: "
server {
    listen 80;
    root /srv/app/public;
    location / {
        try_files $uri /index.php?$args;
    }
    location = /index.php {
        fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        fastcgi_pass 127.0.0.1:9000;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#try_files",
        check: try_files_without_arguments,
    },
    Rule {
        name: "named-location-missing",
        level: Level::Error,
        fixes: false,
        summary: "a named location that the server does not have",
        text: "`error_page` and `try_files` find a named location only in the same server. If it is \
               missing, the request fails with 500.",
        wrong: "
server {
    listen 80;
    root /srv/site;
    error_page 404 =200 @fallback;
}
",
        right: "
server {
    listen 80;
    root /srv/site;
    error_page 404 =200 @fallback;
    location @fallback {
        return 200 \"nothing here\";
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#error_page",
        check: named_location_missing,
    },
    Rule {
        name: "types-replaced",
        level: Level::Warn,
        fixes: false,
        summary: "`types` in a server or location replaces the whole list",
        text: "A `types` block is not added to that of an outer block: with one entry of its own, a \
               location knows no other type, and style sheets and pages are sent as `default_type`. \
               Add the entry in `http`, or include `mime.types` again.",
        wrong: "
http {
    include mime.types;
    server {
        listen 80;
        root /srv/site;
        location /modules/ {
            types {
                application/wasm wasm;
            }
        }
    }
}
",
        right: "
http {
    include mime.types;
    types {
        application/x-module mod;
    }
    server {
        listen 80;
        root /srv/site;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#types",
        check: types_replaced,
    },
    Rule {
        name: "types-duplicate",
        level: Level::Warn,
        fixes: false,
        summary: "two types for one suffix",
        text: "Of two entries for the same suffix in one place, the last one counts. One of them is \
               there by mistake.",
        wrong: "
types {
    text/html html;
    text/plain txt;
    text/markdown txt;
}
",
        right: "
types {
    text/html html;
    text/plain txt;
    text/markdown md;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#types",
        check: types_duplicate,
    },
];

/// The aliases of prefix locations: the location, and the alias as it is written.
fn aliases<'m>(
    model: &'m Model<'m>,
) -> impl Iterator<Item = (crate::model::Location<'m>, &'m Node, &'m Word)> {
    model.all(BlockKind::Location).filter_map(|block| {
        let node = block.own("alias").next()?;
        Some((block.location()?, node, node.args.first()?))
    })
}

fn path_from_client(model: &Model<'_>, report: &mut RuleReport) {
    for (block, node) in ["alias", "root"].iter().flat_map(|name| model.directives(name)) {
        let Some(word) = node.args.first() else { continue };
        let is_raw = |leaf: &Leaf| {
            let prefixes = ["http_", "arg_", "cookie_"];
            matches!(leaf, Leaf::Variable(name) if prefixes.iter().any(|p| name.starts_with(p)))
        };
        // A host has no slashes, no matter what the client sends.
        let is_host = |leaf: &Leaf| matches!(leaf, Leaf::Variable(name) if name == "http_host");
        let mut leaves = leaves(block, &word.text).into_iter();
        if let Some(leaf) = leaves.find(|leaf| is_raw(leaf) && !is_host(leaf)) {
            report
                .find(word.span, format!("{} may contain \"../\"", leaf.shown()))
                .hint("choose from known names by a \"map\"");
        }
    }
}

fn alias_traversal(model: &Model<'_>, report: &mut RuleReport) {
    for (location, _, alias) in aliases(model) {
        // An empty prefix matches every path, and all paths begin with a slash.
        let is_open =
            location.is_prefix() && !location.text.is_empty() && !location.text.ends_with(b"/");
        if is_open && alias.text.ends_with(b"/") {
            let text = location.lossy();
            report
                .find(alias.span, format!("\"{text}..\" leads out of \"{alias}\""))
                .note(location.word.span, "this needs a slash at its end, as the alias has one");
        }
    }
}

fn alias_without_slash(model: &Model<'_>, report: &mut RuleReport) {
    for (location, _, alias) in aliases(model) {
        let is_directory = location.is_prefix() && location.text.ends_with(b"/");
        if is_directory
            && alias.text.last().is_some_and(u8::is_ascii_alphanumeric)
            && !ends_with_variable(alias)
        {
            let text = location.lossy();
            let finding =
                report.find(alias.span, format!("\"{text}NAME\" becomes \"{alias}NAME\""));
            finding.label("a slash is missing at the end");
            append(finding, alias, "/");
        }
    }
}

fn ends_with_variable(word: &Word) -> bool {
    let name = word.text.rsplit(|&b| b == b'$').next().unwrap_or_default();
    name.len() < word.text.len() && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

fn alias_in_regex(model: &Model<'_>, report: &mut RuleReport) {
    for (location, _, alias) in aliases(model) {
        if location.is_regex() && alias.text.ends_with(b"/") && !alias.text.contains(&b'$') {
            report
                .find(alias.span, format!("every request gets \"{alias}\" itself"))
                .note(location.word.span, "nothing of the path is appended under an expression");
        }
    }
}

fn root_in_each(model: &Model<'_>, report: &mut RuleReport) {
    /// A second location with the same root may well be chance.
    const LOCATIONS_MIN: usize = 3;
    let servers = model.servers().filter(|server| !server.is_snippet());
    for server in servers.filter(|server| server.effective_in("root").is_none()) {
        let mut roots: HashMap<&[u8], Vec<&Word>> = HashMap::new();
        for block in server.within() {
            for word in block.own("root").filter_map(|node| node.args.first()) {
                roots.entry(&word.text).or_default().push(word);
            }
        }
        let mut repeated: Vec<_> =
            roots.into_values().filter(|words| words.len() >= LOCATIONS_MIN).collect();
        repeated.sort_by_key(|words| words[0].span);
        for words in repeated {
            let message =
                format!("\"root {}\" in {} locations, but not around them", words[0], words.len());
            let finding = report.find(words[0].span, message);
            finding.hint("one \"root\" in the server is inherited by all");
            for word in &words[1..LOCATIONS_MIN] {
                finding.note(word.span, "the same here");
            }
        }
    }
}

fn root_missing(model: &Model<'_>, report: &mut RuleReport) {
    for (block, node) in model.directives("try_files") {
        let looked_up = node.args.split_last().map_or(&[][..], |(_, files)| files);
        let is_used = looked_up.iter().any(|word| word.text.starts_with(b"$uri"));
        if is_used && !model.is_part && !block.in_effect(&["root", "alias"]) {
            report
                .find(node.name.span, "\"try_files\" looks for files without a \"root\"")
                .hint("state the directory of the site in the server: root /srv/site;");
        }
    }
}

fn root_too_wide(model: &Model<'_>, report: &mut RuleReport) {
    const WIDE: &[&str] = &[
        "",
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/etc/nginx",
        "/etc/nowait",
        "/home",
        "/lib",
        "/proc",
        "/root",
        "/run",
        "/sys",
        "/usr",
        "/var",
        "/var/log",
    ];
    for name in ["root", "alias"] {
        for (_, node) in model.directives(name) {
            let Some(word) = node.args.first() else { continue };
            let text = word.lossy();
            if text.starts_with('/') && WIDE.contains(&text.trim_end_matches('/')) {
                report
                    .find(word.span, format!("\"{text}\" is a directory of the system"))
                    .label("all below it is served");
            }
        }
    }
}

fn dot_files(model: &Model<'_>, report: &mut RuleReport) {
    const PROJECTS: &[&str] =
        &["app", "application", "code", "current", "project", "repo", "repository", "src"];
    for server in model.servers().filter(|server| !server.is_snippet()) {
        let Some(word) = server.own("root").next().and_then(|node| node.args.first()) else {
            continue;
        };
        let text = word.lossy();
        let last = text.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let refuses = server.within().filter_map(BlockRef::location).any(|location| {
            let text = location.lossy();
            text.contains("\\.") && location.is_regex() && text.contains("/\\.")
                || text.starts_with("/.")
        });
        let serves_files = !server.has("return")
            && server.within().any(|block| {
                !block.has_any(crate::words::PASSES)
                    && !block.has("return")
                    && block.kind() != BlockKind::If
            });
        if PROJECTS.contains(&last) && !refuses && serves_files {
            report
                .find(word.span, format!("\"{text}\" may contain .git, .env and the like"))
                .hint("refuse names with a dot: location ~ /\\.(?!well-known/) { return 404; }");
        }
    }
}

/// Every `try_files` with its block and its last argument.
fn fallbacks<'m>(model: &'m Model<'m>) -> impl Iterator<Item = (BlockRef<'m>, &'m Node, &'m Word)> {
    let lines = model.directives("try_files");
    lines.filter_map(|(block, node)| Some((block, node, node.args.last()?)))
}

fn try_files_loop(model: &Model<'_>, report: &mut RuleReport) {
    for (block, _, last) in fallbacks(model) {
        let location = block.location();
        let path = last.text.split(|&b| b == b'?').next().unwrap_or_default();
        let is_here = location.is_some_and(|location| {
            let is_one = matches!(location.modifier, Modifier::Exact | Modifier::Named);
            is_one && location.text == path
        });
        let is_same = ["$uri", "$uri/", "$request_uri", "$document_uri"]
            .iter()
            .any(|variable| *last == **variable);
        if is_here || is_same {
            report
                .find(last.span, format!("\"{last}\" leads back to this \"try_files\""))
                .label("the request fails with 500 after ten rounds")
                .hint("end with \"=404\"");
        }
    }
}

fn try_files_fallback(model: &Model<'_>, report: &mut RuleReport) {
    for (_, _, last) in fallbacks(model) {
        let starts = last.text.first();
        if !starts.is_none_or(|b| matches!(b, b'/' | b'@' | b'=' | b'$')) {
            let finding = report
                .find(last.span, format!("\"{last}\" is not a URI, a named location or \"=CODE\""));
            finding.label("the last argument begins with \"/\", \"@\" or \"=\"");
            if let Some(place) = crate::words::place_in(last, 0) {
                finding.replace(place, "/");
            }
        }
    }
}

fn try_files_without_arguments(model: &Model<'_>, report: &mut RuleReport) {
    for (block, _, last) in fallbacks(model) {
        let is_script = last.text.starts_with(b"/") && last.text.ends_with(b".php");
        let passes = block
            .server()
            .is_some_and(|server| server.within().any(|inner| inner.has("fastcgi_pass")));
        if is_script && passes {
            report
                .find(
                    last.span,
                    format!("\"{last}\" is called without the arguments of the request"),
                )
                .hint(format!("write \"{last}?$args\""));
        }
    }
}

fn named_location_missing(model: &Model<'_>, report: &mut RuleReport) {
    for server in model.servers().filter(|server| !server.is_snippet()) {
        let names: HashSet<&[u8]> = server
            .within()
            .filter_map(BlockRef::location)
            .filter(|location| location.modifier == Modifier::Named)
            .map(|location| location.text)
            .collect();
        for block in server.within() {
            for node in block.own("error_page").chain(block.own("try_files")) {
                let Some(last) = node.args.last().filter(|word| word.text.starts_with(b"@")) else {
                    continue;
                };
                if !names.contains(&*last.text) {
                    report
                        .find(last.span, format!("the server has no location \"{last}\""))
                        .label("such requests fail with 500");
                }
            }
        }
    }
}

fn entries<'m>(block: BlockRef<'m>) -> impl Iterator<Item = &'m Node> {
    let nodes = block.own("types").flat_map(Node::children);
    nodes.filter(|node| node.name != "include")
}

fn types_replaced(model: &Model<'_>, report: &mut RuleReport) {
    /// A list of as many types is meant to replace the default list.
    const ENTRIES_MAX: usize = 10;
    for block in
        model.blocks().filter(|b| matches!(b.kind(), BlockKind::Server | BlockKind::Location))
    {
        let (Some(node), count) = (block.own("types").next(), entries(block).count()) else {
            continue;
        };
        let outer = block.chain().skip(1).find(|outer| outer.has("types"));
        let lost = outer.map_or(0, |outer| entries(outer).count());
        // A location for files of one kind needs no other types.
        let is_special = block
            .location()
            .is_some_and(|location| location.is_regex() || location.modifier == Modifier::Exact);
        if (1..=ENTRIES_MAX).contains(&count) && lost > count && !is_special {
            report
                .find(node.name.span, format!("{lost} types of the outer block are lost here"))
                .note(outer.map_or(node.name.span, |o| first_types(o)), "they are listed here");
        }
    }
}

fn first_types(block: BlockRef<'_>) -> nowait_conf::Span {
    block.own("types").next().map_or(block.span(), |node| node.name.span)
}

fn types_duplicate(model: &Model<'_>, report: &mut RuleReport) {
    for block in model.for_requests() {
        let mut known: HashMap<Vec<u8>, (&Node, &Word)> = HashMap::new();
        for entry in entries(block) {
            for suffix in &entry.args {
                let key = suffix.text.to_ascii_lowercase();
                match known.get(&key) {
                    Some((before, first)) if before.name.text != entry.name.text => {
                        let (one, two) = (&before.name, &entry.name);
                        report
                            .find(suffix.span, format!("\"{suffix}\" is {one} and {two}"))
                            .note(first.span, "the first type");
                    }
                    _ => drop(known.insert(key, (entry, suffix))),
                }
            }
        }
    }
}
