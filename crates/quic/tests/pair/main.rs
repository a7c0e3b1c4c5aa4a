//! Clients and servers on one worker, over the loopback interface and on every driver that this machine has.

mod handshakes;
mod paths;
mod processes;
mod simulated;
mod stage;
mod streams;
