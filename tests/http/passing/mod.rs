//! How requests get to servers behind this one and how their responses come back: connections,
//! framing, timeouts, retries, buffers. What the directives of the proxy do is in `proxy`.

mod bodies;
mod bounds;
mod faults;
mod piped;
mod requests;
mod retries;
mod tunnels;

use std::cell::RefCell;
use std::sync::mpsc::{Sender, channel};

use nowait_testkit::origin::Step;
use nowait_testkit::{Client, Origin, Server, ServerBuilder, wait};

use crate::stage::{self, site};

/// A script that answers one request with this.
pub fn answer(response: impl AsRef<[u8]>) -> Vec<Step> {
    vec![Step::expect("\r\n\r\n"), Step::reply(response)]
}

/// A whole response with this content.
pub fn ok(content: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{content}", content.len())
}

/// A site that passes everything to an origin at this address: the group `u`.
pub fn passing(origin: &str, content: &str) -> ServerBuilder {
    let content = match content.contains("proxy_pass http") {
        true => content.to_owned(),
        false => format!("{content}\nlocation / {{ proxy_pass http://u; }}"),
    };
    site(&format!(
        "upstream u {{ server {origin}; }}\nserver {{\nlisten 127.0.0.1:%%PORT%%;\n{content}\n}}"
    ))
}

/// Runs a test on each driver, with an origin and a server of its own each time.
#[track_caller]
pub fn on_each(
    scripts: impl Fn() -> Vec<Vec<Step>>,
    content: &str,
    test: impl Fn(&mut Server, &Origin),
) {
    stage::with_origin(scripts, |address| passing(address, content), test);
}

/// Makes an origin wait for the test.
#[derive(Default)]
pub struct Gate(RefCell<Option<Sender<()>>>);

impl Gate {
    /// The step that waits; one at a time.
    pub fn step(&self) -> Step {
        let (open, opened) = channel();
        self.0.replace(Some(open));
        Step::Wait(opened)
    }

    /// Lets the origin go on.
    pub fn open(&self) {
        self.0.replace(None);
    }
}

/// Waits until the origin has received this on any connection.
#[track_caller]
pub fn wait_received(origin: &Origin, text: &str) {
    wait::until(text, wait::PATIENCE, || {
        let received = origin.received();
        let found = received
            .iter()
            .any(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()));
        found.then_some(())
    });
}

/// Reads until this has come.
#[track_caller]
pub fn read_until(client: &mut Client, text: &str) {
    let mut got = Vec::new();
    while !got.ends_with(text.as_bytes()) {
        got.extend(client.read_some(usize::MAX));
    }
}
