//! A layer between connections and their sockets, on every driver that this machine has: what holds
//! for plain connections holds with it.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use nowait_runtime::buf::{Chain, FileRange, OutBuf, RECV_BUF_BYTES};
use nowait_runtime::driver::{self, DriverKind, Requested};
use nowait_runtime::net::{
    Address, AfterEnd, Layer, Listener, ListenerOptions, Observer, OpenProgress, RelayEnd,
    RelayOptions, SendOptions, Side, Sides, Stream, Unread, relay,
};
use nowait_runtime::pool::{Pool, PoolConfig};
use nowait_runtime::sim::{self, NetworkFaults};
use nowait_runtime::worker::{self, WorkerConfig, WorkerEnd, Workers};
use nowait_runtime::{fs, spawn, yield_now};
use rustix::net::SendFlags;

const LONG: Duration = Duration::from_secs(30);

/// A record: its kind, two bytes of length, and so many bytes of content, each changed by the key.
const HEADER: usize = 3;
const CONTENT_MAX: usize = 16 * 1024;
const KEY: u8 = 0x5a;

/// Plaintext.
const DATA: u8 = 1;
/// The end of a side.
const END: u8 = 2;
/// For the layer alone: to be answered.
const QUESTION: u8 = 3;
/// For the layer alone.
const ANSWER: u8 = 4;

/// A layer that is simple enough to see what it does.
#[derive(Default)]
struct Toy {
    ended: bool,
    answers: usize,
    /// From which length of a file on it leaves sealing to the kernel: nothing is sealed then.
    offloads_from: Option<u64>,
    /// The first time, it cannot do that.
    not_yet: bool,
    /// The socket has no room for the next message.
    full: bool,
    /// Bytes of plaintext that the kernel has sent.
    sent: u64,
}

/// A layer that leaves sealing to the kernel.
fn offloading(from: u64) -> Box<Toy> {
    Box::new(Toy { offloads_from: Some(from), ..Toy::default() })
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut record = vec![kind];
    record.extend_from_slice(&(content.len() as u16).to_be_bytes());
    record.extend(content.iter().map(|byte| byte ^ KEY));
    record
}

