//! TLS over real sockets, on every driver that this machine has.

use std::cell::RefCell;
use std::future::Future;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use nowait_front::tls::kernel::KernelUse;
use nowait_front::tls::{Chosen, Handshake, HandshakeError, Tls, accept, connect};
use nowait_runtime::buf::{Chain, FileRange};
use nowait_runtime::driver::{self, DriverKind, Requested};
use nowait_runtime::fs;
use nowait_runtime::net::{Address, Listener, ListenerOptions, SendOptions, Stream};
use nowait_runtime::pool::{Op, Pool, PoolConfig};
use nowait_runtime::worker::{self, WorkerConfig, WorkerEnd, Workers};
use nowait_tls::{
    CertificateDer, ClientSettings, Error, Identity, ServerSettings, SessionCache, TicketKeys,
    TlsClient, TlsServer, Versions, pem,
};

const LONG: Duration = Duration::from_secs(30);

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

async fn sockets() -> (Stream, Stream) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Inet(socket.local_addr().unwrap());
    let listener =
        Listener::from_fd(socket.into(), ListenerOptions { id: 7, shared: true }).unwrap();
    let far = Stream::connect(&address, LONG).await.unwrap();
    (far, listener.accept().await.unwrap().stream)
}

fn pool() -> Pool {
    Pool::new(PoolConfig { name: "test".into(), threads: 2, max_queue: 64 })
}

fn handshake() -> Handshake {
    Handshake { timeout: LONG, pool: pool(), client: 1 }
}

fn identity(algorithm: &'static rcgen::SignatureAlgorithm) -> Identity {
    let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
    let params = rcgen::CertificateParams::new(vec!["example.com".to_owned()]).unwrap();
    let own: CertificateDer<'static> = params.self_signed(&key).unwrap().der().clone();
    let key = pem::PrivateKey::from_pem(key.serialize_pem().as_bytes(), &[]).unwrap();
    Identity::new(vec![own], &key, None).unwrap()
}

fn server(algorithm: &'static rcgen::SignatureAlgorithm) -> TlsServer {
    TlsServer::new(ServerSettings {
        identities: vec![identity(algorithm)],
        tickets: Some(Arc::new(TicketKeys::generated().unwrap())),
        ..ServerSettings::default()
    })
    .unwrap()
}

async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut a_done, mut b_done) = (None, None);
    std::future::poll_fn(|cx| {
        if a_done.is_none()
            && let Poll::Ready(done) = a.as_mut().poll(cx)
        {
            a_done = Some(done);
        }
        if b_done.is_none()
            && let Poll::Ready(done) = b.as_mut().poll(cx)
        {
            b_done = Some(done);
        }
        if a_done.is_some() && b_done.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (a_done.unwrap(), b_done.unwrap())
}

/// A connection with TLS: the client's end, and the server's.
async fn pair(client: &TlsClient, server: &TlsServer, handshake: &Handshake) -> (Stream, Stream) {
    let (far, near) = sockets().await;
    let session = client.connect("example.com").unwrap();
    let accepting = accept(&near, b"", handshake, async |hello| {
        assert_eq!(hello.alpn(), Vec::<Vec<u8>>::new());
        Ok(Chosen {
            server: server.clone(),
            keeps_offers: false,
            judge: None,
            ocsp: None,
            key_log: None,
            kernel: KernelUse::Never,
            kernel_log: None,
        })
    });
    let (connected, accepted) = both(connect(&far, session, handshake), accepting).await;
    connected.unwrap();
    accepted.unwrap();
    (far, near)
}

async fn take(stream: &Stream, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        let piece = stream.recv_large(LONG, 100_000).await.unwrap();
        assert!(!piece.is_empty(), "ended after {} of {len}", all.len());
        all.extend_from_slice(&piece);
    }
    all
}

fn options() -> SendOptions {
    SendOptions::new(LONG)
}

