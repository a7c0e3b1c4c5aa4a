//! Connections that this side opens: for tests, and for servers behind this one.

use std::future::poll_fn;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use nowait_runtime::net::DatagramTrains;
use nowait_runtime::now;
use nowait_tls::TlsClient;

use crate::bundle::{Bundle, ClientOptions};
use crate::connection::no_listen;
use crate::crypto::{ClientSide, HandshakeState};
use crate::endpoint::Endpoint;
use crate::live::{Live, LiveState};
use crate::socket::Socket;
use crate::{ConnectError, Connection, Settings};

impl Endpoint {
    /// Opens a connection as a client, from a socket of its own. Resolves when the handshake is complete.
    ///
    /// # Errors
    /// [`ConnectError`]
    pub async fn connect(
        self: &Rc<Self>,
        peer: SocketAddr,
        server_name: &str,
        client: &TlsClient,
        settings: &Settings,
    ) -> Result<Rc<Connection>, ConnectError> {
        let any = match peer {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = DatagramTrains::bind(any).map_err(ConnectError::Io)?;
        let connection = self.connect_from(socket, peer, server_name, client, settings)?;
        let confirmed = poll_fn(|cx| connection.poll_confirmed(cx)).await;
        confirmed.map_err(ConnectError::Lost)?;
        Ok(connection)
    }

    /// The same from this socket, without waiting for the handshake: streams can be opened at once if an earlier session
    /// allows early data, and otherwise when [`Connection::poll_confirmed`] has resolved.
    ///
    /// # Errors
    /// [`ConnectError`]
    pub fn connect_from(
        self: &Rc<Self>,
        socket: DatagramTrains,
        peer: SocketAddr,
        server_name: &str,
        client: &TlsClient,
        settings: &Settings,
    ) -> Result<Rc<Connection>, ConnectError> {
        let socket = self.attach(Socket::new(socket, None));
        let crypto = Arc::new(ClientSide {
            client: client.clone(),
            state: Arc::new(HandshakeState::default()),
            session: Mutex::default(),
        });
        let full = || ConnectError::Settings("too many connections".to_owned());
        let slot = self.reserve().ok_or_else(full)?;
        socket.only.set(Some(slot));
        let (keys, home) = (self.directory().keys(), self.home(slot));
        let dont_fragment = socket.dont_fragment();
        let options =
            ClientOptions { tokens: self.client_tokens.clone(), dont_fragment, now: now() };
        let begun =
            Bundle::connect(&keys, home, peer, server_name, crypto.clone(), settings, options);
        let bundle = match begun {
            Ok(bundle) => bundle,
            Err(error) => {
                self.release(slot);
                return Err(ConnectError::Settings(error.to_string()));
            }
        };
        let session = crypto.session.lock().unwrap_or_else(PoisonError::into_inner).take();
        let state = LiveState::new(Box::new(bundle), false);
        let live = Live::new(self, (slot, None), socket, None, settings.idle_timeout, state);
        self.settle(slot, &live);
        self.touch(&live);
        Ok(Connection::new(live, no_listen(), session, None))
    }
}