impl Layer for Toy {
    fn open(
        &mut self,
        input: &mut [u8],
        plain: &mut [u8],
        output: &mut Vec<u8>,
    ) -> io::Result<OpenProgress> {
        let mut opened = OpenProgress { consumed: 0, written: 0, ended: false };
        while let Some([kind, high, low, rest @ ..]) = input.get_mut(opened.consumed..) {
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            let Some(content) = rest.get_mut(..len) else { break };
            match *kind {
                DATA => {
                    let Some(room) = plain.get_mut(opened.written..opened.written + len) else {
                        break;
                    };
                    content.iter_mut().for_each(|byte| *byte ^= KEY);
                    room.copy_from_slice(content);
                    opened.written += len;
                }
                END => opened.ended = true,
                QUESTION => output.extend(record(ANSWER, b"")),
                ANSWER => self.answers += 1,
                _ => {
                    output.extend(record(END, b""));
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
            opened.consumed += HEADER + len;
        }
        Ok(opened)
    }

    fn seal(&mut self, plain: &[&[u8]], output: &mut Vec<u8>, mut at: usize) -> io::Result<usize> {
        assert!(!self.ended, "data after the end");
        for part in plain.concat().chunks(CONTENT_MAX) {
            let end = at + HEADER + part.len();
            output.resize(output.len().max(end), 0);
            output[at..end].copy_from_slice(&record(DATA, part));
            at = end;
        }
        Ok(at)
    }

    fn end(&mut self, output: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.ended, true) {
            output.extend(record(END, b""));
        }
    }

    fn offloads_from(&self) -> Option<u64> {
        self.offloads_from
    }

    fn offload(&mut self, _socket: BorrowedFd<'_>) -> io::Result<bool> {
        Ok(!std::mem::take(&mut self.not_yet))
    }

    fn transmit(&mut self, socket: BorrowedFd<'_>, messages: &[u8]) -> io::Result<usize> {
        match std::mem::take(&mut self.full) {
            true => Err(io::ErrorKind::WouldBlock.into()),
            // One at a time.
            false => Ok(rustix::net::send(socket, &messages[..HEADER], SendFlags::DONTWAIT)?),
        }
    }

    fn sent(&mut self, bytes: u64, output: &mut Vec<u8>) -> io::Result<()> {
        // It has something to say as soon as much was sent.
        if self.sent < MUCH && self.sent + bytes >= MUCH {
            output.extend(record(ANSWER, b""));
        }
        self.sent += bytes;
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Bytes after which a [`Toy`] sends a message of its own.
const MUCH: u64 = 1_000_000;

fn on_each<F: Future<Output = ()> + 'static>(test: impl Fn() -> F) {
    let mut kinds = vec![DriverKind::Epoll];
    match driver::choose(Requested::IoUring) {
        (DriverKind::IoUring, _) => kinds.push(DriverKind::IoUring),
        (DriverKind::Epoll, why) => eprintln!("io_uring is not tested here: {why}"),
    }
    for kind in kinds {
        let passed = Rc::new(RefCell::new(false));
        let set = passed.clone();
        let body = test();
        let workers = Workers::new(1).unwrap();
        let end = worker::run(WorkerConfig::new(0, kind), &workers, |_| async move {
            body.await;
            *set.borrow_mut() = true;
        });
        assert_eq!(end.unwrap(), WorkerEnd::Graceful);
        assert!(*passed.borrow(), "the root task panicked on {kind}");
    }
}

async fn plain_pair() -> (Stream, Stream) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Inet(socket.local_addr().unwrap());
    let listener =
        Listener::from_fd(socket.into(), ListenerOptions { id: 7, shared: true }).unwrap();
    let far = Stream::connect(&address, LONG).await.unwrap();
    (far, listener.accept().await.unwrap().stream)
}

/// A connection with layers at both ends.
async fn pair() -> (Stream, Stream) {
    let (client, server) = plain_pair().await;
    client.set_layer(Box::new(Toy::default()), b"");
    server.set_layer(Box::new(Toy::default()), b"");
    (client, server)
}

/// A connection with a layer at the second end only.
async fn half() -> (Stream, Stream) {
    let (far, near) = plain_pair().await;
    near.set_layer(Box::new(Toy::default()), b"");
    (far, near)
}

fn options() -> SendOptions {
    SendOptions::new(LONG)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

async fn take(stream: &Stream, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        let piece = stream.recv(LONG).await.unwrap();
        assert!(!piece.is_empty(), "ended after {} of {len}", all.len());
        all.extend_from_slice(&piece);
    }
    all
}

async fn take_large(stream: &Stream, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        let piece = stream.recv_large(LONG, 100_000).await.unwrap();
        assert!(!piece.is_empty(), "ended after {} of {len}", all.len());
        all.extend_from_slice(&piece);
    }
    all
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

/// No matter what waits in the layer, no receive returns more than was asked for, and nothing is lost.
#[test]
fn receives_are_bounded_and_complete() {
    on_each(|| async {
        for seed in 1..6_u64 {
            let (client, server) = pair().await;
            let text = pattern(1_500_000);
            let mut state = seed;
            let mut below = move |bound: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as usize % bound
            };
            let mut sizes = Vec::new();
            while sizes.iter().sum::<usize>() < text.len() {
                sizes.push(1 + below(90_000));
            }
            let sent = text.clone();
            let send = async {
                let mut at = 0;
                for size in sizes {
                    let end = sent.len().min(at + size);
                    client
                        .send(bytes::Bytes::copy_from_slice(&sent[at..end]), options())
                        .await
                        .unwrap();
                    at = end;
                }
            };
            let receive = async {
                let mut all = Vec::new();
                while all.len() < text.len() {
                    let most = 1 + below(80_000);
                    let piece = server.recv_large(LONG, most).await.unwrap();
                    assert!(!piece.is_empty(), "ended after {} of {}", all.len(), text.len());
                    assert!(piece.len() <= most.max(RECV_BUF_BYTES), "{} of {most}", piece.len());
                    all.extend_from_slice(&piece);
                }
                assert!(all == text, "seed {seed}: other bytes");
            };
            both(send, receive).await;
        }
    });
}

