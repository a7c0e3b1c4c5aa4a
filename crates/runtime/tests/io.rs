//! The same tests on every driver that this machine has.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use nowait_runtime::buf::{Chain, FileRange, OutBuf};
use nowait_runtime::driver::{self, DriverKind, Requested};
use nowait_runtime::net::{Address, Listener, ListenerOptions, SendOptions, Stream};
use nowait_runtime::pool::{Class, Op, Pool, PoolConfig};
use nowait_runtime::task::{Either, select};
use nowait_runtime::time::timeout;
use nowait_runtime::worker::{self, WorkerConfig, WorkerEnd, Workers};
use nowait_runtime::{fs, yield_now};

const LONG: Duration = Duration::from_secs(30);

fn drivers() -> Vec<DriverKind> {
    let (kind, why) = driver::choose(Requested::IoUring);
    if kind == DriverKind::IoUring {
        return vec![DriverKind::Epoll, DriverKind::IoUring];
    }
    eprintln!("io_uring is not tested here: {why}");
    vec![DriverKind::Epoll]
}

/// Runs a future as the root task of a worker, on each driver.
fn on_each<F: Future<Output = ()> + 'static>(test: impl Fn(DriverKind) -> F) {
    for kind in drivers() {
        let start = std::time::Instant::now();
        let passed = Rc::new(RefCell::new(false));
        let set = passed.clone();
        let body = test(kind);
        let end =
            worker::run(WorkerConfig::new(0, kind), &Workers::new(1).unwrap(), |_| async move {
                body.await;
                *set.borrow_mut() = true;
            });
        assert_eq!(end.unwrap(), WorkerEnd::Graceful);
        eprintln!("passed on {kind} in {:?}", start.elapsed());
        assert!(*passed.borrow(), "the root task panicked on {kind}");
    }
}

fn listen() -> (Listener, Address) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Inet(socket.local_addr().unwrap());
    let options = ListenerOptions { id: 7, shared: true };
    (Listener::from_fd(socket.into(), options).unwrap(), address)
}

/// A connection: (client's end, server's end).
async fn pair() -> (Stream, Stream) {
    let (listener, address) = listen();
    let client = Stream::connect(&address, LONG).await.unwrap();
    let accepted = listener.accept().await.unwrap();
    assert_eq!(accepted.peer, client.local_addr().unwrap());
    (client, accepted.stream)
}

fn options() -> SendOptions {
    SendOptions::new(LONG)
}

async fn recv_exactly(stream: &Stream, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        let buf = stream.recv(LONG).await.unwrap();
        assert!(!buf.is_empty(), "ended after {} of {len} bytes", all.len());
        all.extend_from_slice(&buf);
    }
    all
}

#[test]
fn echo_many_times() {
    on_each(|_| async {
        let (client, server) = pair().await;
        let echo = nowait_runtime::spawn(async move {
            loop {
                let buf = server.recv(LONG).await.unwrap();
                if buf.is_empty() {
                    return server.bytes_received();
                }
                server.send(buf, options()).await.unwrap();
            }
        });
        let mut total = 0;
        for round in 0..1000u32 {
            let text = round.to_string().into_bytes();
            total += text.len() as u64;
            client.send(bytes::Bytes::from(text.clone()), options()).await.unwrap();
            assert_eq!(recv_exactly(&client, text.len()).await, text);
        }
        drop(client);
        assert_eq!(echo.await.unwrap(), total);
    });
}

#[test]
fn receive_times_out_and_goes_on() {
    on_each(|_| async {
        let (client, server) = pair().await;
        let before = nowait_runtime::now();
        let timeout = Duration::from_millis(20);
        let error = server.recv(timeout).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(nowait_runtime::now() - before >= timeout);
        client.send(&b"late"[..], options()).await.unwrap();
        assert_eq!(recv_exactly(&server, 4).await, b"late");
    });
}

