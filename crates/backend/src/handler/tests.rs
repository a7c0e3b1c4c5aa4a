//! A second protocol through the same handler, engine and cache.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::rc::Rc;

use nowait_caching::validity::ValidByStatus;
use nowait_conf::{Bundle, Cx, Paths, Registry, parse};
use nowait_front::log::Level;
use nowait_front::log::error::ErrorLog;
use nowait_front::log::writer::Writer;
use nowait_front::logs::Logs;
use nowait_front::resolvers::Resolvers;
use nowait_http::client::Client;
use nowait_http::conf::upstream::GroupId;
use nowait_http::conf::{HttpConf, Location, ServerId};
use nowait_http::exchange::NoClient;
use nowait_http::filter::Pull;
use nowait_http::generation::{Contents, Current, DEFAULT_POOL, Generation};
use nowait_http::module::{Module, ModuleList};
use nowait_http::services::Services;
use nowait_message::{ResponseBuilder, ResponseHead, Version};
use nowait_runtime::buf::OutBuf;
use nowait_runtime::driver::DriverKind;
use nowait_runtime::now;
use nowait_runtime::pool::{Pool, PoolConfig};
use nowait_runtime::worker::{self, WorkerConfig, Workers};

use super::*;
use crate::cache::conf::{CacheMethods, Names, Texts, UseStale, Zone};
use crate::cache::purge::conf::Purge;
use crate::conf::Backend;
use crate::response::Rewriter;
use crate::upstream::{
    BodyEvent, BodyStep, Codec, CodecFactory, Content, Fault, HeadEvent, HeadStep, UpstreamStream,
};

/// The protocol. A request is a line with a URI. The response is a line with the length of the body,
/// and the body.
struct Tiny {
    backend: Backend,
}

struct TinyFactory;

impl CodecFactory for TinyFactory {
    fn codec(&self, _: &Request, lane: Option<&Rc<UpstreamStream>>) -> Box<dyn Codec> {
        assert!(lane.is_none(), "connections are not shared");
        Box::new(TinyCodec { line: Vec::new(), left: 0 })
    }
}

struct TinyCodec {
    /// The received part of the line.
    line: Vec<u8>,
    left: usize,
}

impl Codec for TinyCodec {
    fn begin(
        &mut self,
        _: &Request,
        order: &UpstreamRequest,
        out: &mut OutBuf,
    ) -> Result<Content, u16> {
        let LogUri::Text(uri) = &order.uri else { return Err(500) };
        out.extend_from_slice(uri);
        out.extend_from_slice(b"\n");
        Ok(Content::None)
    }

    fn receive_head(&mut self, input: &[u8]) -> Result<HeadStep, Fault> {
        let end = input.iter().position(|b| *b == b'\n');
        self.line.extend_from_slice(&input[..end.unwrap_or(input.len())]);
        let Some(end) = end else {
            return Ok(HeadStep { consumed: input.len(), event: HeadEvent::NeedMore });
        };
        let malformed = || Fault::Malformed("invalid line".into());
        let line = std::str::from_utf8(&self.line).map_err(|_| malformed())?;
        self.left = line.parse().map_err(|_| malformed())?;
        Ok(HeadStep { consumed: end + 1, event: HeadEvent::Final(Rc::new(head())) })
    }

    fn receive_body(&mut self, input: &[u8]) -> Result<BodyStep, Fault> {
        let length = self.left.min(input.len());
        self.left -= length;
        let event = match (length, self.left) {
            (0, 0) => BodyEvent::End,
            (0, _) => BodyEvent::NeedMore,
            _ => BodyEvent::Data(0..length),
        };
        Ok(BodyStep { consumed: length, event })
    }

    fn receive_eof(&mut self) -> Result<(), Fault> {
        Err(Fault::PrematureClose)
    }

    fn body_left(&self) -> Option<u64> {
        Some(self.left as u64)
    }

    fn is_reusable(&self, leftover: bool) -> bool {
        !leftover
    }
}

