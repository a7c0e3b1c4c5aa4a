//! What a seed decides: how a client connects, what it asks, and what must come back. No input or
//! output; a plan can be printed.

use nowait_testkit::http2::Limits;

use crate::bounds;
use crate::content::ContentRange;
use crate::random::{SeededRng, mix};

/// How a client speaks to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientTransport {
    Http1,
    Http1Tls,
    /// With prior knowledge.
    Http2,
    Http2Tls,
    Http3,
}

impl ClientTransport {
    pub const ALL: [ClientTransport; 5] = [
        ClientTransport::Http1,
        ClientTransport::Http1Tls,
        ClientTransport::Http2,
        ClientTransport::Http2Tls,
        ClientTransport::Http3,
    ];

    pub fn is_secure(self) -> bool {
        !matches!(self, ClientTransport::Http1 | ClientTransport::Http2)
    }

    /// Whether a connection has many requests at a time.
    pub fn has_streams(self) -> bool {
        !matches!(self, ClientTransport::Http1 | ClientTransport::Http1Tls)
    }
}

/// How the server speaks to an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum To {
    Http1,
    Http1Tls,
    Http2,
    Http2Tls,
}

impl To {
    pub const ALL: [To; 4] = [To::Http1, To::Http1Tls, To::Http2, To::Http2Tls];

    /// The name in paths.
    pub fn name(self) -> &'static str {
        match self {
            To::Http1 => "h1",
            To::Http1Tls => "h1s",
            To::Http2 => "h2",
            To::Http2Tls => "h2s",
        }
    }
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// GET of a file, or of a part of it.
    File,
    /// PUT by WebDAV, then GET and DELETE.
    Put,
    /// An upload, a download, or both, through a proxy.
    Proxied {
        to: To,
        buffered_response: bool,
        buffered_request: bool,
    },
    /// A download that fills a cache, then hits.
    Cached(To),
    /// The same in slices.
    Sliced,
    FastCgi {
        buffered_response: bool,
        buffered_request: bool,
    },
    /// A call; over HTTP/2 and HTTP/3 only.
    Grpc,
    /// An upload that nothing wants.
    Discarded,
    /// Upgrade, or extended CONNECT.
    Upgraded,
    /// CONNECT.
    Tunnel,
    /// A session of `stream`; `secured`: with TLS to the origin.
    Stream {
        secured: bool,
    },
}

impl Task {
    /// All that a transport can do.
    pub fn all(transport: ClientTransport) -> Vec<Task> {
        let mut all = vec![
            Task::File,
            Task::File,
            Task::Put,
            Task::Sliced,
            Task::Discarded,
            Task::Upgraded,
            Task::Tunnel,
        ];
        if transport.has_streams() {
            all.push(Task::Grpc);
        } else {
            all.extend([Task::Stream { secured: false }, Task::Stream { secured: true }]);
        }
        let both = [(true, true), (true, false), (false, true), (false, false)];
        for (buffered_response, buffered_request) in both {
            all.extend(To::ALL.map(|to| Task::Proxied { to, buffered_response, buffered_request }));
            all.push(Task::FastCgi { buffered_response, buffered_request });
        }
        all.extend(To::ALL.map(Task::Cached));
        all
    }

    /// Whether it takes a connection of HTTP/1.1 to its end.
    pub fn takes_connection(self) -> bool {
        matches!(self, Task::Upgraded | Task::Tunnel | Task::Stream { .. })
    }
}