#[test]
fn peer_closes() {
    on_each(|_| async {
        let (client, server) = pair().await;
        client.send(&b"last"[..], options()).await.unwrap();
        drop(client);
        assert_eq!(recv_exactly(&server, 4).await, b"last");
        assert!(server.recv(LONG).await.unwrap().is_empty());
        assert!(server.recv(LONG).await.unwrap().is_empty(), "the end stays the end");
    });
}

#[test]
fn half_close_leaves_the_other_direction() {
    on_each(|_| async {
        let (client, server) = pair().await;
        client.send(&b"question"[..], options()).await.unwrap();
        client.shutdown_write().unwrap();
        assert_eq!(recv_exactly(&server, 8).await, b"question");
        assert!(server.recv(LONG).await.unwrap().is_empty());
        server.send(&b"answer"[..], options()).await.unwrap();
        drop(server);
        assert_eq!(recv_exactly(&client, 6).await, b"answer");
        assert!(client.recv(LONG).await.unwrap().is_empty());
    });
}

#[test]
fn an_end_comes_after_what_was_sent() {
    on_each(|_| async {
        for round in 0..50 {
            let (client, server) = pair().await;
            server.send(&b"last "[..], options()).await.unwrap();
            server.send(&b"words"[..], options()).await.unwrap();
            if round % 2 == 0 {
                server.shutdown_write().unwrap();
            } else {
                drop(server);
            }
            assert_eq!(recv_exactly(&client, 10).await, b"last words");
            assert!(client.recv(LONG).await.unwrap().is_empty());
        }
    });
}

#[test]
fn reset_is_an_error() {
    on_each(|_| async {
        let (client, server) = pair().await;
        client.set_reset_on_close().unwrap();
        drop(client);
        let error = server.recv(LONG).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        // A small send may be reported as done when it is submitted; the next one then returns the
        // error.
        let first = server.send(&b"x"[..], options()).await;
        assert!(first.is_err() || server.send(&b"x"[..], options()).await.is_err());
    });
}

/// Bytes that encode their position.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

#[test]
fn large_chain_with_backpressure() {
    on_each(|_| async {
        let (client, server) = pair().await;
        let data = pattern(20_000_000);
        let mut chain = Chain::new();
        // Pieces of all sizes and kinds, more than one call can send.
        let mut rest = bytes::Bytes::from(data.clone());
        let mut size = 1;
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(size));
            if size % 2 == 0 {
                let mut out = OutBuf::new();
                out.extend_from_slice(&piece);
                chain.push(out);
            } else {
                chain.push(piece);
            }
            size = size * 3 % 100_003 + 1;
        }
        assert_eq!(chain.len(), data.len() as u64);
        let sender = nowait_runtime::spawn(async move {
            server.send(chain, options()).await.unwrap();
            server.bytes_sent()
        });
        let received = recv_exactly(&client, data.len()).await;
        assert!(received == data);
        assert_eq!(sender.await.unwrap(), data.len() as u64);
    });
}

#[test]
fn send_times_out_when_the_peer_takes_nothing() {
    on_each(|_| async {
        let (client, server) = pair().await;
        let data = bytes::Bytes::from(vec![7; 64 << 20]);
        let timeout = SendOptions::new(Duration::from_millis(50));
        let error = server.send(data, timeout).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(server.bytes_sent() < 64 << 20);
        drop(client);
    });
}