fn head() -> ResponseHead {
    let mut head = ResponseBuilder::new();
    head.set_status(200, Default::default(), Version::Http11);
    head.take()
}

impl Rewriter for Tiny {}

impl Protocol for Tiny {
    const CODECS: &'static dyn CodecFactory = &TinyFactory;

    fn of_location(_: &Location) -> Option<&Arc<Self>> {
        None
    }

    fn backend(&self) -> &Backend {
        &self.backend
    }

    fn group(&self) -> Option<GroupId> {
        Some(GroupId(0))
    }

    fn evaluate(&self, _: &mut Request) -> Result<Server, u16> {
        Err(500)
    }

    fn transport(&self, _: &Request) -> Transport {
        Transport { scheme: "tiny://", tls: None }
    }

    fn uri(&self, request: &Request) -> Result<LogUri, u16> {
        Ok(LogUri::Text(request.uri().path.clone().into()))
    }

    fn streams(&self, _: &Request) -> bool {
        false
    }

    fn default_key(&self, request: &Request, out: &mut Vec<u8>) {
        out.extend_from_slice(b"tiny:");
        out.extend_from_slice(&request.uri().path);
    }
}

fn tiny() -> Arc<Tiny> {
    let backend = Backend::new("tiny");
    Arc::new(Tiny { backend })
}

fn cache() -> Arc<CacheConf> {
    Arc::new(CacheConf {
        names: &Names {
            cache: "tiny_cache",
            key: "tiny_cache_key",
            bypass: "tiny_cache_bypass",
            no_cache: "tiny_no_cache",
            valid: "tiny_cache_valid",
            min_uses: "tiny_cache_min_uses",
            methods: "tiny_cache_methods",
            purge: "tiny_cache_purge",
        },
        zone: Zone::Fixed(0),
        key: None,
        bypass: Texts::default(),
        no_cache: Texts::default(),
        valid: ValidByStatus(vec![(None, 3600)]),
        min_uses: 1,
        max_range_offset: None,
        use_stale: UseStale::default(),
        methods: CacheMethods::GET,
        lock: false,
        lock_timeout: std::time::Duration::from_secs(5),
        lock_age: std::time::Duration::from_secs(5),
        revalidate: false,
        convert_head: true,
        background_update: false,
        purge: Purge::Never,
        purge_tags: Texts::default(),
        purge_soft: Texts::default(),
        read_while_filling: true,
        strict: false,
        tags: Texts::default(),
        status: None,
    })
}

crate::cache_path_rows! { static CACHE_PATH_ROWS, module "tiny", name "tiny_cache_path"; }

/// The directive that the tests need, and what this crate adds.
static MODULES: ModuleList = ModuleList(&[
    &Module { rows: &[CACHE_PATH_ROWS], ..Module::EMPTY },
    &crate::cache::MODULE,
    &crate::health::MODULE,
]);

/// The configuration of this text.
fn build(text: &str, dir: &Path) -> HttpConf {
    let mut files = Bundle::default();
    let main = dir.join("nginx.conf");
    files.add(&main, text);
    let (tree, mut diagnostics) = parse(&files, &main, None);
    let registry = Registry::new(&nowait_http::blocks::rows(MODULES));
    let mut cx = Cx::new(&registry, Paths::new(dir, &main), &mut diagnostics);
    nowait_http::blocks::prepare(&mut cx, MODULES);
    let scope = cx.run(&tree);
    let built = nowait_http::blocks::build(&mut cx, &scope, MODULES);
    drop(cx);
    built.unwrap_or_else(|| panic!("{}", diagnostics.render(false)))
}

