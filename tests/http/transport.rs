//! The transports by which a client reaches a server: HTTP/1.1 and HTTP/2, each with and without TLS.
//!
//! TLS is added by a relay of threads, so that the clients are the same as without it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use nowait_testkit::http2::{Http2, Limits};
use nowait_testkit::{Client, Response, Server, ServerBuilder, wait};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ServerConfig};

use crate::stage;
use crate::tls::client::{Authority, Issued};

/// Who has issued the certificates of these servers and of their clients.
pub static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("CA"));

/// What listens for every transport.
const LISTEN: &str = "listen 127.0.0.1:%%PORT%%;
    listen 127.0.0.1:%%PORT_1%% ssl;
    http2 on;
    ssl_certificate own.pem;
    ssl_certificate_key own.key;";

/// How a client reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Http1,
    Http1Tls,
    Http2,
    Http2Tls,
}

/// A server with this `http` block, in which `%%LISTEN%%` stands for listening for every transport.
pub fn site(http: &str) -> ServerBuilder {
    let own = AUTHORITY.issue("localhost");
    stage::site(&http.replace("%%LISTEN%%", LISTEN))
        .file("own.pem", own.chain)
        .file("own.key", own.key)
        .file("ca.pem", &AUTHORITY.pem)
}

/// Runs a test over each of these transports on each driver, with a server of its own each time.
#[track_caller]
pub fn on_each(
    transports: &[Transport],
    builder: &ServerBuilder,
    test: impl Fn(&mut Server, Transport),
) {
    for transport in transports {
        eprintln!("transport: {transport:?}");
        stage::on_each_driver(builder, |server| test(server, *transport));
    }
}

impl Transport {
    pub const ALL: [Transport; 4] =
        [Transport::Http1, Transport::Http1Tls, Transport::Http2, Transport::Http2Tls];

    /// Those of HTTP/1.1.
    pub const HTTP1: [Transport; 2] = [Transport::Http1, Transport::Http1Tls];

    /// Those of HTTP/2.
    pub const HTTP2: [Transport; 2] = [Transport::Http2, Transport::Http2Tls];

    pub fn is_http2(self) -> bool {
        Transport::HTTP2.contains(&self)
    }

    pub fn is_secure(self) -> bool {
        matches!(self, Transport::Http1Tls | Transport::Http2Tls)
    }

    /// A connection, with this certificate of the client.
    #[track_caller]
    pub fn connect(self, server: &Server, own: Option<&Issued>) -> TcpStream {
        match self.is_secure() {
            false => TcpStream::connect(server.addr()).unwrap(),
            true => {
                let mut config = ClientConfig::clone(&AUTHORITY.client(own));
                let protocol = if self.is_http2() { &b"h2"[..] } else { b"http/1.1" };
                config.alpn_protocols = vec![protocol.to_vec()];
                let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port_n(1))).unwrap();
                relay(socket, config, "localhost")
            }
        }
    }

    /// A client of HTTP/1.1.
    #[track_caller]
    pub fn client(self, server: &Server) -> Client {
        assert!(!self.is_http2());
        Client::over(self.connect(server, None)).unwrap()
    }

    /// A client of HTTP/2.
    #[track_caller]
    pub fn http2(self, server: &Server) -> Http2 {
        self.http2_with(server, Limits::default(), None)
    }

    /// A client of HTTP/2 with these settings and this certificate.
    #[track_caller]
    pub fn http2_with(self, server: &Server, limits: Limits, own: Option<&Issued>) -> Http2 {
        assert!(self.is_http2());
        let scheme = if self.is_secure() { "https" } else { "http" };
        Http2::over(self.connect(server, own), limits).scheme(scheme)
    }

    /// Sends a request on a connection of its own.
    #[track_caller]
    pub fn send(self, server: &Server, request: &TestRequest<'_>) -> PendingResponse {
        if self.is_http2() {
            let mut client = self.http2_with(server, Limits::default(), request.own);
            let has_content = !request.content.is_empty();
            let length = request.content.len().to_string();
            let mut fields = request.fields.to_vec();
            if has_content && !request.chunked {
                fields.push(("content-length", &length));
            }
            let stream = client.open(request.method, request.target, &fields, !has_content);
            // The head is on its way first, so that nothing can have seen the content by chance.
            if has_content {
                client.data(stream, request.content, true);
            }
            return PendingResponse::Http2(Box::new(client), stream);
        }
        let mut client = Client::over(self.connect(server, request.own)).unwrap();
        client.send(request.head());
        if request.chunked {
            client.send(format!("{:x}\r\n", request.content.len()));
            client.send(request.content);
            client.send("\r\n0\r\n\r\n");
        } else if !request.content.is_empty() {
            client.send(request.content);
        }
        PendingResponse::Http1(Box::new(client))
    }

    /// Sends a request on a connection of its own, and returns the response.
    #[track_caller]
    pub fn ask(self, server: &Server, request: &TestRequest<'_>) -> Response {
        self.send(server, request).response()
    }

    /// Asks for a target.
    #[track_caller]
    pub fn get(self, server: &Server, target: &str) -> Response {
        self.ask(server, &TestRequest { target, ..TestRequest::default() })
    }
}

