//! `upstream` blocks: which server is asked, what happens when it fails, which connections are used
//! again.

mod balancing;
mod conf;
mod failures;
mod floods;
mod http2;
mod keepalive;
mod left;
mod sticky;

use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use nowait_testkit::origin::Step;
use nowait_testkit::{Origin, Server, ServerBuilder, wait};

use crate::stage::{ask, site};

/// A site whose `/` leads to the group `u`, described by `block`: `A`, `B` and `C` are servers that
/// answer with these letters, `DEAD` is a port on which nothing listens. `more` stands in the
/// location.
pub fn group(block: &str, more: &str) -> ServerBuilder {
    let address = |n: usize| format!("127.0.0.1:%%PORT_{n}%%");
    let words = [("A", address(1)), ("B", address(2)), ("C", address(3)), ("DEAD", address(4))];
    let mut block = block.to_owned();
    for (word, address) in words {
        block = block.replace(&format!("server {word}"), &format!("server {address}"));
    }
    let backends: String = ["a", "b", "c"]
        .iter()
        .enumerate()
        .map(|(n, letter)| {
            format!(
                "server {{ listen {}; add_header X-Seen $http_x_name; return 200 {letter}; }}\n",
                address(n + 1)
            )
        })
        .collect();
    site(&format!(
        "upstream u {{ {block} }}\n{backends}\
         server {{ listen 127.0.0.1:%%PORT%%;\nlocation / {{ proxy_pass http://u; {more} }} }}"
    ))
}

/// What so many requests are answered with.
#[track_caller]
pub fn letters(server: &Server, count: usize, target: &str, headers: &[&str]) -> String {
    (0..count).map(|_| ask(server, target, headers).text()).collect()
}

/// An origin that answers `slow`, when it is told to.
pub struct SlowOrigin {
    pub origin: Origin,
    answers: Mutex<Vec<Sender<()>>>,
}

impl SlowOrigin {
    /// For so many connections, one request each.
    pub fn new(connections: usize) -> SlowOrigin {
        let (mut scripts, mut answers) = (Vec::new(), Vec::new());
        for _ in 0..connections {
            let (sender, receiver) = channel();
            answers.push(sender);
            scripts.push(vec![
                Step::expect("\r\n\r\n"),
                Step::Wait(receiver),
                Step::reply(
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nslow",
                ),
            ]);
        }
        answers.reverse();
        SlowOrigin { origin: Origin::start(scripts), answers: Mutex::new(answers) }
    }

    /// Waits until so many requests have come.
    #[track_caller]
    pub fn wait_requests(&self, count: usize) {
        wait::until("requests at the origin", wait::PATIENCE, || {
            let got = self.origin.received();
            let heads = got.iter().filter(|bytes| bytes.ends_with(b"\r\n\r\n")).count();
            (heads == count).then_some(())
        });
    }

    /// Answers the next connection's request.
    pub fn answer_next(&self) {
        drop(self.answers.lock().unwrap().pop());
    }
}
