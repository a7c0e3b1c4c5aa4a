//! System-call layer: safe functions over the kernel calls that Nowait needs. One of the few places
//! with unsafe code.
pub mod clock;
pub mod connect;
pub mod datagram;
pub mod fdpass;
pub mod fiemap;
pub mod fs;
pub mod interfaces;
pub mod ktls;
pub mod limits;
pub mod listen;
pub mod localtime;
pub mod memory;
pub mod parcels;
pub mod process;
pub mod program;
pub mod seccomp;
pub mod signal;
pub mod slice;
pub mod tcp_info;
pub mod tun;
pub mod udp;
pub mod user;
