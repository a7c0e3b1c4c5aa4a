//! A server and clients, for all tests here.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use nowait_quic::{
    Admission, Arrival, Chosen, Connection, Dir, Directory, Endpoint, Failure, Greeting, HostKey,
    Listening, LocalFuture, Processes, Read, ReadError, Refused, Service, Settings, StreamId,
    WriteError,
};
use nowait_runtime::driver::{self, DriverKind, Requested};
use nowait_runtime::net::DatagramTrains;
use nowait_runtime::pool::{Pool, PoolConfig};
use nowait_runtime::time::timeout;
use nowait_runtime::worker::{self, WorkerConfig, Workers};
use nowait_runtime::{Remote, spawn};
use nowait_sys::listen::ListenAddress;
use nowait_tls::pem::PrivateKey;
use nowait_tls::{CertificateDer, ClientSettings, Identity, ServerSettings, TlsClient, TlsServer};
use rcgen::{CertificateParams, KeyPair, SignatureAlgorithm};

/// Longer than anything here takes.
pub const LONG: Duration = Duration::from_secs(30);

/// The server's certificate.
pub fn identity() -> Identity {
    static IDENTITY: LazyLock<Identity> =
        LazyLock::new(|| identity_of(&rcgen::PKCS_ECDSA_P256_SHA256));
    IDENTITY.clone()
}

fn certificate(key: &KeyPair) -> CertificateDer<'static> {
    let params = CertificateParams::new(vec!["example.com".to_owned()]).unwrap();
    params.self_signed(key).unwrap().der().clone()
}

fn private_key(key: &KeyPair) -> PrivateKey {
    PrivateKey::from_pem(key.serialize_pem().as_bytes(), &[]).unwrap()
}

/// A certificate with a key of this type.
pub fn identity_of(algorithm: &'static SignatureAlgorithm) -> Identity {
    let key = KeyPair::generate_for(algorithm).unwrap();
    Identity::new(vec![certificate(&key)], &private_key(&key), None).unwrap()
}

/// A certificate with a long chain behind it.
pub fn long_identity() -> Identity {
    let key = KeyPair::generate().unwrap();
    let certificate = certificate(&key);
    Identity::new(vec![certificate; 20], &private_key(&key), None).unwrap()
}

/// Runs a test on each driver; restricted as in production.
pub fn on_each_driver<F: Future<Output = ()> + 'static>(main: impl Fn() -> F) {
    let mut kinds = vec![DriverKind::Epoll];
    match driver::choose(Requested::IoUring) {
        (DriverKind::IoUring, _) => kinds.push(DriverKind::IoUring),
        (_, why) => eprintln!("io_uring is not tested here: {why}"),
    }
    for kind in kinds {
        let ran = Rc::new(Cell::new(false));
        let (main, end) = (main(), ran.clone());
        let config = WorkerConfig { guard: true, ..WorkerConfig::new(0, kind) };
        worker::run(config, &Workers::new(1).unwrap(), |remote| async move {
            // After a panic, too.
            let _end = EndGuard(remote);
            timeout(LONG, main).await.expect("the test ends");
            end.set(true);
        })
        .unwrap();
        assert!(ran.get(), "a panic on {kind}");
    }
}

/// Ends the worker, whatever tasks are left.
struct EndGuard(Remote);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// How the server behaves.
pub struct Behaviour {
    pub tls: TlsServer,
    pub settings: Settings,
    pub retry: bool,
    pub refuse: Option<fn() -> Refused>,
    pub handshake: Duration,
}

pub fn server_settings() -> ServerSettings {
    ServerSettings {
        identities: vec![identity()],
        quic_alpn: vec![b"h3".to_vec()],
        ..Default::default()
    }
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            tls: TlsServer::new(server_settings()).unwrap(),
            settings: Settings::default(),
            retry: false,
            refuse: None,
            handshake: LONG,
        }
    }
}

/// A server that collects its connections.
pub struct TestService {
    pub behaviour: Behaviour,
    pool: Pool,
    pub names: RefCell<Vec<Option<String>>>,
    pub failures: RefCell<Vec<String>>,
    served: RefCell<VecDeque<Rc<Connection>>>,
    waker: RefCell<Option<Waker>>,
}

impl Service for TestService {
    fn admit(&self, arrival: &Arrival) -> Admission {
        match self.behaviour.retry && !arrival.validated {
            true => Admission::Retry,
            false => Admission::Accept { timeout: self.behaviour.handshake },
        }
    }

    fn choose(self: Rc<Self>, greeting: Greeting) -> LocalFuture<Result<Chosen, Refused>> {
        self.names.borrow_mut().push(greeting.hello.server_name());
        let result = match self.behaviour.refuse {
            Some(refuse) => Err(refuse()),
            None => Ok(Chosen {
                server: self.behaviour.tls.clone(),
                settings: self.behaviour.settings.clone(),
                pool: self.pool.clone(),
                client: 1,
                context: Box::new("context"),
            }),
        };
        Box::pin(std::future::ready(result))
    }

    fn serve(self: Rc<Self>, connection: Rc<Connection>) {
        self.served.borrow_mut().push_back(connection);
        self.waker.take().into_iter().for_each(Waker::wake);
    }

