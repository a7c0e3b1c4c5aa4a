//! Server CPU per request at saturation: the main figure.

use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::bench::{Bench, Measured, Subject, USUAL, USUAL_CACHE};
use crate::floor;
use crate::load::{self, Expect, GroupResult, Load, LoadGroup};
use crate::peer::Duty;
use crate::probe;
use crate::process;
use crate::results::{Better, ScenarioResult};
use crate::server::{ADDRESS, ServerProcess, Setup, Side, Variant};

/// Part of a measurement's length that is spent before it, at most `WARM_UP_MAX`.
const WARM_UP: f64 = 0.3;
const WARM_UP_MAX: f64 = 1.0;
/// Until a server knows many files.
const WARM_UP_MANY: Duration = Duration::from_secs(3);
/// Of many files, so many are in each directory.
const FILES_PER_DIRECTORY: usize = 100;
/// Below this share of its processors in use the server was waiting for the load generator.
pub const SATURATED_PERCENT: f64 = 95.0;

/// How long a cache may take to have what was fetched.
const FILL_TIMEOUT: Duration = Duration::from_secs(5);
/// What a response from the cache says.
const HIT: &[u8] = b"\r\nX-Cache: HIT\r\n";
/// The location of a proxy, and the one of a cache that the variant describes.
const PROXY: &str = "proxy_http_version 1.1; proxy_set_header Connection \"\";
        location /proxied/ { proxy_pass http://origin/; }";
/// The same for uploads, also without buffers.
const UPLOAD: &str =
    "proxy_http_version 1.1; proxy_set_header Connection \"\"; client_max_body_size 0;
        location /proxied/ { proxy_pass http://origin/; }
        location /passed/ { proxy_pass http://origin/; proxy_request_buffering off; }";
/// The parameters are those that applications usually get.
const FASTCGI: &str = concat!(
    include_str!("../../../conf/fastcgi_params"),
    "location /fastcgi/ { fastcgi_pass origin; fastcgi_keep_conn on; }"
);
const CACHED: &str = "
        location /cached/ {
            proxy_pass http://origin/;
            proxy_cache objects;
            proxy_cache_valid 200 1h;
            add_header X-Cache $upstream_cache_status;
        }";

/// The header lines of a browser that loads an image of a page, except `Host`.
pub const BROWSER: &str = concat!(
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n",
    "Accept: image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5\r\n",
    "Accept-Language: de,en-US;q=0.7,en;q=0.3\r\n",
    "Accept-Encoding: gzip, deflate, br, zstd\r\n",
    "Connection: keep-alive\r\n",
    "Referer: http://localhost/gallery/\r\n",
    "Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n",
    "Sec-Fetch-Dest: image\r\n",
    "Sec-Fetch-Mode: no-cors\r\n",
    "Sec-Fetch-Site: same-origin\r\n",
    "Priority: u=5, i\r\n",
);

/// One kind of load.
#[derive(Clone, Copy)]
pub struct Throughput {
    pub uri: Uri,
    pub workers: usize,
    /// Each worker has a listening socket of its own.
    pub reuseport: bool,
    pub connections: usize,
    /// A new connection for every request.
    pub close: bool,
    /// Header lines besides `Host`.
    pub fields: &'static str,
    /// Parameters of `access_log` besides the file; `None`: there is no log.
    pub log: Option<&'static str>,
}

impl Throughput {
    /// What is compared, and the label of nginx's usual setting where it isn't the only one.
    pub(super) fn variants(&self, bench: &Bench) -> (Vec<Variant>, Option<&'static str>) {
        let shares_socket = self.workers > 1 && !self.reuseport;
        self.uri.variants(bench, shares_socket, self.log.is_some())
    }
}

#[derive(Clone, Copy)]
pub enum Uri {
    /// A response made by `return`.
    Tiny,
    /// A file of so many bytes, in memory.
    File(usize),
    /// So many files of so many bytes each, in turn.
    Files(usize, usize),
    /// What [`Uri::Tiny`] answers, fetched from an origin each time.
    ProxiedTiny,
    /// A response of two bytes, from an application by FastCGI.
    FastcgiTiny,
    /// Content of so many bytes, for an origin.
    Upload(UploadForm, usize),
    /// A file of the origin's.
    ProxiedFile(usize),
    /// A file of the origin's, from the cache.
    Cached(usize),
    /// So many objects of so many bytes each, from the cache in turn.
    CachedMany(usize, usize),
    /// A text of so many bytes, compressed at this level.
    Coded(Coding, u8, usize),
    /// Like [`Uri::ProxiedTiny`], by a proxy that does not look at it.
    PassedTiny,
    /// Like [`Uri::ProxiedFile`], by a proxy that does not look at it.
    PassedFile(usize),
}

/// How content is passed on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum UploadForm {
    /// When it is complete.
    Buffered,
    /// While it arrives.
    Passed,
}

/// A compression that both servers have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    Gzip,
    Brotli,
}

impl Coding {
    /// The name in `Accept-Encoding`.
    fn name(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Brotli => "br",
        }
    }

    /// The lines that turn it on for everything.
    pub fn lines(self, level: u8) -> String {
        let name = match self {
            Coding::Gzip => "gzip",
            Coding::Brotli => "brotli",
        };
        format!("{name} on; {name}_comp_level {level}; {name}_types *; {name}_min_length 1;")
    }

    /// The text that was compressed.
    fn decode(self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        match self {
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut text),
            Coding::Brotli => {
                brotli_decompressor::Decompressor::new(bytes, 4096).read_to_end(&mut text)
            }
        }
        .ok()?;
        Some(text)
    }
}

