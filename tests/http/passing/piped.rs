//! Contents that pass through a pipe from the upstream's socket to the client's, without being copied into the
//! server: which ones do, that clients get the same bytes, and what happens when one side is slow or leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use nowait_testkit::origin::Step;
use nowait_testkit::{Client, Origin, Server, ServerBuilder};

use super::bodies::wait_spilled;
use super::{Gate, answer, ok};
use crate::stage::{self, asks_nginx, pattern, site, wait_file};
use crate::transport::Transport;

const KB: usize = 1024;

/// A slow client.
const SPILLED: &str = "is buffered to a temporary file";

/// With the location's way of buffering.
const BUFFERING: [&str; 2] = ["/on/", "/off/"];

/// Those of them whose content is sent as it arrives: nginx keeps what does not fill a buffer.
fn prompt() -> &'static [&'static str] {
    if asks_nginx() { &["/off/"] } else { &BUFFERING }
}

/// A site that passes everything on, with and without buffering, and logs what was counted.
fn passing(origin: &str, listen: &str, content: &str) -> ServerBuilder {
    site(&format!(
        "log_format counts '$request_uri $status $bytes_sent $body_bytes_sent '
             '$upstream_bytes_received $upstream_response_length';
         upstream u {{ server {origin}; keepalive 4; }}
         server {{
             listen 127.0.0.1:%%PORT%% {listen};
             access_log counts.log counts;
             {content}
             location / {{ proxy_pass http://u; }}
             location /off/ {{ proxy_pass http://u; proxy_buffering off; }}
         }}"
    ))
}

/// Between two looks at the pipes of a server, which keeps each of them for longer.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// A client behind this takes little at a time.
const SMALL: &str = "sndbuf=16k";

#[track_caller]
fn on_each(
    scripts: impl Fn() -> Vec<Vec<Step>>,
    content: &str,
    test: impl Fn(&mut Server, &Origin),
) {
    on_each_listening("", scripts, content, test);
}

#[track_caller]
fn on_each_listening(
    listen: &str,
    scripts: impl Fn() -> Vec<Vec<Step>>,
    content: &str,
    test: impl Fn(&mut Server, &Origin),
) {
    stage::with_origin(
        scripts,
        |address| passing(address, listen, content),
        |server, origin| {
            // On a machine with much to do, any client may be slow.
            server.allow_log(SPILLED);
            test(server, origin);
        },
    );
}

/// The pipes with both ends in the server process; `None`: they can't be seen here. Workers keep theirs for a
/// second at least.
fn pipes(server: &Server) -> Option<BTreeSet<PathBuf>> {
    let mut ends = BTreeMap::<_, usize>::new();
    let children = server.children();
    for open in server.descriptors()? {
        if open.target.to_string_lossy().starts_with("pipe:") && children.contains(&open.pid) {
            *ends.entry(open.target).or_default() += 1;
        }
    }
    Some(ends.into_iter().filter(|(_, ends)| *ends > 1).map(|(target, _)| target).collect())
}

/// Whether a pipe is made while a test runs.
#[track_caller]
fn assert_piped(server: &Server, expected: bool, test: impl FnOnce()) {
    let Some(before) = pipes(server).filter(|_| !server.binary().is_nginx()) else {
        return test();
    };
    let is_over = AtomicBool::new(false);
    let made = std::thread::scope(|scope| {
        let look = scope.spawn(|| {
            let mut made = BTreeSet::new();
            loop {
                let is_last = is_over.load(SeqCst);
                made.extend(pipes(server).unwrap_or_default());
                if is_last {
                    return made;
                }
                std::thread::sleep(LOOK_PAUSE);
            }
        });
        // Also after a panic, so that the other thread ends.
        let tested = catch_unwind(AssertUnwindSafe(test));
        is_over.store(true, SeqCst);
        let made = look.join().expect("no panic");
        tested.map_or_else(|panic| resume_unwind(panic), |()| made)
    });
    let made: Vec<_> = made.difference(&before).collect();
    assert_eq!(!made.is_empty(), expected, "made: {made:?}");
}

fn head(len: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n")
}

/// Steps that send this in pieces, whose lengths depend on the seed.
fn in_pieces(bytes: &[u8], mut seed: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let largest = [64, 5_000, 70_000, 400_000][(seed >> 33) as usize % 4];
        let (piece, more) = rest.split_at(rest.len().min(1 + (seed >> 40) as usize % largest));
        steps.push(Step::reply(piece));
        rest = more;
    }
    steps
}

/// One connection on each side takes all of it: not a byte more or less than the content passes.
#[test]
fn every_length_and_every_split() {
    let lengths: Vec<usize> = [32, 64, 96, 128, 192, 256, 512]
        .into_iter()
        .flat_map(|kb| [kb * KB - 1, kb * KB, kb * KB + 1])
        .chain([0, 1, 200, 64 * KB + 300, 80 * KB, 128 * KB + 4_000, KB * KB, 8 * KB * KB])
        .collect();
    let whole = pattern(8 * KB * KB);
    let script = || {
        let mut steps = Vec::new();
        for prefix in BUFFERING {
            for (n, len) in lengths.iter().enumerate() {
                steps.push(Step::expect(format!("GET {prefix}{n} ")));
                steps.push(Step::expect("\r\n\r\n"));
                let response = [head(*len).as_bytes(), &whole[..*len]].concat();
                steps.extend(in_pieces(&response, n as u64 * 2 + prefix.len() as u64));
            }
        }
        vec![steps]
    };
    for listen in ["", SMALL] {
        on_each_listening(listen, script, "", |server, _| {
            assert_piped(server, true, || {
                let mut client = server.client();
                for prefix in BUFFERING {
                    for (n, len) in lengths.iter().enumerate() {
                        let response = client.get(&format!("{prefix}{n}"));
                        assert!(response.body == whole[..*len], "{prefix}, {len} bytes");
                        let total = head(*len).len() + len;
                        let counts = format!("{len} {total} {len}\n");
                        let log = wait_file(server, "counts.log", &format!("{prefix}{n} 200 "));
                        let line = log.lines().last().unwrap().to_owned() + "\n";
                        assert!(line.ends_with(&counts), "{line} {counts}");
                        let sent: usize = line.split(' ').nth(2).unwrap().parse().unwrap();
                        assert!((len + 100..len + 400).contains(&sent), "{line}");
                    }
                }
            });
        });
    }
}

#[test]
fn contents_that_somebody_has_to_see_are_received() {
    let content = pattern(300 * KB);
    let response = [head(content.len()).as_bytes(), &content].concat();
    let mut chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for piece in content.chunks(100_000) {
        write!(chunked, "{:x}\r\n", piece.len()).unwrap();
        chunked.extend_from_slice(piece);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    // A slow client's temporary file would be sent through pipes.
    let conf = "proxy_max_temp_file_size 0;
                location /rate { proxy_pass http://u; limit_rate 100m; }
                location /from { proxy_pass http://u; proxy_limit_rate 100m; }
                location /store { proxy_pass http://u; proxy_store %%DIR%%/stored; }
                location /sub { proxy_pass http://u; sub_filter abc abc; sub_filter_types *; }
                location /chunked { proxy_pass http://u; }
                location /range { proxy_pass http://u; proxy_force_ranges on; }";
    // The last one ends its connection.
    let targets = ["/rate", "/from", "/store", "/sub", "/chunked", "/range"];
    let script = || {
        let answers = targets.map(|target| match target {
            "/chunked" => answer(&chunked),
            _ => answer(&response),
        });
        vec![answers.into_iter().flatten().collect()]
    };
    on_each(script, conf, |server, _| {
        assert_piped(server, false, || {
            for target in targets {
                let (fields, expected): (&[&str], _) = match target {
                    "/range" => (&["Range: bytes=1000-200000"], &content[1000..=200_000]),
                    _ => (&[], &content[..]),
                };
                let response = stage::ask(server, target, fields);
                assert!(response.body == expected, "{target}: {}", response.body.len());
            }
        });
    });
}

/// The same content for clients of every kind. Frames and records are made in memory.
#[test]
fn clients_of_every_kind() {
    let content = pattern(300 * KB);
    let response = [head(content.len()).as_bytes(), &content].concat();
    for transport in Transport::ALL {
        let script = || vec![BUFFERING.iter().flat_map(|_| answer(&response)).collect()];
        let builder = |address: &str| {
            crate::transport::site(&format!(
                "upstream u {{ server {address}; keepalive 4; }}
                 server {{
                     %%LISTEN%%
                     proxy_max_temp_file_size 0;
                     location / {{ proxy_pass http://u; }}
                     location /off/ {{ proxy_pass http://u; proxy_buffering off; }}
                 }}"
            ))
        };
        stage::with_origin(script, builder, |server, _| {
            assert_piped(server, transport == Transport::Http1, || {
                for target in BUFFERING {
                    let response = transport.get(server, target);
                    assert!(response.body == content, "{transport:?}, {target}");
                }
            });
        });
    }
}

/// Each piece reaches the client before the server sends the next one.
#[test]
fn nothing_is_held_back() {
    let content = pattern(600 * KB);
    let ends = [0, 1, 70 * KB, 70 * KB + 1, 300 * KB, 301 * KB, 600 * KB];
    for prefix in prompt() {
        let gates: [Gate; 7] = Default::default();
        let script = || {
            let mut steps = answer(head(content.len()));
            for (n, gate) in gates.iter().enumerate().skip(1) {
                steps.push(gate.step());
                steps.push(Step::reply(&content[ends[n - 1]..ends[n]]));
            }
            vec![steps]
        };
        on_each(script, "", |server, _| {
            let mut client = server.client();
            client.send_get(prefix);
            skip_head(&mut client);
            let mut got = Vec::new();
            for (gate, end) in gates.iter().zip(ends) {
                gate.open();
                read_to(&mut client, &mut got, end);
                assert!(got == content[..end], "{prefix}: {}", got.len());
            }
        });
    }
}

#[track_caller]
fn skip_head(client: &mut Client) {
    let mut head = Vec::new();
    read_to(client, &mut head, 4);
    while !head.ends_with(b"\r\n\r\n") {
        let len = head.len() + 1;
        read_to(client, &mut head, len);
    }
}

/// A client that has got so many bytes of the content.
#[track_caller]
fn take(server: &Server, prefix: &str, len: usize) -> (Client, Vec<u8>) {
    let mut client = server.client();
    client.send_get(prefix);
    skip_head(&mut client);
    let mut got = Vec::new();
    read_to(&mut client, &mut got, len);
    (client, got)
}

#[track_caller]
fn read_to(client: &mut Client, got: &mut Vec<u8>, len: usize) {
    while got.len() < len {
        let some = client.read_some(len - got.len());
        assert!(!some.is_empty(), "closed after {} bytes", got.len());
        got.extend(some);
    }
}

/// A client that stops reading frees its server, with buffering; and gets everything when it goes on.
#[test]
fn a_client_that_stops_and_goes_on() {
    let content = pattern(24 * KB * KB);
    for prefix in BUFFERING {
        let script = || {
            let mut steps = answer(head(content.len()));
            steps.push(Step::reply(&content));
            steps.extend(answer(ok("next")));
            vec![steps]
        };
        on_each(script, "", |server, _| {
            let (mut client, mut got) = take(server, prefix, 900 * KB);
            if prefix == "/on/" {
                wait_spilled(server);
            }
            read_to(&mut client, &mut got, content.len());
            assert!(got == content, "{prefix}");
            assert_eq!(client.get("/next").text(), "next");
        });
    }
}

/// A client that takes little at a time never has the whole content in the server's pipes.
#[test]
fn a_client_with_a_small_buffer() {
    let content = pattern(KB * KB);
    for prefix in BUFFERING {
        let script = || {
            let mut steps = answer(head(content.len()));
            steps.push(Step::reply(&content));
            vec![steps]
        };
        on_each_listening(SMALL, script, "", |server, _| {
            let mut client = server.client();
            client.send_get(prefix);
            skip_head(&mut client);
            let mut got = Vec::new();
            while got.len() < content.len() {
                let len = content.len().min(got.len() + 2_000);
                read_to(&mut client, &mut got, len);
            }
            assert!(got == content, "{prefix}");
        });
    }
}

/// What a client has left in a pipe and in the upstream's socket goes to the temporary file.
#[test]
fn a_client_that_stops_at_the_last_bytes() {
    let content = pattern(140 * KB);
    let response = [head(content.len()).as_bytes(), &content].concat();
    on_each_listening(
        SMALL,
        || vec![answer(&response)],
        "",
        |server, _| {
            let mut client = server.client();
            rustix::net::sockopt::set_socket_recv_buffer_size(client.stream(), 4096).unwrap();
            client.send_get("/on/");
            wait_spilled(server);
            let mut got = Vec::new();
            skip_head(&mut client);
            read_to(&mut client, &mut got, content.len());
            assert!(got == content);
        },
    );
}

#[test]
fn a_server_that_ends_early() {
    let content = pattern(300 * KB);
    for (last, message) in [
        ((|| Step::HalfClose) as fn() -> Step, "upstream prematurely closed connection"),
        (|| Step::Reset, "recv() failed (104: Connection reset by peer)"),
    ] {
        for prefix in prompt() {
            let gate = Gate::default();
            let script = || {
                let mut steps = answer(head(KB * KB));
                steps.push(Step::reply(&content));
                steps.extend([gate.step(), last()]);
                vec![steps]
            };
            on_each(script, "", |server, _| {
                server.allow_log(message);
                let (mut client, got) = take(server, prefix, content.len());
                gate.open();
                assert!(got == content && client.rest().is_empty(), "{prefix}");
                server.wait_log(message);
                let log = wait_file(server, "counts.log", "200");
                let len = content.len();
                let counts = format!(" {len} {} {len}\n", len + head(KB * KB).len());
                assert!(log.ends_with(&counts), "{log} {counts}");
            });
        }
    }
}

#[test]
fn a_server_that_pauses_for_too_long() {
    let content = pattern(200 * KB);
    for prefix in prompt() {
        let script = || {
            let mut steps = answer(head(KB * KB));
            steps.extend([Step::reply(&content), Step::Closed]);
            vec![steps]
        };
        on_each(script, "proxy_read_timeout 1500ms;", |server, _| {
            server.allow_log("upstream timed out (110: Connection timed out)");
            let mut client = server.client();
            client.send_get(prefix);
            skip_head(&mut client);
            assert!(client.rest() == content, "{prefix}");
            server.wait_log("upstream timed out (110: Connection timed out)");
        });
    }
}

/// The upstream connection is closed, and the line of the log tells what the client got.
#[test]
fn a_client_that_leaves() {
    let content = pattern(24 * KB * KB);
    for prefix in BUFFERING {
        let script = || {
            let mut steps = answer(head(content.len()));
            steps.extend([Step::reply_some(&content), Step::Closed]);
            vec![steps]
        };
        for idle in [false, true] {
            on_each(script, "proxy_max_temp_file_size 0;", |server, origin| {
                let (client, got) = take(server, prefix, if idle { 10 } else { 2_000 * KB });
                client.reset();
                origin.wait_played(1);
                let log = wait_file(server, "counts.log", "200");
                let sent: usize = log.split(' ').nth(3).unwrap().parse().unwrap();
                assert!(sent >= got.len() && sent < content.len(), "{log}");
            });
        }
    }
}

/// While nothing comes from the server, too.
#[test]
fn a_client_that_leaves_an_idle_server() {
    let content = pattern(200 * KB);
    for prefix in prompt() {
        let script = || {
            let mut steps = answer(head(KB * KB));
            steps.extend([Step::reply(&content), Step::Closed]);
            vec![steps]
        };
        on_each(script, "", |server, origin| {
            let (client, _) = take(server, prefix, content.len());
            drop(client);
            origin.wait_played(1);
            let log = wait_file(server, "counts.log", "200");
            let sent = log.split(' ').nth(3).unwrap();
            assert_eq!(sent, content.len().to_string(), "{log}");
        });
    }
}

/// What a server sends beyond its content is never taken for the next response.
#[test]
fn bytes_behind_the_content() {
    let content = pattern(300 * KB);
    for prefix in BUFFERING {
        let more = [head(content.len()).as_bytes(), &content, ok("smuggled").as_bytes()].concat();
        let script = || {
            let mut first = answer(&more);
            first.push(Step::Closed);
            vec![first, answer(ok("second"))]
        };
        on_each(script, "", |server, origin| {
            let mut client = server.client();
            assert!(client.get(prefix).body == content);
            origin.wait_played(1);
            assert_eq!(client.get(prefix).text(), "second");
        });
    }
}

/// A reload in the middle changes nothing.
#[test]
fn a_reload() {
    let content = pattern(KB * KB);
    for prefix in BUFFERING {
        let gate = Gate::default();
        let script = || {
            let mut steps = answer(head(content.len()));
            steps.push(Step::reply(&content[..300 * KB]));
            steps.push(gate.step());
            steps.push(Step::reply(&content[300 * KB..]));
            vec![steps]
        };
        on_each(script, "", |server, _| {
            let (mut client, mut got) = take(server, prefix, 300 * KB);
            server.reload();
            gate.open();
            read_to(&mut client, &mut got, content.len());
            assert!(got == content, "{prefix}");
        });
    }
}

/// There are fewer pipes than clients, and those that wait for their turn are slow.
#[test]
fn more_clients_than_pipes() {
    const CLIENTS: usize = 150;
    let content = pattern(KB * KB);
    for prefix in BUFFERING {
        let scripts = || {
            let reply = [head(content.len()).as_bytes(), &content].concat();
            (0..CLIENTS).map(|_| answer(&reply)).collect()
        };
        on_each(scripts, "", |server, _| {
            let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
            clients.iter_mut().for_each(|client| client.send_get(prefix));
            for (nth, client) in clients.iter_mut().enumerate() {
                assert!(client.response().body == content, "{prefix} {nth}");
            }
        });
    }
}

#[test]
fn a_server_behind_a_local_socket() {
    let content = pattern(KB * KB + 1);
    let site = site(
        "server {
             listen 127.0.0.1:%%PORT%%;
             location / { proxy_pass http://unix:%%DIR%%/socket:/; }
             location /off/ { proxy_pass http://unix:%%DIR%%/socket:/; proxy_buffering off; }
         }
         server { listen unix:%%DIR%%/socket; root %%DIR%%/html; }",
    )
    .file("html/f", &content);
    stage::on_each_driver(&site, |server| {
        server.allow_log(SPILLED);
        assert_piped(server, true, || {
            for path in ["/f", "/off/f"] {
                let mut client = server.client();
                for _ in 0..3 {
                    client.send_get(path);
                    assert!(client.response().body == content, "{path}");
                }
            }
        });
    });
}