#[test]
fn bytes_pass_in_both_directions() {
    on_each(|| async {
        let (client, server) = pair().await;
        let text = pattern(3_000_000);
        let transfer = |from: Rc<Stream>, to: Rc<Stream>, large: bool| {
            let text = text.clone();
            async move {
                let mut chain = Chain::from(&b"head"[..]);
                for part in text.chunks(70_001) {
                    chain.push(bytes::Bytes::copy_from_slice(part));
                }
                let send = async { from.send(chain, options()).await.unwrap() };
                let receive = async {
                    let len = text.len() + 4;
                    let got = match large {
                        true => take_large(&to, len).await,
                        false => take(&to, len).await,
                    };
                    assert!(got[..4] == *b"head" && got[4..] == text);
                };
                both(send, receive).await;
                assert_eq!(from.bytes_sent(), text.len() as u64 + 4);
                assert_eq!(to.bytes_received(), text.len() as u64 + 4);
            }
        };
        let (client, server) = (Rc::new(client), Rc::new(server));
        let down = transfer(server.clone(), client.clone(), true);
        let up = transfer(client.clone(), server.clone(), false);
        both(up, down).await;
        assert_eq!(client.try_send(b"x").unwrap(), 0);
    });
}

#[test]
fn a_send_that_has_begun_is_finished_by_another() {
    on_each(|| async {
        let (client, server) = pair().await;
        let text = pattern(5_000_000);
        let send = async {
            for part in text.chunks(50_001) {
                // The socket is soon full: then the layer holds what it has sealed.
                let mut piece = OutBuf::new();
                piece.extend_from_slice(part);
                if !client.begin_send(&mut piece, &mut bytes::Bytes::new()).unwrap() {
                    client.send(Chain::from(piece), options()).await.unwrap();
                }
            }
        };
        both(send, async { assert!(take(&server, text.len()).await == text) }).await;
        assert_eq!(client.bytes_sent(), text.len() as u64);
    });
}

#[test]
fn a_response_begins_with_its_head() {
    on_each(|| async {
        let (client, server) = pair().await;
        let text = pattern(5_000_000);
        let mut alone = 0;
        let send = async {
            for (number, part) in text.chunks(30_001).enumerate() {
                let (first, second) = part.split_at(part.len() / 2);
                let mut head = OutBuf::new();
                head.extend_from_slice(first);
                let (second, none) = (bytes::Bytes::copy_from_slice(second), bytes::Bytes::new());
                // With every second head its body is not given, but sent later.
                let (mut body, rest) =
                    if number % 2 == 0 { (none, second) } else { (second, none) };
                let done = client.begin_send(&mut head, &mut body).unwrap();
                alone += usize::from(done);
                if !done || !rest.is_empty() {
                    let mut chain = Chain::from(head);
                    chain.push(body);
                    chain.push(rest);
                    client.send(chain, options()).await.unwrap();
                }
            }
        };
        both(send, async { assert!(take(&server, text.len()).await == text) }).await;
        assert!(alone > 0, "no head began");
        assert_eq!(client.bytes_sent(), text.len() as u64);
    });
}

#[test]
fn records_may_come_in_pieces() {
    on_each(|| async {
        let (far, near) = half().await;
        let text = pattern(600);
        let sealed: Vec<u8> = text.chunks(100).flat_map(|part| record(DATA, part)).collect();
        let send = async {
            for byte in sealed.chunks(3) {
                far.send(bytes::Bytes::copy_from_slice(byte), options()).await.unwrap();
                yield_now().await;
            }
        };
        both(send, async { assert_eq!(take(&near, text.len()).await, text) }).await;
    });
}

#[test]
fn a_head_and_a_small_body_share_a_record() {
    on_each(|| async {
        let (far, near) = half().await;
        let mut chain = Chain::from(&b"head"[..]);
        chain.push(&b"body"[..]);
        near.send(chain, options()).await.unwrap();
        assert_eq!(take(&far, HEADER + 8).await, record(DATA, b"headbody"));
    });
}

#[test]
fn each_side_ends_on_its_own() {
    on_each(|| async {
        let (client, server) = pair().await;
        client.send(&b"last"[..], options()).await.unwrap();
        client.shutdown_write().unwrap();
        assert_eq!(take(&server, 4).await, b"last");
        assert!(server.recv(LONG).await.unwrap().is_empty());
        assert!(server.recv(LONG).await.unwrap().is_empty());
        server.send(&b"answer"[..], options()).await.unwrap();
        drop(server);
        assert_eq!(take(&client, 6).await, b"answer");
        assert!(client.recv(LONG).await.unwrap().is_empty());
    });
}

