//! Connection tasks on the simulated driver.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use nowait_runtime::fs::{self, CreateOptions, Io, OpenOptions};
use nowait_runtime::net::{Address, Listener, ListenerOptions, SendOptions, Stream};
use nowait_runtime::pool::{Op, PoolConfig};
use nowait_runtime::sim::{self, Disk, NetworkFaults};
use nowait_runtime::task::{Either, select};
use nowait_runtime::{now, sleep, spawn, yield_now};

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(60);

/// Echoes until the client's end, and times out on silence.
async fn echo(stream: Stream) -> io::Result<u64> {
    loop {
        let data = stream.recv(TIMEOUT).await?;
        if data.is_empty() {
            stream.shutdown_write()?;
            return Ok(stream.bytes_sent());
        }
        stream.send(data, SendOptions::new(TIMEOUT)).await?;
    }
}

/// Sends in random pieces; returns the bytes sent.
async fn ask(client: Rc<Stream>) -> io::Result<Vec<u8>> {
    let mut sent = Vec::new();
    for _ in 0..50 {
        if sim::random(4) == 0 {
            sleep(SECOND.mul_f32(sim::random(100) as f32 / 100.0)).await;
            continue;
        }
        let data: Vec<u8> = (0..1 + sim::random(1500)).map(|_| sim::random(256) as u8).collect();
        sent.extend_from_slice(&data);
        client.send(bytes::Bytes::from(data), SendOptions::new(TIMEOUT)).await?;
    }
    client.shutdown_write()?;
    Ok(sent)
}

/// Talks to [`echo`]; returns the received data and its arrival times.
async fn talk(client: Stream) -> io::Result<Vec<(Duration, Vec<u8>)>> {
    let start = now();
    let client = Rc::new(client);
    let asking = spawn(ask(client.clone()));
    let mut trace = Vec::new();
    loop {
        // Now and then the receiving future is dropped.
        let received = if sim::random(4) == 0 {
            match select(client.recv(TIMEOUT), yield_now()).await {
                Either::Left(received) => received,
                Either::Right(()) => continue,
            }
        } else {
            client.recv(TIMEOUT).await
        };
        let data = received?;
        if data.is_empty() {
            break;
        }
        trace.push((now() - start, data.to_vec()));
    }
    let received: Vec<u8> = trace.iter().flat_map(|(_, data)| data.clone()).collect();
    assert_eq!(received, asking.await.unwrap()?);
    Ok(trace)
}

fn conversation(
    seed: u64,
    faults: NetworkFaults,
) -> Result<Vec<(Duration, Vec<u8>)>, io::ErrorKind> {
    sim::run(seed, faults, || async {
        let (client, server) = sim::pair();
        let server = spawn(echo(server));
        let trace = talk(client).await;
        let served = server.await.unwrap();
        if let Ok(trace) = &trace {
            assert_eq!(served.unwrap(), trace.iter().map(|(_, data)| data.len() as u64).sum());
        }
        trace.map_err(|error| error.kind())
    })
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let first = conversation(7, NetworkFaults::rough()).unwrap();
    assert_eq!(first, conversation(7, NetworkFaults::rough()).unwrap());
    assert_ne!(first, conversation(8, NetworkFaults::rough()).unwrap());
}

#[test]
fn nothing_is_lost_in_rough_weather() {
    for seed in 0..300 {
        conversation(seed, NetworkFaults::rough()).unwrap();
    }
}

#[test]
fn storms_end_in_errors_not_in_silence() {
    let broken = (0..300)
        .filter_map(|seed| conversation(seed, NetworkFaults::stormy()).err())
        .inspect(|kind| {
            let expected = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
            let expected = [&expected[..], &[io::ErrorKind::NotConnected]].concat();
            assert!(expected.contains(kind), "{kind:?}");
        })
        .count();
    assert!((50..300).contains(&broken), "{broken}");
}

#[test]
fn time_is_virtual() {
    // A day would be longer than a test may take.
    sim::run(1, NetworkFaults::fair(), || async {
        let start = now();
        let date = nowait_runtime::clock().unix_seconds();
        let (client, server) = sim::pair();
        let error = server.recv(Duration::from_secs(86_400)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(now() - start, Duration::from_secs(86_400));
        assert_eq!(nowait_runtime::clock().unix_seconds() - date, 86_400);
        drop(client);
    });
}

#[test]
fn a_peer_that_does_not_read_times_the_sender_out() {
    sim::run(1, NetworkFaults::rough(), || async {
        let (_client, server) = sim::pair();
        let start = now();
        let send = server.send(&[0; 10_000][..], SendOptions::new(TIMEOUT));
        assert_eq!(send.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(now() - start >= TIMEOUT);
        assert_eq!(server.bytes_sent(), 4096);
    });
}

#[test]
fn a_postponed_timeout_comes_once_and_in_time() {
    sim::run(1, NetworkFaults::fair(), || async {
        let (client, server) = sim::pair();
        let server = spawn(echo(server));
        // Each request postpones the server's timeout, which finally fires once, on time.
        for _ in 0..100 {
            client.send(&b"x"[..], SendOptions::new(TIMEOUT)).await.unwrap();
            assert_eq!(&client.recv(TIMEOUT).await.unwrap()[..], b"x");
            sleep(TIMEOUT - SECOND).await;
        }
        sleep(SECOND * 2).await;
        assert_eq!(server.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    });
}

#[test]
#[should_panic(expected = "deadlock, all tasks wait forever (seed 3)")]
fn waiting_for_ever_is_found() {
    sim::run(3, NetworkFaults::fair(), || async {
        let (client, _server) = sim::pair();
        let _ = client.recv(Duration::MAX).await;
    });
}

const SERVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 80);
const CLIENT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 9)), 4711);

