//! What the seed decides about a run before it begins.

use std::path::PathBuf;
use std::time::Duration;

use nowait_runtime::sim::{self, Disk, NetworkFaults};

use super::origin_gateway::Protocol;
use super::{origin, site};

/// The decisions.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The directory of temporary files.
    pub dir: PathBuf,
    /// The disk.
    pub disk: Disk,
    /// Threads of the pool.
    pub threads: usize,
    /// Number of clients.
    pub clients: u64,
    /// When they come, at most.
    pub arrival_max: Duration,
    /// When the configuration is reloaded.
    pub reloads: Vec<Duration>,
    /// When the server ends before its clients do.
    pub stop: Option<Duration>,
    /// Whether connections to origins of HTTP have TLS.
    secures_origins: bool,
    /// Settings besides those of all plans.
    settings: String,
    /// Settings of proxying.
    proxy: String,
    /// Settings of FastCGI.
    fastcgi: String,
    /// Settings of caching.
    cache: String,
    /// Prints the trace and the error log.
    pub prints: bool,
}

/// The network of this seed. It has to be known before the run begins.
pub fn faults(seed: u64) -> NetworkFaults {
    match seed % 8 {
        0 | 1 => NetworkFaults::fair(),
        2 => NetworkFaults { reset_one_in: 400, ..NetworkFaults::rough() },
        _ => NetworkFaults::rough(),
    }
}

impl Plan {
    /// Draws one from the running simulation.
    pub fn draw(seed: u64, prints: bool) -> Plan {
        let disk = pick(&[Disk::fast(), Disk::slow(), Disk::slow(), Disk::failing()]);
        let within = |seconds: u64| Duration::from_millis(sim::random(seconds * 1000));
        let arrival_max = pick(&[1, 10, 60]);
        let reloads = (0..sim::random(site::GENERATIONS_MAX)).map(|_| within(arrival_max + 10));
        let mut reloads: Vec<Duration> = reloads.collect();
        reloads.sort();
        let one_of =
            |settings: &[&str]| settings[sim::random(settings.len() as u64) as usize].to_owned();
        let settings = [
            one_of(&["", "sendfile on;"]),
            one_of(&["", "aio threads;"]),
            one_of(&["", "open_file_cache max=4 inactive=5s; open_file_cache_valid 2s;"]),
            one_of(&["", "gzip on; gzip_min_length 1; gzip_types *;"]),
            one_of(&["", "output_buffers 1 4k;", "output_buffers 4 64k;"]),
            one_of(&["", "postpone_output 0;"]),
            one_of(&["", "keepalive_requests 2;"]),
            one_of(&["", "lingering_close always;", "lingering_close off;"]),
            one_of(&["", "reset_timedout_connection on;"]),
            one_of(&["", "http2_max_concurrent_streams 2;"]),
            one_of(&["", "http2_body_preread_size 0;", "http2_body_preread_size 1k;"]),
            one_of(&["", "http2_chunk_size 1k;"]),
        ];
        let proxy = [
            one_of(&["", "proxy_buffer_size 1k; proxy_buffers 2 1k; proxy_busy_buffers_size 1k;"]),
            one_of(&["", "proxy_max_temp_file_size 0;", "proxy_max_temp_file_size 20k;"]),
            one_of(&["", "proxy_request_buffering off;"]),
            one_of(&["", "client_body_buffer_size 1k;"]),
            one_of(&["", "proxy_socket_keepalive on;"]),
            one_of(&[
                "",
                "proxy_http_version 1.0;",
                "proxy_http_version 2;",
                "proxy_http_version 2;",
            ]),
            one_of(&["", "proxy_ignore_client_abort on;"]),
            one_of(&["", "", "limit_rate 30k;", "limit_rate 1k; limit_rate_after 100k;"]),
            one_of(&["", "proxy_ssl_session_reuse off;"]),
            one_of(&["", "proxy_ssl_protocols TLSv1.2;", "proxy_ssl_protocols TLSv1.3;"]),
        ];
        let fastcgi = [
            one_of(&["", "fastcgi_keep_conn on;", "fastcgi_keep_conn on;"]),
            one_of(&["", "fastcgi_buffering off;"]),
            one_of(&[
                "",
                "fastcgi_buffer_size 1k; fastcgi_buffers 2 1k; fastcgi_busy_buffers_size 1k;",
            ]),
            one_of(&["", "fastcgi_max_temp_file_size 0;", "fastcgi_max_temp_file_size 20k;"]),
            one_of(&["", "fastcgi_request_buffering off;"]),
            one_of(&["", "fastcgi_limit_rate 20k;"]),
        ];
        let cache = [
            one_of(&[
                "",
                "proxy_cache_lock on;",
                "proxy_cache_lock on; proxy_cache_lock_timeout 1s;",
            ]),
            one_of(&["", "proxy_cache_use_stale updating error timeout;"]),
            one_of(&["", "proxy_cache_background_update on;"]),
            one_of(&["", "proxy_cache_min_uses 2;"]),
            one_of(&["", "aio threads;"]),
            one_of(&["", "", "limit_rate 30k;"]),
        ];
        Plan {
            dir: site::dir().join(format!("run-{seed}")),
            disk,
            threads: 1 + sim::random(8) as usize,
            clients: 1 + sim::random(20),
            arrival_max: Duration::from_secs(arrival_max),
            reloads,
            secures_origins: sim::random(2) == 0,
            stop: (sim::random(4) == 0).then(|| within(arrival_max + 10)),
            settings: settings.join(" "),
            proxy: proxy.join(" "),
            fastcgi: fastcgi.join(" "),
            cache: cache.join(" "),
            prints,
        }
    }

