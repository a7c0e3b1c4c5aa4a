//! Purges and levels of logs requested on the command line: forwarded to the server process, whose reply is returned.

use super::Master;
use super::child::Delivery;
use crate::control::{CLIENTS_MAX, ControlClient};
use crate::log::Level;
use crate::wire::{PurgeOrder, ToServer};

/// Requests in progress.
#[derive(Default)]
pub struct ForwardedRequests {
    /// The number of the last one.
    last: u64,
    waiting: Vec<WaitingRequest>,
}

struct WaitingRequest {
    id: u64,
    /// The server process that executes it.
    pid: u32,
    client: ControlClient,
}

impl ForwardedRequests {
    /// A request has been executed.
    pub fn ended(&mut self, id: u64, result: Result<u64, String>) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.id == id) {
            let client = self.waiting.swap_remove(at).client;
            client.reply(result.as_ref().map(|objects| *objects).map_err(|reason| &reason[..]));
        }
    }

    /// A server process has ended.
    pub fn lost(&mut self, pid: u32) {
        for WaitingRequest { client, .. } in
            self.waiting.extract_if(.., |waiting| waiting.pid == pid)
        {
            client.reply(Err("the server process ended meanwhile"));
        }
    }
}

impl Master {
    /// Forwards a purge.
    pub(super) fn purge(&mut self, client: ControlClient, order: PurgeOrder) {
        let what = format!("purge of cache \"{}\" requested", order.zone);
        self.forward(client, &what, |id| ToServer::Purge(id, order));
    }

    /// Forwards a level of logs. The master's own lines keep the configured levels.
    pub(super) fn set_log_level(&mut self, client: ControlClient, level: Option<Level>) {
        let what = match level {
            Some(level) => format!("level \"{level}\" of all error logs requested"),
            None => "configured levels of error logs requested".to_owned(),
        };
        let what = format!("{what} by process {}", client.pid);
        self.forward(client, &what, |id| ToServer::LogLevel(id, level));
    }

    /// Forwards what a client requests to the server process, which replies to that number.
    fn forward(
        &mut self,
        client: ControlClient,
        what: &str,
        message: impl FnOnce(u64) -> ToServer,
    ) {
        let child = self.children.iter().find(|child| !child.exiting && child.is_listening());
        let Some(child) = child.filter(|_| self.forwarded.waiting.len() < CLIENTS_MAX) else {
            return client.reply(Err("the server is busy or not running"));
        };
        self.log.log(Level::Notice, format_args!("{what}"));
        self.forwarded.last += 1;
        let id = self.forwarded.last;
        if child.tell(&message(id), &self.log) != Delivery::Yes {
            return client.reply(Err("the server process does not listen"));
        }
        self.forwarded.waiting.push(WaitingRequest { id, pid: child.pid(), client });
    }
}
