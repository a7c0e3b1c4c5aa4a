//! Access control.

use nowait_conf::{Level, Node, Word};

use crate::model::{BlockKind, BlockRef, Model, Modifier};
use crate::rule::{Rule, RuleReport};
use crate::values::{condition, is_from_client, variables};
use crate::words::{PASSES, has_word};

pub(crate) static RULES: &[Rule] = &[
    Rule {
        name: "allow-without-deny",
        level: Level::Error,
        fixes: false,
        summary: "`allow` without a later `deny` blocks no client",
        text: "Clients that match none of the lines are let in. A list of those who may enter has to end \
               with `deny all`.",
        wrong: "
location /admin/ {
    allow 10.0.0.0/8;
    proxy_pass http://127.0.0.1:8080;
}
",
        right: "
location /admin/ {
    allow 10.0.0.0/8;
    deny all;
    proxy_pass http://127.0.0.1:8080;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_access_module.html",
        check: without_deny,
    },
    Rule {
        name: "access-unreachable",
        level: Level::Warn,
        fixes: false,
        summary: "`allow` or `deny` after `deny all` or `allow all`",
        text: "The lines are tried in their order, and the first that matches decides. After `all`, \
               nothing is left to decide.",
        wrong: "
location /admin/ {
    deny all;
    allow 10.0.0.0/8;
    proxy_pass http://127.0.0.1:8080;
}
",
        right: "
location /admin/ {
    allow 10.0.0.0/8;
    deny all;
    proxy_pass http://127.0.0.1:8080;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_access_module.html",
        check: unreachable,
    },
    Rule {
        name: "satisfy-any-alone",
        level: Level::Warn,
        fixes: false,
        summary: "`satisfy any` with only one kind of check",
        text: "`any` means: the address or the password. With one of them only, it changes nothing; the \
               other one was probably forgotten.",
        wrong: "
server {
    listen 80;
    location /admin/ {
        satisfy any;
        allow 10.0.0.0/8;
        deny all;
        proxy_pass http://127.0.0.1:8080;
    }
}
",
        right: "
server {
    listen 80;
    location /admin/ {
        satisfy any;
        allow 10.0.0.0/8;
        deny all;
        auth_request /check;
        proxy_pass http://127.0.0.1:8080;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#satisfy",
        check: satisfy_any,
    },
    Rule {
        name: "auth-basic-without-file",
        level: Level::Error,
        fixes: false,
        summary: "`auth_basic` without `auth_basic_user_file` asks for no password",
        text: "Without a file of users there is no check: everybody is let in, as if `auth_basic` were \
               not there.",
        wrong: "
http {
    server {
        listen 127.0.0.1:80;
        auth_basic admin;
        root /srv/site;
    }
}
",
        right: "
http {
    server {
        listen 127.0.0.1:80;
        auth_basic admin;
        auth_basic_user_file users;
        root /srv/site;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_auth_basic_module.html",
        check: without_file,
    },
    Rule {
        name: "auth-basic-without-tls",
        level: Level::Warn,
        fixes: false,
        summary: "passwords are sent without encryption",
        text: "HTTP Basic authentication sends the password with each request, merely encoded. \
               Everybody on the way can read it, unless the connection is TLS.",
        wrong: "
server {
    listen 80;
    auth_basic admin;
    auth_basic_user_file users;
    root /srv/site;
}
",
        right: "
server {
    listen 443 ssl;
    ssl_certificate site.pem;
    ssl_certificate_key site.key;
    auth_basic admin;
    auth_basic_user_file users;
    root /srv/site;
}
",
        source: "https://www.rfc-editor.org/rfc/rfc7617#section-4",
        check: without_tls,
    },
    Rule {
        name: "real-ip-from-anybody",
        level: Level::Error,
        fixes: false,
        summary: "every client can forge its address (`set_real_ip_from 0.0.0.0/0`)",
        text: "The field with the client's address is believed if it comes from these networks. If they \
               are all, any client can claim any address, and pass `allow`, limits and logs. Name the \
               proxies.",
        wrong: "
set_real_ip_from 0.0.0.0/0;
real_ip_header X-Forwarded-For;
",
        right: "
set_real_ip_from 10.0.0.1;
real_ip_header X-Forwarded-For;
",
        source: "https://nginx.org/en/docs/http/ngx_http_realip_module.html",
        check: real_ip,
    },
    Rule {
        name: "referers-missing",
        level: Level::Error,
        fixes: false,
        summary: "`$invalid_referer` is asked for, without `valid_referers`",
        text: "The variable is set by `valid_referers`. Without it the condition is never true, and \
               nothing is refused.",
        wrong: "
location /images/ {
    root /srv/site;
    if ($invalid_referer) {
        return 403;
    }
}
",
        right: "
location /images/ {
    root /srv/site;
    valid_referers none blocked server_names;
    if ($invalid_referer) {
        return 403;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_referer_module.html",
        check: referers_missing,
    },
    Rule {
        name: "referers-none",
        level: Level::Notice,
        fixes: false,
        summary: "`valid_referers none` in front of an application",
        text: "A page can keep browsers from sending `Referer`. Against pictures on other sites, `none` \
               is right; against forged requests to an application, it makes the check useless.",
        wrong: "
location /transfer {
    valid_referers none server_names;
    if ($invalid_referer) {
        return 403;
    }
    proxy_pass http://127.0.0.1:8080;
}
",
        right: "
location /transfer {
    valid_referers server_names;
    if ($invalid_referer) {
        return 403;
    }
    proxy_pass http://127.0.0.1:8080;
}
",
        source: "https://www.rfc-editor.org/rfc/rfc9110#section-10.1.3",
        check: referers_none,
    },
    Rule {
        name: "public-status",
        level: Level::Warn,
        fixes: false,
        summary: "a status page that everybody can see",
        text: "`stub_status`, `status_api`, `metrics`, `api`, `dashboard` and `vhost_traffic_status_display` \
               tell how much a server has to do, which upstream servers it has, and whether they work. Allow \
               the addresses that need it.",
        wrong: "
server {
    listen 80;
    location = /status {
        stub_status;
    }
}
",
        right: "
server {
    listen 80;
    location = /status {
        stub_status;
        allow 127.0.0.1;
        deny all;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_stub_status_module.html",
        check: status,
    },
    Rule {
        name: "public-api",
        level: Level::Error,
        fixes: false,
        summary: "an API that everybody can change the server with",
        text: "Whoever reaches a location with `api write=on` can send the traffic of all groups to a \
               server of their own, take servers out of use, and empty caches. Allow the addresses that \
               need it, ask for a password, or let `limit_except GET` protect the methods that change \
               something. `allow` without `deny all` keeps nobody out.",
        wrong: "
server {
    listen 80;
    location /api/ {
        api write=on;
    }
}
",
        right: "
server {
    listen 80;
    location /api/ {
        api write=on;
        allow 192.0.2.7;
        deny all;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_api_module.html#api",
        check: writable_api,
    },
    Rule {
        name: "open-tunnel",
        level: Level::Error,
        fixes: false,
        summary: "everybody may open connections through this server to any other",
        text: "A proxy for CONNECT that anybody may use sends mail, scans networks and reaches servers \
               that only this machine can reach, all under its address. Let in known addresses \
               (`allow`, `deny all`), ask for passwords (`auth_basic`) or client certificates, and \
               choose the destinations by a `map`.",
        wrong: "
server {
    listen 3128;
    resolver 127.0.0.53;
    tunnel_pass;
}
",
        right: "
server {
    listen 3128;
    resolver 127.0.0.53;
    allow 192.0.2.0/24;
    deny all;
    tunnel_pass;
}
",
        source: "https://www.rfc-editor.org/rfc/rfc9110#section-9.3.6",
        check: tunnel,
    },
    Rule {
        name: "public-dav",
        level: Level::Error,
        fixes: false,
        summary: "everybody may change files",
        text: "`dav_methods` allows clients to write and delete files. Without a password, a client \
               certificate or a list of addresses, that is everybody.",
        wrong: "
server {
    listen 80;
    client_max_body_size 1g;
    location /files/ {
        root /srv;
        dav_methods PUT DELETE;
    }
}
",
        right: "
server {
    listen 80;
    client_max_body_size 1g;
    location /files/ {
        root /srv;
        dav_methods PUT DELETE;
        limit_except GET {
            allow 10.0.0.0/8;
            deny all;
        }
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_dav_module.html",
        check: dav,
    },
    Rule {
        name: "protection-bypassed",
        level: Level::Error,
        fixes: false,
        summary: "a regular expression or a variable takes files out of a protected location",
        text: "Locations with regular expressions come before prefixes, however long these are. A location \
               for a suffix therefore also serves such files below `/members/`, without the checks of \
               that location, and so does a location for a variable. `^~` puts a prefix first. What the \
               suffix needs, such as a script's `fastcgi_pass`, then goes into the protected location: in a \
               location of its own there, which inherits the checks.",
        wrong: "
location /members/ {
    auth_basic members;
    auth_basic_user_file users;
}
location ~ \\.mp4$ {
    expires 7d;
}
",
        right: "
location ^~ /members/ {
    auth_basic members;
    auth_basic_user_file users;
    location ~ \\.mp4$ {
        expires 7d;
    }
}
location ~ \\.mp4$ {
    expires 7d;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#location",
        check: bypassed,
    },
];

/// The lines of a block about addresses, in their order.
fn lines<'m>(block: BlockRef<'m>) -> Vec<&'m Node> {
    let nodes = block.nodes().iter();
    nodes.filter(|node| node.name == "allow" || node.name == "deny").collect()
}

fn is_all(node: &Node) -> bool {
    has_word(node, "all")
}

fn without_deny(model: &Model<'_>, report: &mut RuleReport) {
    for block in model.for_requests() {
        let lines = lines(block);
        let last = lines.iter().rposition(|node| node.name == "deny");
        let open = lines.iter().enumerate().find(|(at, node)| {
            node.name == "allow" && !is_all(node) && last.is_none_or(|d| d < *at)
        });
        if let Some((_, node)) = open {
            report
                .find(node.name.span, "\"allow\" without a later \"deny\" blocks no client")
                .hint("end the list with \"deny all;\"");
        }
    }
}

fn unreachable(model: &Model<'_>, report: &mut RuleReport) {
    for block in model.for_requests() {
        let lines = lines(block);
        let Some(at) = lines.iter().position(|node| is_all(node)) else { continue };
        if let Some(node) = lines.get(at + 1) {
            report
                .find(node.name.span, format!("\"{}\" is never reached", node.name))
                .note(lines[at].name.span, "this decides for everybody");
        }
    }
}

/// Whether some directive of a name in these blocks is not switched off.
fn is_on(blocks: &[BlockRef<'_>], name: &str) -> bool {
    blocks.iter().any(|block| block.own(name).any(|node| !has_word(node, "off")))
}

fn satisfy_any(model: &Model<'_>, report: &mut RuleReport) {
    for (block, node) in model.directives("satisfy") {
        if !has_word(node, "any") {
            continue;
        }
        let around: Vec<BlockRef<'_>> = block.chain().chain(block.within()).collect();
        let passwords = ["auth_basic", "auth_request", "auth_jwt", "auth_oidc"]
            .iter()
            .any(|name| is_on(&around, name));
        // The other kind may be where a snippet is included.
        if block.is_snippet() {
            continue;
        }
        let addresses = around.iter().any(|block| block.has_any(&["allow", "deny"]));
        if passwords != addresses || !passwords && !model.is_part {
            let missing = if passwords { "allow and deny" } else { "auth_basic or auth_request" };
            report
                .find(node.name.span, "\"satisfy any\" has no other check to choose")
                .hint(format!("{missing} is missing"));
        }
    }
}

fn without_file(model: &Model<'_>, report: &mut RuleReport) {
    for (block, node) in model.directives("auth_basic") {
        const USERS: &[&str] = &["auth_basic_user_file", "auth_basic_user"];
        let has = block.in_effect(USERS) || block.within().any(|inner| inner.has_any(USERS));
        if !has_word(node, "off") && !has && !model.is_part {
            report
                .find(node.name.span, "no password is asked for")
                .hint("auth_basic_user_file names the file of users");
        }
    }
}

fn without_tls(model: &Model<'_>, report: &mut RuleReport) {
    for server in model.servers() {
        let line = server.within().flat_map(|block| block.own("auth_basic")).find(|node| {
            !has_word(node, "off") && !node.args.iter().any(|word| word.text.starts_with(b"$"))
        });
        let redirects = server.within().any(|block| {
            condition(block).is_some_and(|words| {
                words.iter().any(|word| word.contains("$scheme") || word.contains("$https"))
            })
        });
        if let Some(node) = line.filter(|_| server.is_plain() && !redirects) {
            report
                .find(node.name.span, "passwords are sent without encryption")
                .note(server.span(), "this server listens without \"ssl\"");
        }
    }
}

fn real_ip(model: &Model<'_>, report: &mut RuleReport) {
    let lines = model.blocks().flat_map(|block| block.own("set_real_ip_from"));
    for word in lines.filter_map(|node| node.args.first()) {
        if ["0.0.0.0/0", "::/0", "0/0", "all"].iter().any(|any| *word == **any) {
            report
                .find(word.span, "every client can forge its address")
                .hint("name the addresses of the proxies");
        }
    }
}

fn referers_missing(model: &Model<'_>, report: &mut RuleReport) {
    for block in model.all(BlockKind::If) {
        let words = condition(block).unwrap_or_default();
        let asks = words.iter().any(|word| word.contains("$invalid_referer"));
        if asks && !block.in_effect(&["valid_referers"]) {
            report
                .find(block.span(), "$invalid_referer is never set here")
                .hint("valid_referers none blocked server_names;");
        }
    }
}

fn referers_none(model: &Model<'_>, report: &mut RuleReport) {
    for (block, node) in model.directives("valid_referers") {
        let none: Option<&Word> = node.args.iter().find(|word| **word == *"none");
        if let Some(word) = none.filter(|_| block.has_any(PASSES)) {
            report
                .find(word.span, "requests without \"Referer\" pass the check")
                .label("a page can leave it out");
        }
    }
}

fn writable_api(model: &Model<'_>, report: &mut RuleReport) {
    for (block, node) in model.directives("api") {
        let Some(write) = node.args.iter().find(|word| **word == *"write=on") else { continue };
        let chain: Vec<_> = block.chain().collect();
        let has_inner = |kind| block.inner().any(|inner| inner.kind() == kind);
        let is_limited = has_inner(BlockKind::LimitExcept) || has_inner(BlockKind::If);
        if !is_checked(&chain) && !is_limited && is_open(block) && !block.is_snippet() {
            report
                .find(write.span, "everybody can change servers of groups, and purge caches")
                .hint("allow 127.0.0.1; deny all;");
        }
    }
}

/// Whether other machines reach the block.
fn is_open(block: BlockRef<'_>) -> bool {
    let listens = block.server().map(|server| server.listens());
    listens.is_none_or(|all| all.is_empty() || all.iter().any(|listen| !listen.is_local))
}

fn status(model: &Model<'_>, report: &mut RuleReport) {
    const CHECKS: &[&str] = &["allow", "deny", "auth_basic", "auth_request", "internal"];
    const PAGES: &[&str] = &[
        "stub_status",
        "status_api",
        "metrics",
        "api",
        "dashboard",
        "vhost_traffic_status_display",
        "prometheus",
    ];
    for name in PAGES {
        for (block, node) in model.directives(name) {
            if node.args.first().is_some_and(|word| word.text == b"off") {
                continue;
            }
            let is_checked = block.chain().any(|outer| outer.has_any(CHECKS))
                || block.chain().any(|outer| outer.is_set("ssl_verify_client", "on"))
                || block.inner().any(|inner| inner.kind() == BlockKind::If);
            if !is_checked && is_open(block) && !block.is_snippet() {
                report
                    .find(node.name.span, format!("everybody can see the page of \"{name}\""))
                    .hint("allow 127.0.0.1; deny all;");
            }
        }
    }
}

/// Whether a directive in these blocks restricts access.
fn is_checked(blocks: &[BlockRef<'_>]) -> bool {
    let has = |name: &str| blocks.iter().any(|block| block.has(name));
    is_on(blocks, "auth_basic")
        || is_on(blocks, "auth_request")
        || has("deny")
        || has("internal")
        || blocks.iter().any(|block| block.is_set("ssl_verify_client", "on"))
}

/// Whether a location has checks of its own that depend on who asks. Those of `internal` and an `alias` name
/// files that no other location finds at that path.
fn is_protected(location: BlockRef<'_>) -> bool {
    is_on(&[location], "auth_jwt")
        || is_on(&[location], "auth_oidc")
        || location.has("secure_link")
        || is_checked(&[location]) && !(location.has("internal") && location.has("alias"))
}

/// Whether nobody gets anything here.
fn is_closed(location: BlockRef<'_>) -> bool {
    let is_refusal = |word: &Word| word.text.starts_with(b"4");
    location.own("return").any(|node| node.args.first().is_some_and(is_refusal))
}

/// The text of a location that takes requests from prefixes, wherever they point: a suffix or a variable.
fn catching(block: BlockRef<'_>) -> Option<&[u8]> {
    if let Some(variable) = block.own_location_variable() {
        return Some(variable);
    }
    let location = block.own_location().filter(|location| location.is_regex())?;
    (!location.text.starts_with(b"^") && !location.text.contains(&b'/')).then_some(location.text)
}

/// Locations for a suffix or a variable are compared with protected prefixes beside them.
fn bypassed(model: &Model<'_>, report: &mut RuleReport) {
    for outer in model.for_requests() {
        let inner: Vec<_> = outer.inner().collect();
        let open: Vec<_> = inner
            .iter()
            .filter(|block| !block.chain().any(is_protected) && !is_closed(**block))
            .filter_map(|block| Some((block, catching(*block)?)))
            .collect();
        let prefixes = inner.iter().filter_map(|block| Some((block, block.own_location()?)));
        let prefixes = prefixes.filter(|(block, location)| {
            location.modifier == Modifier::Prefix && location.text != b"/" && is_protected(**block)
        });
        for (block, location) in prefixes {
            // A nested location is tried first.
            let is_nested =
                |text: &[u8]| block.inner().any(|nested| catching(nested) == Some(text));
            if let Some((other, text)) = open.iter().find(|(_, text)| !is_nested(text)) {
                let (path, text) = (location.lossy(), String::from_utf8_lossy(text));
                report
                    .find(block.span(), format!("files below {path} are served without its checks"))
                    .note(other.span(), format!("\"{text}\" comes first"))
                    .hint(format!(
                        "\"location ^~ {path}\" comes before regular expressions and variables"
                    ));
            }
        }
    }
}

/// Whether only this machine reaches the server of a block.
fn is_local(block: BlockRef<'_>) -> bool {
    block.server().is_some_and(|server| server.listens().iter().all(|listen| listen.is_local))
}

fn tunnel(model: &Model<'_>, report: &mut RuleReport) {
    for (block, node) in model.directives("tunnel_pass") {
        // Without an argument, it is $host:$request_port.
        let is_open = |text: &str| {
            variables(text.as_bytes())
                .iter()
                .any(|name| matches!(name.as_str(), "host" | "http_host") || is_from_client(name))
        };
        let is_open = node.args.first().is_none_or(|word| is_open(&word.lossy()));
        let around: Vec<BlockRef<'_>> = block.chain().collect();
        if is_open && !is_local(block) && !is_checked(&around) {
            report
                .find(node.name.span, "everybody may open connections to any server here")
                .hint("restrict addresses by \"allow\" and \"deny all\", or ask for passwords by \"auth_basic\"")
                .hint("choose the destinations by a \"map\" of $host:$request_port");
        }
    }
}

fn dav(model: &Model<'_>, report: &mut RuleReport) {
    for (block, node) in model.directives("dav_methods") {
        let writes = !has_word(node, "off") && !node.args.is_empty();
        let around: Vec<BlockRef<'_>> = block.chain().collect();
        let inner: Vec<BlockRef<'_>> =
            block.inner().filter(|inner| inner.kind() == BlockKind::LimitExcept).collect();
        // An "off" of its own takes the outer password away.
        let is_off = block.is_set("auth_basic", "off") && !block.has_any(&["deny", "auth_request"]);
        if writes && !is_local(block) && !is_checked(&inner) && (is_off || !is_checked(&around)) {
            report
                .find(node.name.span, "everybody may change files here")
                .hint("ask for passwords by \"auth_basic\", or restrict addresses in \"limit_except GET\"");
        }
    }
}
