//! Large configurations: thousands of virtual servers, long tables of `map` and `geo`. What a start and a
//! reload cost, what memory the server has then, and how long a client waits meanwhile.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bench::{Bench, Subject};
use crate::probe;
use crate::process;
use crate::results::{Better, Samples, ScenarioResult};
use crate::server::{ADDRESS, ORIGIN, ServerProcess, Setup, Variant, configuration};

/// What there is much of.
#[derive(Debug, Clone, Copy)]
pub enum Large {
    /// Virtual servers with three locations each, as of a hoster.
    Servers(usize),
    /// Entries of a `map`.
    Entries(usize),
    /// Networks of a `geo` block, with 250 different values.
    Networks(usize),
    /// Virtual servers with two names and nothing else.
    Hosts(usize),
    /// Locations by prefix.
    Locations(usize),
    /// Locations by regular expression.
    RegexLocations(usize),
    /// Entries of a `map`, all regular expressions.
    RegexEntries(usize),
    /// Servers of an upstream group, all of which are the origin.
    UpstreamServers(usize),
}

/// What is measured of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// CPU until the server has started.
    Start,
    /// CPU of a reload.
    Reload,
    /// Memory after a reload.
    Memory,
}

/// The server is taken for calm when it has used less than `CALM_CPU` for so long.
const CALM: Duration = Duration::from_millis(500);
const CALM_CPU: Duration = Duration::from_millis(20);
const CALM_MAX: Duration = Duration::from_secs(60);

/// Rounds of these scenarios, which take longer than others.
const ROUNDS_MAX: usize = 6;

/// How often a client asks for something while the server reloads.
const ASKS: Duration = Duration::from_millis(1);

const RELOAD_TIMEOUT: Duration = Duration::from_secs(60);

const MB: f64 = (1 << 20) as f64;

impl Large {
    fn text(self) -> String {
        // nginx demands the sizes of its tables.
        let mut text = "server_names_hash_max_size 262144; server_names_hash_bucket_size 128;
    map_hash_max_size 262144; map_hash_bucket_size 128;\n"
            .to_owned();
        match self {
            Large::Servers(count) => (0..count).for_each(|n| server(&mut text, n)),
            Large::Entries(count) => {
                text.push_str("    map $uri $target {\n        default \"\";\n");
                for n in 0..count {
                    let to = n * 7919 % count;
                    let _ = writeln!(text, "        /old/path/number/{n} /new/path/of/{to};");
                }
                text.push_str("    }\n");
            }
            Large::Networks(count) => {
                text.push_str("    geo $net {\n        default none;\n");
                networks(&mut text, count);
                text.push_str("    }\n");
            }
            Large::Hosts(count) => (0..count).for_each(|n| {
                let _ = writeln!(
                    text,
                    "    server {{ listen {ADDRESS}; server_name host{n}.example.com www.host{n}.example.com; \
                     return 200 \"OK\"; }}"
                );
            }),
            Large::RegexEntries(count) => {
                text.push_str("    map $uri $target {\n        default \"\";\n");
                for n in 0..count {
                    let _ = writeln!(text, "        ~^/old/{n}/(.*)\\.html$ /new/{n}/$1;");
                }
                text.push_str("    }\n");
            }
            Large::UpstreamServers(count) => {
                text.push_str("    upstream group {\n");
                (0..count).for_each(|_| {
                    let _ = writeln!(text, "        server {ORIGIN};");
                });
                text.push_str("    }\n");
            }
            Large::Locations(_) | Large::RegexLocations(_) => {}
        }
        text
    }

    /// Lines for the `server` block.
    fn server_text(self) -> String {
        let mut text = String::new();
        match self {
            Large::Servers(_) | Large::Hosts(_) => {}
            Large::Entries(_) | Large::RegexEntries(_) => {
                text.push_str("location /old/ { add_header X-Target $target; return 200 \"OK\"; }");
            }
            Large::Networks(_) => {
                text.push_str("location = /net { add_header X-Net $net; return 200 \"OK\"; }");
            }
            Large::Locations(count) => (0..count).for_each(|n| {
                let _ = writeln!(text, "location /section/{n}/ {{ return 200 \"OK\"; }}");
            }),
            Large::RegexLocations(count) => (0..count).for_each(|n| {
                let _ = writeln!(text, "location ~ ^/r/{n}/(.*)\\.html$ {{ return 200 \"OK\"; }}");
            }),
            Large::UpstreamServers(_) => {
                // A connection for each request: nginx shares idle ones by address, which is the same here.
                text.push_str("location = /origin { proxy_set_header Connection close; proxy_pass http://group/tiny; }");
            }
        }
        text
    }