/// A generation whose first group has the server at this port, and whose first cache is in `dir`.
fn generation(port: u16, dir: &Path) -> Arc<Generation> {
    let text = format!(
        "http {{
            tiny_cache_path {}/cache keys_zone=one:1m;
            upstream tiny {{ server 127.0.0.1:{port}; keepalive 4; }}
            server {{ listen 127.0.0.1:1; location / {{ }} }}
        }}",
        dir.display()
    );
    let conf = build(&text, dir);
    std::fs::create_dir_all(dir.join("cache")).unwrap();
    let config = PoolConfig { name: DEFAULT_POOL.to_owned(), threads: 2, max_queue: 64 };
    let pool = Pool::new(config);
    let blocks = nowait_http::logs::blocks(&conf);
    let writer = Arc::new(Writer::start().unwrap());
    let log = ErrorLog::stderr(Level::Info);
    let logs = Logs::open(blocks, writer, log, Default::default(), &mut |_| None);
    Arc::new(Generation::new(Contents {
        number: 1,
        caches: crate::cache::zone::open(&conf, &[]),
        resolvers: Resolvers::new(&conf.resolvers, &pool, None),
        conf,
        pools: HashMap::from([(DEFAULT_POOL.to_owned(), pool)]),
        logs,
        sessions: None,
        quic: None,
        lifeline: Box::new(()),
    }))
}

/// A server of the protocol. Each body says how many connections there were, and which request of
/// its connection this is.
fn serve(listener: &TcpListener) {
    for (connection, stream) in listener.incoming().enumerate() {
        let mut stream = stream.unwrap();
        for (n, line) in BufReader::new(stream.try_clone().unwrap()).lines().enumerate() {
            let Ok(uri) = line else { break };
            let body = format!("{}.{}: {uri}", connection + 1, n + 1);
            write!(stream, "{}\n{body}", body.len()).unwrap();
        }
    }
}

/// The body of the response to a request for this path.
async fn get(
    handler: &ProxyHandler<Tiny>,
    services: &Rc<Services>,
    current: &Rc<Current>,
    path: &str,
) -> String {
    let address = Address::Unix(Box::default());
    let listen = Arc::new(current.conf.listens()[0].spec.address.clone());
    let client = Client::new(services.next_number(), address, listen, now());
    let exchange = NoClient::new(client, services.clone());
    let mut request = Request::new(exchange, current.clone(), ServerId(0), now());
    request.replace_path(path.as_bytes().to_vec());
    let outcome = match handler.handle(&mut request) {
        Step::Done(_, outcome) => outcome,
        Step::Wait(rest) => match rest.await {
            Step::Done(_, outcome) => outcome,
            _ => panic!("a handler of content decides"),
        },
        _ => panic!("a handler of content decides"),
    };
    let Outcome::Response(response) = outcome else { panic!("{path}: no response") };
    let mut body = Vec::new();
    let mut pull = Pull::new(response.body);
    while let Some(piece) = pull.next().await.unwrap() {
        body.extend_from_slice(&piece);
    }
    String::from_utf8(body).unwrap()
}

#[test]
fn another_protocol_has_the_same_handler_and_cache() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || serve(&listener));
    let dir = std::env::temp_dir().join(format!("nowait-tiny-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let generation = generation(port, &dir);
    let (tell, told) = std::sync::mpsc::channel();
    let config = WorkerConfig::new(0, DriverKind::Epoll);
    let ended = worker::run(config, &Workers::new(1).unwrap(), |remote| async move {
        let (services, current) = (Rc::new(Services::default()), Current::new(generation));
        let plain = ProxyHandler { conf: tiny(), cache: None };
        let cached = ProxyHandler { conf: tiny(), cache: Some(cache()) };
        let mut seen = Vec::new();
        for (handler, path) in
            [(&plain, "/a"), (&plain, "/a"), (&cached, "/b"), (&cached, "/b"), (&cached, "/c")]
        {
            seen.push(get(handler, &services, &current, path).await);
        }
        tell.send(seen).unwrap();
        remote.stop();
    });
    ended.unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    // The connection is kept, and the cache responds once.
    assert_eq!(told.recv().unwrap(), ["1.1: /a", "1.2: /a", "1.3: /b", "1.3: /b", "1.4: /c"]);
}