    fn failed(&self, failure: Failure) {
        self.failures.borrow_mut().push(failure.reason.to_string());
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}

impl TestService {
    pub fn new(behaviour: Behaviour) -> Rc<TestService> {
        let config = PoolConfig { name: "compute".to_owned(), threads: 1, max_queue: 64 };
        Rc::new(TestService {
            behaviour,
            pool: Pool::new(config),
            names: RefCell::default(),
            failures: RefCell::default(),
            served: RefCell::default(),
            waker: RefCell::default(),
        })
    }

    /// Steps that were made in the pool.
    pub fn steps_in_pool(&self) -> u64 {
        let snapshot = self.pool.snapshot();
        snapshot.ops.iter().map(|op| op.completed).sum()
    }

    /// The next connection.
    pub async fn next(&self) -> Rc<Connection> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    pub fn poll_next(&self, cx: &Context<'_>) -> Poll<Rc<Connection>> {
        match self.served.borrow_mut().pop_front() {
            Some(connection) => Poll::Ready(connection),
            None => {
                self.waker.replace(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }

    /// The reason why the next handshake fails.
    pub async fn next_failure(&self) -> String {
        poll_fn(|cx| match self.failures.borrow_mut().pop() {
            Some(failure) => Poll::Ready(failure),
            None => {
                self.waker.replace(Some(cx.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }
}

/// The workers of a process without others.
pub fn directory() -> Arc<Directory> {
    directory_of(&HostKey::random())
}

/// The same with this secret.
pub fn directory_of(secret: &HostKey) -> Arc<Directory> {
    Directory::new(secret, Processes::alone())
}

/// A server at an address, and an endpoint for clients.
pub struct Stage {
    pub clients: Rc<Endpoint>,
    pub endpoint: Rc<Endpoint>,
    pub service: Rc<TestService>,
    pub listening: Listening,
    pub address: SocketAddr,
    pub client: TlsClient,
}

pub fn client_settings() -> ClientSettings {
    ClientSettings { sends_name: true, alpn: vec![b"h3".to_vec()], ..Default::default() }
}

impl Stage {
    pub fn new(behaviour: Behaviour) -> Stage {
        Stage::in_directory(directory(), behaviour)
    }

    pub fn in_directory(directory: Arc<Directory>, behaviour: Behaviour) -> Stage {
        let service = TestService::new(behaviour);
        let endpoint = Endpoint::new(directory, service.clone());
        let socket = DatagramTrains::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = socket.local_addr();
        let listen = Arc::new(ListenAddress::Udp(address));
        let listening = endpoint.listen_with(socket, listen);
        let client = TlsClient::new(client_settings()).unwrap();
        let clients = Endpoint::new(self::directory(), service.clone());
        Stage { clients, endpoint, service, listening, address, client }
    }

    /// A connection: the client's side, and the server's.
    pub async fn connect(&self) -> (Rc<Connection>, Rc<Connection>) {
        self.connect_as(&self.client).await
    }

    /// The same for another client.
    pub async fn connect_as(&self, client: &TlsClient) -> (Rc<Connection>, Rc<Connection>) {
        let client = self
            .clients
            .connect(self.address, "example.com", client, &Settings::default())
            .await
            .unwrap();
        (client, self.service.next().await)
    }
}

/// Writes everything, and ends the stream.
pub async fn send(
    connection: &Connection,
    stream: StreamId,
    data: Bytes,
) -> Result<(), WriteError> {
    let mut chunks = [data];
    while !chunks[0].is_empty() {
        poll_fn(|cx| connection.poll_write(stream, &mut chunks, cx)).await?;
    }
    connection.finish(stream)
}

/// Reads up to the end.
pub async fn receive(connection: &Connection, stream: StreamId) -> Result<Vec<u8>, ReadError> {
    let mut all = Vec::new();
    loop {
        match poll_fn(|cx| connection.poll_read(stream, usize::MAX, cx)).await? {
            Read::Data(data) => all.extend_from_slice(&data),
            Read::End => return Ok(all),
            Read::Blocked => unreachable!(),
        }
    }
}

/// Bytes that tell where they are.
pub fn pattern(len: usize) -> Bytes {
    (0..len).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect()
}

/// Sends this many bytes to the server and back, on a new stream.
pub async fn exchange(client: &Rc<Connection>, server: &Rc<Connection>, len: usize) {
    let stream = client.open(Dir::Bi).unwrap();
    let (sender, data) = (client.clone(), pattern(len));
    let sending = spawn(async move { send(&sender, stream, data).await });
    loop {
        let same = poll_fn(|cx| server.poll_accept(Dir::Bi, cx)).await.unwrap();
        if same == stream {
            break;
        }
    }
    assert_eq!(receive(server, stream).await.unwrap(), pattern(len));
    sending.await.unwrap().unwrap();
    let (sender, data) = (server.clone(), pattern(len));
    let sending = spawn(async move { send(&sender, stream, data).await });
    assert_eq!(receive(client, stream).await.unwrap(), pattern(len));
    sending.await.unwrap().unwrap();
}

/// A counter of an endpoint's process.
pub fn count(endpoint: &Endpoint, name: &str) -> u64 {
    let all = endpoint.directory().counters().all();
    all.into_iter().find(|(known, _)| *known == name).unwrap().1
}
