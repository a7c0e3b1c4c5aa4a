//! A worker under test, as the program sets one up: generations from configuration texts, the loop
//! that accepts, reloads, the graceful end.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use nowait_conf::{Bundle, Cx, Paths, Registry, parse};
use nowait_connections::worker::Worker;
use nowait_front::log::Level;
use nowait_front::log::error::ErrorLog;
use nowait_front::log::writer::Writer;
use nowait_front::logs::Logs;
use nowait_front::resolvers::Resolvers;
use nowait_http::blocks;
use nowait_http::generation::{Contents, DEFAULT_POOL, Generation};
use nowait_modules::MODULES;
use nowait_runtime::net::{Accepted, Listener, ListenerOptions};
use nowait_runtime::pool::{Pool, PoolConfig};
use nowait_runtime::{sim, spawn};
use nowait_sys::listen::ListenAddress;

use super::plan::Plan;

/// Log threads need files; no log of a simulation has one.
static WRITER: LazyLock<Arc<Writer>> = LazyLock::new(|| Arc::new(Writer::start().unwrap()));

/// The server.
pub struct Server {
    plan: Plan,
    pool: Pool,
    worker: Rc<Worker>,
    newest: RefCell<Arc<Generation>>,
    number: Cell<u64>,
    /// Until it is told to end.
    listeners: RefCell<Option<[Rc<Listener>; 2]>>,
}

impl Server {
    /// Starts to serve the first generation.
    pub fn start(plan: Plan, address: SocketAddr, secure: SocketAddr) -> Rc<Server> {
        let config =
            PoolConfig { name: "default".to_owned(), threads: plan.threads, max_queue: 65_536 };
        // Caches have pools of their own.
        sim::set_disk(plan.disk);
        let pool = Pool::new(config);
        let generation = make(&plan, 1, &pool, None);
        let worker = Worker::new(generation.clone());
        worker.activate(generation.clone());
        let sockets =
            [(1, sim::listen(address), address), (2, sim::listen_encrypted(secure), secure)];
        let listeners = sockets.map(|(id, fd, address)| {
            let options = ListenerOptions { id, shared: false };
            let listener = Rc::new(Listener::from_fd(fd.unwrap(), options).unwrap());
            let address = Arc::new(ListenAddress::Inet(address));
            drop(spawn(accept(listener.clone(), address, worker.clone())));
            listener
        });
        let (newest, number) = (RefCell::new(generation), Cell::new(1));
        let listeners = RefCell::new(Some(listeners));
        Rc::new(Server { plan, pool, worker, newest, number, listeners })
    }

    /// The newest generation.
    pub fn generation(&self) -> u64 {
        self.number.get()
    }

    /// The threads, for the handshakes of clients.
    pub fn pool(&self) -> Pool {
        self.pool.clone()
    }

    /// Whether it has been told to end.
    pub fn is_stopped(&self) -> bool {
        self.listeners.borrow().is_none()
    }

    /// Puts the next generation to use.
    pub fn reload(&self) {
        let number = self.number.get() + 1;
        let generation = make(&self.plan, number, &self.pool, Some(&self.newest.borrow()));
        sim::note(format_args!("reload: generation {number}"));
        self.number.set(number);
        self.worker.activate(generation.clone());
        drop(self.newest.replace(generation));
    }

    /// Ends gracefully.
    pub fn stop(&self) {
        sim::note(format_args!("graceful stop"));
        // A socket is closed when the loop that accepts has taken what is queued.
        for listener in self.listeners.take().into_iter().flatten() {
            listener.stop();
        }
        self.worker.close(None);
        nowait_runtime::worker::remote().stop();
    }
}

async fn accept(listener: Rc<Listener>, address: Arc<ListenAddress>, worker: Rc<Worker>) {
    while let Ok(Accepted { stream, peer }) = listener.accept().await {
        drop(spawn(worker.serve(stream, peer, address.clone())));
    }
}

/// A generation of this number.
fn make(
    plan: &Plan,
    number: u64,
    pool: &Pool,
    previous: Option<&Arc<Generation>>,
) -> Arc<Generation> {
    let text = plan.configuration(number);
    let mut files = Bundle::default();
    let main = Path::new("/etc/sim.conf");
    files.add(main, text.clone());
    for (path, text) in super::tls::FILES {
        files.add_named(path, text.as_bytes().to_vec().into());
    }
    let (tree, mut diagnostics) = parse(&files, main, None);
    let registry = Registry::new(&blocks::rows(MODULES));
    let paths = Paths::new(&plan.dir, main);
    let mut cx = Cx::new(&registry, paths, &mut diagnostics).reading(&files);
    blocks::prepare(&mut cx, MODULES);
    let scope = cx.run(&tree);
    let built = blocks::build(&mut cx, &scope, MODULES);
    drop(cx);
    let Some(mut conf) = built.filter(|_| !diagnostics.has_errors()) else {
        panic!("{}\n{text}", diagnostics.render(false));
    };
    let paths = conf.temp_paths.iter().map(|temp| &temp.path);
    for path in
        paths.chain(nowait_backend::cache::path::paths(&conf).iter().map(|cache| &cache.path))
    {
        std::fs::create_dir_all(Path::new(std::ffi::OsStr::from_bytes(path))).unwrap();
    }
    if let Some(previous) = previous {
        conf.adopt(&previous.conf);
    }
    nowait_backend::health::prepare(&conf);
    let main_log = match plan.prints {
        true => ErrorLog::stderr(Level::Info),
        false => ErrorLog::new(Vec::new()),
    };
    let blocks = nowait_http::logs::blocks(&conf);
    let logs = Logs::open(blocks, WRITER.clone(), main_log, Default::default(), &mut |_| None);
    let stores = previous.map_or(&[][..], |previous| &previous.caches);
    let caches = nowait_backend::cache::zone::open(&conf, stores);
    let resolvers = previous.map(|previous| &previous.resolvers);
    let resolvers = Resolvers::new(&conf.resolvers, pool, resolvers);
    let pools = HashMap::from([(DEFAULT_POOL.to_owned(), pool.clone())]);
    let lifeline = Box::new(());
    let sessions = None;
    let contents =
        Contents { number, conf, pools, caches, resolvers, logs, sessions, quic: None, lifeline };
    Arc::new(Generation::new(contents))
}
