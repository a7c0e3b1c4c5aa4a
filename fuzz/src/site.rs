//! A site for targets that serve whole connections: a configuration without files, and an origin.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use nowait_conf::{Bundle, Cx, Paths, Registry, parse};
use nowait_front::log::error::ErrorLog;
use nowait_front::log::writer::Writer;
use nowait_front::logs::Logs;
use nowait_front::resolvers::Resolvers;
use nowait_http::blocks;
use nowait_http::generation::{Contents, DEFAULT_POOL, Generation};
use nowait_modules::MODULES;
use nowait_runtime::net::{Listener, ListenerOptions, SendOptions};
use nowait_runtime::pool::{Pool, PoolConfig};
use nowait_runtime::{JoinHandle, sim, spawn};

const ORIGIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 81);

/// Longer than any timeout of the configuration.
const PATIENCE: Duration = Duration::from_secs(600);

static WRITER: LazyLock<Arc<Writer>> =
    LazyLock::new(|| Arc::new(Writer::start().expect("threads")));

/// A configuration with these settings.
///
/// # Panics
/// If it has errors.
pub fn generation(settings: &str, listen: SocketAddr) -> Arc<Generation> {
    let text = format!(
        "http {{
    access_log off;
    http2 on;
    {settings}
    server {{
        listen {listen};
        location /return {{ return 200 \"$request_method $request_uri $http_a\\n\"; }}
        location /moved {{ return 302 /; }}
        location /slow {{ limit_rate 20; return 200 \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"; }}
        location / {{
            proxy_pass http://{ORIGIN};
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $http_connection;
        }}
    }}
}}
"
    );
    let mut files = Bundle::default();
    let main = Path::new("/etc/fuzz.conf");
    files.add(main, text.clone());
    let (tree, mut diagnostics) = parse(&files, main, None);
    let registry = Registry::new(&blocks::rows(MODULES));
    let mut cx = Cx::new(&registry, Paths::new(Path::new("/nowhere"), main), &mut diagnostics);
    blocks::prepare(&mut cx, MODULES);
    let scope = cx.run(&tree);
    let built = blocks::build(&mut cx, &scope, MODULES);
    drop(cx);
    let Some(conf) = built.filter(|_| !diagnostics.has_errors()) else {
        panic!("{}\n{text}", diagnostics.render(false));
    };
    let pool = Pool::new(PoolConfig { name: "default".to_owned(), threads: 1, max_queue: 64 });
    nowait_backend::health::prepare(&conf);
    let blocks = nowait_http::logs::blocks(&conf);
    let main_log = ErrorLog::new(Vec::new());
    let logs = Logs::open(blocks, WRITER.clone(), main_log, Default::default(), &mut |_| None);
    let resolvers = Resolvers::new(&conf.resolvers, &pool, None);
    let pools = HashMap::from([(DEFAULT_POOL.to_owned(), pool)]);
    let (caches, lifeline) = (Vec::new(), Box::new(()));
    let (number, sessions) = (1, None);
    let contents =
        Contents { number, conf, pools, caches, resolvers, logs, sessions, quic: None, lifeline };
    Arc::new(Generation::new(contents))
}

/// Starts an origin that answers each connection once, and closes it.
///
/// # Panics
/// Outside of a simulation.
pub fn serve_origin() -> JoinHandle<()> {
    let fd = sim::listen(ORIGIN).expect("a free address");
    let listener = Listener::from_fd(fd, ListenerOptions { id: 2, shared: false });
    let listener = listener.expect("a listening socket");
    spawn(async move {
        while let Ok(accepted) = listener.accept().await {
            drop(spawn(async move {
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
                let _ = accepted.stream.recv(PATIENCE).await;
                let options = SendOptions::new(PATIENCE);
                let _ = accepted.stream.send(bytes::Bytes::from(answer), options).await;
                let _ = accepted.stream.shutdown_write();
                while accepted.stream.recv(PATIENCE).await.is_ok_and(|data| !data.is_empty()) {}
            }));
        }
    })
}
