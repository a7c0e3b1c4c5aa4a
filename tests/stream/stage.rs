//! What the tests share: a server with a `stream` block per driver, and upstreams that are played.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use nowait_testkit::{Binary, Client, Driver, Server, ServerBuilder, wait};

/// No test waits longer for a byte.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Describes a server with this `stream` block.
pub fn stream(block: &str) -> ServerBuilder {
    let text = format!("%%MAIN%%\nevents {{\n%%EVENTS%%\n}}\nstream {{\n{block}\n}}\n");
    Server::of(Binary::under_test(env!("CARGO_BIN_EXE_nowait"))).config(&text)
}

/// Runs a test on each driver, with a server of its own each time.
#[track_caller]
pub fn on_each(builder: &ServerBuilder, test: impl Fn(&mut Server)) {
    for driver in [Driver::Epoll, Driver::IoUring] {
        // Shown with a failure.
        eprintln!("driver: {driver:?}");
        let mut server = builder.clone().driver(driver).start();
        test(&mut server);
        let nginx = server.binary().is_nginx();
        server.stop();
        if nginx {
            break;
        }
    }
}

/// Waits until a file below the server's directory contains a text.
#[track_caller]
pub fn wait_file(server: &Server, file: &str, text: &str) {
    let found = wait::try_until(wait::PATIENCE, || server.read(file).contains(text).then_some(()));
    assert!(found.is_some(), "{file} lacks {text:?}; it is:\n{}", server.read(file));
}

/// An upstream server: each connection is given to the function, on a thread of its own.
pub struct Upstream {
    addr: SocketAddr,
    _thread: JoinHandle<()>,
}

impl Upstream {
    /// One that serves connections like this.
    pub fn new(serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> Upstream {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let addr = listener.local_addr().expect("its address");
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serve = serve.clone();
                stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
                std::thread::spawn(move || serve(stream));
            }
        });
        Upstream { addr, _thread: thread }
    }

    /// One that sends back what it gets, until the other side ends.
    pub fn echo() -> Upstream {
        Upstream::new(|mut stream| {
            let mut bytes = [0; 65536];
            while let Ok(len @ 1..) = stream.read(&mut bytes) {
                if stream.write_all(&bytes[..len]).is_err() {
                    return;
                }
            }
        })
    }

    /// One that says its name, and closes.
    pub fn named(name: &'static str) -> Upstream {
        Upstream::new(move |mut stream| {
            // The client may have gone.
            let _ = stream.write_all(name.as_bytes());
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read(&mut [0; 64]);
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

/// What a server says to one who says nothing.
#[track_caller]
pub fn hear(addr: SocketAddr) -> String {
    String::from_utf8_lossy(&Client::to(addr).rest()).into_owned()
}

/// Sends text, and reads as many bytes as are expected.
#[track_caller]
pub fn say(client: &mut Client, text: &str, expected: &str) {
    client.send(text);
    let mut heard = Vec::new();
    while heard.len() < expected.len() {
        let more = client.read_some(expected.len() - heard.len());
        assert!(!more.is_empty(), "ended after {:?}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&more);
    }
    assert_eq!(String::from_utf8_lossy(&heard), expected);
}