/// One request, and what must come back.
#[derive(Clone, Debug)]
pub struct PlannedRequest {
    pub task: Task,
    /// Seeds the habits of the origin, too.
    pub id: u64,
    pub method: &'static str,
    pub target: String,
    pub fields: Vec<(&'static str, String)>,
    pub upload: Option<ContentRange>,
    pub status: u16,
    /// `None`: any.
    pub download: Option<ContentRange>,
    /// Whether the origin's verdict on the upload comes with the response.
    pub judged: bool,
    /// After the response, both sides send what they want.
    pub duplex: Option<Duplex>,
}

/// What both sides of a tunnel send.
#[derive(Clone, Copy, Debug)]
pub struct Duplex {
    pub up: ContentRange,
    pub down: ContentRange,
    /// Whether the client ends its side first.
    pub half_close: bool,
}

/// What happens on a connection.
#[derive(Clone, Debug)]
pub struct ConnectionPlan {
    pub seed: u64,
    pub transport: ClientTransport,
    /// TLS 1.2 instead of 1.3.
    pub old_tls: bool,
    /// What a client of HTTP/2 announces.
    pub stream_window: u32,
    pub connection_window: u32,
    pub frame_size: u32,
    /// Whether requests without content are sent before the response to the one before.
    pub pipelined: bool,
    /// The client leaves in the middle of the last request.
    pub abandoned: bool,
    /// Requests of a round may be on their way together.
    pub rounds: Vec<Vec<PlannedRequest>>,
}

impl ConnectionPlan {
    /// Seeds that follow each other have different pairs of transport and first task.
    pub fn draw(seed: u64) -> ConnectionPlan {
        let transport = ClientTransport::ALL[(seed % 5) as usize];
        let mut random = SeededRng::new(mix(seed));
        let all = Task::all(transport);
        let first = all[(seed / 5 % all.len() as u64) as usize];
        let more = if transport.has_streams() { random.below(5) } else { random.below(4) };
        let mut tasks = vec![first];
        tasks.extend((0..more).map(|_| random.pick(&all)));
        if !transport.has_streams() {
            let ends = |task: &Task| task.takes_connection();
            let last = tasks.iter().copied().find(ends);
            tasks.retain(|task| !ends(task));
            // A session of `stream` has its own connection.
            if let Some(last) = last {
                if matches!(last, Task::Stream { .. }) {
                    tasks.clear();
                }
                tasks.push(last);
            }
        }
        let mut rounds: Vec<Vec<PlannedRequest>> = Vec::new();
        for task in tasks {
            for (round, ask) in steps(task, transport, random.next()).into_iter().enumerate() {
                if rounds.len() == round {
                    rounds.push(Vec::new());
                }
                rounds[round].push(ask);
            }
        }
        if !transport.has_streams() {
            // What ends the connection is last.
            let flat: Vec<PlannedRequest> = rounds.drain(..).flatten().collect();
            let (last, mut others): (Vec<PlannedRequest>, Vec<PlannedRequest>) =
                flat.into_iter().partition(|ask| ask.duplex.is_some());
            others.extend(last);
            rounds = vec![others];
        }
        let default = Limits::default();
        ConnectionPlan {
            seed,
            transport,
            old_tls: random.one_in(3),
            stream_window: random.pick(&[default.stream_window, 65_535, 10_000, 16_384, 1 << 20]),
            connection_window: random.pick(&[default.connection_window, 65_535, 70_000]),
            frame_size: random.pick(&[default.frame_size, 16_385, 32 * 1024, 1 << 20]),
            pipelined: random.one_in(3),
            abandoned: random.one_in(8),
            rounds,
        }
    }
}

/// The requests of a task, one after the other.
fn steps(task: Task, transport: ClientTransport, id: u64) -> Vec<PlannedRequest> {
    let mut random = SeededRng::new(id);
    let mut ask = PlannedRequest {
        task,
        id,
        method: "GET",
        target: String::new(),
        fields: Vec::new(),
        upload: None,
        status: 200,
        download: None,
        judged: false,
        duplex: None,
    };
    match task {
        Task::File => {
            let content = file(bounds::exact(&mut random));
            let root = random.pick(&["files", "sendfile", "threads", "direct"]);
            ask.target = format!("/{root}/{}", content.len);
            ask.download = Some(content);
            cut(&mut ask, &mut random);
            if random.one_in(8) {
                ask.method = "HEAD";
                ask.download = Some(content.part(0, 0));
            }
            vec![ask]
        }
        Task::Put => {
            let content = ContentRange::new(id, bounds::near(&mut random));
            ask.target = format!("/dav/{id:x}");
            let put =
                PlannedRequest { method: "PUT", status: 201, upload: Some(content), ..ask.clone() };
            let delete = PlannedRequest { method: "DELETE", status: 204, ..ask.clone() };
            ask.download = Some(content);
            cut(&mut ask, &mut random);
            vec![put, ask, delete]
        }
        Task::Proxied { to, buffered_response, buffered_request } => {
            let buffers = random.below(crate::site::BUFFERS.len());
            let flag = |on| if on { 'b' } else { 'u' };
            let (response, request) = (flag(buffered_response), flag(buffered_request));
            let place = format!("/p/{}/{response}{request}{buffers}/", to.name());
            vec![transfer(ask, &mut random, &place)]
        }
        Task::FastCgi { buffered_response, buffered_request } => {
            let flag = |on| if on { 'b' } else { 'u' };
            let place = format!("/f/{}{}/", flag(buffered_response), flag(buffered_request));
            vec![transfer(ask, &mut random, &place)]
        }
        Task::Grpc => {
            ask.fields = vec![
                ("content-type", "application/grpc".to_owned()),
                ("te", "trailers".to_owned()),
            ];
            let mut ask = transfer(ask, &mut random, "/g/");
            ask.method = "POST";
            if ask.upload.is_none() {
                ask.upload = Some(ContentRange::new(id, 0));
            }
            vec![ask]
        }
        Task::Cached(_) | Task::Sliced => {
            let len = bounds::near(&mut random);
            let name = match task {
                Task::Cached(to) => to.name(),
                _ => "sliced",
            };
            let framing = if task == Task::Sliced { "length" } else { framing(&mut random) };
            ask.target = format!("/c/{name}/e?id={id}&up=0&down={len}&as={framing}");
            ask.download = Some(ContentRange::new(!id, len));
            let mut steps = vec![ask.clone()];
            for _ in 0..random.within(1, 2) {
                let mut again = ask.clone();
                if framing == "length" {
                    cut(&mut again, &mut random);
                }
                steps.push(again);
            }
            // Sometimes the part is what fills it.
            if framing == "length" && random.one_in(3) {
                steps.reverse();
            }
            steps
        }
        Task::Discarded => {
            ask.method = "POST";
            ask.target = "/discard".to_owned();
            ask.upload = Some(ContentRange::new(id, bounds::near(&mut random)));
            vec![ask]
        }
        Task::Upgraded | Task::Tunnel | Task::Stream { .. } => {
            ask.duplex = Some(Duplex {
                up: ContentRange::new(id, bounds::near(&mut random)),
                down: ContentRange::new(!id, bounds::near(&mut random)),
                half_close: random.one_in(2),
            });
            ask.target = "/u/".to_owned();
            if task == Task::Tunnel {
                ask.method = "CONNECT";
            } else if task == Task::Upgraded && !transport.has_streams() {
                ask.status = 101;
            }
            vec![ask]
        }
    }
}

/// The file of this length.
pub fn file(len: usize) -> ContentRange {
    ContentRange::new(mix(len as u64), len)
}

/// How the origin says where its content ends.
fn framing(random: &mut SeededRng) -> &'static str {
    random.pick(&["length", "length", "chunked", "close"])
}

