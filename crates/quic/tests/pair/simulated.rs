//! A client and a server on a simulated network, by seed: it delays, reorders, loses and doubles datagrams.

use std::future::poll_fn;
use std::rc::Rc;

use nowait_quic::{Connection, ConnectionLost, Dir, Settings};
use nowait_runtime::sim::{self, NetworkFaults};
use nowait_runtime::spawn;

use crate::stage::{Behaviour, Stage, pattern, receive, send};

/// Streams of each run.
const STREAMS: usize = 6;

/// Answers each stream with what it has received.
async fn echo(connection: Rc<Connection>) {
    while let Ok(stream) = poll_fn(|cx| connection.poll_accept(Dir::Bi, cx)).await {
        let connection = connection.clone();
        drop(spawn(async move {
            let data = receive(&connection, stream).await.unwrap();
            send(&connection, stream, data.into()).await.unwrap();
        }));
    }
}

async fn run(seed: u64) {
    let retry = seed.is_multiple_of(3);
    let stage = Stage::new(Behaviour { retry, ..Default::default() });
    let settings = Settings::default();
    let connecting = stage.clients.connect(stage.address, "example.com", &stage.client, &settings);
    let client = connecting.await.unwrap();
    let server = stage.service.next().await;
    drop(spawn(echo(server.clone())));
    let mut answers = Vec::new();
    for n in 0..STREAMS {
        let data = pattern(1 + (seed as usize * 7919 + n * 104_729) % 60_000);
        let client = client.clone();
        answers.push(spawn(async move {
            let stream = client.open(Dir::Bi).unwrap();
            let (sender, sent) = (client.clone(), data.clone());
            let sending = spawn(async move { send(&sender, stream, sent).await });
            assert_eq!(receive(&client, stream).await.unwrap(), data);
            sending.await.unwrap().unwrap();
        }));
    }
    for answer in answers {
        answer.await.unwrap();
    }
    client.close(7, b"done");
    let lost = poll_fn(|cx| server.poll_closed(cx)).await;
    // The last packet may be lost.
    assert!(
        matches!(lost, ConnectionLost::Application(7, _) | ConnectionLost::TimedOut),
        "{lost:?}"
    );
    stage.clients.idle().await;
    stage.endpoint.idle().await;
    let counters = stage.endpoint.directory().counters();
    assert_eq!(counters.panics.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn every_byte_arrives_whatever_the_network_does() {
    for seed in 0..60 {
        let faults = match seed % 3 {
            0 => NetworkFaults::fair(),
            1 => NetworkFaults::rough(),
            _ => NetworkFaults::stormy(),
        };
        sim::run(seed, faults, move || run(seed));
    }
}
