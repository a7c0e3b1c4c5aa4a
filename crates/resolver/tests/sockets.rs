//! Lookups over real sockets: TCP, several workers, the system's files.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use nowait_resolver::system::Paths;
use nowait_resolver::{NameServer, ResolveError, Resolver, ResolverSettings};
use nowait_runtime::driver::{self, DriverKind, Requested};
use nowait_runtime::pool::{Pool, PoolConfig};
use nowait_runtime::worker::{self, WorkerConfig, Workers};
use nowait_testkit::dns::{A, DnsAnswer, NXDOMAIN, Query, SERVFAIL};
use nowait_testkit::{DnsServer, TempDir};

const TIMEOUT: Duration = Duration::from_secs(30);

fn drivers() -> Vec<DriverKind> {
    match driver::choose(Requested::IoUring) {
        (DriverKind::IoUring, _) => vec![DriverKind::Epoll, DriverKind::IoUring],
        (_, why) => {
            eprintln!("io_uring is not tested here: {why}");
            vec![DriverKind::Epoll]
        }
    }
}

fn pool() -> Pool {
    Pool::new(PoolConfig { name: "default".to_owned(), threads: 1, max_queue: 64 })
}

fn resolver(servers: &[SocketAddr]) -> Resolver {
    let servers = servers.iter().copied().map(NameServer::Address).collect();
    let settings = ResolverSettings { ipv6: false, ..ResolverSettings::new(servers) };
    Resolver::new(settings, &Resolver::system(pool()))
}

async fn text(resolver: &Resolver, name: &str) -> String {
    match resolver.resolve(name.as_bytes(), TIMEOUT).await {
        Ok(found) => found.list.iter().map(|ip| ip.to_string()).collect::<Vec<_>>().join(" "),
        Err(error) => error.to_string(),
    }
}

/// Looks names up on a worker of each driver.
fn look_up(names: &'static [&'static str], make: impl Fn() -> Resolver) -> Vec<Vec<String>> {
    let one = |kind| {
        let (send, receive) = mpsc::channel();
        let resolver = make();
        let config = WorkerConfig { guard: true, ..WorkerConfig::new(0, kind) };
        worker::run(config, &Workers::new(1).unwrap(), |_| async move {
            for name in names {
                send.send(text(&resolver, name).await).unwrap();
            }
        })
        .unwrap();
        receive.iter().collect()
    };
    drivers().into_iter().map(one).collect()
}

#[test]
fn what_does_not_fit_into_a_datagram_comes_by_tcp() {
    let many = |query: &Query| {
        (0..300).fold(DnsAnswer::new(), |answer, number| {
            answer.with_address(&query.name, 60, &format!("192.0.2.{}", number % 250))
        })
    };
    let dns = DnsServer::start(move |query| {
        let truncated = DnsAnswer::address(&query.name, 60, "203.0.113.1").with_flags(0x200);
        vec![match (query.name.as_str(), query.tcp) {
            (_, false) | ("always.example", true) => truncated,
            ("many.example", true) => many(query),
            (_, true) => DnsAnswer::address(&query.name, 60, "192.0.2.1"),
        }]
    });
    for texts in look_up(&["a.example", "many.example"], || resolver(&[dns.addr()])) {
        assert_eq!(texts[0], "192.0.2.1");
        assert_eq!(texts[1].split(' ').count(), 300);
    }
}

#[test]
fn a_flood_of_wrong_answers_leads_to_tcp() {
    let dns = DnsServer::start(|query| {
        if query.tcp {
            return vec![DnsAnswer::address(&query.name, 60, "192.0.2.1")];
        }
        vec![DnsAnswer::address(&query.name, 60, "203.0.113.66").with_wrong_id(); 32]
    });
    for texts in look_up(&["a.example"], || resolver(&[dns.addr()])) {
        assert_eq!(texts, ["192.0.2.1"]);
    }
}

#[test]
fn a_port_that_nobody_serves_is_passed_over_at_once() {
    let dns = DnsServer::start(|query| vec![DnsAnswer::address(&query.name, 60, "192.0.2.1")]);
    let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    for texts in look_up(&["a.example", "b.example"], || resolver(&[free, dns.addr()])) {
        assert_eq!(texts, ["192.0.2.1", "192.0.2.1"]);
    }
}

#[test]
fn ids_and_ports_differ() {
    let dns = DnsServer::start(|query| vec![DnsAnswer::address(&query.name, 60, "192.0.2.1")]);
    let names = &["a", "b", "c", "d", "e", "f", "g", "h"];
    look_up(names, || resolver(&[dns.addr()]));
    let mut ids: Vec<u16> = dns.queries().iter().map(|query| query.id).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert!(all >= names.len() && ids.len() >= all - 1, "{ids:?}");
}

#[test]
fn workers_share_lookups_and_answers() {
    const WORKERS: usize = 4;
    const TASKS: usize = 50;
    let gate = Arc::new(Barrier::new(2));
    let opened = gate.clone();
    let dns = DnsServer::start(move |query| {
        // Answered when all have asked.
        opened.wait();
        vec![DnsAnswer::address(&query.name, 3600, "192.0.2.1")]
    });
    let resolver = resolver(&[dns.addr()]);
    let workers = Workers::new(WORKERS).unwrap();
    let (send, receive) = mpsc::channel();
    let kind = *drivers().last().unwrap();
    let threads: Vec<_> = (0..WORKERS)
        .map(|index| {
            let (workers, resolver, send) = (workers.clone(), resolver.clone(), send.clone());
            std::thread::spawn(move || {
                worker::run(WorkerConfig::new(index, kind), &workers, |_| async move {
                    let tasks: Vec<_> = (0..TASKS)
                        .map(|_| {
                            let resolver = resolver.clone();
                            nowait_runtime::spawn(async move { text(&resolver, "a.example").await })
                        })
                        .collect();
                    send.send(None).unwrap();
                    for task in tasks {
                        send.send(Some(task.await.unwrap())).unwrap();
                    }
                })
                .unwrap()
            })
        })
        .collect();
    drop(send);
    let mut results = receive.iter();
    for _ in 0..WORKERS {
        assert_eq!(results.next(), Some(None));
    }
    gate.wait();
    let texts: Vec<_> = results.flatten().collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(texts.len(), WORKERS * TASKS);
    assert!(texts.iter().all(|text| text == "192.0.2.1"));
    assert_eq!(dns.count("a.example", A), 1);
}