impl Uri {
    /// The file that has to be there: name and length.
    fn file(self) -> Option<(String, usize)> {
        match self {
            Uri::Tiny | Uri::ProxiedTiny | Uri::FastcgiTiny | Uri::PassedTiny | Uri::Upload(..) => {
                None
            }
            Uri::Coded(_, _, bytes) => Some((format!("{bytes}.txt"), bytes)),
            Uri::Files(_, bytes) => Some((file_of_many(0), bytes)),
            Uri::File(bytes)
            | Uri::ProxiedFile(bytes)
            | Uri::Cached(bytes)
            | Uri::CachedMany(_, bytes)
            | Uri::PassedFile(bytes) => Some((format!("{bytes}.bin"), bytes)),
        }
    }

    fn path(self) -> String {
        let name = self.file().map_or_else(|| "tiny".to_owned(), |(name, _)| name);
        match self {
            Uri::Tiny
            | Uri::File(_)
            | Uri::Files(..)
            | Uri::Coded(..)
            | Uri::PassedTiny
            | Uri::PassedFile(_) => format!("/{name}"),
            Uri::ProxiedTiny | Uri::ProxiedFile(_) => format!("/proxied/{name}"),
            Uri::FastcgiTiny => "/fastcgi/tiny".to_owned(),
            Uri::Upload(UploadForm::Buffered, _) => format!("/proxied/{name}"),
            Uri::Upload(UploadForm::Passed, _) => format!("/passed/{name}"),
            Uri::Cached(_) => format!("/cached/{name}"),
            Uri::CachedMany(..) => format!("/cached/{}", object_of_many(&name, 0)),
        }
    }

    fn has_origin(self) -> bool {
        self.is_passed()
            || self.is_cached()
            || matches!(self, Uri::ProxiedTiny | Uri::ProxiedFile(_))
    }

    /// What the floor is; `None`: there is none.
    fn floor(self) -> Option<floor::FloorKind> {
        match self {
            Uri::Tiny | Uri::File(_) | Uri::Files(..) => Some(floor::FloorKind::Http),
            Uri::Cached(_) | Uri::CachedMany(..) => Some(floor::FloorKind::Cache),
            Uri::ProxiedTiny | Uri::ProxiedFile(_) | Uri::PassedTiny | Uri::PassedFile(_) => {
                Some(floor::FloorKind::Relay)
            }
            Uri::Upload(..) => Some(floor::FloorKind::Relay),
            // It would have to translate, or to compress.
            Uri::FastcgiTiny | Uri::Coded(..) => None,
        }
    }