fn listener() -> Listener {
    let fd = sim::listen(SERVER).unwrap();
    Listener::from_fd(fd, ListenerOptions { id: 1, shared: false }).unwrap()
}

#[test]
fn clients_reach_a_listener() {
    for seed in 0..50 {
        sim::run(seed, NetworkFaults::rough(), || async {
            let listener = listener();
            let served = spawn(async move {
                let first = listener.accept().await.unwrap();
                assert_eq!(first.peer, Address::Inet(CLIENT));
                echo(first.stream).await.unwrap();
                let second = listener.accept().await.unwrap();
                echo(second.stream).await.unwrap()
            });
            drop(talk(sim::connect(CLIENT, SERVER, TIMEOUT).await.unwrap()).await.unwrap());
            // As the code under test connects.
            let stream = Stream::connect(&Address::Inet(SERVER), TIMEOUT).await.unwrap();
            drop(talk(stream).await.unwrap());
            served.await.unwrap();
            assert_eq!(sim::sockets(), 0);
        });
    }
}

#[test]
fn nobody_listens() {
    sim::run(1, NetworkFaults::rough(), || async {
        let refused = |error: io::Error| assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        refused(sim::connect(CLIENT, SERVER, TIMEOUT).await.unwrap_err());
        let listener = listener();
        let client = sim::connect(CLIENT, SERVER, TIMEOUT).await.unwrap();
        assert_eq!(sim::listen(SERVER).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        // Closing it resets who was not accepted.
        drop(listener);
        let error = client.recv(TIMEOUT).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        refused(sim::connect(CLIENT, SERVER, TIMEOUT).await.unwrap_err());
    });
}

#[test]
fn a_stopped_listener_returns_what_was_queued() {
    sim::run(1, NetworkFaults::rough(), || async {
        let listener = listener();
        let _client = sim::connect(CLIENT, SERVER, TIMEOUT).await.unwrap();
        listener.stop();
        assert_eq!(listener.accept().await.unwrap().peer, Address::Inet(CLIENT));
        let ended = listener.accept().await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::NotConnected);
    });
}

fn pool(threads: usize, max_queue: usize, disk: Disk) -> nowait_runtime::pool::Pool {
    sim::pool(PoolConfig { name: "disk".to_owned(), threads, max_queue }, disk)
}

/// A disk on which every operation takes this long.
fn taking(hang: Duration) -> Disk {
    Disk { hang_one_in: 1, hang, ..Disk::fast() }
}

#[test]
fn a_pool_takes_virtual_time() {
    sim::run(1, NetworkFaults::fair(), || async {
        let start = now();
        let pool = pool(2, 8, taking(SECOND));
        let loop_thread = std::thread::current().id();
        let runs: Vec<_> = (0..5)
            .map(|_| {
                pool.run(nowait_runtime::pool::Class::Path, 0, Op::Stat, move || {
                    assert_eq!(std::thread::current().id(), loop_thread);
                })
            })
            .collect();
        for run in runs {
            run.await.unwrap();
        }
        // Five operations, two at a time.
        assert_eq!(now() - start, 3 * SECOND);
        assert_eq!(pool.snapshot().threads_alive, 0);
    });
}

#[test]
fn a_pool_refuses_what_its_queue_does_not_hold() {
    sim::run(1, NetworkFaults::fair(), || async {
        let pool = pool(1, 1, taking(SECOND));
        let run = || pool.run(nowait_runtime::pool::Class::Path, 0, Op::Stat, || ());
        let (first, second, third) = (run(), run(), run());
        assert!(third.await.is_err());
        // Work that has not started is cancelled.
        drop(second);
        first.await.unwrap();
        let ops = &pool.snapshot().ops[0];
        assert_eq!((ops.started, ops.cancelled, ops.overflowed), (1, 1, 1));
    });
}

#[test]
fn a_disk_fails_and_is_slow_by_seed() {
    let path = std::env::temp_dir().join(format!("nowait-sim-disk-{}", std::process::id()));
    let name = path.to_str().unwrap().as_bytes().to_vec();
    let run = |seed: u64, disk: Disk| {
        let name = name.clone();
        sim::run(seed, NetworkFaults::fair(), move || async move {
            let io = Io::new(pool(4, 64, disk));
            let options =
                CreateOptions { exclusive: false, truncate: true, ..CreateOptions::default() };
            let contents = vec![7u8; 100_000];
            let result = async {
                let file = fs::create(&io, &name, &options).await?;
                file.write_at(&io, 0, vec![contents.clone().into()]).await?;
                drop(file);
                let file = fs::open(&io, &name, &OpenOptions::default()).await?;
                assert_eq!(file.read_at(&io, 0, 200_000).await?, contents);
                io::Result::Ok(())
            };
            let result: io::Result<()> = result.await;
            assert_eq!(result.is_err(), sim::disk_faults() > 0);
            (result.is_ok(), sim::digest())
        })
    };
    assert!(run(1, Disk::fast()).0);
    assert!((0..50).all(|seed| run(seed, Disk::slow()).0));
    let failing = Disk { fail_one_in: 4, ..Disk::slow() };
    let results: Vec<_> = (0..50).map(|seed| run(seed, failing)).collect();
    let good = results.iter().filter(|(good, _)| *good).count();
    assert!((1..50).contains(&good), "{good}");
    assert_eq!(results, (0..50).map(|seed| run(seed, failing)).collect::<Vec<_>>());
    std::fs::remove_file(path).unwrap();
}

#[test]
#[should_panic(expected = "livelock")]
fn waking_each_other_for_ever_is_found() {
    sim::run(3, NetworkFaults::fair(), || async {
        loop {
            yield_now().await;
        }
    });
}
