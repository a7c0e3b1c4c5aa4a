//! Clients and servers on one worker, over the loopback interface and on every driver that this machine has.

mod stage;
mod streams;
