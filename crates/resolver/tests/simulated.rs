//! Lookups on the simulated driver: time is virtual, the network has the faults of the test.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use nowait_resolver::{NameServer, ResolveError, Resolver, ResolverSettings};
use nowait_runtime::net::{Datagram, NO_TIMEOUT};
use nowait_runtime::pool::{Pool, PoolConfig};
use nowait_runtime::sim::{self, NetworkFaults};
use nowait_runtime::{now, sleep, spawn};
use nowait_testkit::dns::{self, A, AAAA, DnsAnswer, Query, SRV};

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(30);

/// What came to a simulated server: time, name, type.
type ServerQuery = Rc<RefCell<Vec<(Duration, String, u16)>>>;

/// A name server of the simulation, and what came to it.
fn server(script: impl Fn(&Query) -> Vec<DnsAnswer> + 'static) -> (SocketAddr, ServerQuery) {
    let socket = Datagram::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    let asked = ServerQuery::default();
    let (log, start) = (asked.clone(), now());
    let serving = spawn(async move {
        loop {
            // Long after the last question the test has ended.
            let Ok((message, from)) = socket.recv_from(Duration::from_secs(900)).await else {
                break;
            };
            let mut query = Query::parse(&message, false);
            let same =
                |seen: &&(Duration, String, u16)| seen.1 == query.name && seen.2 == query.kind;
            query.number = log.borrow().iter().filter(same).count();
            log.borrow_mut().push((now() - start, query.name.clone(), query.kind));
            for answer in script(&query) {
                if let Some(message) = answer.message(&query) {
                    socket.send_to(&message, from).await.unwrap();
                }
            }
        }
    });
    drop(serving);
    (address, asked)
}

fn resolver(servers: &[SocketAddr], change: impl Fn(&mut ResolverSettings)) -> Resolver {
    let servers = servers.iter().copied().map(NameServer::Address).collect();
    let mut settings = ResolverSettings::new(servers);
    change(&mut settings);
    let config = PoolConfig { name: "default".to_owned(), threads: 1, max_queue: 1 };
    Resolver::new(settings, &Resolver::system(Pool::new(config)))
}

/// IPv4 only, which halves the number of questions.
fn ipv4(settings: &mut ResolverSettings) {
    settings.ipv6 = false;
}

async fn text(resolver: &Resolver, name: &str) -> String {
    match resolver.resolve(name.as_bytes(), TIMEOUT).await {
        Ok(found) => found.list.iter().map(|ip| ip.to_string()).collect::<Vec<_>>().join(" "),
        Err(error) => error.to_string(),
    }
}

fn count(asked: &ServerQuery) -> usize {
    asked.borrow().len()
}

#[test]
fn both_families_are_asked_for_and_remembered() {
    sim::run(1, NetworkFaults::fair(), || async {
        let (address, asked) = server(|query| {
            vec![match query.kind {
                A => DnsAnswer::address(&query.name, 10, "192.0.2.1").with_address(
                    &query.name,
                    20,
                    "192.0.2.2",
                ),
                AAAA => DnsAnswer::address(&query.name, 30, "2001:db8::1"),
                _ => unreachable!(),
            }]
        });
        let resolver = resolver(&[address], |_| {});
        assert!(resolver.known(b"a.example", now()).is_none());
        for name in ["a.example", "A.Example", "a.example."] {
            assert_eq!(text(&resolver, name).await, "192.0.2.1 192.0.2.2 2001:db8::1");
        }
        assert_eq!(count(&asked), 2);
        let known = resolver.known(b"a.example", now()).unwrap();
        assert!(known.valid - now() <= 10 * SECOND && known.valid - now() > 9 * SECOND);
        sleep(10 * SECOND).await;
        assert!(resolver.known(b"a.example", now()).is_none());
        text(&resolver, "a.example").await;
        assert_eq!(count(&asked), 4);
        assert_eq!(resolver.statistics().noerror, 4);
    });
}

