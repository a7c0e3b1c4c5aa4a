//! The one server per driver, with a location for every task, and the origins behind it.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use nowait_testkit::{Binary, Driver, Server};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ServerConfig};

use crate::authority::{Authority, Issued};
use crate::origin::{self, Faults, Speaks};
use crate::plan::{self, To};

/// Sizes of buffers that locations of the proxy have.
pub const BUFFERS: [&str; 3] = [
    "",
    "client_body_buffer_size 8k; proxy_buffer_size 4k; proxy_buffers 2 4k;
     proxy_busy_buffers_size 4k;",
    "client_body_buffer_size 1k; proxy_buffer_size 8k; proxy_buffers 8 8k;
     proxy_max_temp_file_size 0;",
];

/// A server and its origins.
pub struct Site {
    server: Option<Server>,
    /// Lengths whose files are there.
    files: Mutex<HashSet<usize>>,
    pub faults: Faults,
    pub tls12: Arc<ClientConfig>,
    pub tls13: Arc<ClientConfig>,
}

impl Site {
    /// Starts everything.
    pub fn start(driver: Driver) -> Site {
        let authority = Authority::new("CA");
        let own = authority.issue("localhost");
        let faults = Faults::default();
        let secured = |protocols: &[&str]| Some(server_config(&own, protocols));
        let start = |speaks, tls| origin::start(speaks, tls, &faults).to_string();
        let mut builder = Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait")))
            .driver(driver)
            .config(&configuration())
            .file("own.pem", &own.chain)
            .file("own.key", &own.key)
            .file("files/1", plan::file(1).bytes());
        for (name, speaks, tls) in [
            ("H1", Speaks::Http1, None),
            ("H1S", Speaks::Http1, secured(&["http/1.1"])),
            ("H2", Speaks::Http2, None),
            ("H2S", Speaks::Http2, secured(&["h2"])),
            ("FASTCGI", Speaks::FastCgi, None),
            ("DUPLEX", Speaks::Duplex, None),
            ("DUPLEXS", Speaks::Duplex, secured(&[])),
        ] {
            builder = builder.variable(name, start(speaks, tls));
        }
        let server = builder.start();
        for directory in ["files", "dav"] {
            let path = server.dir().join(directory);
            std::fs::create_dir_all(&path).expect("a directory");
            std::fs::set_permissions(path, Permissions::from_mode(0o777)).expect("its owner");
        }
        let provider = rustls::crypto::aws_lc_rs::default_provider;
        Site {
            server: Some(server),
            files: Mutex::default(),
            faults,
            tls12: authority.client_of(provider()),
            tls13: authority.client_of_tls13(provider()),
        }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    /// Where it listens for HTTP.
    pub fn port(&self, secure: bool) -> u16 {
        self.server().port_n(usize::from(secure))
    }

    /// Where it listens for sessions: of clients with TLS, to an origin with TLS.
    pub fn stream_port(&self, secure: bool, secured: bool) -> u16 {
        self.server().port_n(2 + 2 * usize::from(secure) + usize::from(secured))
    }

    /// Makes the file of a length.
    pub fn make_file(&self, len: usize) {
        if self.files.lock().expect("no thread panics with it").contains(&len) {
            return;
        }
        let dir = self.server().dir().join("files");
        let new = dir.join(format!("{len}.{:?}", std::thread::current().id()));
        std::fs::write(&new, plan::file(len).bytes()).expect("a file");
        std::fs::rename(new, dir.join(len.to_string())).expect("a file");
        self.files.lock().expect("no thread panics with it").insert(len);
    }

    /// The end of its error log, which may tell of other clients, too.
    pub fn log_tail(&self) -> String {
        let log = self.server().log();
        let lines: Vec<_> = log.lines().filter(|line| !line.contains("[notice]")).collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }

    /// Stops it; its log must tell of no fault.
    pub fn stop(mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }
}

fn server_config(own: &Issued, protocols: &[&str]) -> Arc<ServerConfig> {
    let chain = vec![CertificateDer::from_pem_slice(own.chain.as_bytes()).expect("PEM")];
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).expect("PEM");
    let config = ServerConfig::builder().with_no_client_auth();
    let mut config = config.with_single_cert(chain, key).expect("a certificate and its key");
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Where the proxy leads to, and how.
fn pass(to: To) -> &'static str {
    match to {
        To::Http1 => "proxy_pass http://h1;",
        To::Http1Tls => "proxy_pass https://h1s;",
        To::Http2 => "proxy_pass http://h2; proxy_http_version 2;",
        To::Http2Tls => "proxy_pass https://h2s; proxy_http_version 2;",
    }
}