/// A request of the host `localhost`.
#[derive(Clone, Copy)]
pub struct TestRequest<'a> {
    pub method: &'a str,
    pub target: &'a str,
    /// Names in lower case.
    pub fields: &'a [(&'a str, &'a str)],
    pub content: &'a [u8],
    /// Without a length.
    pub chunked: bool,
    /// The certificate of the client.
    pub own: Option<&'a Issued>,
}

impl Default for TestRequest<'_> {
    fn default() -> Self {
        TestRequest {
            method: "GET",
            target: "/",
            fields: &[],
            content: b"",
            chunked: false,
            own: None,
        }
    }
}

impl TestRequest<'_> {
    /// The head in HTTP/1.1.
    fn head(&self) -> String {
        let TestRequest { method, target, fields, content, chunked, .. } = self;
        let mut head =
            format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        for (name, value) in *fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if *chunked {
            head.push_str("transfer-encoding: chunked\r\n");
        } else if !content.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", content.len()));
        }
        head + "\r\n"
    }
}

/// A request whose response has not been read.
pub enum PendingResponse {
    Http1(Box<Client>),
    Http2(Box<Http2>, nowait_testkit::http2::StreamId),
}

impl PendingResponse {
    /// Receives the response.
    #[track_caller]
    pub fn response(self) -> Response {
        match self {
            PendingResponse::Http1(mut client) => client.response(),
            PendingResponse::Http2(mut client, stream) => client.response(stream),
        }
    }

    /// Receives what there is of a response. Whether it is complete, and no error.
    #[track_caller]
    pub fn ends_well(self) -> bool {
        match self {
            PendingResponse::Http1(mut client) => {
                client.try_response(false).is_ok_and(|response| response.status < 500)
            }
            PendingResponse::Http2(mut client, stream) => {
                let exchange = client.end_of(stream);
                exchange.ended && exchange.status < 500
            }
        }
    }

    /// Waits for the head, and until the content begins like this. What has come stays for
    /// [`Self::response`].
    #[track_caller]
    pub fn until(&mut self, content: &[u8]) {
        match self {
            PendingResponse::Http1(client) => {
                let mut seen = vec![0; 64 * 1024];
                wait::until("content", wait::PATIENCE, || {
                    let count = client.stream().peek(&mut seen).unwrap_or(0);
                    let head = seen[..count].windows(4).position(|part| part == b"\r\n\r\n")?;
                    let mut parts = seen[head + 4..count].windows(content.len().max(1));
                    (content.is_empty() || parts.any(|part| part == content)).then_some(())
                });
            }
            PendingResponse::Http2(client, stream) => {
                let stream = *stream;
                client.until("content", |client| {
                    let response = client.so_far(stream);
                    response.status != 0 && response.body.starts_with(content)
                });
            }
        }
    }
}

/// Settings of an origin with TLS, for HTTP/2 or HTTP/1.1.
pub fn origin_tls(http2: bool) -> Arc<ServerConfig> {
    let own = AUTHORITY.issue("localhost");
    let chain = vec![CertificateDer::from_pem_slice(own.chain.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
    let config = ServerConfig::builder().with_no_client_auth();
    let mut config = config.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = if http2 { vec![b"h2".to_vec()] } else { Vec::new() };
    Arc::new(config)
}

/// A plain connection that leads on to this one, with TLS.
pub fn relay(mut socket: TcpStream, config: ClientConfig, name: &str) -> TcpStream {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
    while tls.is_handshaking() {
        tls.complete_io(&mut socket).unwrap();
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    far.set_nodelay(true).unwrap();
    socket.set_nodelay(true).unwrap();
    let tls = Arc::new(Mutex::new(tls));
    let up = (far.try_clone().unwrap(), socket.try_clone().unwrap(), tls.clone());
    std::thread::spawn(move || encrypt(up.0, up.1, &up.2));
    std::thread::spawn(move || decrypt(socket, far, &tls));
    near
}

/// Reads plain bytes and sends records.
fn encrypt(mut from: TcpStream, mut to: TcpStream, tls: &Mutex<ClientConnection>) {
    let mut buffer = [0; 16384];
    loop {
        let count = from.read(&mut buffer).unwrap_or(0);
        let mut tls = tls.lock().unwrap_or_else(PoisonError::into_inner);
        match count {
            0 => tls.send_close_notify(),
            count => tls.writer().write_all(&buffer[..count]).expect("a buffer without a limit"),
        }
        while tls.wants_write() {
            if tls.write_tls(&mut to).is_err() {
                return;
            }
        }
        if count == 0 {
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
    }
}

/// Reads records and sends plain bytes.
fn decrypt(mut from: TcpStream, mut to: TcpStream, tls: &Mutex<ClientConnection>) {
    let mut buffer = [0; 16384];
    loop {
        // What came with the end of the handshake is there already.
        let mut plain = Vec::new();
        let _ = tls.lock().unwrap_or_else(PoisonError::into_inner).reader().read_to_end(&mut plain);
        if to.write_all(&plain).is_err() {
            break;
        }
        let Ok(count @ 1..) = from.read(&mut buffer) else { break };
        let mut rest = &buffer[..count];
        let mut plain = Vec::new();
        while !rest.is_empty() {
            let mut tls = tls.lock().unwrap_or_else(PoisonError::into_inner);
            if tls.read_tls(&mut rest).is_err() || tls.process_new_packets().is_err() {
                rest = &[];
            }
            let _ = tls.reader().read_to_end(&mut plain);
        }
        if to.write_all(&plain).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