    /// What peers do; `None`: they are not measured.
    fn duty(self) -> Option<Duty> {
        match self {
            Uri::Tiny => Some(Duty::Respond),
            Uri::File(_) | Uri::Files(..) => Some(Duty::Files),
            Uri::ProxiedTiny | Uri::ProxiedFile(_) | Uri::Upload(UploadForm::Passed, _) => {
                Some(Duty::Proxy)
            }
            Uri::Cached(_) | Uri::CachedMany(..) => Some(Duty::Cache),
            Uri::PassedTiny | Uri::PassedFile(_) => Some(Duty::Relay),
            // These have no buffers on disks.
            Uri::Upload(UploadForm::Buffered, _) => None,
            Uri::FastcgiTiny | Uri::Coded(..) => None,
        }
    }

    fn is_cached(self) -> bool {
        matches!(self, Uri::Cached(_) | Uri::CachedMany(..))
    }

    fn is_passed(self) -> bool {
        matches!(self, Uri::PassedTiny | Uri::PassedFile(_))
    }

    fn variants(
        self,
        bench: &Bench,
        shares_socket: bool,
        logs: bool,
    ) -> (Vec<Variant>, Option<&'static str>) {
        let (mut variants, usual) = match self {
            Uri::Tiny | Uri::ProxiedTiny | Uri::FastcgiTiny | Uri::Upload(..) => {
                (bench.plain_variants(), None)
            }
            Uri::File(_) | Uri::Files(..) => (bench.file_variants(), Some(USUAL)),
            Uri::ProxiedFile(_) => (bench.proxy_variants(), Some("nginx")),
            Uri::Cached(_) | Uri::CachedMany(..) => (bench.cache_variants(), Some(USUAL_CACHE)),
            Uri::Coded(coding, level, _) => (bench.coding_variants(coding, level), None),
            Uri::PassedTiny | Uri::PassedFile(_) => (bench.stream_variants(), Some("nginx")),
        };
        if let Some(duty) = self.duty().filter(|_| !logs) {
            variants = bench.with_peers(variants, duty, false);
        }
        // The floor's threads share no listening socket, and it writes no log.
        if self.floor().is_some() && !shares_socket && !logs {
            variants = bench.with_floor(variants);
        }
        (bench.with_other_build(variants), usual)
    }
}

/// From this share of a processor on, other programs spoil a measurement.
const OTHERS_PERCENT_MAX: f64 = 5.0;

/// One measurement of one variant.
struct ThroughputSample {
    cpu_us: f64,
    requests_per_second: f64,
    /// Of the server's processors.
    used_percent: f64,
    /// Of one processor, by this program and the origin.
    client_percent: f64,
    /// Of one processor, by everything else on the machine.
    others_percent: f64,
    seen: GroupResult,
}

/// What the requests of a scenario are for, and what answers them behind the server.
pub(super) struct ThroughputTarget<'a> {
    pub(super) what: &'a Throughput,
    /// The file, where it is one.
    body: Option<Vec<u8>>,
    pub(super) origin: Option<ServerProcess>,
}