#[test]
fn a_lookup_survives_the_end_of_its_worker() {
    let gate = Arc::new(Barrier::new(2));
    let opened = gate.clone();
    let dns = DnsServer::start(move |query| {
        if query.number == 0 {
            // Never answered: its worker is killed.
            opened.wait();
            return vec![];
        }
        vec![DnsAnswer::address(&query.name, 60, "192.0.2.1")]
    });
    let resolver = resolver(&[dns.addr()]);
    let workers = Workers::new(2).unwrap();
    let (first, second) = (resolver.clone(), resolver.clone());
    let (asking, killed) = (workers.clone(), workers.remote(0));
    let asker = std::thread::spawn(move || {
        worker::run(WorkerConfig::new(0, DriverKind::Epoll), &asking, |_| async move {
            text(&first, "a.example").await;
        })
        .unwrap()
    });
    gate.wait();
    let (send, receive) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        worker::run(WorkerConfig::new(1, DriverKind::Epoll), &workers, |_| async move {
            let waiting = nowait_runtime::spawn(async move { text(&second, "a.example").await });
            nowait_runtime::yield_now().await;
            nowait_runtime::yield_now().await;
            killed.kill();
            send.send(waiting.await.unwrap()).unwrap();
        })
        .unwrap();
    });
    assert_eq!(receive.recv_timeout(TIMEOUT).unwrap(), "192.0.2.1");
    asker.join().unwrap();
    waiter.join().unwrap();
}

/// The system's resolver over files of our own. The server's port can't be said in them.
fn system(directory: &Path, hosts: &str, conf: &str) -> Resolver {
    let paths = Paths {
        hosts: directory.join("hosts"),
        resolv_conf: directory.join("resolv.conf"),
        if_inet6: directory.join("if_inet6"),
    };
    fs::write(&paths.hosts, hosts).unwrap();
    fs::write(&paths.resolv_conf, conf).unwrap();
    Resolver::system_at(pool(), paths)
}

#[test]
fn names_of_the_hosts_file_need_no_server() {
    let directory = TempDir::new("resolver");
    let make = || {
        let hosts = "192.0.2.7 db.example db\n";
        system(directory.path(), hosts, "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    };
    for texts in look_up(&["db", "DB.example.", "localhost", "192.0.2.9", "[::1]"], make) {
        assert_eq!(texts, ["192.0.2.7", "192.0.2.7", "127.0.0.1 ::1", "192.0.2.9", "::1"]);
    }
}

#[test]
fn name_servers_may_have_names() {
    let dns = DnsServer::start(|query| {
        vec![match query.name.as_str() {
            "bad.example" => DnsAnswer::failure(SERVFAIL),
            "a.example" => DnsAnswer::address(&query.name, 60, "192.0.2.1"),
            _ => DnsAnswer::failure(NXDOMAIN),
        }]
    });
    let directory = TempDir::new("resolver");
    let make = || {
        let system = system(directory.path(), "127.0.0.1 ns.example\n", "");
        let named = |host: &str| NameServer::Name { host: host.into(), port: dns.addr().port() };
        let settings =
            ResolverSettings { ipv6: false, ..ResolverSettings::new(vec![named("ns.example")]) };
        Resolver::new(settings, &system)
    };
    for texts in look_up(&["a.example", "bad.example"], make) {
        assert_eq!(texts, ["192.0.2.1", "2: Server failure"]);
    }
}

#[test]
fn a_resolver_without_servers_says_so() {
    let directory = TempDir::new("resolver");
    let config = WorkerConfig::new(0, DriverKind::Epoll);
    let conf = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n";
    let system = system(directory.path(), "", conf);
    let unknown = NameServer::Name { host: "localhostx..".into(), port: 53 };
    let resolver = Resolver::new(ResolverSettings::new(vec![unknown]), &system);
    worker::run(config, &Workers::new(1).unwrap(), |_| async move {
        let result = resolver.resolve(b"a.example", TIMEOUT).await;
        assert_eq!(result, Err(ResolveError::NoServers));
    })
    .unwrap();
}

#[test]
fn a_lookup_that_nobody_wants_does_not_hold_up_the_end_of_its_worker() {
    let (tell, told) = mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    // Never answers.
    let dns = DnsServer::start(move |_| {
        let _ = tell.lock().unwrap().send(());
        vec![]
    });
    for kind in drivers() {
        let resolver = resolver(&[dns.addr()]);
        let workers = Workers::new(1).unwrap();
        let remote = workers.remote(0);
        let worker = std::thread::spawn(move || {
            worker::run(WorkerConfig::new(0, kind), &workers, |_| async move {
                let asking =
                    nowait_runtime::spawn(async move { text(&resolver, "a.example").await });
                worker::stopping().await;
                asking.abort();
            })
            .unwrap()
        });
        told.recv_timeout(TIMEOUT).unwrap();
        remote.stop();
        assert_eq!(worker.join().unwrap(), worker::WorkerEnd::Graceful);
    }
    assert_eq!(dns.queries().len(), drivers().len());
}