#[test]
fn valid_takes_the_place_of_the_ttl() {
    sim::run(1, NetworkFaults::fair(), || async {
        let (address, asked) =
            server(|query| vec![DnsAnswer::address(&query.name, 1, "192.0.2.1")]);
        let resolver = resolver(&[address], |settings| {
            ipv4(settings);
            settings.valid = Some(5 * SECOND);
        });
        for (pause, questions) in [(0, 1), (4, 1), (2, 2)] {
            sleep(pause * SECOND).await;
            assert_eq!(text(&resolver, "a.example").await, "192.0.2.1");
            assert_eq!(count(&asked), questions);
        }
    });
}

#[test]
fn a_ttl_of_zero_serves_those_who_wait_and_nobody_else() {
    sim::run(1, NetworkFaults::fair(), || async {
        let (address, asked) =
            server(|query| vec![DnsAnswer::address(&query.name, 0, "192.0.2.1")]);
        let resolver = resolver(&[address], ipv4);
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                let resolver = resolver.clone();
                spawn(async move { text(&resolver, "a.example").await })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), "192.0.2.1");
        }
        assert_eq!(count(&asked), 1);
        text(&resolver, "a.example").await;
        assert_eq!(count(&asked), 2);
    });
}

#[test]
fn silence_is_answered_by_the_next_server_after_five_seconds() {
    sim::run(1, NetworkFaults::fair(), || async {
        let (silent, first) = server(|_| vec![DnsAnswer::silence()]);
        let (good, second) = server(|query| vec![DnsAnswer::address(&query.name, 9, "192.0.2.1")]);
        let resolver = resolver(&[silent, good], ipv4);
        let start = now();
        assert_eq!(text(&resolver, "a.example").await, "192.0.2.1");
        assert_eq!((now() - start).as_secs(), 5);
        assert_eq!((count(&first), count(&second)), (1, 1));
        // Servers take turns in being the first.
        assert_eq!(text(&resolver, "b.example").await, "192.0.2.1");
        assert_eq!((now() - start).as_secs(), 5);
    });
}

#[test]
fn a_lookup_ends_with_the_patience_of_those_who_wait() {
    sim::run(1, NetworkFaults::fair(), || async {
        let (silent, asked) = server(|_| vec![DnsAnswer::silence()]);
        let resolver = resolver(&[silent], ipv4);
        let start = now();
        let impatient = resolver.resolve(b"a.example", 2 * SECOND).await;
        assert_eq!(impatient, Err(ResolveError::TimedOut));
        assert_eq!((now() - start).as_secs(), 2);
        assert_eq!(text(&resolver, "a.example").await, "110: Operation timed out");
        assert_eq!((now() - start).as_secs(), 32);
        // Nothing waits any more: nothing asks.
        let before = count(&asked);
        sleep(100 * SECOND).await;
        assert!(before <= 8 && count(&asked) == before);
        assert_eq!(resolver.statistics().timedout, 2);
    });
}

#[test]
fn a_late_answer_is_welcome() {
    sim::run(1, NetworkFaults::fair(), || async {
        let socket = Datagram::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let resolver = resolver(&[socket.local_addr().unwrap()], ipv4);
        drop(spawn(async move {
            let (message, from) = socket.recv_from(NO_TIMEOUT).await.unwrap();
            sleep(7 * SECOND).await;
            let query = Query::parse(&message, false);
            let answer = DnsAnswer::address(&query.name, 9, "192.0.2.1").message(&query).unwrap();
            socket.send_to(&answer, from).await.unwrap();
        }));
        let start = now();
        assert_eq!(text(&resolver, "a.example").await, "192.0.2.1");
        assert_eq!((now() - start).as_secs(), 7);
    });
}

