//! A protocol in which the content of a request waits until the upstream opens a window, while the response
//! is already being received.

use std::io::{Read, Write};
use std::net::TcpListener;

use bytes::Bytes;
use nowait_http::filter::Pull;
use nowait_http::request::Request;
use nowait_http::response::Body;
use nowait_runtime::buf::{Chain, OutBuf};
use nowait_runtime::driver::DriverKind;
use nowait_runtime::net::Stream;
use nowait_runtime::worker::{self, WorkerConfig, Workers};
use nowait_upstream::{
    BalanceInput, Group, GroupConf, IdleConnection, NextPeer, ServerConf, ServerLocation, Tag,
};

use super::*;
use crate::upstream::upload::{Feed, Limits};
use crate::upstream::{BodyStep, Content, HeadStep, UpstreamRequest};

/// A protocol for tests. The upstream sends `W` (opens the window), `D` and a byte of content, `E` (the
/// end). It receives `C` and a byte of content, and `F` at the end.
#[derive(Default)]
struct Windowed {
    is_open: bool,
}

impl Codec for Windowed {
    fn begin(&mut self, _: &Request, _: &UpstreamRequest, _: &mut OutBuf) -> Result<Content, u16> {
        Ok(Content::Request)
    }

    fn frames_content(&self) -> bool {
        true
    }

    fn encode_body(&mut self, piece: Bytes, chain: &mut Chain) {
        assert!(self.takes_content());
        let frames: Vec<u8> = piece.iter().flat_map(|byte| [b'C', *byte]).collect();
        chain.push(Bytes::from(frames));
    }

    fn encode_end(&mut self, chain: &mut Chain) {
        chain.push(Bytes::from_static(b"F"));
    }

    fn takes_content(&self) -> bool {
        self.is_open
    }

    fn receive_head(&mut self, _input: &[u8]) -> Result<HeadStep, Fault> {
        unreachable!("this protocol has none")
    }

    fn receive_body(&mut self, input: &[u8]) -> Result<BodyStep, Fault> {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            consumed += match rest {
                [b'W', ..] => {
                    self.is_open = true;
                    1
                }
                [b'D', _, ..] => {
                    let event = BodyEvent::Data(consumed + 1..consumed + 2);
                    return Ok(BodyStep { consumed: consumed + 2, event });
                }
                [b'E', ..] => {
                    return Ok(BodyStep { consumed: consumed + 1, event: BodyEvent::End });
                }
                _ => return Ok(BodyStep { consumed, event: BodyEvent::NeedMore }),
            };
        }
    }

    fn receive_eof(&mut self) -> Result<(), Fault> {
        Err(Fault::PrematureClose)
    }

    fn body_left(&self) -> Option<u64> {
        None
    }

    fn is_reusable(&self, leftover: bool) -> bool {
        !leftover
    }
}

/// Runs an exchange with an upstream that follows `script`: pairs of the bytes that it sends and
/// the bytes that it must receive then.
fn exchange(
    content: &'static str,
    script: &'static [(&str, &str)],
    read_timeout: Duration,
) -> Result<Vec<u8>, String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let origin = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for (sent, expected) in script {
            stream.write_all(sent.as_bytes()).unwrap();
            let mut got = vec![0; expected.len()];
            stream.read_exact(&mut got).unwrap();
            assert_eq!(String::from_utf8_lossy(&got), *expected);
        }
        // No data may arrive beyond the script.
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        rest
    });
    let (tell, told) = std::sync::mpsc::channel();
    let address = nowait_runtime::net::Address::Inet(address);
    let config = WorkerConfig::new(0, DriverKind::Epoll);
    let ended = worker::run(config, &Workers::new(1).unwrap(), |remote| async move {
        let servers =
            vec![ServerConf::new("peer", ServerLocation::Addresses(vec![address.clone()]))];
        let group = Group::new(GroupConf::of_servers("u", servers));
        let NextPeer::Peer(peer) = group.begin(BalanceInput::default()).next(now()) else {
            panic!("one peer")
        };
        let stream = Stream::connect(&address, Duration::from_secs(30)).await.unwrap();
        let connection = IdleConnection::new(stream, now());
        let link = Link::new(connection, false, peer, Tag { kind: 0, owner: 0 });
        let settings = Settings { read_timeout, ..Settings::default() };
        let codec = Box::new(Windowed::default());
        let state = Rc::new(UpstreamState::default());
        let mut exchange =
            UpstreamExchange::new(link, codec, Arc::new(settings), state, (0, now()));
        let feed = Feed::Stored(Pull::new(Body::from_static(content.as_bytes())));
        let send_timeout = exchange.settings.send_timeout;
        let limits = Limits { send_timeout, client_timeout: Duration::ZERO, content_max: 0 };
        exchange.upload = Some(Upload::streamed(Chain::new(), feed, limits, false));
        let mut got = Vec::new();
        let result = loop {
            match exchange.receive(0).await {
                Ok(received) if received.is_empty() => break Err("closed".to_owned()),
                Ok(received) => exchange.input = received,
                Err(ReceiveFault::Network(error)) => break Err(error.kind().to_string()),
                Err(_) => break Err("content".to_owned()),
            }
            let more = exchange.decode();
            got.extend_from_slice(&exchange.input);
            exchange.input = ReceivedBuf::empty();
            match more {
                More::Yes => {}
                More::Complete => break Ok(got),
                More::Broken(fault) => break Err(fault.to_string()),
            }
        };
        drop(exchange);
        tell.send(result).unwrap();
        remote.stop();
    });
    ended.unwrap();
    let result = told.recv().unwrap();
    assert_eq!(origin.join().unwrap(), b"");
    result
}

#[test]
fn content_is_sent_when_the_window_opens() {
    let script: &[_] = &[("Da", ""), ("DbW", "ChCeClClCoF"), ("DcDd", ""), ("E", "")];
    assert_eq!(exchange("hello", script, Duration::from_secs(30)), Ok(b"abcd".to_vec()));
}

#[test]
fn an_upstream_that_opens_no_window_is_too_slow() {
    let result = exchange("hello", &[("Da", "")], Duration::from_millis(200));
    assert_eq!(result, Err("timed out".to_owned()));
}