    /// A request for the last of them, which is answered with "OK".
    pub fn request(self) -> Vec<u8> {
        let last = |count: usize| count.saturating_sub(1);
        let uri = match self {
            Large::Servers(_) => "/tiny".to_owned(),
            Large::Hosts(count) => {
                let host = format!("host{}.example.com", last(count));
                return format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
            }
            Large::Entries(count) => format!("/old/path/number/{}", last(count)),
            Large::RegexEntries(count) => format!("/old/{}/page.html", last(count)),
            Large::Networks(_) => "/net".to_owned(),
            Large::Locations(count) => format!("/section/{}/page", last(count)),
            Large::RegexLocations(count) => format!("/r/{}/page.html", last(count)),
            Large::UpstreamServers(_) => "/origin".to_owned(),
        };
        probe::request(&uri, false)
    }

    /// Whether a request needs the origin.
    pub fn has_origin(self) -> bool {
        matches!(self, Large::UpstreamServers(_))
    }
}

/// A virtual server of a hoster.
fn server(text: &mut String, n: usize) {
    let _ = write!(
        text,
        "    server {{
        listen {ADDRESS};
        server_name site{n}.example.com www.site{n}.example.com;
        root /srv/www/site{n};
        access_log off;
        client_max_body_size 16m;
        add_header X-Site \"site{n}\";
        location / {{ try_files $uri $uri/ /index.php?$args; }}
        location ~ \\.php$ {{
            fastcgi_pass 127.0.0.1:18090;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_read_timeout 60s;
        }}
        location ~* \\.(css|js|png|jpg)$ {{ expires 7d; }}
    }}\n"
    );
}

/// Networks of the usual sizes, up to 2.6 million, all different and in no order.
fn networks(text: &mut String, count: usize) {
    /// Of ten networks, as many have this length of the prefix.
    const LENGTHS: [u32; 10] = [22, 24, 24, 24, 24, 24, 28, 28, 32, 32];
    /// Bits of the number of a network within its length.
    const BITS: u32 = 18;
    /// An odd factor changes the order of such numbers, and leaves them different.
    const FACTOR: u32 = 2_654_435_761;
    for n in 0..count {
        let (group, kind) = (n / LENGTHS.len(), n % LENGTHS.len());
        let number = (group as u32).wrapping_mul(FACTOR) & ((1 << BITS) - 1);
        let [a, b, c, d] = ((kind as u32 + 1) << 28 | number << (28 - BITS)).to_be_bytes();
        let (length, value) = (LENGTHS[kind], n % 250);
        let _ = writeln!(text, "        {a}.{b}.{c}.{d}/{length} c{value};");
    }
}

/// The configuration of a generation, whose number a location tells.
pub fn setup(bench: &Bench, large: Large, generation: usize) -> Setup {
    let own = large.server_text();
    Setup {
        http: large.text(),
        server: format!("location = /generation {{ return 200 \"{generation}\"; }}\n{own}"),
        listen: "default_server".to_owned(),
        ..bench.setup(1)
    }
}

pub fn run(
    bench: &Bench,
    scenario: &Subject,
    large: Large,
    figure: Figure,
) -> Result<ScenarioResult, String> {
    let variants = bench.plain_variants();
    let mut samples: Vec<Samples> =
        variants.iter().map(|v| Samples::new(&v.label, v.side)).collect();
    for round in 0..bench.options.rounds.min(ROUNDS_MAX) {
        for (variant, samples) in variants.iter().zip(&mut samples) {
            let seen = measure(bench, large, variant, figure)
                .map_err(|error| format!("{}: {error}", variant.label))?;
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let wait = ms(seen.wait);
            let line = match figure {
                Figure::Start | Figure::Reload => format!("{:9.0} ms of CPU", ms(seen.cpu)),
                Figure::Memory => format!("{:9.1} MB", seen.memory / MB),
            };
            bench.progress(
                scenario,
                round,
                &variant.label,
                &format!("{line}, {wait:.1} ms waited"),
            );
            match figure {
                Figure::Start => samples.push(ms(seen.cpu), &[("MB", seen.memory / MB)]),
                Figure::Reload => samples.push(ms(seen.cpu), &[("longest wait, ms", wait)]),
                Figure::Memory => samples.push(seen.memory / MB, &[]),
            }
        }
    }
    let unit = match figure {
        Figure::Start => "ms of CPU for a start",
        Figure::Reload => "ms of CPU for a reload",
        Figure::Memory => "MB after a reload",
    };
    let mut outcome = bench.outcome(scenario, unit, Better::Lower);
    outcome.fill(&samples, None);
    Ok(outcome)
}