#[test]
fn what_does_not_match_the_question_is_ignored() {
    sim::run(1, NetworkFaults::fair(), || async {
        let (address, _) = server(|query| {
            let evil = || DnsAnswer::address(&query.name, 3600, "203.0.113.66");
            vec![
                evil().with_wrong_id(),
                evil().with_question("other.example", A),
                evil().with_question(&query.name, AAAA),
                evil().with_flags(0x8000),
                evil().with_flags(0x0800),
                DnsAnswer::raw(b""),
                DnsAnswer::raw(b"\x00\x00\x81"),
                DnsAnswer::address(&query.name, 9, "192.0.2.1"),
                evil(),
            ]
        });
        let resolver = resolver(&[address], ipv4);
        assert_eq!(text(&resolver, "a.example").await, "192.0.2.1");
        assert_eq!(resolver.statistics().rejected, 7);
    });
}

#[test]
fn addresses_of_other_names_are_not_taken() {
    sim::run(1, NetworkFaults::fair(), || async {
        let (address, _) = server(|query| {
            let answer = DnsAnswer::address("victim.example", 3600, "203.0.113.66");
            vec![match query.name.as_str() {
                "attacker.example" => answer.with_address(&query.name, 9, "192.0.2.1"),
                _ => DnsAnswer::failure(dns::NXDOMAIN),
            }]
        });
        let resolver = resolver(&[address], ipv4);
        assert_eq!(text(&resolver, "attacker.example").await, "192.0.2.1");
        assert_eq!(text(&resolver, "victim.example").await, "3: Host not found");
    });
}

#[test]
fn errors_are_nginx_s_and_remembered_for_a_second() {
    sim::run(1, NetworkFaults::fair(), || async {
        let (address, asked) = server(|query| {
            vec![DnsAnswer::failure(match query.name.as_str() {
                "servfail" => 2,
                "notimp" => 4,
                "refused" => 5,
                _ => 3,
            })]
        });
        let resolver = resolver(&[address], ipv4);
        for (name, expected) in [
            ("servfail", "2: Server failure"),
            ("notimp", "4: Unimplemented"),
            ("refused", "5: Operation refused"),
            ("none", "3: Host not found"),
            ("", "3: Host not found"),
            ("a..b", "3: Host not found"),
        ] {
            assert_eq!(text(&resolver, name).await, expected);
        }
        assert_eq!(count(&asked), 4);
        for questions in [4, 6] {
            assert_eq!(text(&resolver, "servfail").await, "2: Server failure");
            assert_eq!(text(&resolver, "none").await, "3: Host not found");
            assert_eq!(count(&asked), questions);
            sleep(SECOND).await;
        }
    });
}

#[test]
fn an_error_of_one_family_is_one_of_the_whole() {
    sim::run(1, NetworkFaults::fair(), || async {
        let (address, _) = server(|query| {
            vec![match query.kind {
                A => DnsAnswer::address(&query.name, 9, "192.0.2.1"),
                _ if query.name == "empty" => DnsAnswer::new(),
                _ => DnsAnswer::failure(dns::SERVFAIL),
            }]
        });
        let resolver = resolver(&[address], |_| {});
        assert_eq!(text(&resolver, "failed").await, "2: Server failure");
        assert_eq!(text(&resolver, "empty").await, "192.0.2.1");
    });
}

#[test]
fn an_error_of_one_server_does_not_keep_the_next_from_being_asked() {
    sim::run(1, NetworkFaults::fair(), || async {
        let (bad, _) = server(|_| vec![DnsAnswer::failure(2)]);
        let (good, _) = server(|query| vec![DnsAnswer::address(&query.name, 9, "192.0.2.1")]);
        let resolver = resolver(&[bad, good], ipv4);
        assert_eq!(text(&resolver, "a.example").await, "2: Server failure");
        assert_eq!(text(&resolver, "a.example").await, "192.0.2.1");
    });
}