fn on(flag: bool) -> (char, &'static str) {
    if flag { ('b', "on") } else { ('u', "off") }
}

/// The configuration; names of origins are variables of the test kit.
fn configuration() -> String {
    let mut locations = String::new();
    // Writing to a String can't fail.
    for to in To::ALL {
        let (name, pass) = (to.name(), pass(to));
        for (response, request) in [(true, true), (true, false), (false, true), (false, false)] {
            let ((response, buffering), (request, request_buffering)) = (on(response), on(request));
            for (n, buffers) in BUFFERS.iter().enumerate() {
                let _ = writeln!(
                    locations,
                    "location /p/{name}/{response}{request}{n}/ {{ {pass} {buffers}
                     proxy_buffering {buffering}; proxy_request_buffering {request_buffering}; }}"
                );
            }
        }
        let _ = writeln!(locations, "location /c/{name}/ {{ {pass} proxy_cache c; }}");
    }
    for (response, request) in [(true, true), (true, false), (false, true), (false, false)] {
        let ((response, buffering), (request, request_buffering)) = (on(response), on(request));
        let _ = writeln!(
            locations,
            "location /f/{response}{request}/ {{ fastcgi_pass fastcgi; fastcgi_keep_conn on;
             fastcgi_param REQUEST_URI $request_uri; fastcgi_param CONTENT_LENGTH $content_length;
             fastcgi_param REQUEST_METHOD $request_method;
             fastcgi_buffering {buffering}; fastcgi_request_buffering {request_buffering}; }}"
        );
    }
    format!(
        "%%MAIN%%
events {{
    %%EVENTS%%
}}
http {{
    %%HTTP%%
    access_log off;
    client_max_body_size 0;
    upstream h1 {{ server %%H1%%; keepalive 8; keepalive_timeout 10s; }}
    upstream h1s {{ server %%H1S%%; keepalive 8; keepalive_timeout 10s; }}
    upstream h2 {{ server %%H2%%; keepalive 4; keepalive_timeout 10s; }}
    upstream h2s {{ server %%H2S%%; keepalive 4; keepalive_timeout 10s; }}
    upstream fastcgi {{ server %%FASTCGI%%; keepalive 4; keepalive_timeout 10s; }}
    proxy_set_header Connection \"\";
    proxy_cache_path %%DIR%%/cache keys_zone=c:4m max_size=64m levels=1:2;
    ssl_certificate %%DIR%%/own.pem;
    ssl_certificate_key %%DIR%%/own.key;
    keepalive_requests 100000;
    server {{
        listen 127.0.0.1:%%PORT%%;
        listen 127.0.0.1:%%PORT_1%% ssl;
        listen 127.0.0.1:%%PORT_1%% quic;
        http2 on;
        server_name localhost;
        add_header X-Cache $upstream_cache_status;
        location /files/ {{ alias %%DIR%%/files/; }}
        location /sendfile/ {{ alias %%DIR%%/files/; sendfile on; tcp_nopush on; }}
        location /threads/ {{ alias %%DIR%%/files/; aio threads; output_buffers 2 8k; }}
        location /direct/ {{ alias %%DIR%%/files/; directio 64k; }}
        location /dav/ {{ alias %%DIR%%/dav/; dav_methods PUT DELETE; }}
        location /discard {{ return 200 done; }}
        location /u/ {{ proxy_pass http://h1; proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }}
        location /g/ {{ grpc_pass grpc://h2; }}
        location /c/sliced/ {{ proxy_pass http://h1; slice 16k; proxy_cache c;
            proxy_cache_key $uri$is_args$args$slice_range;
            proxy_set_header Range $slice_range; proxy_cache_valid 200 206 1h; }}
        {locations}
    }}
    server {{
        listen 127.0.0.1:%%PORT%%;
        listen 127.0.0.1:%%PORT_1%% ssl;
        listen 127.0.0.1:%%PORT_1%% quic;
        http2 on;
        server_name tunnel.test;
        tunnel_pass %%DUPLEX%%;
    }}
}}
stream {{
    proxy_half_close on;
    ssl_certificate %%DIR%%/own.pem;
    ssl_certificate_key %%DIR%%/own.key;
    server {{ listen 127.0.0.1:%%PORT_2%%; proxy_pass %%DUPLEX%%; }}
    server {{ listen 127.0.0.1:%%PORT_3%%; proxy_pass %%DUPLEXS%%; proxy_ssl on; }}
    server {{ listen 127.0.0.1:%%PORT_4%% ssl; proxy_pass %%DUPLEX%%; }}
    server {{ listen 127.0.0.1:%%PORT_5%% ssl; proxy_pass %%DUPLEXS%%; proxy_ssl on; }}
}}
"
    )
}