/// An upload, a download, or both.
fn transfer(mut ask: PlannedRequest, random: &mut SeededRng, place: &str) -> PlannedRequest {
    let kind = random.below(4);
    let small = |random: &mut SeededRng| random.below(300);
    let up = if kind == 0 { 0 } else { bounds::near(random) };
    let down = match kind {
        1 | 2 => small(random),
        _ => bounds::near(random),
    };
    if kind > 0 {
        ask.method = "POST";
        ask.upload = Some(ContentRange::new(ask.id, up));
    }
    ask.judged = true;
    ask.download = Some(ContentRange::new(!ask.id, down));
    ask.target = format!("{place}e?id={}&up={up}&down={down}&as={}", ask.id, framing(random));
    ask
}

/// Sometimes asks for a part only.
fn cut(ask: &mut PlannedRequest, random: &mut SeededRng) {
    let Some(whole) = ask.download.filter(|whole| whole.len > 0) else { return };
    if random.one_in(2) {
        return;
    }
    let start = match random.below(3) {
        0 => 0,
        1 => bounds::near(random).min(whole.len - 1),
        _ => random.below(whole.len),
    };
    let len = match random.below(3) {
        0 => whole.len - start,
        1 => bounds::near(random).clamp(1, whole.len - start),
        _ => random.within(1, whole.len - start),
    };
    let last = start + len - 1;
    let range = match random.below(3) {
        0 if start + len == whole.len => format!("bytes={start}-"),
        1 if start + len == whole.len => format!("bytes=-{len}"),
        _ => format!("bytes={start}-{last}"),
    };
    ask.fields.push(("range", range));
    ask.status = 206;
    ask.download = Some(whole.part(start, len));
}
