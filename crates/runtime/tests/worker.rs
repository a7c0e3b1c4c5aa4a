//! Tasks, timers, and workers talking to each other, on every driver that this machine has.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use nowait_runtime::driver::{self, DriverKind, Requested};
use nowait_runtime::net::{Address, Listener, ListenerOptions, SendOptions, Stream};
use nowait_runtime::task::{Either, JoinError, select};
use nowait_runtime::time::{Elapsed, sleep, timeout};
use nowait_runtime::worker::{self, Hooks, WorkerConfig, WorkerEnd, WorkerEnded, Workers};
use nowait_runtime::{now, spawn, yield_now};
use nowait_testkit::wait::{PATIENCE, until};

const LONG: Duration = Duration::from_secs(30);

fn drivers() -> Vec<DriverKind> {
    let (kind, why) = driver::choose(Requested::IoUring);
    if kind == DriverKind::IoUring {
        return vec![DriverKind::Epoll, DriverKind::IoUring];
    }
    eprintln!("io_uring is not tested here: {why}");
    vec![DriverKind::Epoll]
}

fn run<F: Future<Output = ()> + 'static>(kind: DriverKind, main: F) -> WorkerEnd {
    let config = WorkerConfig::new(0, kind);
    worker::run(config, &Workers::new(1).unwrap(), |_| main).unwrap()
}

/// Sets a flag when dropped.
struct OnDrop(Rc<Cell<u32>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn a_panic_ends_one_task_and_is_reported() {
    #[derive(Default)]
    struct PanicLog(RefCell<Vec<String>>);
    impl Hooks for PanicLog {
        fn task_panicked(&self, message: &str) {
            self.0.borrow_mut().push(message.to_owned());
        }
    }
    for kind in drivers() {
        let log = Rc::new(PanicLog::default());
        let dropped = Rc::new(Cell::new(0));
        let guard = OnDrop(dropped.clone());
        let config = WorkerConfig { hooks: log.clone(), ..WorkerConfig::new(0, kind) };
        let end = worker::run(config, &Workers::new(1).unwrap(), |_| async {
            let task = spawn(async move {
                let _guard = guard;
                yield_now().await;
                panic!("number {}", 13);
            });
            let other = spawn(async {
                sleep(Duration::from_millis(5)).await;
                "well"
            });
            assert_eq!(task.await, Err::<(), _>(JoinError));
            assert_eq!(other.await, Ok("well"));
        });
        assert_eq!(end.unwrap(), WorkerEnd::Graceful);
        assert_eq!(*log.0.borrow(), ["number 13"]);
        assert_eq!(dropped.get(), 1);
    }
}

#[test]
fn abort_drops_the_future_and_detach_does_not() {
    let dropped = Rc::new(Cell::new(0));
    let (first, second) = (OnDrop(dropped.clone()), OnDrop(dropped.clone()));
    let count = dropped.clone();
    let end = run(DriverKind::Epoll, async move {
        let aborted = spawn(async move {
            let _guard = first;
            pending::<()>().await;
        });
        yield_now().await;
        aborted.abort();
        yield_now().await;
        assert_eq!(count.get(), 1);
        drop(spawn(async move {
            let _guard = second;
            sleep(Duration::from_millis(1)).await;
        }));
    });
    assert_eq!(end, WorkerEnd::Graceful);
    assert_eq!(dropped.get(), 2);
}

#[test]
fn sleeps_end_in_order_and_never_early() {
    for kind in drivers() {
        run(kind, async {
            let order = Rc::new(RefCell::new(Vec::new()));
            let tasks: Vec<_> = [30, 10, 20, 0]
                .map(|ms| {
                    let order = order.clone();
                    spawn(async move {
                        let start = now();
                        sleep(Duration::from_millis(ms)).await;
                        assert!(now() - start >= Duration::from_millis(ms));
                        order.borrow_mut().push(ms);
                    })
                })
                .into();
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(*order.borrow(), [0, 10, 20, 30]);
            assert_eq!(timeout(Duration::from_millis(1), pending::<()>()).await, Err(Elapsed));
            assert_eq!(timeout(LONG, async { 7 }).await, Ok(7));
            let first = select(sleep(LONG), sleep(Duration::from_millis(1))).await;
            assert_eq!(first, Either::Right(()));
        });
    }
}

#[test]
fn other_threads_wake_tasks_and_spawn_them() {
    for kind in drivers() {
        let workers = Workers::new(1).unwrap();
        let remote = workers.remote(0);
        // Also before the worker runs.
        let (send, receive) = mpsc::channel();
        let early = send.clone();
        remote
            .spawn(Box::new(move || Box::pin(async move { early.send("early").unwrap() })))
            .unwrap();
        let from_outside = remote.clone();
        let config = WorkerConfig::new(0, kind);
        let end = worker::run(config, &workers, |_| async move {
            // A waker is used on another thread while the loop sleeps in the kernel.
            let answer = blocking_thread(|| 6 * 7).await;
            assert_eq!(answer, 42);
            std::thread::spawn(move || {
                let spawned = from_outside.spawn(Box::new(move || {
                    Box::pin(async move {
                        sleep(Duration::from_millis(1)).await;
                        send.send("late").unwrap();
                    })
                }));
                spawned.unwrap();
                from_outside.stop();
            });
            worker::stopping().await;
        });
        assert_eq!(end.unwrap(), WorkerEnd::Graceful);
        assert_eq!(receive.iter().collect::<Vec<_>>(), ["early", "late"]);
        assert_eq!(remote.spawn(Box::new(|| Box::pin(pending()))), Err(WorkerEnded));
    }
}

/// Computes on a separate thread.
async fn blocking_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let slot = Arc::new(std::sync::Mutex::new((None, None::<std::task::Waker>)));
    let theirs = slot.clone();
    std::thread::spawn(move || {
        let result = work();
        let waker = {
            let mut slot = theirs.lock().unwrap();
            slot.0 = Some(result);
            slot.1.take()
        };
        waker.into_iter().for_each(std::task::Waker::wake);
    });
    std::future::poll_fn(|cx| {
        let mut slot = slot.lock().unwrap();
        slot.1 = Some(cx.waker().clone());
        slot.0.take().map_or(std::task::Poll::Pending, std::task::Poll::Ready)
    })
    .await
}

