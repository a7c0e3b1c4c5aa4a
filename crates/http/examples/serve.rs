//! Serves a configuration in one worker of one process, without logs: for profiling.
use std::path::Path;
use std::sync::Arc;

use nowait_conf::{Cx, Disk, Paths, Registry};
use nowait_http::{conf, generation::Generation, worker};
use nowait_runtime::pool::{Pool, PoolConfig};
use nowait_runtime::worker::{WorkerConfig, Workers};

fn main() {
    let file = std::env::args().nth(1).expect("a configuration");
    let kind = std::env::args().nth(2).unwrap_or_default();
    let main = Path::new(&file);
    let (tree, mut diagnostics) = nowait_conf::parse(&Disk, main, None);
    let tables: Vec<_> = conf::rows();
    let registry = Registry::new(&tables);
    let mut cx = Cx::new(&registry, Paths::new(Path::new("/tmp"), main), &mut diagnostics);
    let scope = cx.run(&tree);
    let http = conf::build(&mut cx, &scope);
    for d in diagnostics.iter() {
        eprintln!("{}", d.message());
    }
    let http = http.expect("an http block");
    let mut listeners = Vec::new();
    for listen in http.listens() {
        listeners.push((
            listen.spec.address.clone(),
            nowait_sys::listen::open(&listen.spec).expect("listen"),
        ));
    }
    let pool = Pool::new(PoolConfig { name: "default".into(), threads: 32, max_queue: 65536 });
    let logs = nowait_http::logs::Logs::stderr(&http).expect("logs");
    let generation = Arc::new(Generation {
        number: 1,
        conf: http,
        pools: [("default".to_owned(), pool)].into(),
        logs,
    });
    let workers = Workers::new(1).expect("workers");
    let driver = match &kind[..] {
        "uring" => nowait_runtime::driver::DriverKind::IoUring,
        _ => nowait_runtime::driver::DriverKind::Epoll,
    };
    let mut config = WorkerConfig::new(0, driver);
    config.connections_max = 10000;
    nowait_runtime::worker::run(config, &workers, |_| async move {
        let worker = worker::Worker::new(generation);
        let listeners = listeners.into_iter().enumerate().map(|(n, (address, fd))| {
            worker::WorkerListener { fd, address, id: n as u64, shared: false }
        });
        worker.listen(listeners.collect()).expect("listen");
        nowait_runtime::worker::stopping().await;
    })
    .expect("the loop");
}