impl<'a> ThroughputTarget<'a> {
    /// Writes the file and starts the origin, where the scenario needs them.
    pub(super) fn prepare(
        bench: &Bench,
        what: &'a Throughput,
    ) -> Result<ThroughputTarget<'a>, String> {
        let body = what.uri.file().map(|(name, bytes)| {
            let body = match what.uri {
                Uri::Coded(..) => text(bytes),
                _ => random_bytes(bytes),
            };
            let path = bench.directory.join("www").join(name);
            if let Some(directory) = path.parent() {
                std::fs::create_dir_all(directory).map_err(|error| error.to_string())?;
            }
            write_file(&path, body)
        });
        let body = body.transpose()?;
        bench.write_tiny()?;
        if let Uri::Files(count, bytes) = what.uri {
            write_many(&bench.directory.join("www"), count, bytes)?;
        }
        let origin = match what.uri {
            Uri::FastcgiTiny => Some(bench.application(floor::FloorKind::Fastcgi)?),
            Uri::Upload(..) => Some(bench.application(floor::FloorKind::Sink)?),
            uri => uri.has_origin().then(|| bench.origin()).transpose()?,
        };
        Ok(ThroughputTarget { what, body, origin })
    }

    /// What the server's configuration says besides the variant's lines.
    pub(super) fn setup(&self, bench: &Bench) -> Setup {
        let (what, cached) = (self.what, cached());
        Setup {
            http: if self.origin.is_some() { bench.upstream() } else { String::new() },
            server: self.log(bench)
                + match what.uri {
                    Uri::Tiny
                    | Uri::File(_)
                    | Uri::Files(..)
                    | Uri::Coded(..)
                    | Uri::PassedTiny
                    | Uri::PassedFile(_) => "",
                    Uri::ProxiedTiny | Uri::ProxiedFile(_) => PROXY,
                    Uri::Upload(..) => UPLOAD,
                    Uri::FastcgiTiny => FASTCGI,
                    Uri::Cached(_) | Uri::CachedMany(..) => &cached,
                },
            duty: what.uri.duty().unwrap_or(Duty::Respond),
            reuseport: what.reuseport,
            stream: what.uri.is_passed(),
            ..bench.setup(what.workers)
        }
    }

    /// The line of an access log, which begins empty.
    fn log(&self, bench: &Bench) -> String {
        let Some(parameters) = self.what.log else { return String::new() };
        let file = bench.directory.join("access.log");
        let _ = std::fs::remove_file(&file);
        format!("access_log {} combined {parameters};\n", file.display())
    }

    /// What runs the program of a variant, with its arguments; empty if it runs by itself.
    pub(super) fn wrapper(&self, bench: &Bench, side: Side) -> Vec<String> {
        let (Side::Floor, Some(kind)) = (side, self.what.uri.floor()) else { return Vec::new() };
        let file = self.what.uri.file().map(|(name, _)| bench.directory.join("www").join(name));
        let arguments = floor::arguments(kind, self.what.workers, file.as_deref());
        std::iter::once(bench.own.display().to_string()).chain(arguments).collect()
    }

    /// The texts of the requests, and the response that a running server gives, once that is the right
    /// one.
    pub(super) fn probe(&self) -> Result<(Vec<Vec<u8>>, Expect), String> {
        let what = self.what;
        let mut fields = what.fields.to_owned();
        if what.close {
            fields += probe::CLOSE;
        }
        if let Uri::Coded(coding, ..) = what.uri {
            fields += &format!("Accept-Encoding: {}\r\n", coding.name());
        }
        let request = match what.uri {
            Uri::Upload(_, bytes) => {
                let head = format!(
                    "PUT {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {bytes}\r\n{fields}\r\n",
                    what.uri.path()
                );
                [head.into_bytes(), random_bytes(bytes)].concat()
            }
            uri => probe::request_with(&uri.path(), &fields),
        };
        let expect = match what.uri {
            Uri::Cached(_) | Uri::CachedMany(..) => fetch_hit(&request)?,
            _ => probe::fetch(ADDRESS, &request)?,
        };
        let content = match what.uri {
            Uri::Coded(coding, ..) => {
                probe::content(&expect).and_then(|bytes| coding.decode(&bytes))
            }
            _ => Some(expect.body.to_vec()),
        };
        if self.body.is_some() && self.body != content {
            return Err("the body is not the file".to_owned());
        }
        let requests: Vec<_> = match what.uri {
            Uri::Files(count, _) => {
                let many = |nth| probe::request_with(&format!("/{}", file_of_many(nth)), &fields);
                (0..count).map(many).collect()
            }
            Uri::CachedMany(count, bytes) => {
                let name = format!("{bytes}.bin");
                let path = |nth| format!("/cached/{}", object_of_many(&name, nth));
                (0..count).map(|nth| probe::request_with(&path(nth), &fields)).collect()
            }
            _ => vec![request],
        };
        if let Uri::CachedMany(..) = what.uri {
            for request in &requests {
                fetch_hit(request)?;
            }
        }
        Ok((requests, expect))
    }
}