#[test]
fn a_killed_worker_drops_everything() {
    for kind in drivers() {
        let dropped = Rc::new(Cell::new(0));
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(socket.local_addr().unwrap()).unwrap();
        let guards: Vec<_> = (0..4).map(|_| OnDrop(dropped.clone())).collect();
        let config = WorkerConfig::new(0, kind);
        let end = worker::run(config, &Workers::new(1).unwrap(), |remote| async move {
            let options = ListenerOptions { id: 0, shared: false };
            let listener = Listener::from_fd(socket.into(), options).unwrap();
            let stream = Rc::new(listener.accept().await.unwrap().stream);
            let mut guards = guards.into_iter();
            let mut guard = || guards.next().unwrap();
            // Waiting in a receive, a send, an accept, a sleep; and the root task itself.
            let (held, receiver) = (guard(), stream.clone());
            spawn(async move {
                let _held = held;
                let _ = receiver.recv(LONG).await;
            });
            let held = guard();
            spawn(async move {
                let _held = held;
                let data = bytes::Bytes::from(vec![1; 64 << 20]);
                let _ = stream.send(data, SendOptions::new(LONG)).await;
            });
            let held = guard();
            spawn(async move {
                let _held = held;
                let _ = listener.accept().await;
            });
            let held = guard();
            spawn(async move {
                let _held = held;
                // A task that spawns while it is dropped.
                struct Respawn;
                impl Drop for Respawn {
                    fn drop(&mut self) {
                        drop(spawn(pending::<()>()));
                    }
                }
                let _respawn = Respawn;
                sleep(LONG).await;
            });
            sleep(Duration::from_millis(2)).await;
            remote.kill();
            pending::<()>().await;
        });
        assert_eq!(end.unwrap(), WorkerEnd::Killed);
        assert_eq!(dropped.get(), 4);
        drop(client);
    }
}

