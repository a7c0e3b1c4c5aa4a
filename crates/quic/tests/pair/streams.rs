//! Streams in both directions.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use nowait_quic::{Connection, ConnectionEvent, ConnectionLost, Dir, Read, ReadError, WriteError};
use nowait_runtime::spawn;

use crate::stage::{Behaviour, Stage, on_each_driver, pattern, receive, send};

/// Answers each stream with what it has received.
async fn echo(connection: Rc<Connection>) {
    while let Ok(stream) = poll_fn(|cx| connection.poll_accept(Dir::Bi, cx)).await {
        let connection = connection.clone();
        drop(spawn(async move {
            if let Ok(data) = receive(&connection, stream).await {
                let _ = send(&connection, stream, data.into()).await;
            }
        }));
    }
}

#[test]
fn bytes_pass_both_ways_whatever_their_number() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour::default());
        let (client, server) = stage.connect().await;
        assert!(client.is_confirmed() && server.is_confirmed());
        assert_eq!(server.local(), stage.address);
        assert_eq!(client.peer(), stage.address);
        drop(spawn(echo(server)));
        for len in [0, 1, 1200, 70_000, 3_000_000] {
            let stream = client.open(Dir::Bi).unwrap();
            let data = pattern(len);
            let (sent, received) = (data.clone(), client.clone());
            let answer = spawn(async move { receive(&received, stream).await });
            send(&client, stream, sent).await.unwrap();
            assert_eq!(answer.await.unwrap().unwrap(), data);
        }
        assert_eq!(*stage.service.names.borrow(), [Some("example.com".to_owned())]);
    });
}

#[test]
fn it_is_known_when_everything_was_acknowledged() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour::default());
        let (client, server) = stage.connect().await;
        drop(spawn(echo(server)));
        let stream = client.open(Dir::Bi).unwrap();
        client.write(stream, &mut [pattern(70_000)]).unwrap();
        assert!(!client.is_acknowledged(stream));
        poll_fn(|cx| {
            while let Poll::Ready(event) = client.poll_event(cx) {
                if event == ConnectionEvent::Writable(stream) {
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        })
        .await;
        assert!(client.is_acknowledged(stream));
        // More can be written all the same.
        let another = client.open(Dir::Bi).unwrap();
        let received = client.clone();
        let answer = spawn(async move { receive(&received, another).await });
        send(&client, another, pattern(700_000)).await.unwrap();
        assert_eq!(answer.await.unwrap().unwrap(), pattern(700_000));
    });
}

#[test]
fn resets_and_refusals_reach_the_other_side() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour::default());
        let (client, server) = stage.connect().await;
        let stream = client.open(Dir::Bi).unwrap();
        client.write(stream, &mut [pattern(10)]).unwrap();
        let same = poll_fn(|cx| server.poll_accept(Dir::Bi, cx)).await.unwrap();
        assert_eq!(same, stream);
        server.stop(stream, 77);
        server.reset(stream, 78);
        let stopped = poll_fn(|cx| client.poll_stopped(stream, cx)).await.unwrap();
        assert_eq!(stopped, Some(77));
        assert_eq!(client.write(stream, &mut [pattern(1)]), Err(WriteError::Stopped(77)));
        let read = poll_fn(|cx| client.poll_read(stream, 10, cx)).await;
        assert_eq!(read, Err(ReadError::Reset(78)));
        // Streams of one direction refuse the other.
        let one_way = client.open(Dir::Uni).unwrap();
        assert_eq!(client.read(one_way, 1), Err(ReadError::Closed));
        assert_eq!(server.write(one_way, &mut [pattern(1)]), Err(WriteError::Closed));
        assert_eq!(server.finish(one_way), Err(WriteError::Closed));
        server.reset(one_way, 1);
        client.stop(one_way, 1);
    });
}

#[test]
fn a_close_is_told_with_its_code() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour::default());
        let (client, server) = stage.connect().await;
        let stream = client.open(Dir::Bi).unwrap();
        client.close(0x101, b"enough");
        assert_eq!(poll_fn(|cx| client.poll_closed(cx)).await, ConnectionLost::Closed);
        let lost = poll_fn(|cx| server.poll_closed(cx)).await;
        assert_eq!(lost, ConnectionLost::Application(0x101, "enough".into()));
        assert_eq!(client.write(stream, &mut [pattern(1)]), Err(WriteError::Lost));
        assert_eq!(server.open(Dir::Bi), None);
        let error = poll_fn(|cx| server.poll_accept(Dir::Bi, cx)).await.unwrap_err();
        assert_eq!(error, lost);
        // A handle that is dropped closes, too.
        let (client, server) = stage.connect().await;
        drop(server);
        let lost = poll_fn(|cx| client.poll_closed(cx)).await;
        assert_eq!(lost, ConnectionLost::Application(0, "".into()));
        // The endpoint forgets its connections when their packets can no longer come.
        stage.endpoint.idle().await;
    });
}

#[test]
fn what_has_arrived_before_the_end_can_be_read() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour::default());
        let (client, server) = stage.connect().await;
        let stream = client.open(Dir::Uni).unwrap();
        client.write(stream, &mut [pattern(5)]).unwrap();
        let same = poll_fn(|cx| server.poll_accept(Dir::Uni, cx)).await.unwrap();
        client.close(1, b"");
        poll_fn(|cx| server.poll_closed(cx)).await;
        assert_eq!(server.read(same, 10), Ok(Read::Data(pattern(5))));
        assert_eq!(server.read(same, 10), Err(ReadError::Lost));
    });
}

#[test]
fn small_answers_pass_a_large_one() {
    on_each_driver(|| async {
        let stage = Stage::new(Behaviour::default());
        let (client, server) = stage.connect().await;
        const LARGE: usize = 20_000_000;
        let large = server.open(Dir::Uni).unwrap();
        let (sender, ended) = (server.clone(), Rc::new(Cell::new(false)));
        let end = ended.clone();
        drop(spawn(async move {
            send(&sender, large, pattern(LARGE)).await.unwrap();
            end.set(true);
        }));
        let same = poll_fn(|cx| client.poll_accept(Dir::Uni, cx)).await.unwrap();
        let reader = client.clone();
        let received = spawn(async move { receive(&reader, same).await.unwrap().len() });
        drop(spawn(echo(server)));
        for n in 0..20 {
            let stream = client.open(Dir::Bi).unwrap();
            send(&client, stream, pattern(n)).await.unwrap();
            assert_eq!(receive(&client, stream).await.unwrap(), pattern(n));
        }
        assert!(!ended.get(), "they waited for the large one");
        assert_eq!(received.await.unwrap(), LARGE);
    });
}
