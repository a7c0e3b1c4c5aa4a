//! An upstream server with TLS, which tells what it sees of a connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{HandshakeKind, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use super::client::Authority;

/// A server for `localhost`, with a certificate of an authority, from which certificates of clients
/// have to be, too. It runs until the tests end.
pub struct TlsOrigin {
    addr: SocketAddr,
    /// The connections.
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl TlsOrigin {
    pub fn start(authority: &Authority) -> TlsOrigin {
        let own = authority.issue("localhost");
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
        let clients = WebPkiClientVerifier::builder(roots.into());
        let clients = clients.allow_unauthenticated().build().unwrap();
        let chain = vec![CertificateDer::from_pem_slice(own.chain.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
        let config = ServerConfig::builder().with_client_cert_verifier(clients);
        let config = Arc::new(config.with_single_cert(chain, key).unwrap());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let sockets = Arc::<Mutex<Vec<TcpStream>>>::default();
        let accepted = sockets.clone();
        std::thread::spawn(move || {
            for (n, socket) in listener.incoming().enumerate() {
                let (socket, config) = (socket.unwrap(), config.clone());
                accepted.lock().unwrap().push(socket.try_clone().unwrap());
                std::thread::spawn(move || serve(n + 1, socket, config));
            }
        });
        TlsOrigin { addr, sockets }
    }

    /// Ends all connections.
    pub fn hang_up(&self) {
        for socket in self.sockets.lock().unwrap().drain(..) {
            socket.shutdown(Shutdown::Both).unwrap();
        }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

/// Answers each request with the number of the connection and what is known of it.
fn serve(number: usize, socket: TcpStream, config: Arc<ServerConfig>) {
    let connection = ServerConnection::new(config).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    let mut received = Vec::new();
    loop {
        while !received.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match stream.read(&mut byte) {
                Ok(1) => received.push(byte[0]),
                Ok(_) => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
        received.clear();
        let tls = &stream.conn;
        let body = format!(
            "{number} {:?} {} {} {}",
            tls.protocol_version().unwrap(),
            tls.server_name().unwrap_or("unnamed"),
            if tls.handshake_kind() == Some(HandshakeKind::Resumed) { "resumed" } else { "new" },
            if tls.peer_certificates().is_some() { "certified" } else { "anonymous" },
        );
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        if stream.write_all(format!("{head}{body}").as_bytes()).is_err() {
            return;
        }
    }
}