#[test]
fn load_is_levelled_and_nothing_is_lost() {
    const WORKERS: usize = 3;
    const CLIENTS: usize = 120;
    for (kind, shared) in drivers().into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let workers = Workers::new(WORKERS).unwrap();
        let served = Arc::new([const { AtomicUsize::new(0) }; WORKERS]);
        let (ready, is_ready) = mpsc::channel();
        let threads: Vec<_> = (0..WORKERS)
            .map(|index| {
                // Either all workers share the socket, or only the first one has the socket that
                // clients connect to, and the others, under the same identity, have unused ones.
                let socket = match index {
                    _ if shared => socket.try_clone().unwrap(),
                    0 => socket.try_clone().unwrap(),
                    _ => TcpListener::bind("127.0.0.1:0").unwrap(),
                };
                let (workers, served, ready) = (workers.clone(), served.clone(), ready.clone());
                std::thread::spawn(move || {
                    let config = WorkerConfig::new(index, kind);
                    worker::run(config, &workers, |_| async move {
                        let options = ListenerOptions { id: 5, shared };
                        let listener = Rc::new(Listener::from_fd(socket.into(), options).unwrap());
                        ready.send(()).unwrap();
                        let accepting = listener.clone();
                        let accept = spawn(async move {
                            while let Ok(accepted) = accepting.accept().await {
                                served[index].fetch_add(1, SeqCst);
                                spawn(greet(accepted.stream));
                            }
                        });
                        worker::stopping().await;
                        listener.stop();
                        accept.await.unwrap();
                    })
                    .unwrap()
                })
            })
            .collect();
        (0..WORKERS).for_each(|_| is_ready.recv().unwrap());
        let mut clients: Vec<_> =
            (0..CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
        for client in &mut clients {
            use std::io::Read;
            let mut greeting = [0; 5];
            client.read_exact(&mut greeting).unwrap();
        }
        assert_eq!(workers.loads().sum::<usize>(), CLIENTS);
        drop(clients);
        (0..WORKERS).for_each(|index| workers.remote(index).stop());
        for thread in threads {
            assert_eq!(thread.join().unwrap(), WorkerEnd::Graceful);
        }
        let counts = served.each_ref().map(|count| count.load(SeqCst));
        assert_eq!(counts.iter().sum::<usize>(), CLIENTS);
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(most - least <= 16, "{kind}, shared {shared}: {counts:?}");
    }
}

async fn greet(stream: Stream) {
    stream.send(&b"hello"[..], SendOptions::new(LONG)).await.unwrap();
    let _ = stream.recv(LONG).await;
}

#[test]
fn a_stopped_listener_returns_what_it_has_accepted() {
    for kind in drivers() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let clients: Vec<_> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
        let left = socket.try_clone().unwrap();
        run(kind, async move {
            let options = ListenerOptions { id: 0, shared: false };
            let listener = Listener::from_fd(socket.into(), options).unwrap();
            let mut accepted = vec![listener.accept().await.unwrap()];
            listener.stop();
            let end = loop {
                match listener.accept().await {
                    Ok(one) => accepted.push(one),
                    Err(end) => break end,
                }
            };
            assert_eq!(end.kind(), std::io::ErrorKind::NotConnected);
            // The rest is still in the socket's queue.
            left.set_nonblocking(true).unwrap();
            let rest = std::iter::from_fn(|| left.accept().ok()).count();
            assert_eq!(accepted.len() + rest, 10);
        });
        drop(clients);
    }
}

/// The kernel wakes one of the listeners that share a socket. If that one is stopped before it
/// looks, no other is notified of the connection.
#[test]
fn what_comes_while_a_listener_is_stopped_is_not_forgotten() {
    for kind in drivers() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let workers = Workers::new(2).unwrap();
        let served = Arc::new(AtomicUsize::new(0));
        let both = Arc::new(AtomicBool::new(false));
        let accept_all = |served: Arc<AtomicUsize>, listener: Rc<Listener>| async move {
            while let Ok(accepted) = listener.accept().await {
                served.fetch_add(1, SeqCst);
                spawn(greet(accepted.stream));
            }
        };
        let start = |index: usize| {
            let (socket, workers) = (socket.try_clone().unwrap(), workers.clone());
            let (served, both) = (served.clone(), both.clone());
            let (ready, is_ready) = mpsc::channel();
            let thread = std::thread::spawn(move || {
                worker::run(WorkerConfig::new(index, kind), &workers, |_| async move {
                    let options = ListenerOptions { id: 0, shared: true };
                    let listener = Rc::new(Listener::from_fd(socket.into(), options).unwrap());
                    let accept = spawn(accept_all(served, listener.clone()));
                    // It has been submitted by then.
                    sleep(Duration::from_millis(5)).await;
                    ready.send(()).unwrap();
                    if index == 0 {
                        while !both.load(SeqCst) {
                            sleep(Duration::from_millis(1)).await;
                        }
                        let _client = TcpStream::connect(address).unwrap();
                        listener.stop();
                        accept.await.unwrap();
                    }
                    worker::stopping().await;
                    listener.stop();
                })
                .unwrap()
            });
            is_ready.recv().unwrap();
            thread
        };
        let threads = [start(0), start(1)];
        both.store(true, SeqCst);
        until("the connection", PATIENCE, || (served.load(SeqCst) == 1).then_some(()));
        (0..2).for_each(|index| workers.remote(index).stop());
        threads
            .into_iter()
            .for_each(|thread| assert_eq!(thread.join().unwrap(), WorkerEnd::Graceful));
    }
}

