//! The runtime's own floor: an HTTP server that answers every request with the same 200, without
//! parsing more than the end of the head and the word `close`.
//!
//! `tiny [epoll|io_uring|auto] [address]`; it prints its process number and driver, and runs
//! until killed. Measure with `wrk` and `/proc/PID/stat` against nginx `return 200 "OK"`.

use std::net::TcpListener;
use std::time::Duration;

use nowait_runtime::buf::OutBuf;
use nowait_runtime::driver::{self, Requested};
use nowait_runtime::net::{Listener, ListenerOptions, SendOptions, Stream};
use nowait_runtime::worker::{self, WorkerConfig, Workers};

/// nginx's `keepalive_timeout` and `send_timeout` by default.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(75);
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let requested = match args.next().as_deref() {
        Some("epoll") => Requested::Epoll,
        Some("io_uring") => Requested::IoUring,
        _ => Requested::Default,
    };
    let address = args.next().unwrap_or_else(|| "127.0.0.1:8081".to_owned());
    let (kind, why) = driver::choose(requested);
    let socket = TcpListener::bind(address)?;
    rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
    println!("{} {kind}: {why}", std::process::id());

    let mut config = WorkerConfig::new(0, kind);
    config.connections_max = 20_000;
    worker::run(config, &Workers::new(1)?, |_| async move {
        let options = ListenerOptions { id: 0, shared: false };
        let listener = Listener::from_fd(socket.into(), options).expect("a listening socket");
        while let Ok(accepted) = listener.accept().await {
            nowait_runtime::spawn(serve(accepted.stream));
        }
    })?;
    Ok(())
}

async fn serve(stream: Stream) {
    while let Ok(request) = stream.recv(KEEPALIVE_TIMEOUT).await {
        if request.is_empty() {
            return;
        }
        let requests = request.windows(4).filter(|end| end == b"\r\n\r\n").count();
        let close = request.windows(5).any(|word| word == b"close");
        drop(request);
        let mut response = OutBuf::new();
        for _ in 0..requests {
            response.extend_from_slice(b"HTTP/1.1 200 OK\r\nServer: tiny\r\nDate: ");
            response.extend_from_slice(&nowait_runtime::clock().http_date());
            response.extend_from_slice(
                b"\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nOK",
            );
        }
        if stream.send(response, SendOptions::new(SEND_TIMEOUT)).await.is_err() || close {
            return;
        }
    }
}