#[test]
fn an_end_waits_for_what_was_sent_and_is_sent_once() {
    on_each(|| async {
        let (far, near) = half().await;
        near.send(&b"last"[..], options()).await.unwrap();
        near.shutdown_write().unwrap();
        drop(near);
        let expected = [record(DATA, b"last"), record(END, b"")].concat();
        assert_eq!(take(&far, expected.len()).await, expected);
        assert!(far.recv(LONG).await.unwrap().is_empty());
    });
}

#[test]
fn an_end_leaves_with_the_last_data() {
    on_each(|| async {
        for by_send in [false, true] {
            let (far, near) = half().await;
            near.end_with_next_send();
            if by_send {
                near.send(Bytes::from(pattern(70_000)), options()).await.unwrap();
            } else {
                let mut out = OutBuf::new();
                out.extend_from_slice(&pattern(70_000)[..1000]);
                if !near.begin_send(&mut out, &mut Bytes::new()).unwrap() {
                    near.send(out, options()).await.unwrap();
                }
            }
            let len = if by_send { 70_000 } else { 1000 };
            let data: Vec<u8> =
                pattern(len).chunks(CONTENT_MAX).flat_map(|part| record(DATA, part)).collect();
            // Nothing was shut down, and nothing is closed.
            let expected = [data, record(END, b"")].concat();
            let sent = take(&far, expected.len()).await;
            assert!(sent == expected, "by send: {by_send}");
            // It is not sent twice.
            drop(near);
            assert!(far.recv(LONG).await.unwrap().is_empty());
        }
    });
}

#[test]
fn what_a_handshake_has_left_leaves_with_the_first_data() {
    on_each(|| async {
        let (far, near) = plain_pair().await;
        let ticket = record(ANSWER, b"ticket");
        near.set_layer_behind(Box::new(Toy::default()), &record(DATA, b"question"), ticket.clone());
        assert_eq!(take(&near, 8).await, b"question");
        assert!(matches!(far.unread(), Unread::Nothing));
        near.send(Bytes::from_static(b"answer"), options()).await.unwrap();
        let expected = [&ticket[..], &record(DATA, b"answer")].concat();
        assert_eq!(take(&far, expected.len()).await, expected);
    });
}

#[test]
fn what_a_handshake_has_left_does_not_wait_for_data() {
    on_each(|| async {
        for ends in [false, true] {
            let (far, near) = plain_pair().await;
            let ticket = record(ANSWER, b"ticket");
            let input = record(DATA, b"half a ");
            near.set_layer_behind(Box::new(Toy::default()), &input, ticket.clone());
            assert_eq!(take(&near, 7).await, b"half a ");
            if ends {
                near.shutdown_write().unwrap();
                let expected = [&ticket[..], &record(END, b"")].concat();
                assert_eq!(take(&far, expected.len()).await, expected);
                continue;
            }
            both(async { assert_eq!(take(&near, 8).await, b"question") }, async {
                assert_eq!(take(&far, ticket.len()).await, ticket);
                far.send(Bytes::from(record(DATA, b"question")), options()).await.unwrap();
            })
            .await;
        }
    });
}

#[test]
fn a_closed_connection_sends_its_end_without_waiting() {
    on_each(|| async {
        let (far, near) = half().await;
        drop(near);
        assert_eq!(take(&far, HEADER).await, record(END, b""));
        assert!(far.recv(LONG).await.unwrap().is_empty());
    });
}