#[test]
fn the_longest_name_is_asked_for() {
    sim::run(1, NetworkFaults::fair(), || async {
        let (address, asked) =
            server(|query| vec![DnsAnswer::address(&query.name, 9, "192.0.2.1")]);
        let resolver = resolver(&[address], ipv4);
        let label = "x".repeat(63);
        let longest = format!("{label}.{label}.{label}.{}", "y".repeat(61));
        assert_eq!(longest.len(), 253);
        assert_eq!(text(&resolver, &longest).await, "192.0.2.1");
        assert_eq!(text(&resolver, &format!("{longest}.")).await, "192.0.2.1");
        assert_eq!(text(&resolver, &format!("{longest}y")).await, "3: Host not found");
        assert_eq!(count(&asked), 1);
    });
}

#[test]
fn no_such_name_is_remembered_as_the_zone_allows() {
    sim::run(1, NetworkFaults::fair(), || async {
        let (address, asked) =
            server(|_| vec![DnsAnswer::failure(dns::NXDOMAIN).with_soa("example", 3600, 4)]);
        let resolver = resolver(&[address], ipv4);
        for (pause, questions) in [(0, 1), (3, 1), (2, 2)] {
            sleep(pause * SECOND).await;
            assert_eq!(text(&resolver, "a.example").await, "3: Host not found");
            assert_eq!(count(&asked), questions);
        }
    });
}

#[test]
fn aliases_are_followed_but_not_for_ever() {
    sim::run(1, NetworkFaults::fair(), || async {
        let (address, asked) = server(|query| {
            let alias = |target| DnsAnswer::new().with_cname(&query.name, 5, target);
            vec![match query.name.as_str() {
                "combined" => alias("end").with_address("end", 60, "192.0.2.1"),
                "far" => alias("near"),
                "near" => alias("end"),
                "loop" => alias("pool"),
                "pool" => alias("loop"),
                "dead" => alias("nothing").with_soa("example", 60, 60),
                "end" => DnsAnswer::address("end", 60, "192.0.2.1"),
                _ => DnsAnswer::new(),
            }]
        });
        let resolver = resolver(&[address], ipv4);
        for (name, expected, questions) in [
            ("combined", "192.0.2.1", 1),
            ("far", "192.0.2.1", 3),
            ("dead", "3: Host not found", 1),
        ] {
            let before = count(&asked);
            assert_eq!(text(&resolver, name).await, expected, "{name}");
            assert_eq!(count(&asked) - before, questions, "{name}");
        }
        // The least TTL of the chain counts.
        let known = resolver.known(b"far", now()).unwrap();
        assert!(known.valid - now() <= 5 * SECOND);
        let before = count(&asked);
        assert_eq!(text(&resolver, "loop").await, "3: Host not found");
        assert!(count(&asked) - before <= 17);
    });
}

#[test]
fn an_alias_is_followed_for_both_families_if_neither_has_an_address() {
    sim::run(1, NetworkFaults::fair(), || async {
        let (address, asked) = server(|query| {
            let alias = |target| DnsAnswer::new().with_cname(&query.name, 60, target);
            vec![match (query.name.as_str(), query.kind) {
                ("half", AAAA) => alias("end"),
                ("some", A) => DnsAnswer::address("some", 60, "192.0.2.1"),
                ("some", AAAA) => alias("end"),
                ("end", A) => DnsAnswer::address("end", 60, "192.0.2.7"),
                ("end", AAAA) => DnsAnswer::address("end", 60, "2001:db8::7"),
                _ => DnsAnswer::new(),
            }]
        });
        let resolver = resolver(&[address], |_| {});
        assert_eq!(text(&resolver, "half").await, "192.0.2.7 2001:db8::7");
        assert_eq!(count(&asked), 4);
        assert_eq!(text(&resolver, "some").await, "192.0.2.1");
        assert_eq!(count(&asked), 6);
    });
}

