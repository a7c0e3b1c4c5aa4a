//! Connection tasks on the simulated driver.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use nowait_runtime::net::{SendOptions, Stream};
use nowait_runtime::sim::{self, Weather};
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

fn conversation(seed: u64, weather: Weather) -> Result<Vec<(Duration, Vec<u8>)>, io::ErrorKind> {
    sim::run(seed, weather, || async {
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
    let first = conversation(7, Weather::rough()).unwrap();
    assert_eq!(first, conversation(7, Weather::rough()).unwrap());
    assert_ne!(first, conversation(8, Weather::rough()).unwrap());
}

#[test]
fn nothing_is_lost_in_rough_weather() {
    for seed in 0..300 {
        conversation(seed, Weather::rough()).unwrap();
    }
}

#[test]
fn storms_end_in_errors_not_in_silence() {
    let broken = (0..300)
        .filter_map(|seed| conversation(seed, Weather::stormy()).err())
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
    sim::run(1, Weather::fair(), || async {
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
    sim::run(1, Weather::rough(), || async {
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
    sim::run(1, Weather::fair(), || async {
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
    sim::run(3, Weather::fair(), || async {
        let (client, _server) = sim::pair();
        let _ = client.recv(Duration::MAX).await;
    });
}