#[test]
fn a_broken_rule_is_an_error_and_the_alert_is_sent() {
    on_each(|| async {
        let (far, near) = half().await;
        far.send(&[9, 0, 0][..], options()).await.unwrap();
        assert_eq!(near.recv(LONG).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(take(&far, HEADER).await, record(END, b""));
    });
}

#[test]
fn questions_of_the_layer_are_answered_while_receiving() {
    on_each(|| async {
        let (far, near) = half().await;
        let mut received = Box::pin(near.recv(LONG));
        for _ in 0..3 {
            far.send(bytes::Bytes::from(record(QUESTION, b"")), options()).await.unwrap();
            let answered = async { assert_eq!(take(&far, HEADER).await, record(ANSWER, b"")) };
            let mut answered = Box::pin(answered);
            std::future::poll_fn(|cx| {
                assert!(received.as_mut().poll(cx).is_pending());
                answered.as_mut().poll(cx)
            })
            .await;
        }
        drop(received);
        // And while a send waits for a slow peer.
        let text = pattern(10_000_000);
        let sent = near.send(bytes::Bytes::from(text.clone()), options());
        let answers = async {
            far.send(bytes::Bytes::from(record(QUESTION, b"")), options()).await.unwrap();
            far.send(bytes::Bytes::from(record(DATA, b"now")), options()).await.unwrap();
            assert_eq!(take(&near, 3).await, b"now");
            let (mut got, mut answers, mut all) = (0, 0, Vec::new());
            while got < text.len() || answers == 0 {
                all.extend_from_slice(&far.recv_large(LONG, 1 << 20).await.unwrap());
                let mut rest = &all[..];
                while let [kind, high, low, after @ ..] = rest {
                    let len = usize::from(u16::from_be_bytes([*high, *low]));
                    let Some(content) = after.get(..len) else { break };
                    match *kind {
                        DATA => {
                            let expected = &text[got..got + len];
                            assert!(content.iter().zip(expected).all(|(a, b)| a ^ KEY == *b));
                            got += len;
                        }
                        ANSWER => answers += 1,
                        _ => panic!("unexpected record"),
                    }
                    rest = &after[len..];
                }
                let left = rest.len();
                all.drain(..all.len() - left);
            }
        };
        both(async { sent.await.unwrap() }, answers).await;
    });
}

#[test]
fn files_are_read_and_sealed() {
    on_each(|| async {
        let text = pattern(3_000_000);
        let (io, file) = file(&text).await;
        let (client, server) = pair().await;
        for (offset, len) in [(10, 1000), (2_000, 2_500_000), (2_999_999, 1)] {
            let mut chain = Chain::from(&b"head"[..]);
            chain.push(FileRange { file: file.clone(), io: io.clone(), offset, len });
            chain.push(&b"tail"[..]);
            let part = &text[offset as usize..(offset + len) as usize];
            let expected = [&b"head"[..], part, b"tail"].concat();
            let receive = async { assert!(take(&client, expected.len()).await == expected) };
            both(async { server.send(chain, options()).await.unwrap() }, receive).await;
        }
        // Without padding, as ever.
        let range = FileRange { file, io, offset: 2_900_000, len: 200_000 };
        let error = server.send(range, options()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    });
}

/// A file with this text, deleted already.
async fn file(text: &[u8]) -> (fs::Io, fs::File) {
    let pool = Pool::new(PoolConfig { name: "test".into(), threads: 2, max_queue: 64 });
    let io = fs::Io::new(pool);
    let name = format!("nowait-layer-{}-{:?}", std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, text).unwrap();
    let open = fs::OpenOptions::default();
    let file = fs::open(&io, path.as_os_str().as_encoded_bytes(), &open).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    (io, file)
}

#[test]
fn the_kernel_seals_from_a_large_file_on() {
    on_each(|| async {
        let text = pattern(3_000_000);
        let (io, file) = file(&text).await;
        let (far, near) = plain_pair().await;
        near.set_layer(offloading(500_000), b"");
        let range = |offset, len| FileRange { file: file.clone(), io: io.clone(), offset, len };
        let with_head = |offset, len| {
            let mut chain = Chain::from(&b"head"[..]);
            chain.push(range(offset, len));
            chain
        };
        // A small one is sealed here.
        near.send(with_head(0, 300), options()).await.unwrap();
        let sealed = record(DATA, &[&b"head"[..], &text[..300]].concat());
        assert_eq!(take(&far, sealed.len()).await, sealed);
        // The head of a large one, too; not its content, and nothing that follows.
        let expected = [record(DATA, b"head"), text[..600_000].to_vec()].concat();
        let receive = async { assert!(take(&far, expected.len()).await == expected) };
        both(async { near.send(with_head(0, 600_000), options()).await.unwrap() }, receive).await;
        near.send(&b"plain"[..], options()).await.unwrap();
        assert_eq!(take(&far, 5).await, b"plain");
        assert_eq!(near.with_layer(|toy: &Toy| toy.sent), Some(600_005));
        // A message of the layer's own leaves between two parts, even if it has to wait for room.
        let receive = async {
            let got = take_large(&far, 4 + 2_900_000 + HEADER).await;
            let at = got.windows(HEADER).position(|window| window == record(ANSWER, b"")).unwrap();
            let rest = [&got[..at], &got[at + HEADER..]].concat();
            assert!(rest[..4] == *b"head" && rest[4..] == text[7..2_900_007]);
        };
        both(async { near.send(with_head(7, 2_900_000), options()).await.unwrap() }, receive).await;
        // So do answers while it receives; the end comes behind all.
        for _ in 0..2 {
            far.send(bytes::Bytes::from(record(QUESTION, b"")), options()).await.unwrap();
        }
        far.send(bytes::Bytes::from(record(DATA, b"go on")), options()).await.unwrap();
        assert_eq!(take(&near, 5).await, b"go on");
        near.send(&b"last"[..], options()).await.unwrap();
        drop(near);
        let expected = [record(ANSWER, b""), record(ANSWER, b""), b"last".to_vec()].concat();
        assert_eq!(
            take(&far, expected.len() + HEADER).await,
            [expected, record(END, b"")].concat()
        );
        assert!(far.recv(LONG).await.unwrap().is_empty());
    });
}

#[test]
fn the_kernel_seals_from_the_beginning() {
    on_each(|| async {
        let (far, near) = plain_pair().await;
        near.set_layer(offloading(0), b"");
        near.send(&b"plain"[..], options()).await.unwrap();
        assert_eq!(take(&far, 5).await, b"plain");
        // As long as it is too early, records are sealed here.
        let (far, near) = plain_pair().await;
        let toy = Toy { not_yet: true, ..*offloading(0) };
        near.set_layer(Box::new(toy), b"");
        near.send(&b"one"[..], options()).await.unwrap();
        near.send(&b"plain"[..], options()).await.unwrap();
        let expected = [&record(DATA, b"one")[..], b"plain"].concat();
        assert_eq!(take(&far, expected.len()).await, expected);
    });
}

#[test]
fn messages_wait_for_room() {
    on_each(|| async {
        let (far, near) = plain_pair().await;
        let toy = Toy { full: true, ..*offloading(0) };
        near.set_layer(Box::new(toy), b"");
        near.send(&b"plain"[..], options()).await.unwrap();
        assert_eq!(take(&far, 5).await, b"plain");
        far.send(bytes::Bytes::from(record(QUESTION, b"")), options()).await.unwrap();
        let receive = async { assert_eq!(take(&near, 4).await, b"data") };
        let answered = async {
            assert_eq!(take(&far, HEADER).await, record(ANSWER, b""));
            far.send(bytes::Bytes::from(record(DATA, b"data")), options()).await.unwrap();
        };
        both(receive, answered).await;
        assert_eq!(near.with_layer(|toy: &Toy| toy.full), Some(false));
    });
}

#[test]
fn a_layer_that_leaves_sealing_to_the_kernel_moves() {
    on_each(|| async {
        let (far, near) = plain_pair().await;
        near.set_layer(offloading(0), b"");
        near.send(&b"one"[..], options()).await.unwrap();
        assert!(near.release().await.unwrap());
        let (fd, layer) = near.into_parts().await.unwrap();
        let near = Stream::from_fd(fd).unwrap();
        near.attach_layer(layer.unwrap());
        near.send(&b"two"[..], options()).await.unwrap();
        assert_eq!(take(&far, 6).await, b"onetwo");
        // And ends where nothing takes it.
        assert!(near.release().await.unwrap());
        let (fd, layer) = near.into_parts().await.unwrap();
        layer.unwrap().end(fd.as_fd());
        drop(fd);
        assert_eq!(take(&far, HEADER).await, record(END, b""));
    });
}

struct Silent;

impl Observer for Silent {}

#[test]
fn relays_carry_bulk_data_between_layers_and_plain_connections() {
    on_each(|| async {
        for (layered_client, layered_upstream) in [(true, false), (false, true), (true, true)] {
            let connect = async |layered| if layered { pair().await } else { plain_pair().await };
            let (client, ours) = connect(layered_client).await;
            let (theirs, upstream) = connect(layered_upstream).await;
            let options = RelayOptions::new(LONG, AfterEnd::HalfClose);
            let joined = spawn(async move {
                let ends = Sides { client: (&ours).into(), upstream: (&theirs).into() };
                relay(ends, Sides::default(), &options, &Silent).await
            });
            let text = pattern(2_000_000);
            let body = bytes::Bytes::from(text.clone());
            let send = async {
                client.send(body, self::options()).await.unwrap();
                client.shutdown_write().unwrap();
            };
            both(send, async { assert!(take_large(&upstream, text.len()).await == text) }).await;
            assert!(upstream.recv(LONG).await.unwrap().is_empty());
            upstream.send(&b"answer"[..], self::options()).await.unwrap();
            upstream.shutdown_write().unwrap();
            assert_eq!(take(&client, 6).await, b"answer");
            assert!(client.recv(LONG).await.unwrap().is_empty());
            assert_eq!(joined.await.unwrap(), RelayEnd::Closed(Side::Upstream));
        }
    });
}

#[test]
fn late_notes_of_the_layer_leave_a_connection_quiet() {
    on_each(|| async {
        let (far, near) = half().await;
        let quiet = async |stream: &Stream| {
            std::future::poll_fn(|cx| Poll::Ready(stream.poll_quiet(cx).is_pending())).await
        };
        assert!(quiet(&near).await);
        far.send(bytes::Bytes::from(record(ANSWER, b"late")), options()).await.unwrap();
        while near.with_layer(|toy: &Toy| toy.answers) != Some(1) {
            assert!(quiet(&near).await);
            nowait_runtime::sleep(Duration::from_millis(1)).await;
        }
        near.unwatch();
        // It is used again.
        far.send(bytes::Bytes::from(record(DATA, b"data")), options()).await.unwrap();
        assert_eq!(take(&near, 4).await, b"data");
        far.send(bytes::Bytes::from(record(END, b"")), options()).await.unwrap();
        std::future::poll_fn(|cx| near.poll_quiet(cx)).await;
    });
}

#[test]
fn a_layer_moves_with_its_descriptor() {
    on_each(|| async {
        let (far, near) = half().await;
        // A part of a record has arrived.
        let sealed = record(DATA, b"whole");
        far.send(bytes::Bytes::from(sealed[..5].to_vec()), options()).await.unwrap();
        let part = near.recv(Duration::from_millis(20)).await;
        assert_eq!(part.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(near.release().await.unwrap() && near.has_bytes());
        assert_eq!(near.parted().unwrap_err().kind(), io::ErrorKind::Unsupported);
        let (fd, layer) = near.into_parts().await.unwrap();
        let layer = std::thread::spawn(move || layer).join().unwrap();
        let near = Stream::from_fd(fd).unwrap();
        near.attach_layer(layer.unwrap());
        far.send(bytes::Bytes::from(sealed[5..].to_vec()), options()).await.unwrap();
        assert_eq!(take(&near, 5).await, b"whole");
        near.send(&b"x"[..], options()).await.unwrap();
        // Moving sent nothing.
        assert_eq!(take(&far, HEADER + 1).await, record(DATA, b"x"));
        let (far, near) = half().await;
        assert_eq!(near.into_fd().await.unwrap_err().kind(), io::ErrorKind::Unsupported);
        drop(far);
    });
}

#[test]
fn layers_work_in_simulations() {
    for seed in 0..20 {
        sim::run(seed, NetworkFaults::fair(), || async {
            let (client, server) = sim::pair();
            client.set_layer(Box::new(Toy::default()), b"");
            server.set_layer(Box::new(Toy::default()), b"");
            let text = pattern(300_000);
            let body = bytes::Bytes::from(text.clone());
            let send = async {
                client.send(body, options()).await.unwrap();
                client.shutdown_write().unwrap();
            };
            let receive = async {
                assert!(take(&server, text.len()).await == text);
                assert!(server.recv(LONG).await.unwrap().is_empty());
            };
            both(send, receive).await;
        });
    }
}