/// The accounts at the beginning or the end of the measured time.
#[derive(Clone, Copy)]
struct Edge {
    time: Instant,
    server: Duration,
    client: Duration,
    machine: Duration,
}

impl Edge {
    fn now(server: &[u32], origin: &[u32]) -> Edge {
        Edge {
            time: Instant::now(),
            server: process::cpu_time(server),
            client: process::cpu_time(&[std::process::id()]) + process::cpu_time(origin),
            machine: process::machine_time(),
        }
    }
}

/// Measures all variants, one after the other, in every round.
pub fn run(bench: &Bench, scenario: &Subject, what: &Throughput) -> Result<ScenarioResult, String> {
    let (variants, usual) = what.variants(bench);
    let target = ThroughputTarget::prepare(bench, what)?;
    let samples = bench.alternate(scenario, &variants, |variant| {
        let sample = measure_undisturbed(bench, &target, variant)?;
        let (value, also, text) = (sample.cpu_us, sample.also().to_vec(), sample.to_string());
        Ok(Measured { value, also, text })
    })?;
    let mut outcome = bench.outcome(scenario, "µs of server CPU per request", Better::Lower);
    outcome.fill(&samples, usual);
    Ok(outcome)
}

/// Measures again when other programs disturbed; gives back the least disturbed measurement.
fn measure_undisturbed(
    bench: &Bench,
    target: &ThroughputTarget<'_>,
    variant: &Variant,
) -> Result<ThroughputSample, String> {
    let mut best = measure(bench, target, variant)?;
    for _ in 0..bench.options.retries {
        if best.others_percent <= OTHERS_PERCENT_MAX {
            break;
        }
        let again = measure(bench, target, variant)?;
        if again.others_percent < best.others_percent {
            best = again;
        }
    }
    Ok(best)
}

fn measure(
    bench: &Bench,
    target: &ThroughputTarget<'_>,
    variant: &Variant,
) -> Result<ThroughputSample, String> {
    let what = target.what;
    let setup = target.setup(bench);
    let directory = bench.directory.join("server");
    // Every server fills its cache itself.
    let _ = std::fs::remove_dir_all(bench.cache());
    let wrapper = target.wrapper(bench, variant.side);
    let binary = bench.binary(variant.side);
    let server = ServerProcess::start_under(&wrapper, binary, &directory, &setup, variant)?;
    let (requests, expect) = target.probe()?;
    let groups = [LoadGroup { connections: what.connections, requests, expect, close: what.close }];
    let seconds = bench.options.seconds;
    let load = Load {
        target: ADDRESS,
        groups: &groups,
        warm_up: match what.uri {
            Uri::Files(..) | Uri::CachedMany(..) => WARM_UP_MANY,
            _ => Duration::from_secs_f64((seconds * WARM_UP).min(WARM_UP_MAX)),
        },
        length: Duration::from_secs_f64(seconds),
    };
    let pids = server.processes();
    let origin = target.origin.as_ref().map(ServerProcess::processes).unwrap_or_default();
    let mut edges = Vec::new();
    let seen = load::run(&load, || edges.push(Edge::now(&pids, &origin)))
        .map_err(|error| format!("{error} {}", server.log()))?;
    let (&[begin, end], Ok([seen])) = (&edges[..], <[GroupResult; 1]>::try_from(seen)) else {
        return Err("the measurement has no two edges".to_owned());
    };
    if seen.failures > 0 {
        return Err(format!("{} connections failed {}", seen.failures, server.log()));
    }
    let spent = |of: fn(&Edge) -> Duration| of(&end).saturating_sub(of(&begin)).as_secs_f64();
    let wall = (end.time - begin.time).as_secs_f64();
    let (cpu, client) = (spent(|edge| edge.server), spent(|edge| edge.client));
    let others = spent(|edge| edge.machine) - cpu - client;
    let processors = what.workers.min(setup.cpus.len()) as f64;
    Ok(ThroughputSample {
        cpu_us: cpu * 1e6 / seen.requests(),
        requests_per_second: seen.requests() / wall,
        used_percent: 100.0 * cpu / wall / processors,
        client_percent: 100.0 * client / wall,
        others_percent: 100.0 * others.max(0.0) / wall,
        seen,
    })
}