#[test]
fn services_come_with_the_addresses_of_their_targets() {
    sim::run(1, NetworkFaults::fair(), || async {
        let (address, asked) = server(|query| {
            vec![match (query.name.as_str(), query.kind) {
                ("_http._tcp.example", SRV) => DnsAnswer::new()
                    .with_srv(&query.name, 60, [20, 0, 81], "b.example")
                    .with_srv(&query.name, 60, [10, 5, 80], "a.example")
                    .with_srv(&query.name, 60, [10, 7, 82], "a.example")
                    .with_srv(&query.name, 60, [10, 7, 83], "gone.example"),
                ("_none._tcp.example", SRV) => {
                    DnsAnswer::new().with_srv(&query.name, 60, [1, 1, 1], "gone.example")
                }
                ("a.example", A) => DnsAnswer::address("a.example", 7, "192.0.2.1"),
                ("b.example", A) => DnsAnswer::address("b.example", 60, "192.0.2.2"),
                ("gone.example", _) => DnsAnswer::failure(dns::SERVFAIL),
                _ => DnsAnswer::new(),
            }]
        });
        let resolver = resolver(&[address], ipv4);
        let found = resolver.services(b"http", b"example", TIMEOUT).await.unwrap();
        let list: Vec<String> = found
            .list
            .iter()
            .map(|service| {
                let addresses = service.addresses.as_ref();
                let addresses =
                    addresses.map_or_else(|e| e.to_string(), |list| list[0].to_string());
                format!(
                    "{} {} {}:{} {addresses}",
                    service.priority, service.weight, service.target, service.port
                )
            })
            .collect();
        assert_eq!(
            list,
            [
                "10 5 a.example:80 192.0.2.1",
                "10 7 a.example:82 192.0.2.1",
                "10 7 gone.example:83 2: Server failure",
                "20 0 b.example:81 192.0.2.2"
            ]
        );
        assert!(found.valid - now() <= 7 * SECOND);
        assert_eq!(count(&asked), 4);
        let none = resolver.services(b"none", b"example", TIMEOUT).await;
        assert_eq!(none, Err(ResolveError::ServerFailure));
        let absent = resolver.services(b"other", b"example", TIMEOUT).await;
        assert_eq!(absent, Err(ResolveError::NotFound));
    });
}

#[test]
fn a_lost_datagram_costs_time_but_no_answer() {
    for seed in 0..20 {
        sim::run(seed, NetworkFaults::stormy(), || async {
            let (one, _) = server(|query| vec![DnsAnswer::address(&query.name, 9, "192.0.2.1")]);
            let (two, _) = server(|query| vec![DnsAnswer::address(&query.name, 9, "192.0.2.1")]);
            let resolver = resolver(&[one, two], ipv4);
            for name in 0..30 {
                assert_eq!(text(&resolver, &format!("{name}.example")).await, "192.0.2.1");
            }
        });
    }
}

#[test]
fn lookups_and_names_are_bounded() {
    sim::run(1, NetworkFaults::fair(), || async {
        let (silent, _) = server(|query| {
            let quiet = query.name.starts_with('s');
            vec![if quiet {
                DnsAnswer::silence()
            } else {
                DnsAnswer::address(&query.name, 9000, "192.0.2.1")
            }]
        });
        let resolver = resolver(&[silent], ipv4);
        for name in 0..10_000 {
            text(&resolver, &format!("{name}.example")).await;
        }
        assert_eq!(resolver.remembered(), 8192);
        let tasks: Vec<_> = (0..1100)
            .map(|name| {
                let resolver = resolver.clone();
                spawn(async move { resolver.resolve(format!("s{name}").as_bytes(), SECOND).await })
            })
            .collect();
        let mut errors = (0, 0);
        for task in tasks {
            match task.await.unwrap() {
                Err(ResolveError::Overloaded) => errors.0 += 1,
                Err(ResolveError::TimedOut) => errors.1 += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(errors, (1100 - 1024, 1024));
        assert_eq!(resolver.statistics().overloaded, 1100 - 1024);
    });
}