#[test]
fn a_worker_at_its_limit_does_not_spin() {
    for kind in drivers() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let clients: Vec<_> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
        let config = WorkerConfig { connections_max: 3, ..WorkerConfig::new(0, kind) };
        let blocked = config.blocked.clone();
        let end = worker::run(config, &Workers::new(1).unwrap(), |_| async move {
            let options = ListenerOptions { id: 0, shared: true };
            let listener = Listener::from_fd(socket.into(), options).unwrap();
            let accepting = async {
                let mut streams = Vec::new();
                loop {
                    streams.push(listener.accept().await.unwrap().stream);
                }
            };
            let both = select(accepting, sleep(Duration::from_millis(50))).await;
            assert_eq!(both, Either::<(), ()>::Right(()));
            assert!(timeout(Duration::from_millis(50), pending::<()>()).await.is_err());
        });
        assert_eq!(end.unwrap(), WorkerEnd::Graceful);
        let turns = blocked.snapshot().turns();
        assert!(turns < 50, "{kind}: {turns} turns");
        drop(clients);
    }
}

#[test]
fn the_restricted_ring_serves_as_well() {
    if drivers().len() == 1 {
        return;
    }
    let config = WorkerConfig { guard: true, ..WorkerConfig::new(0, DriverKind::IoUring) };
    let end = worker::run(config, &Workers::new(1).unwrap(), |_| async {
        let (left, right) = std::os::unix::net::UnixStream::pair().unwrap();
        let left = Stream::from_fd(left.into()).unwrap();
        let right = Stream::from_fd(right.into()).unwrap();
        for _ in 0..100 {
            left.send(&b"ping"[..], SendOptions::new(LONG)).await.unwrap();
            assert_eq!(&right.recv(LONG).await.unwrap()[..], b"ping");
        }
        assert!(timeout(Duration::from_millis(1), left.hangup()).await.is_err());
    });
    assert_eq!(end.unwrap(), WorkerEnd::Graceful);
}

/// Otherwise they would wait for this worker, holding a descriptor each, while other workers have
/// room.
#[test]
fn a_worker_takes_no_more_connections_than_it_may_have() {
    for kind in drivers() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let clients: Vec<_> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
        let queue = socket.try_clone().unwrap();
        let rest = Rc::new(Cell::new(None));
        let counted = rest.clone();
        let config = WorkerConfig { connections_max: 3, ..WorkerConfig::new(0, kind) };
        let end = worker::run(config, &Workers::new(1).unwrap(), |_| async move {
            let options = ListenerOptions { id: 0, shared: true };
            let listener = Listener::from_fd(socket.into(), options).unwrap();
            let mut accepted = Vec::new();
            for _ in 0..3 {
                accepted.push(listener.accept().await.unwrap());
            }
            // A few more turns.
            for _ in 0..3 {
                assert!(timeout(Duration::from_millis(1), listener.accept()).await.is_err());
            }
            queue.set_nonblocking(true).unwrap();
            counted.set(Some(std::iter::from_fn(|| queue.accept().ok()).count()));
        });
        assert_eq!(end.unwrap(), WorkerEnd::Graceful);
        assert_eq!(rest.get(), Some(7), "{kind}");
        drop(clients);
    }
}

#[test]
fn a_connection_that_is_reset_in_the_queue_is_no_failure() {
    #[derive(Default)]
    struct Failures(Cell<u32>);
    impl Hooks for Failures {
        fn accept_failed(&self, error: &std::io::Error) {
            eprintln!("{error}");
            self.0.set(self.0.get() + 1);
        }
    }
    for kind in drivers() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let reset = TcpStream::connect(address).unwrap();
        rustix::net::sockopt::set_socket_linger(&reset, Some(Duration::ZERO)).unwrap();
        drop(reset);
        let client = TcpStream::connect(address).unwrap();
        let expected = Address::Inet(client.local_addr().unwrap());
        let failures = Rc::new(Failures::default());
        let config = WorkerConfig { hooks: failures.clone(), ..WorkerConfig::new(0, kind) };
        let end = worker::run(config, &Workers::new(1).unwrap(), |_| async move {
            let options = ListenerOptions { id: 0, shared: false };
            let listener = Listener::from_fd(socket.into(), options).unwrap();
            while listener.accept().await.unwrap().peer != expected {}
        });
        assert_eq!(end.unwrap(), WorkerEnd::Graceful);
        assert_eq!(failures.0.get(), 0, "{kind}");
    }
}