impl ThroughputSample {
    fn also(&self) -> [(&'static str, f64); 6] {
        let micros = |percent| self.seen.latency_at(percent).as_secs_f64() * 1e6;
        [
            ("requests/s", self.requests_per_second),
            ("server CPU %", self.used_percent),
            ("others CPU %", self.others_percent),
            ("p50 µs", micros(50.0)),
            ("p99 µs", micros(99.0)),
            ("bytes/request", self.seen.bytes as f64 / self.seen.requests()),
        ]
    }
}

impl std::fmt::Display for ThroughputSample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ThroughputSample { cpu_us, requests_per_second, used_percent, client_percent, .. } =
            self;
        write!(
            f,
            "{cpu_us:9.2} µs  {requests_per_second:9.0}/s  server {used_percent:3.0} %  \
             client {client_percent:3.0} %"
        )?;
        if *used_percent < SATURATED_PERCENT {
            write!(f, "  not saturated")?;
        }
        if self.others_percent > OTHERS_PERCENT_MAX {
            write!(f, "  others {:.0} %", self.others_percent)?;
        }
        Ok(())
    }
}

/// The locations of a proxy with a cache, for the `server` block.
pub fn cached() -> String {
    format!("{PROXY}{CACHED}")
}

/// Fills the cache with a request, and gives back the first response that came from it.
pub fn fetch_hit(request: &[u8]) -> Result<Expect, String> {
    let begin = Instant::now();
    loop {
        let expect = probe::fetch(ADDRESS, request)?;
        if expect.head.windows(HIT.len()).any(|part| part.eq_ignore_ascii_case(HIT)) {
            return Ok(expect);
        }
        if begin.elapsed() > FILL_TIMEOUT {
            let head = String::from_utf8_lossy(&expect.head).into_owned();
            return Err(format!("the response does not come from the cache: {head}"));
        }
    }
}

/// The beginning of a text as people write it: the reference of directives.
fn text(bytes: usize) -> Vec<u8> {
    let text = include_bytes!("../../../docs/reference/directives.md");
    text.iter().copied().cycle().take(bytes).collect()
}

/// The path of one of many files; all are equally long.
fn file_of_many(nth: usize) -> String {
    format!("many/{:04}/{nth:06}.bin", nth / FILES_PER_DIRECTORY)
}

/// The end of the URI of one of many objects, whose content is the same file; all are equally long.
fn object_of_many(name: &str, nth: usize) -> String {
    format!("{name}?{nth:06}")
}

/// Writes many files, each of which differs from the others.
fn write_many(root: &Path, count: usize, bytes: usize) -> Result<(), String> {
    let mut body = random_bytes(bytes);
    for nth in 0..count {
        let path = root.join(file_of_many(nth));
        if nth % FILES_PER_DIRECTORY == 0
            && let Some(directory) = path.parent()
        {
            std::fs::create_dir_all(directory)
                .map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        body = write_file(&path, body)?;
        let number = (nth + 1).to_le_bytes();
        let len = number.len().min(bytes);
        body[..len].copy_from_slice(&number[..len]);
    }
    Ok(())
}

pub(super) fn write_file(path: &Path, body: Vec<u8>) -> Result<Vec<u8>, String> {
    std::fs::write(path, &body).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(body)
}

/// Bytes without a pattern that a file system could compress; the same for the same length.
pub fn random_bytes(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ bytes as u64;
    let mut body = Vec::with_capacity(bytes + 8);
    while body.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        body.extend_from_slice(&state.to_le_bytes());
    }
    body.truncate(bytes);
    body
}