    /// Whether the server does not read what a client sends beyond the last request.
    pub fn closes_unread(&self) -> bool {
        self.settings.contains("lingering_close off")
    }

    /// Whether uploads reach origins while they arrive: refused ones may be lost.
    pub fn streams_uploads(&self) -> bool {
        self.proxy.contains("proxy_request_buffering off")
            || self.fastcgi.contains("fastcgi_request_buffering off")
    }

    /// The text of a generation.
    pub fn configuration(&self, generation: u64) -> String {
        let root = site::dir().join(format!("g{generation}"));
        let (root, settings) = (root.display(), &self.settings);
        let (proxy, fastcgi, cache) = (&self.proxy, &self.fastcgi, &self.cache);
        let fastcgi_cache = cache.replace("proxy_", "fastcgi_");
        let (scheme, [first, second]) = match self.secures_origins {
            true => ("https", origin::ADDRESSES.map(origin::secure)),
            false => ("http", origin::ADDRESSES),
        };
        let timeouts = timeouts("fastcgi");
        let (groups, locations) = (gateway_groups(), gateway_locations(fastcgi));
        format!(
            "http {{
    access_log off;
    client_header_timeout 10s;
    client_body_timeout 10s;
    send_timeout 20s;
    keepalive_timeout 15s;
    http2 on;
    limit_req_zone $binary_remote_addr zone=few:1m rate=2r/s;
    proxy_cache_path cache levels=1:2 keys_zone=one:1m max_size=500k inactive=20s;
    fastcgi_cache_path cache-fastcgi levels=1:2 keys_zone=two:1m max_size=500k inactive=20s;
    {settings}
    {groups}
    upstream origin {{
        server {first} max_fails=0;
        server {second} max_fails=0;
        keepalive 4;
        keepalive_timeout 5s;
    }}
    server {{
        listen 192.0.2.1:80;
        listen 192.0.2.1:443 ssl;
        ssl_certificate /etc/own.pem;
        ssl_certificate_key /etc/own.key;
        ssl_conf_command Options -KTLS;
        root {root};
        add_header X-Generation {generation} always;
        location /files/ {{ }}
        location /slowly/ {{ alias {root}/files/; limit_rate 50k; }}
        location /few/ {{ alias {root}/files/; limit_req zone=few burst=2; }}
        location /return/ {{ return 200 \"generation {generation}\\n\"; }}
        location /moved/ {{ return 302 /files/one; }}
        {locations}
        location /cached-fastcgi/ {{
            fastcgi_pass fastcgi;
            {timeouts}
            fastcgi_param REQUEST_URI $request_uri;
            {fastcgi}
            add_header X-Generation {generation} always;
            add_header X-Cache $upstream_cache_status;
            fastcgi_cache two;
            fastcgi_cache_key $uri;
            fastcgi_cache_valid 200 3s;
            {fastcgi_cache}
        }}
        location / {{
            proxy_pass {scheme}://origin;
            proxy_connect_timeout 3s;
            proxy_send_timeout 8s;
            proxy_read_timeout 8s;
            {proxy}
            location /unbuffered/ {{ proxy_pass {scheme}://origin; proxy_buffering off; }}
            location /cached/ {{
                proxy_pass {scheme}://origin;
                add_header X-Generation {generation} always;
                add_header X-Cache $upstream_cache_status;
                proxy_cache one;
                proxy_cache_valid 200 3s;
                {cache}
            }}
        }}
    }}
}}
"
        )
    }
}

fn pick<T: Copy>(choices: &[T]) -> T {
    choices[sim::random(choices.len() as u64) as usize]
}

/// The upstream groups of the protocols besides HTTP.
fn gateway_groups() -> String {
    let group = |(protocol, name): (Protocol, &str)| {
        let [first, second] = origin::ADDRESSES.map(|address| protocol.beside(address));
        format!(
            "upstream {name} {{
                server {first} max_fails=0;
                server {second} max_fails=0;
                keepalive 4;
                keepalive_timeout 5s;
            }}
            "
        )
    };
    Protocol::ALL.into_iter().map(group).collect()
}

/// Their locations, with further settings of FastCGI.
fn gateway_locations(fastcgi: &str) -> String {
    let location = |(protocol, name): (Protocol, &str)| {
        let own = match protocol {
            Protocol::FastCgi => fastcgi,
            Protocol::Memcached => "set $memcached_key $uri;",
            Protocol::Uwsgi | Protocol::Scgi => "",
        };
        let params = match protocol {
            Protocol::Memcached => String::new(),
            _ => format!(
                "{name}_param REQUEST_URI $request_uri;
                {name}_param REQUEST_METHOD $request_method;
                {name}_param CONTENT_LENGTH $content_length;"
            ),
        };
        let timeouts = timeouts(name);
        format!("location /{name}/ {{ {name}_pass {name}; {timeouts} {params} {own} }}\n        ")
    };
    Protocol::ALL.into_iter().map(location).collect()
}

/// As in the locations of HTTP.
fn timeouts(module: &str) -> String {
    format!("{module}_connect_timeout 3s; {module}_send_timeout 8s; {module}_read_timeout 8s;")
}
