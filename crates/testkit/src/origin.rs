//! An upstream server that plays scripts: lists of steps.
//!
//! The first connection gets the first script, and so on; connections beyond the last script are
//! closed at once. Runs in separate threads, which end with the value.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::response::find;
use crate::wait::{PATIENCE, until};

/// One action of the origin on a connection.
#[derive(Debug)]
pub enum Step {
    /// Reads until these bytes have arrived since the last step.
    Expect(Vec<u8>),
    /// Sends these bytes.
    Reply(Vec<u8>),
    /// Sends as many of these bytes as the peer takes before it closes the connection.
    ReplySome(Vec<u8>),
    /// Waits for a message (or the sender's end) from the test.
    Wait(Receiver<()>),
    /// Closes the sending side.
    HalfClose,
    /// Reads until the peer has closed the connection.
    Closed,
    /// Resets the connection (RST).
    Reset,
}

impl Step {
    /// Reads until `bytes` have arrived.
    pub fn expect(bytes: impl AsRef<[u8]>) -> Step {
        Step::Expect(bytes.as_ref().to_vec())
    }

    /// Sends `bytes`.
    pub fn reply(bytes: impl AsRef<[u8]>) -> Step {
        Step::Reply(bytes.as_ref().to_vec())
    }

    /// Sends `bytes`, or a part of them.
    pub fn reply_some(bytes: impl AsRef<[u8]>) -> Step {
        Step::ReplySome(bytes.as_ref().to_vec())
    }
}

/// A running origin.
#[derive(Debug)]
pub struct Origin {
    addr: SocketAddr,
    shared: Arc<OriginState>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct OriginState {
    stop: AtomicBool,
    /// Number of connections whose scripts have finished.
    played: AtomicUsize,
    /// The bytes each connection sent, in order of acceptance.
    received: Mutex<Vec<Vec<u8>>>,
    faults: Mutex<Vec<String>>,
}

impl Origin {
    /// Listens on a free port of 127.0.0.1 and plays `scripts`, one per connection.
    ///
    /// # Panics
    /// If no port can be bound.
    #[track_caller]
    pub fn start<S>(scripts: impl IntoIterator<Item = S>) -> Origin
    where
        S: IntoIterator<Item = Step>,
    {
        let scripts: Vec<Vec<Step>> =
            scripts.into_iter().map(|script| script.into_iter().collect()).collect();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
        let addr = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(OriginState::default());
        let acceptor = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || accept(&listener, scripts, &shared))
        };
        Origin { addr, shared, acceptor: Some(acceptor) }
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The bytes each connection has sent so far, in order of acceptance.
    pub fn received(&self) -> Vec<Vec<u8>> {
        lock(&self.shared.received).clone()
    }

    /// Waits until the scripts of this many connections have finished.
    #[track_caller]
    pub fn wait_played(&self, connections: usize) {
        until("the origin's scripts to end", PATIENCE, || {
            (self.shared.played.load(Ordering::Acquire) >= connections).then_some(())
        });
    }

    /// Stops it.
    ///
    /// # Panics
    /// If a script could not be completed.
    #[track_caller]
    pub fn finish(mut self) {
        self.stop();
        let faults = lock(&self.shared.faults);
        assert!(faults.is_empty(), "origin: {}", faults.join("; "));
    }

    fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Wakes the accept call; fails only if the listener is already gone.
        let _ = TcpStream::connect(self.addr);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, scripts: Vec<Vec<Step>>, shared: &Arc<OriginState>) {
    let mut scripts = scripts.into_iter();
    let mut players = Vec::new();
    while let Ok((stream, _)) = listener.accept() {
        if shared.stop.load(Ordering::Acquire) {
            break;
        }
        let Some(script) = scripts.next() else {
            continue;
        };
        let index = {
            let mut received = lock(&shared.received);
            received.push(Vec::new());
            received.len() - 1
        };
        let shared = Arc::clone(shared);
        players.push(std::thread::spawn(move || {
            if let Err(fault) = play(stream, script, index, &shared) {
                lock(&shared.faults).push(format!("connection {index}: {fault}"));
            }
            shared.played.fetch_add(1, Ordering::Release);
        }));
    }
    for player in players {
        let _ = player.join();
    }
}

fn play(
    mut stream: TcpStream,
    script: Vec<Step>,
    index: usize,
    shared: &OriginState,
) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    stream.set_read_timeout(Some(Duration::from_millis(100))).map_err(text)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(text)?;
    let mut since_last_step = Vec::new();
    for step in script {
        match step {
            Step::Expect(bytes) => {
                let end = read_until(&mut stream, &bytes, &mut since_last_step, index, shared)?;
                since_last_step.drain(..end);
            }
            Step::Reply(bytes) => stream.write_all(&bytes).map_err(text)?,
            Step::ReplySome(bytes) => drop(stream.write_all(&bytes)),
            Step::Wait(receiver) => {
                let _ = receiver.recv_timeout(PATIENCE);
            }
            Step::Closed => read_to_end(&mut stream, index, shared)?,
            Step::HalfClose => match stream.shutdown(Shutdown::Write) {
                // The peer has reset the connection: it has seen enough.
                Err(e) if e.kind() == std::io::ErrorKind::NotConnected => {}
                other => other.map_err(text)?,
            },
            Step::Reset => {
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))
                    .map_err(|e| e.to_string())?;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Reads until the peer has closed the connection, normally or not.
fn read_to_end(stream: &mut TcpStream, index: usize, shared: &OriginState) -> Result<(), String> {
    let deadline = std::time::Instant::now() + PATIENCE;
    let mut piece = [0; 16 * 1024];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(n) => lock(&shared.received)[index].extend_from_slice(&piece[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                if shared.stop.load(Ordering::Acquire) || std::time::Instant::now() > deadline {
                    return Err("timed out waiting for the peer to close".to_owned());
                }
            }
            Err(_) => return Ok(()),
        }
    }
}

/// Reads until `bytes` are in `buffer`; returns the position after them.
fn read_until(
    stream: &mut TcpStream,
    bytes: &[u8],
    buffer: &mut Vec<u8>,
    index: usize,
    shared: &OriginState,
) -> Result<usize, String> {
    let deadline = std::time::Instant::now() + PATIENCE;
    let expected = String::from_utf8_lossy(bytes).into_owned();
    let mut piece = [0; 16 * 1024];
    loop {
        if let Some(at) = find(buffer, bytes) {
            return Ok(at + bytes.len());
        }
        match stream.read(&mut piece) {
            Ok(0) => return Err(format!("the peer closed before {expected:?}")),
            Ok(n) => {
                buffer.extend_from_slice(&piece[..n]);
                lock(&shared.received)[index].extend_from_slice(&piece[..n]);
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                if shared.stop.load(Ordering::Acquire) || std::time::Instant::now() > deadline {
                    return Err(format!("timed out waiting for {expected:?}"));
                }
            }
            Err(e) => return Err(format!("before {expected:?}: {e}")),
        }
    }
}
