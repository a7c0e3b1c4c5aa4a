//! An emulated path between a client and a server on this machine, for TCP and UDP alike: a TUN device, and a thread
//! that delays, queues and loses its packets.
//!
//! There is one device and one network namespace: the server listens at [`SERVER`], clients connect to [`FAR`], which
//! is behind the device. The thread exchanges source and destination of every packet and writes it back, so that it
//! arrives at the other side as if it came from there. Checksums remain right, since they are sums.

mod model;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use model::Direction;
pub use model::PathOptions;

const NAME: &str = "path0";
const PORT: u16 = 18_082;

/// Where the server listens.
pub const SERVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)), PORT);

/// The address of the server as clients see it.
pub const FAR: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)), PORT);

/// Packets that are read before those that are due are written.
const READS_MAX: usize = 64;
const PACKET_BYTES_MAX: usize = 65_536;
/// How long the thread waits before it looks whether it should end.
const LOOK: Duration = Duration::from_millis(50);

/// Congestion control of TCP on the path.
const CONGESTION_CONTROL: &str = "cubic";

/// A path; it is taken down when dropped.
pub struct Path {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Path {
    /// Sets a path up.
    ///
    /// # Errors
    /// There is no TUN device, or this is not root.
    pub fn new(options: PathOptions, seed: u64) -> Result<Path, String> {
        let device = nowait_sys::tun::open(NAME).map_err(|error| format!("TUN: {error}"))?;
        let (near, far) = (format!("{}/32", SERVER.ip()), format!("{}/32", FAR.ip()));
        ip(&["addr", "add", &near, "peer", &far, "dev", NAME])?;
        ip(&["link", "set", NAME, "up", "mtu", "1500", "txqueuelen", "20000"])?;
        // Of the route, since the default of a namespace can't be one that only root may use.
        let (near, far) = (SERVER.ip().to_string(), far.as_str());
        let congestion = ["src", &near, "congctl", CONGESTION_CONTROL];
        ip(&[&["route", "replace", far, "dev", NAME][..], &congestion].concat())?;
        // No bandwidth, ssthresh and the like of the connections before.
        fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1").map_err(|e| e.to_string())?;
        let ends = Arc::new(AtomicBool::new(false));
        let told = ends.clone();
        let thread = std::thread::spawn(move || carry(&device, options, seed, &told));
        Ok(Path { ends, thread: Some(thread) })
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let status = Command::new("ip").args(arguments).status();
    match status.as_ref().is_ok_and(std::process::ExitStatus::success) {
        true => Ok(()),
        false => Err(format!("ip {}: {status:?}", arguments.join(" "))),
    }
}

/// Carries packets until told to end.
fn carry(device: &OwnedFd, options: PathOptions, seed: u64, ends: &AtomicBool) {
    let mut directions = [Direction::new(options, seed), Direction::new(options, !seed)];
    let mut memory = vec![0; PACKET_BYTES_MAX];
    while !ends.load(Ordering::Relaxed) {
        let mut now = Instant::now();
        for _ in 0..READS_MAX {
            let read = match rustix::io::read(device, &mut memory[..]) {
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            if let Some(to_server) = turn_round(&mut memory[..read]) {
                directions[usize::from(to_server)].push(&memory[..read], now);
            }
        }
        now = Instant::now();
        for direction in &mut directions {
            while let Some(packet) = direction.pop(now) {
                // A full receive buffer is the receiver's loss.
                let _ = rustix::io::write(device, &packet);
                direction.recycle(packet);
            }
        }
        let next = directions.iter().filter_map(Direction::next).min();
        let wait = next.map_or(LOOK, |at| at.saturating_duration_since(Instant::now()).min(LOOK));
        if wait > Duration::ZERO {
            let timeout =
                rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
            let _ = poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&timeout));
        }
    }
}

/// Exchanges source and destination of a packet; returns whether it goes to the server. `None`: it is not IPv4.
fn turn_round(packet: &mut [u8]) -> Option<bool> {
    if packet.len() < 24 || packet[0] >> 4 != 4 {
        return None;
    }
    let header = usize::from(packet[0] & 0xf) * 4;
    let port = packet.get(header + 2..header + 4)?;
    let to_server = port == PORT.to_be_bytes();
    let (source, destination) = packet[12..20].split_at_mut(4);
    source.swap_with_slice(destination);
    Some(to_server)
}
