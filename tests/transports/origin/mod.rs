//! Origins: they verify what is uploaded and produce what is downloaded, both from the target.

mod fastcgi;
mod one;
mod two;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustls::{ServerConfig, ServerConnection};

use crate::content::ContentRange;
use crate::duplex;
use crate::wire::Wire;

/// What an origin speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    Http1,
    Http2,
    FastCgi,
    /// As tunnels and sessions of `stream` carry it.
    Duplex,
}

/// What origins found that no response can tell.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<Vec<String>>>);

impl Faults {
    /// Takes all so far.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no thread panics with it"))
    }

    fn add(&self, fault: String) {
        self.0.lock().expect("no thread panics with it").push(fault);
    }
}

/// Starts an origin; it runs until the tests end. Returns where it listens.
pub fn start(speaks: Speaks, tls: Option<Arc<ServerConfig>>, faults: &Faults) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    let address = listener.local_addr().expect("its address");
    let faults = faults.clone();
    let connections = Arc::new(AtomicU64::new(0));
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let (tls, faults) = (tls.clone(), faults.clone());
            let seed = connections.fetch_add(1, Ordering::Relaxed);
            std::thread::spawn(move || {
                let served = catch_unwind(AssertUnwindSafe(|| serve(speaks, socket, tls, seed)));
                match served {
                    Ok(Ok(())) => {}
                    // The server may leave at any time; what matters is what its client sees.
                    Ok(Err(error)) if is_departure(&error) => {}
                    Ok(Err(error)) => faults.add(format!("an origin of {speaks:?}: {error}")),
                    Err(panic) => {
                        let text = text(&*panic);
                        if !tells_departure(&text) {
                            faults.add(format!("an origin of {speaks:?}: {text}"));
                        }
                    }
                }
            });
        }
    });
    address
}

fn is_departure(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// The same of an origin that panics when it can't send: the server closes a connection after its last
/// response, without reading what the origin may still say.
fn tells_departure(text: &str) -> bool {
    text.contains("Broken pipe") || text.contains("Connection reset by peer")
}

/// What a panic said.
pub fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

fn serve(
    speaks: Speaks,
    socket: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    seed: u64,
) -> io::Result<()> {
    let tls = tls.map(|config| {
        rustls::Connection::from(ServerConnection::new(config).expect("a configuration"))
    });
    let mut wire = Wire::new(socket, tls, seed)?;
    match speaks {
        Speaks::Http1 => one::serve(&mut wire),
        Speaks::Http2 => two::serve(wire, seed),
        Speaks::FastCgi => fastcgi::serve(&mut wire),
        Speaks::Duplex => duplex::origin(&mut wire, Vec::new()),
    }
}

/// What a target asks for.
#[derive(Clone, Debug)]
struct TargetRequest {
    id: u64,
    up: ContentRange,
    down: ContentRange,
    /// How the end of the response is known.
    framing: String,
}

impl TargetRequest {
    fn parse(target: &str) -> io::Result<TargetRequest> {
        let value = |name: &str| {
            let (_, query) = target.split_once('?')?;
            query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        let number = |name| value(name).and_then(|text| text.parse::<u64>().ok());
        let length = |name| number(name).and_then(|length| usize::try_from(length).ok());
        let parse = || {
            let id = number("id")?;
            Some(TargetRequest {
                id,
                up: ContentRange::new(id, length("up")?),
                down: ContentRange::new(!id, length("down")?),
                framing: value("as")?.to_owned(),
            })
        };
        parse().ok_or_else(|| io::Error::other(format!("the target is {target:?}")))
    }

    /// What to say of an upload.
    fn verdict(&self, upload: &[u8]) -> String {
        match self.up.check(upload) {
            Ok(()) => "good".to_owned(),
            // One line of visible characters.
            Err(why) => why.chars().map(|c| if c.is_ascii_graphic() { c } else { ' ' }).collect(),
        }
    }
}