#[test]
fn bytes_and_files_pass_and_each_side_ends() {
    on_each(|| async {
        let server = server(&rcgen::PKCS_ECDSA_P256_SHA256);
        for tls13 in [true, false] {
            let versions = Versions { tls12: !tls13, tls13 };
            let client = TlsClient::new(ClientSettings { versions, ..Default::default() }).unwrap();
            let (far, near) = pair(&client, &server, &handshake()).await;
            let text: Vec<u8> = (0..2_000_000u32).map(|n| (n >> 7) as u8).collect();

            let io = fs::Io::new(pool());
            let thread = std::thread::current().id();
            let name = format!("nowait-tls-{}-{thread:?}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, &text).unwrap();
            let open = fs::OpenOptions::default();
            let file = fs::open(&io, path.as_os_str().as_encoded_bytes(), &open).await.unwrap();
            std::fs::remove_file(&path).unwrap();
            let mut chain = Chain::from(&b"head"[..]);
            chain.push(FileRange { file, io, offset: 0, len: text.len() as u64 });

            let down = both(near.send(chain, options()), take(&far, text.len() + 4));
            let up = both(far.send(Bytes::from(text.clone()), options()), take(&near, text.len()));
            let ((sent, got), (sent_up, got_up)) = both(down, up).await;
            sent.unwrap();
            sent_up.unwrap();
            assert!(got[4..] == text && got_up == text);

            far.shutdown_write().unwrap();
            assert!(near.recv(LONG).await.unwrap().is_empty());
            near.send(&b"answer"[..], options()).await.unwrap();
            drop(near);
            assert_eq!(take(&far, 6).await, b"answer");
            assert!(far.recv(LONG).await.unwrap().is_empty());
            assert_eq!(far.with_layer(|tls: &Tls| tls.session().has_ended()), Some(true));
        }
    });
}

#[test]
fn long_steps_run_in_the_pool() {
    on_each(|| async {
        for (algorithm, slow) in
            [(&rcgen::PKCS_ECDSA_P256_SHA256, 0), (&rcgen::PKCS_ECDSA_P384_SHA384, 1)]
        {
            let handshake = handshake();
            let client = TlsClient::new(ClientSettings::default()).unwrap();
            pair(&client, &server(algorithm), &handshake).await;
            let ops = handshake.pool.snapshot().ops;
            let blocking = ops.iter().find(|ops| ops.op == Op::Blocking);
            assert_eq!(blocking.map_or(0, |ops| ops.started), slow);
        }
    });
}

#[test]
fn late_tickets_leave_a_connection_quiet_and_resume_the_next_one() {
    on_each(|| async {
        let server = server(&rcgen::PKCS_ECDSA_P256_SHA256);
        let client = TlsClient::new(ClientSettings::default()).unwrap();
        let reused = |stream: &Stream| stream.with_layer(|tls: &Tls| tls.session().is_reused());
        let (far, near) = pair(&client, &server, &handshake()).await;
        assert_eq!(reused(&near), Some(false));
        near.send(&b"x"[..], options()).await.unwrap();
        assert_eq!(take(&far, 1).await, b"x");
        let quiet = std::future::poll_fn(|cx| Poll::Ready(far.poll_quiet(cx).is_pending())).await;
        assert!(quiet);
        let (_, near) = pair(&client, &server, &handshake()).await;
        assert_eq!(reused(&near), Some(true));
    });
}

#[test]
fn failures_are_told() {
    on_each(|| async {
        let server = server(&rcgen::PKCS_ECDSA_P256_SHA256);
        let (far, near) = sockets().await;
        far.send(&b"GET / HTTP/1.1\r\n"[..], options()).await.unwrap();
        let plain = accept(&near, b"", &handshake(), async |_| {
            Ok(Chosen {
                server: server.clone(),
                keeps_offers: false,
                judge: None,
                ocsp: None,
                key_log: None,
                kernel: KernelUse::Never,
                kernel_log: None,
            })
        })
        .await;
        assert!(matches!(plain, Err(HandshakeError::PlainHttp(sent)) if sent.starts_with(b"GET ")));

        let client = TlsClient::new(ClientSettings::default()).unwrap();
        let (far, near) = sockets().await;
        let handshake = handshake();
        let session = client.connect("example.com").unwrap();
        let rejecting = accept(&near, b"", &handshake, async |_| Err(HandshakeError::Rejected));
        let (told, rejected) = both(connect(&far, session, &handshake), rejecting).await;
        assert!(matches!(rejected, Err(HandshakeError::Rejected)));
        assert!(told.unwrap_err().to_string().contains("unrecognized name"));

        let (far, near) = sockets().await;
        drop(far);
        let gone = accept(&near, b"", &handshake, async |_| Err(HandshakeError::Rejected)).await;
        assert!(matches!(gone, Err(HandshakeError::Tls(Error::Eof))));
    });
}

#[test]
fn a_server_that_takes_early_data_serves_clients_without() {
    on_each(|| async {
        let server = TlsServer::new(ServerSettings {
            identities: vec![identity(&rcgen::PKCS_ECDSA_P256_SHA256)],
            cache: Some(Arc::new(SessionCache::new(1 << 20, LONG))),
            early_data_bytes_max: 16_384,
            ..ServerSettings::default()
        })
        .unwrap();
        let client = TlsClient::new(ClientSettings::default()).unwrap();
        for _ in 0..2 {
            let (far, near) = pair(&client, &server, &handshake()).await;
            far.send(&b"request"[..], options()).await.unwrap();
            assert_eq!(take(&near, 7).await, b"request");
            let handshaking = near.with_layer(|tls: &Tls| tls.session().is_handshaking());
            assert_eq!(handshaking, Some(false));
            near.send(&b"response"[..], options()).await.unwrap();
            assert_eq!(take(&far, 8).await, b"response");
        }
    });
}
