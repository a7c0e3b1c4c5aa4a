//! What `nowait explain` says about a request is what the server does with it: each module that handles
//! requests is asked for both. A new one has to be listed here.

use std::collections::BTreeSet;
use std::path::Path;

use nowait_testkit::{Binary, Driver, Response, Server};
use serde_json::Value;

/// Every location names itself, and the origin says what it was asked for.
const CONFIGURATION: &str = r#"
limit_req_zone $arg_key zone=rate:1m rate=100r/s;
limit_conn_zone $arg_key zone=few:1m;
request_ring 10;
upload_progress up 32k;
proxy_cache_path %%DIR%%/cache keys_zone=c:1m;
map $uri $at { default $uri; }
upstream app { server 127.0.0.1:%%PORT_1%%; }
server {
    listen 127.0.0.1:%%PORT_1%%;
    location / { add_header X-Origin $request_uri always; return 200 origin; }
    location /check/no { return 403; }
}
server {
    listen 127.0.0.1:%%PORT%%;
    root %%DIR%%/html;
    set_real_ip_from 127.0.0.1;
    more_set_input_headers "X-Put: yes";
    location / { add_header X-At root always; }
    location /deny/ { deny 192.0.2.0/24; deny 127.0.0.1; add_header X-At deny always; }
    location /any/ { satisfy any; allow 192.0.2.1; deny all; auth_basic x; auth_basic_user_file %%DIR%%/pw; add_header X-At any always; }
    location /basic/ { auth_basic x; auth_basic_user_file %%DIR%%/pw; add_header X-At basic always; }
    location /asked/ { auth_request /auth/yes; add_header X-At asked always; }
    location /refused/ { auth_request /auth/no; add_header X-At refused always; }
    location = /auth/yes { internal; return 204; }
    location = /auth/no { internal; return 403; }
    location /list/ { autoindex on; add_header X-At list always; }
    location /dav/ { dav_methods PUT DELETE; add_header X-At dav always; }
    location /empty.gif { empty_gif; add_header X-At gif always; }
    location /flv/ { flv; add_header X-At flv always; }
    location /mp4/ { mp4; add_header X-At mp4 always; }
    location /index/ { index none $arg_index /index/last; add_header X-At index always; }
    location = /index/last { return 200 last; add_header X-At last always; }
    location /limited/ { limit_req zone=rate burst=5; limit_conn few 5; add_header X-At limited always; }
    location /mirrored/ { mirror /copy; add_header X-At mirrored always; }
    location = /copy { internal; proxy_pass http://app; }
    location /headers/ { add_header X-At headers$http_x_put always; }
    location /random/ { random_index on; add_header X-At random always; }
    location /real/ { allow 192.0.2.7; deny all; real_ip_header X-Real-IP; add_header X-At real always; }
    location /rewrite/ { rewrite ^/rewrite/moved/(.*)$ /$1 permanent; rewrite ^/rewrite/(.*)$ /$1 last; }
    location /close/ { return 444; }
    location /condition/ { if ($arg_a = b) { return 418; } if (-f %%DIR%%/html/f.txt) { add_header X-If file; } }
    location /packed/ { gzip_static on; add_header X-At packed always; }
    location = /status { status_api; add_header X-At status always; }
    location = /stub { stub_status; add_header X-At stub always; }
    location = /requests { requests_api; add_header X-At requests always; }
    location = /clients { connections_api; add_header X-At clients always; }
    location /traced/ { otel_trace_context propagate; add_header X-At traced always; }
    location /tried/ { try_files $uri $uri/ /none =404; add_header X-At tried always; }
    location /fallback/ { try_files $uri @app; }
    location @app { add_header X-At app always; proxy_pass http://app; }
    location /page/ { error_page 404 = /f.txt; error_page 403 @app; deny 192.0.2.7; add_header X-At page always; }
    location = /progress { report_uploads up; }
    location /tracked/ { track_uploads up 1m; add_header X-At tracked always; proxy_pass http://app/v1/; }
    location /pass/ { add_header X-At pass always; proxy_pass http://app/v1/; }
    location /cached/ { add_header X-At cached always; proxy_cache c; proxy_cache_valid 1m; proxy_cache_purge PURGE from 192.0.2.7; proxy_pass http://app; }
    location /var/ { add_header X-At var always; proxy_pass http://127.0.0.1:%%PORT_1%%$uri; }
    location /chosen/ { add_header X-At chosen always; auth_request /ask; proxy_pass http://app/chosen/; }
    location = /ask { internal; proxy_pass http://app/check/yes; }
    location ~ ^/purge/(.*)$ { proxy_cache_purge c http://app$1; }
}
"#;

/// How a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Response(u16),
    /// With the origin's response.
    Upstream,
    Closed,
    /// The explanation does not say.
    Unknown,
}

use End::{Closed, Response as Status, Unknown, Upstream};

/// Folder or file of a module, a request, its fields, and how it ends.
type Row = (&'static str, &'static str, &'static [&'static str], End);

const ROWS: &[Row] = &[
    ("access", "GET /deny/f", &[], Status(403)),
    ("access", "GET /any/f.txt", &["X-Real-IP: 192.0.2.1"], Status(200)),
    ("acme", "GET /.well-known/acme-challenge/none", &[], Status(404)),
    ("auth_basic", "GET /any/f.txt", &[], Status(401)),
    ("auth_basic", "GET /basic/f.txt", &["Authorization: Basic dTpw"], Status(200)),
    ("auth_basic", "GET /basic/f.txt", &["Authorization: Basic dTp4"], Status(401)),
    ("auth_request", "GET /asked/f.txt", &[], Status(200)),
    ("auth_request", "GET /refused/f.txt", &[], Status(403)),
    ("auth_request", "GET /chosen/x", &[], Upstream),
    ("autoindex", "GET /list/", &[], Status(200)),
    ("connections_api", "GET /clients", &[], Unknown),
    ("dav", "GET /dav/f.txt", &[], Status(200)),
    ("dav", "PUT /dav/new", &[], Unknown),
    ("empty_gif", "GET /empty.gif", &[], Status(200)),
    ("empty_gif", "POST /empty.gif", &[], Status(405)),
    ("flv", "GET /flv/f.txt", &[], Status(200)),
    ("flv", "GET /flv/none", &[], Status(404)),
    ("flv", "PUT /flv/f.txt", &[], Status(405)),
    ("index", "GET /index/?index=f.txt", &[], Status(200)),
    ("index", "GET /index/?index=none", &[], Status(200)),
    ("index", "GET /deep/none/", &[], Status(404)),
    ("limit", "GET /limited/f.txt?key=1", &[], Status(200)),
    ("limit", "GET /limited/f.txt", &[], Status(200)),
    ("mirror", "GET /mirrored/f.txt", &[], Status(200)),
    ("more_headers", "GET /headers/f.txt", &[], Status(200)),
    ("mp4", "GET /mp4/f.txt", &[], Status(200)),
    ("mp4", "POST /mp4/f.txt", &[], Status(405)),
    ("otel", "GET /traced/f.txt", &[], Status(200)),
    ("random_index", "GET /random/", &[], Status(200)),
    ("realip", "GET /real/f.txt", &["X-Real-IP: 192.0.2.7"], Status(200)),
    ("realip", "GET /real/f.txt", &["X-Real-IP: 192.0.2.8"], Status(403)),
    ("requests", "GET /requests", &[], Unknown),
    ("rewrite", "GET /rewrite/f.txt", &[], Status(200)),
    ("rewrite", "GET /rewrite/moved/f.txt", &[], Status(301)),
    ("rewrite", "GET /close/", &[], Closed),
    ("rewrite", "GET /condition/f.txt?a=b", &[], Status(418)),
    ("rewrite", "GET /condition/f.txt", &[], Status(200)),
    ("static_files", "GET /f.txt", &[], Status(200)),
    ("static_files", "GET /none", &[], Status(404)),
    ("static_files", "GET /deep", &[], Status(301)),
    ("static_files", "GET /page/none", &[], Status(200)),
    ("static_files", "POST /f.txt", &[], Status(405)),
    ("static_files", "PUT /f.txt", &[], Status(405)),
    ("static_files", "GET /packed/f.txt", &["Accept-Encoding: gzip"], Status(200)),
    ("static_files", "GET /packed/f.txt", &[], Status(200)),
    ("status", "GET /status", &[], Unknown),
    ("stub_status", "GET /stub", &[], Unknown),
    ("try_files", "GET /tried/f.txt", &[], Status(200)),
    ("try_files", "GET /tried/none", &[], Status(404)),
    ("try_files", "GET /tried/", &[], Status(403)),
    ("try_files", "GET /fallback/none", &[], Upstream),
    ("upload_progress", "GET /progress?X-Progress-ID=a", &[], Unknown),
    ("upload_progress", "GET /progress", &[], Unknown),
    ("upload_progress", "POST /tracked/x", &["X-Progress-ID: a"], Upstream),
    ("backend", "GET /pass/a%20b?x", &[], Upstream),
    ("backend", "POST /pass/x", &[], Upstream),
    ("backend", "GET /cached/x", &[], Upstream),
    ("backend", "PURGE /cached/x", &[], Status(403)),
    ("backend", "GET /var/x", &[], Upstream),
    ("backend", "GET /page/x", &["X-Real-IP: 192.0.2.7"], Upstream),
    ("backend", "GET /purge//cached/none", &[], Unknown),
    ("backend", "POST /purge//cached/none", &[], Unknown),
];

/// A server with the files that the requests are about.
fn server(driver: Driver) -> Server {
    let mut site = Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait"))).http(CONFIGURATION);
    let folders = [
        "",
        "deep/",
        "any/",
        "basic/",
        "asked/",
        "list/",
        "dav/",
        "flv/",
        "headers/",
        "mp4/",
        "index/",
        "limited/",
        "mirrored/",
        "random/",
        "real/",
        "condition/",
        "packed/",
        "tried/",
        "traced/",
    ];
    for folder in folders {
        site = site.file(&format!("html/{folder}f.txt"), format!("in /{folder}"));
    }
    site = site.file("html/packed/f.txt.gz", "packed").file("pw", "u:{PLAIN}p\n");
    for allowed in
        ["access forbidden by rule", "No such file", "password mismatch", "no user/password"]
    {
        site = site.allow_log(allowed);
    }
    for allowed in ["is forbidden", "no handler found", "is not found", "unsupported"] {
        site = site.allow_log(allowed);
    }
    site.driver(driver).start()
}

/// What the server does.
fn answer(server: &Server, request: &str, fields: &[&str]) -> Option<Response> {
    let mut client = server.client();
    let lines: String = fields.iter().map(|line| format!("{line}\r\n")).collect();
    client.send(format!(
        "{request} HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n{lines}\r\n",
        server.port()
    ));
    match client.try_response(false) {
        Ok(response) => Some(response),
        Err(why) => {
            assert!(client.pending().is_empty(), "{why}");
            client.expect_closed();
            None
        }
    }
}

/// What it would do.
fn explanation(server: &Server, request: &str, fields: &[&str]) -> Value {
    let (method, target) = request.split_once(' ').unwrap();
    let mut command = server.binary().command();
    command.args(["explain", "--json", "-X", method, "-c"]).arg(server.dir().join("nginx.conf"));
    fields.iter().for_each(|field| _ = command.args(["-H", field]));
    let output =
        command.arg(format!("http://localhost:{}{target}", server.port())).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{request}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn end_of(explained: &Value) -> End {
    match explained["end"]["kind"].as_str().unwrap() {
        "response" => Status(explained["end"]["status"].as_u64().unwrap().try_into().unwrap()),
        "upstream" => Upstream,
        "closed" => Closed,
        _ => Unknown,
    }
}

/// Whether both are about the same: the fields of the explanation are those of the response, and an upstream
/// server was asked for the explained URI.
fn agree(explained: &Value, end: End, answer: Option<&Response>) -> Result<(), String> {
    if end_of(explained) != end {
        return Err("ends otherwise".to_owned());
    }
    let answer = match (end, answer) {
        (Unknown, _) | (Closed, None) => return Ok(()),
        (Upstream, Some(answer)) => answer,
        (Status(status), Some(answer)) if answer.status == status => answer,
        _ => return Err("the server does something else".to_owned()),
    };
    for field in explained["end"]["fields"].as_array().unwrap() {
        let (name, value) = (field["name"].as_str().unwrap(), field["value"].as_str().unwrap());
        // An upstream server's response has its own.
        if end == Upstream && (name == "Content-Length" || name == "Content-Type") {
            continue;
        }
        if !answer.all(name).any(|found| found.ends_with(value)) {
            return Err(format!("no {name}: {value}"));
        }
    }
    let origin = answer.header("X-Origin");
    if origin.is_some() != (end == Upstream) {
        return Err("another server responds".to_owned());
    }
    let Some(uri) = origin else { return Ok(()) };
    let steps = explained["steps"].as_array().unwrap().iter();
    let said: Vec<&str> = steps
        .filter(|step| step["about"] == "upstream" && step["depth"] == 0)
        .filter_map(|step| step["text"].as_str()?.strip_prefix("URI "))
        .map(|text| text.split(',').next().unwrap())
        .collect();
    if said == [uri] { Ok(()) } else { Err(format!("not asked for {said:?}")) }
}

#[test]
fn explanations_are_true() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let server = server(driver);
        let mut wrong = Vec::new();
        for (_, request, fields, end) in ROWS {
            let explained = explanation(&server, request, fields);
            let answer = (*end != Unknown).then(|| answer(&server, request, fields)).flatten();
            if let Err(why) = agree(&explained, *end, answer.as_ref()) {
                let answer = answer.map(|answer| answer.to_string()).unwrap_or_default();
                wrong.push(format!(
                    "{request} {fields:?}: {why}\n{:#}\n{answer}\n",
                    explained["end"]
                ));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        server.stop();
    }
}

#[test]
fn every_handler_is_asked() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut handlers = BTreeSet::new();
    let mut folders = vec![sources.join("modules/src"), sources.join("backend/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if std::fs::read_to_string(&path).unwrap().contains(" Handler for ") {
                let inside = path.strip_prefix(sources).unwrap();
                let mut parts = inside.iter().map(|part| part.to_str().unwrap());
                let name = match parts.next().unwrap() {
                    "modules" => parts.nth(1).unwrap().trim_end_matches(".rs"),
                    name => name,
                };
                handlers.insert(name.to_owned());
            }
        }
    }
    let asked: BTreeSet<String> = ROWS.iter().map(|(module, ..)| (*module).to_owned()).collect();
    assert_eq!(handlers, asked);
}
