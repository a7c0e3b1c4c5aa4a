//! A client and a server, joined in memory.

use nowait_tls::{
    Acceptor, ClientSettings, Error, Hello, OpenProgress, PLAINTEXT_BYTES_MAX, Refusal,
    ServerSettings, Session, Stop, TlsClient, TlsServer,
};

/// Why the handshake failed, for the client and for the server.
pub type Failed = Box<(Error, Error)>;

/// One side: its session, what has arrived, what it sends, and what it has read.
pub struct LinkEnd {
    pub session: Session,
    pub input: Vec<u8>,
    pub output: Vec<u8>,
    pub read: Vec<u8>,
    pub ended: bool,
    /// Steps that asked to run outside of the loop.
    pub slow_steps: usize,
}

impl LinkEnd {
    pub fn new(session: Session, input: Vec<u8>) -> LinkEnd {
        let (output, read) = (Vec::new(), Vec::new());
        LinkEnd { session, input, output, read, ended: false, slow_steps: 0 }
    }

    /// Opens all that has arrived.
    pub fn open(&mut self) -> Result<(), Error> {
        let mut plain = vec![0; PLAINTEXT_BYTES_MAX];
        let mut slow = false;
        loop {
            let OpenProgress { consumed, written, stop } =
                self.session.open(&mut self.input, &mut plain, &mut self.output, slow)?;
            self.input.drain(..consumed);
            self.read.extend_from_slice(&plain[..written]);
            slow = false;
            match stop {
                Stop::Input => return Ok(()),
                Stop::Ended => {
                    self.ended = true;
                    return Ok(());
                }
                Stop::Room => assert!(written > 0),
                Stop::Slow => {
                    slow = true;
                    self.slow_steps += 1;
                }
            }
        }
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.session.seal(&[bytes], &mut self.output).unwrap();
    }
}

/// Passes on what is left to be sent, in pieces of at most `piece` bytes, until both are silent.
pub fn exchange(client: &mut LinkEnd, server: &mut LinkEnd, piece: usize) -> Result<(), Failed> {
    let pass = |from: &mut LinkEnd, to: &mut LinkEnd| -> Result<(), Error> {
        let mut sent = std::mem::take(&mut from.output);
        for part in sent.chunks_mut(piece) {
            to.input.extend_from_slice(part);
            to.open()?;
        }
        Ok(())
    };
    client.open().map_err(|error| Box::new((error.clone(), error)))?;
    loop {
        if let Err(error) = pass(client, server) {
            let told = pass(server, client).err().unwrap_or(Error::Eof);
            return Err(Box::new((told, error)));
        }
        if let Err(error) = pass(server, client) {
            let told = pass(client, server).err().unwrap_or(Error::Eof);
            return Err(Box::new((error, told)));
        }
        if client.output.is_empty() && server.output.is_empty() {
            return Ok(());
        }
    }
}

/// Feeds an acceptor until it has a hello.
pub fn hello(client: &mut LinkEnd, piece: usize) -> Result<Hello, Refusal> {
    client.open()?;
    let mut acceptor = Acceptor::default();
    let sent = std::mem::take(&mut client.output);
    let mut hello = None;
    let mut rest = &sent[..];
    while hello.is_none() {
        let (part, after) = rest.split_at(piece.min(rest.len()));
        assert!(!part.is_empty(), "the hello is complete");
        hello = acceptor.receive(part)?;
        rest = after;
    }
    client.output.extend_from_slice(rest);
    Ok(hello.unwrap())
}

/// Connects a client to a server, up to the end of the handshake.
pub fn connect_in(
    client: &TlsClient,
    server: &TlsServer,
    piece: usize,
) -> Result<(LinkEnd, LinkEnd), Failed> {
    let mut client = LinkEnd::new(client.connect("example.com").unwrap(), Vec::new());
    let hello = hello(&mut client, piece).unwrap();
    let (session, input) = hello.begin(server).unwrap();
    let mut server = LinkEnd::new(session, input);
    server.open().map_err(|error| {
        client.input.append(&mut server.output);
        Box::new((client.open().unwrap_err(), error))
    })?;
    exchange(&mut client, &mut server, piece)?;
    assert!(!client.session.is_handshaking() && !server.session.is_handshaking());
    Ok((client, server))
}

pub fn connect(client: &TlsClient, server: &TlsServer) -> Result<(LinkEnd, LinkEnd), Failed> {
    connect_in(client, server, usize::MAX)
}

pub fn server(settings: ServerSettings) -> TlsServer {
    TlsServer::new(settings).unwrap()
}

pub fn client(settings: ClientSettings) -> TlsClient {
    TlsClient::new(settings).unwrap()
}
