//! Whole HTTP/2 connections, on a worker in a simulation: frames become requests, requests pass the
//! phases, and their responses become frames. No matter what a client sends, the server's frames are
//! well-formed, nothing panics, and nothing is left when the client has gone.
//!
//! Input: a choice of configurations and windows, cuts, then the bytes of a connection; after its
//! preface unless the choice says otherwise.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use nowait_connections::worker::Worker;
use nowait_fuzz::h2::check_output;
use nowait_fuzz::pieces;
use nowait_fuzz::site::{generation, serve_origin};
use nowait_h2::frame::PREFACE;
use nowait_http::generation::Generation;
use nowait_runtime::driver::DriverKind;
use nowait_runtime::net::{Address, SendOptions};
use nowait_runtime::worker::{Hooks, WorkerConfig};
use nowait_runtime::{sim, spawn};
use nowait_sys::listen::ListenAddress;

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 80);
const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), 1024);

/// Longer than any timeout of the configurations.
const PATIENCE: Duration = Duration::from_secs(600);

/// Defaults, and bounds that are near.
static GENERATIONS: LazyLock<[Arc<Generation>; 2]> = LazyLock::new(|| {
    let small = "http2_max_concurrent_streams 2; http2_body_preread_size 20; http2_chunk_size 10;
        large_client_header_buffers 2 100; max_headers 4; client_max_body_size 30;
        client_body_buffer_size 16k; keepalive_requests 3; proxy_request_buffering off;
        proxy_http_version 2; lingering_close off;";
    [generation("client_body_buffer_size 1m;", LISTEN), generation(small, LISTEN)]
});

/// Panics of tasks.
#[derive(Clone, Default)]
struct Panics(Arc<Mutex<Vec<String>>>);

impl Hooks for Panics {
    fn task_panicked(&self, message: &str) {
        self.0.lock().unwrap().push(message.to_owned());
    }
}

fuzz_target!(|data: &[u8]| {
    let [choice, cuts, rest @ ..] = data else { return };
    let (choice, cuts) = (*choice, *cuts);
    // Windows that let the server send, or hardly.
    let window = if choice & 2 == 0 { 65_535_u32 } else { 5 };
    let [w0, w1, w2, w3] = window.to_be_bytes();
    let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, w0, w1, w2, w3];
    let input = match choice & 4 {
        0 => [PREFACE, &settings[..], rest].concat(),
        _ => rest.to_vec(),
    };
    let generation = GENERATIONS[usize::from(choice & 1)].clone();
    let panics = Panics::default();
    let hooks: Rc<dyn Hooks> = Rc::new(panics.clone());
    let config = WorkerConfig { hooks, ..WorkerConfig::new(0, DriverKind::Epoll) };
    let output =
        sim::run_worker(u64::from(cuts), sim::NetworkFaults::fair(), config, || async move {
            serve(generation, input, cuts).await
        });
    assert_eq!(*panics.0.lock().unwrap(), [""; 0]);
    // HTTP/1.1 answers everything that is no preface.
    if !output.starts_with(b"HTTP/1.1") {
        check_output(&output);
    }
});

/// Returns what the server has sent.
async fn serve(generation: Arc<Generation>, input: Vec<u8>, cuts: u8) -> Vec<u8> {
    let origin = serve_origin();
    let worker = Worker::new(generation.clone());
    worker.activate(generation);
    let (client, server) = sim::pair();
    let client = Rc::new(client);
    let listen = Arc::new(ListenAddress::Inet(LISTEN));
    let serving = spawn(worker.serve(server, Address::Inet(CLIENT), listen));
    let sender = client.clone();
    let sending = spawn(async move {
        for piece in pieces(&input, cuts) {
            let piece = bytes::Bytes::copy_from_slice(piece);
            if sender.send(piece, SendOptions::new(PATIENCE)).await.is_err() {
                return;
            }
        }
    });
    let mut output = Vec::new();
    loop {
        match client.recv(PATIENCE).await {
            Ok(data) if !data.is_empty() => output.extend_from_slice(&data),
            Ok(_) => break,
            Err(error) => {
                assert_ne!(error.kind(), std::io::ErrorKind::TimedOut, "never closed");
                break;
            }
        }
    }
    let _ = sending.await;
    drop(client);
    let ended = nowait_runtime::time::timeout(PATIENCE, serving).await;
    assert!(ended.is_ok(), "the connection's task does not end");
    origin.abort();
    worker.close(None);
    nowait_runtime::worker::remote().stop();
    output
}