#[test]
fn both_directions_at_once() {
    on_each(|_| async {
        let (client, server) = pair().await;
        let (client, server) = (Rc::new(client), Rc::new(server));
        let data = pattern(3_000_000);
        let mut tasks = Vec::new();
        for stream in [client, server] {
            let bytes = bytes::Bytes::from(data.clone());
            let sender = stream.clone();
            tasks.push(nowait_runtime::spawn(async move {
                sender.send(bytes, options()).await.unwrap();
            }));
            let data = data.clone();
            tasks.push(nowait_runtime::spawn(async move {
                assert!(recv_exactly(&stream, data.len()).await == data);
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

fn out(text: &[u8]) -> OutBuf {
    let mut out = OutBuf::new();
    out.extend_from_slice(text);
    out
}

#[test]
fn a_small_response_leaves_at_once() {
    on_each(|_| async {
        let (client, server) = pair().await;
        for body in [&b"body"[..], b"", &pattern(16 * 1024)] {
            let (mut head, mut bytes) = (out(b"head "), bytes::Bytes::copy_from_slice(body));
            assert!(server.begin_send(&mut head, &mut bytes).unwrap());
            assert!(head.is_empty() && bytes.is_empty());
            // The owner may close it at once, or send more.
            server.send(&b" end"[..], options()).await.unwrap();
            let expected = [b"head ", body, b" end"].concat();
            assert!(recv_exactly(&client, expected.len()).await == expected);
        }
        assert_eq!(server.bytes_sent(), 3 * 9 + 4 + 16 * 1024);
        let (mut head, mut bytes) = (out(b"last"), bytes::Bytes::new());
        assert!(server.begin_send(&mut head, &mut bytes).unwrap());
        drop(server);
        assert_eq!(recv_exactly(&client, 4).await, b"last");
        assert!(client.recv(LONG).await.unwrap().is_empty());
    });
}

#[test]
fn a_response_that_has_begun_is_finished_by_a_send() {
    on_each(|kind| async move {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&near, 4096).unwrap();
        let (client, server) = (Stream::from_fd(far.into()), Stream::from_fd(near.into()));
        let (client, server) = (client.unwrap(), server.unwrap());
        let text = pattern(3_000_000);
        let send = async {
            let mut left = 0;
            for part in text.chunks(12_007) {
                // The socket has less room: a part of the head or of the body stays.
                let mut head = out(&part[..7]);
                let mut body = bytes::Bytes::copy_from_slice(&part[7..]);
                if !server.begin_send(&mut head, &mut body).unwrap() {
                    left += 1;
                    let mut chain = Chain::from(head);
                    chain.push(body);
                    server.send(chain, options()).await.unwrap();
                }
            }
            assert!(left > 0, "always all at once on {kind}");
        };
        let receive = async {
            assert!(recv_exactly(&client, text.len()).await == text);
        };
        both(send, receive).await;
        assert_eq!(server.bytes_sent(), text.len() as u64);
    });
}

#[test]
fn a_response_to_somebody_who_has_gone_fails() {
    on_each(|_| async {
        let (client, server) = pair().await;
        drop(client);
        let failed = async {
            loop {
                let (mut head, mut body) = (out(b"head"), bytes::Bytes::from_static(b"body"));
                match server.begin_send(&mut head, &mut body) {
                    Ok(true) => yield_now().await,
                    Ok(false) => {
                        if server.send(Chain::from(head), options()).await.is_err() {
                            return;
                        }
                    }
                    Err(_) => return,
                }
            }
        };
        timeout(LONG, failed).await.unwrap();
    });
}

#[test]
fn hangup_is_noticed_while_nobody_reads() {
    on_each(|_| async {
        let (client, server) = pair().await;
        client.send(&b"unread"[..], options()).await.unwrap();
        assert!(timeout(Duration::from_millis(20), server.hangup()).await.is_err());
        assert!(!server.has_ended());
        client.shutdown_write().unwrap();
        // On loopback, the end has arrived when the call returns.
        assert!(server.has_ended());
        timeout(LONG, server.hangup()).await.unwrap().unwrap();
        assert_eq!(recv_exactly(&server, 6).await, b"unread");
    });
}

/// More tasks than a driver receives for at a time, some of which go on before they are woken.
#[test]
fn tasks_that_are_woken_together_receive_their_own() {
    on_each(|_| async {
        let mut pairs = Vec::new();
        for _ in 0..80 {
            pairs.push(pair().await);
        }
        let (clients, servers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let mut tasks = Vec::new();
        for (number, server) in servers.into_iter().enumerate() {
            tasks.push(nowait_runtime::spawn(async move {
                let expected: Vec<u8> = (0..50).flat_map(|round| [number as u8, round]).collect();
                let mut all = Vec::new();
                while all.len() < expected.len() {
                    if (number + all.len()) % 7 > 0 {
                        all.extend_from_slice(&server.recv(LONG).await.unwrap());
                    } else if let Either::Left(buf) = select(server.recv(LONG), yield_now()).await {
                        all.extend_from_slice(&buf.unwrap());
                    }
                }
                assert_eq!(all, expected);
                // What came last is dropped with the connection.
                if number % 3 > 0 {
                    assert!(server.recv(LONG).await.unwrap().is_empty());
                }
            }));
        }
        for round in 0..50u8 {
            for (number, client) in clients.iter().enumerate() {
                client
                    .send(bytes::Bytes::from(vec![number as u8, round]), options())
                    .await
                    .unwrap();
            }
            yield_now().await;
        }
        drop(clients);
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn a_dropped_receive_loses_nothing() {
    on_each(|_| async {
        let (client, server) = pair().await;
        for round in 0..200u32 {
            // Dropped before, at, and after the moment when the data arrives.
            let mut received = Vec::new();
            for _ in 0..round % 3 {
                if let Either::Left(buf) = select(server.recv(LONG), yield_now()).await {
                    received.extend_from_slice(&buf.unwrap());
                }
            }
            client.send(bytes::Bytes::from(round.to_string()), options()).await.unwrap();
            for _ in 0..round % 5 {
                if let Either::Left(buf) = select(server.recv(LONG), yield_now()).await {
                    received.extend_from_slice(&buf.unwrap());
                }
            }
            let text = round.to_string().into_bytes();
            received.extend(recv_exactly(&server, text.len() - received.len()).await);
            assert_eq!(received, text);
        }
    });
}

#[test]
fn a_dropped_send_keeps_its_memory_until_the_kernel_is_done() {
    on_each(|_| async {
        let data = pattern(8 << 20);
        for _ in 0..20 {
            let (client, server) = pair().await;
            let bytes = bytes::Bytes::from(data.clone());
            let send = select(server.send(bytes, options()), yield_now()).await;
            assert!(matches!(send, Either::Right(())));
            drop(server);
            // The received bytes are a prefix of the sent ones, no matter what was freed meanwhile.
            let mut received = Vec::new();
            while let Ok(buf) = client.recv(LONG).await {
                if buf.is_empty() {
                    break;
                }
                received.extend_from_slice(&buf);
            }
            assert!(data.starts_with(&received));
        }
    });
}

#[test]
fn connecting_to_nobody_fails() {
    on_each(|_| async {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Inet(socket.local_addr().unwrap());
        drop(socket);
        let error = Stream::connect(&address, LONG).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(worker::connections(), 0);
    });
}

#[test]
fn unix_sockets() {
    on_each(|kind| async move {
        let path = std::env::temp_dir().join(format!("nowait-{}-{kind}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let options_listen = ListenerOptions { id: 1, shared: false };
        let listener = Listener::from_fd(socket.into(), options_listen).unwrap();
        let address = Address::Unix(path.as_os_str().as_encoded_bytes().into());
        let client = Stream::connect(&address, LONG).await.unwrap();
        let accepted = listener.accept().await.unwrap();
        assert_eq!(accepted.peer, Address::Unix(Box::default()));
        assert_eq!(accepted.stream.local_addr().unwrap(), address);
        accepted.stream.set_nodelay(true).unwrap();
        accepted.stream.send(&b"hello"[..], options()).await.unwrap();
        assert_eq!(recv_exactly(&client, 5).await, b"hello");
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn accepting_stops_at_the_limit_and_goes_on() {
    on_each(|_| async {
        worker::set_connections_max(7);
        let (listener, address) = listen();
        let mut clients = Vec::new();
        let mut accepted = Vec::new();
        for _ in 0..3 {
            clients.push(Stream::connect(&address, LONG).await.unwrap());
            accepted.push(listener.accept().await.unwrap().stream);
        }
        clients.push(Stream::connect(&address, LONG).await.unwrap());
        assert_eq!(worker::connections(), 7);
        let full = timeout(Duration::from_millis(20), listener.accept()).await;
        assert!(full.is_err(), "accepted beyond the limit");
        let accept = nowait_runtime::spawn(async move { listener.accept().await.unwrap().stream });
        yield_now().await;
        drop(accepted.pop());
        let stream = accept.await.unwrap();
        clients[3].send(&b"in"[..], options()).await.unwrap();
        assert_eq!(recv_exactly(&stream, 2).await, b"in");
    });
}

#[test]
fn file_ranges_follow_memory() {
    on_each(|kind| async move {
        let pool = Pool::new(PoolConfig { name: "test".into(), threads: 2, max_queue: 64 });
        let io = fs::Io::new(pool);
        let path = std::env::temp_dir().join(format!("nowait-{}-{kind}.file", std::process::id()));
        let data = pattern(3_000_000);
        std::fs::write(&path, &data).unwrap();
        let open = fs::OpenOptions::default();
        let file = fs::open(&io, path.as_os_str().as_encoded_bytes(), &open).await.unwrap();
        let (client, server) = pair().await;
        // Small, large by sendfile, large by reading, and small again between memory.
        let ranges = [(10, 1000), (2_000, 2_500_000), (1_000, 200_000), (2_999_999, 1)];
        let mut expected = Vec::new();
        for (index, (offset, len)) in ranges.into_iter().enumerate() {
            let mut chain = Chain::from(&b"head"[..]);
            let range = FileRange { file: file.clone(), io: io.clone(), offset, len };
            chain.push(range);
            chain.push(&b"tail"[..]);
            expected.extend_from_slice(b"head");
            expected.extend_from_slice(&data[offset as usize..(offset + len) as usize]);
            expected.extend_from_slice(b"tail");
            let expected = std::mem::take(&mut expected);
            let sendfile = index != 2;
            let options = SendOptions { sendfile, gives_up: index == 1, ..options() };
            let receive = async {
                assert!(recv_exactly(&client, expected.len()).await == expected, "range {index}");
            };
            both(async { server.send(chain, options).await.unwrap() }, receive).await;
        }
        // A truncated file ends the connection early, without padding.
        for (offset, len) in [(2_999_000, 2_000), (2_900_000, 200_000)] {
            let range = FileRange { file: file.clone(), io: io.clone(), offset, len };
            let error = server.send(range, options()).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
        std::fs::remove_file(&path).unwrap();
    });
}

/// While waiting for the disk, a send can be given up; the connection stays unchanged.
#[test]
fn a_disk_is_given_up() {
    on_each(|kind| async move {
        let pool = Pool::new(PoolConfig { name: "test".into(), threads: 1, max_queue: 64 });
        let io = fs::Io::new(pool.clone());
        let path = std::env::temp_dir().join(format!("nowait-{}-{kind}.gone", std::process::id()));
        std::fs::write(&path, pattern(1_000_000)).unwrap();
        let open = fs::OpenOptions { prefetch: 0, ..fs::OpenOptions::default() };
        let file = fs::open(&io, path.as_os_str().as_encoded_bytes(), &open).await.unwrap();
        nowait_testkit::slow_disk::evict(&path).unwrap();
        let (client, server) = pair().await;
        // The only thread is busy, which is equivalent to a hung disk.
        let (done, hangs) = std::sync::mpsc::channel::<()>();
        let busy = pool.run(Class::Bulk, 0, Op::Blocking, move || hangs.recv().is_err());
        let busy = nowait_runtime::spawn(busy);
        yield_now().await;
        let before = server.bytes_sent();
        let mut chain = Chain::from(&b"head"[..]);
        chain.push(FileRange { file: file.clone(), io: io.clone(), offset: 0, len: 1_000_000 });
        let mut send = server.send(chain, SendOptions { gives_up: true, ..options() });
        std::future::poll_fn(|cx| {
            let polled = std::pin::Pin::new(&mut send).poll(cx);
            assert!(polled.is_pending(), "sent without a thread");
            if send.waits_for_disk() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        assert!(send.give_up());
        drop(send);
        assert_eq!(server.bytes_sent() - before, 4, "the head alone");
        server.send(&b"more"[..], options()).await.unwrap();
        drop(done);
        busy.await.unwrap().unwrap();
        drop(server);
        assert_eq!(recv_exactly(&client, 8).await, b"headmore");
        assert!(client.recv(LONG).await.unwrap().is_empty(), "something else was sent");
        std::fs::remove_file(&path).unwrap();
    });
}

async fn both(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut a_done, mut b_done) = (false, false);
    std::future::poll_fn(|cx| {
        a_done = a_done || a.as_mut().poll(cx).is_ready();
        b_done = b_done || b.as_mut().poll(cx).is_ready();
        if a_done && b_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// One poll of a quiet connection.
async fn is_quiet(stream: &Stream) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(stream.poll_quiet(cx).is_pending())).await
}

#[test]
fn a_quiet_connection_is_watched_and_used_again() {
    on_each(|_| async {
        let (client, server) = pair().await;
        for round in 0..3 {
            client.send(&[b'a'; 10][..], options()).await.unwrap();
            assert_eq!(recv_exactly(&server, 10).await.len(), 10);
            server.send(&[b'b'; 10][..], options()).await.unwrap();
            assert_eq!(recv_exactly(&client, 10).await.len(), 10, "round {round}");
            assert!(is_quiet(&client).await);
            yield_now().await;
            assert!(is_quiet(&client).await);
            client.unwatch();
        }
        assert!(is_quiet(&client).await);
        drop(server);
        std::future::poll_fn(|cx| client.poll_quiet(cx)).await;
    });
}

#[test]
fn a_descriptor_moves_to_another_stream() {
    on_each(|_| async {
        let before = worker::connections();
        let (client, server) = pair().await;
        client.send(&[b'a'; 10][..], options()).await.unwrap();
        recv_exactly(&server, 10).await;
        // Watched for a while: the driver has an operation in flight on it.
        assert!(is_quiet(&client).await);
        yield_now().await;
        client.unwatch();
        let fd = client.into_fd().await.unwrap();
        assert_eq!(worker::connections(), before + 1);
        server.send(&[b'b'; 10][..], options()).await.unwrap();
        let client = Stream::from_fd(fd).unwrap();
        assert_eq!(recv_exactly(&client, 10).await, vec![b'b'; 10]);
        client.send(&[b'c'; 10][..], options()).await.unwrap();
        assert_eq!(recv_exactly(&server, 10).await, vec![b'c'; 10]);
        drop(client);
        assert!(server.recv(LONG).await.unwrap().is_empty());
    });
}

#[test]
fn a_fresh_connection_moves_too() {
    on_each(|_| async {
        let (client, server) = pair().await;
        let client = Stream::from_fd(client.into_fd().await.unwrap()).unwrap();
        client.send(&[b'a'; 10][..], options()).await.unwrap();
        recv_exactly(&server, 10).await;
    });
}

/// A head and 16 KB of content: one receive for a response of the most common block size.
#[test]
fn sixteen_kb_and_a_head_are_received_at_once() {
    const HEAD: usize = 4 * 1024;
    const CONTENT: usize = 16 * 1024;
    on_each(|_| async {
        let (client, server) = pair().await;
        let mut response = Chain::new();
        response.push(bytes::Bytes::from(vec![b'h'; HEAD]));
        response.push(bytes::Bytes::from(vec![b'c'; CONTENT]));
        server.send(response, options()).await.unwrap();
        while rustix::io::ioctl_fionread(client.fd()).unwrap() < (HEAD + CONTENT) as u64 {
            nowait_runtime::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(client.recv(LONG).await.unwrap().len(), HEAD + CONTENT);
    });
}