/// What a start or a reload took.
pub struct StartCost {
    pub cpu: Duration,
    /// Of all processes, bytes.
    pub memory: f64,
    /// The same without the pages of files.
    pub allocated: f64,
    /// The longest that a client waited for a response meanwhile.
    wait: Duration,
}

/// A start, and a reload unless the figure is that of a start.
pub fn measure(
    bench: &Bench,
    large: Large,
    variant: &Variant,
    figure: Figure,
) -> Result<StartCost, String> {
    let directory = bench.directory.join("server");
    let first = setup(bench, large, 1);
    let server = ServerProcess::start(bench.binary(variant.side), &directory, &first, variant)?;
    probe::fetch(ADDRESS, &probe::request("/tiny", true))?;
    let started = calm(&server);
    if figure == Figure::Start {
        return Ok(StartCost {
            cpu: started,
            memory: memory(&server),
            allocated: allocated(&server),
            wait: Duration::ZERO,
        });
    }
    let second = configuration(&directory, &setup(bench, large, 2), variant);
    let (done, mut wait) = (AtomicBool::new(false), Ok(Duration::ZERO));
    let reloaded = std::thread::scope(|scope| {
        let client = scope.spawn(|| longest_wait(&done));
        let result = reload(&server, &second).map(|()| calm(&server));
        done.store(true, Ordering::Relaxed);
        wait = client.join().unwrap_or_else(|_| Err("the client panicked".to_owned()));
        result
    })?;
    Ok(StartCost {
        cpu: reloaded.saturating_sub(started),
        memory: memory(&server),
        allocated: allocated(&server),
        wait: wait?,
    })
}

/// Reads the configuration again, until it answers.
fn reload(server: &ServerProcess, text: &str) -> Result<(), String> {
    let request = probe::request("/generation", true);
    let begin = Instant::now();
    server.reload(text)?;
    while begin.elapsed() < RELOAD_TIMEOUT {
        if probe::fetch(ADDRESS, &request)?.body.starts_with(b"2") {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!("the new configuration does not answer: {}", server.log()))
}

/// Waits until the server does nothing any more; the CPU that it has used.
fn calm(server: &ServerProcess) -> Duration {
    let begin = Instant::now();
    let mut before = process::cpu_time_with_ended(&server.processes());
    loop {
        std::thread::sleep(CALM);
        let now = process::cpu_time_with_ended(&server.processes());
        // The client that asks all the time costs a little.
        if now.saturating_sub(before) < CALM_CPU + CALM / 10 || begin.elapsed() > CALM_MAX {
            return now;
        }
        before = now;
    }
}

fn memory(server: &ServerProcess) -> f64 {
    process::memory_bytes(&server.processes()) as f64
}

fn allocated(server: &ServerProcess) -> f64 {
    process::allocated_bytes(&server.processes()) as f64
}

/// A client on kept connections; the longest time until a response.
fn longest_wait(done: &AtomicBool) -> Result<Duration, String> {
    let request = probe::request("/tiny", false);
    let mut longest = Duration::ZERO;
    let mut connection: Option<TcpStream> = None;
    while !done.load(Ordering::Relaxed) {
        let begin = Instant::now();
        // A worker of nginx that ends closes it; the next one is counted with its connect.
        let stream = match connection.take() {
            Some(stream) => stream,
            None => TcpStream::connect(ADDRESS).map_err(|error| error.to_string())?,
        };
        if ask(&stream, &request).is_ok() {
            longest = longest.max(begin.elapsed());
            connection = Some(stream);
        }
        std::thread::sleep(ASKS);
    }
    Ok(longest)
}

/// Makes a request that is answered with "OK", and reads the response.
pub fn ask(mut stream: &TcpStream, request: &[u8]) -> std::io::Result<()> {
    stream.write_all(request)?;
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\nOK") {
        let mut buffer = [0; 1024];
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => response.extend_from_slice(&buffer[..read]),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn all_networks_differ() {
        let mut text = String::new();
        networks(&mut text, 1_000_000);
        let seen: HashSet<&str> =
            text.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(seen.len(), 1_000_000);
    }
}
