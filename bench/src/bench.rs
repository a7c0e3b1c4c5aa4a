//! What the scenarios share: programs, directories, processors, and the variants of the servers.

use std::path::PathBuf;

use crate::floor;
use crate::machine;
use crate::options::BenchOptions;
use crate::peer::{Duty, Peer};
use crate::results::{Better, Samples, ScenarioResult};
use crate::scenario::throughput::Coding;
use crate::server::{self, ORIGIN, ServerProcess, Setup, Side, Variant, origin_configuration};

/// The label of nginx with the settings that its guides recommend for static files.
pub const USUAL: &str = "nginx sendfile, open_file_cache";

/// The label of nginx with the setting that its guides recommend for a cache.
pub const USUAL_CACHE: &str = "nginx sendfile";

/// What the scenarios share: programs, directories, processors.
pub struct Bench {
    pub options: BenchOptions,
    /// This program.
    pub own: PathBuf,
    /// Configurations, logs and served files; removed at the end.
    pub directory: PathBuf,
    /// What `--nowait` names is Nowait, or an nginx that checks the benchmark; `None`: not there.
    pub candidate: Option<Candidate>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidate {
    Nowait,
    Nginx,
}

/// One measurement of one variant.
pub struct Measured {
    pub value: f64,
    /// What else was seen, by name with unit.
    pub also: Vec<(&'static str, f64)>,
    /// For the line of progress.
    pub text: String,
}

/// What a scenario is called.
pub struct Subject {
    pub name: &'static str,
    pub title: &'static str,
}

impl Bench {
    /// The program of a variant.
    pub fn binary(&self, side: Side) -> &PathBuf {
        match side {
            Side::Nginx => &self.options.nginx,
            Side::Nowait => &self.options.nowait,
            Side::Against => self.options.against.as_ref().unwrap_or(&self.options.nowait),
            Side::Peer(peer) => self.options.peers.of(peer).unwrap_or(&self.own),
            Side::Floor => &self.own,
        }
    }

    /// Processors of the server and of the load generator. With one worker each has its own; more
    /// workers share what there is with the generator.
    pub fn processors(&self, workers: usize) -> (Vec<usize>, Vec<usize>) {
        let all = machine::processors_at_start();
        let (first, rest) = all.split_first().map_or((0, &[][..]), |(first, rest)| (*first, rest));
        let client = rest.last().copied().unwrap_or(first);
        let server = if workers == 1 { vec![first] } else { all.clone() };
        (server, vec![client])
    }

    pub fn setup(&self, workers: usize) -> Setup {
        let (cpus, client_cpus) = self.processors(workers);
        // Both programs drop root in the same way.
        let root = rustix::process::geteuid().is_root();
        let main = if root { "user nobody nogroup;" } else { "" };
        Setup {
            workers,
            root: self.directory.join("www"),
            main: main.to_owned(),
            http: String::new(),
            server: String::new(),
            listen: String::new(),
            reuseport: false,
            stream: false,
            duty: Duty::Respond,
            certificate: None,
            cpus,
            client_cpus,
        }
    }

    /// An outcome without rows yet.
    pub fn outcome(&self, scenario: &Subject, unit: &str, better: Better) -> ScenarioResult {
        ScenarioResult {
            title: scenario.title.to_owned(),
            unit: unit.to_owned(),
            processor: String::new(),
            better,
            rounds: self.options.rounds,
            seconds: self.options.seconds,
            reference: None,
            usual: None,
            rows: Vec::new(),
        }
    }

    /// nginx as it is and Nowait with each driver.
    pub fn plain_variants(&self) -> Vec<Variant> {
        let mut variants = vec![variant("nginx", Side::Nginx, "", "")];
        for (name, events) in self.drivers() {
            variants.push(variant(&name, Side::Nowait, events, ""));
        }
        variants
    }

    /// nginx with sendfile off and on, each without and with open_file_cache; Nowait with the
    /// usual setting, without and with open_file_cache, with each driver.
    pub fn file_variants(&self) -> Vec<Variant> {
        const CACHE: &str = "open_file_cache max=10000 inactive=60s; open_file_cache_valid 60s;";
        let sendfile = format!("sendfile on; {CACHE}");
        let read = format!("sendfile off; {CACHE}");
        let mut variants = vec![
            variant("nginx read", Side::Nginx, "", "sendfile off;"),
            variant("nginx sendfile", Side::Nginx, "", "sendfile on;"),
            variant("nginx read, open_file_cache", Side::Nginx, "", &read),
            variant(USUAL, Side::Nginx, "", &sendfile),
        ];
        for (name, events) in self.drivers() {
            variants.push(variant(&name, Side::Nowait, events, "sendfile on;"));
            let label = format!("{name}, open_file_cache");
            variants.push(variant(&label, Side::Nowait, events, &sendfile));
        }
        variants
    }

    /// nginx with the buffers that it has without being asked, and with large ones; Nowait as it
    /// is, with each driver.
    pub fn proxy_variants(&self) -> Vec<Variant> {
        const LARGE: &str = "proxy_buffer_size 64k; proxy_buffers 16 64k; \
                             proxy_busy_buffers_size 128k;";
        let mut variants = self.plain_variants();
        variants.insert(1, variant("nginx large buffers", Side::Nginx, "", LARGE));
        variants
    }

    /// nginx with the buffers that it has without being asked, and with large ones; Nowait as it
    /// is, with each driver.
    pub fn stream_variants(&self) -> Vec<Variant> {
        let mut variants = self.plain_variants();
        let large = variant("nginx large buffers", Side::Nginx, "", "proxy_buffer_size 64k;");
        variants.insert(1, large);
        for variant in variants.iter_mut().filter(|variant| variant.side == Side::Nginx) {
            // Distributions build it as a module.
            if let Some(module) = self.options.nginx_stream_module() {
                variant.main = format!("load_module {};", module.display());
            }
        }
        variants
    }

    /// nginx without and with sendfile and open_file_cache; Nowait with the usual setting on each
    /// driver, without and with a memory tier.
    pub fn cache_variants(&self) -> Vec<Variant> {
        const FILES: &str = "open_file_cache max=10000 inactive=60s; open_file_cache_valid 60s;";
        let directory = self.cache();
        let cache = |parameters: &str| {
            let directory = directory.display();
            format!(
                "proxy_cache_path {directory} levels=1:2 keys_zone=objects:10m \
                 use_temp_path=off{parameters};"
            )
        };
        let disk = cache("");
        let mut variants = vec![
            variant("nginx read", Side::Nginx, "", &format!("{disk} sendfile off;")),
            variant(USUAL_CACHE, Side::Nginx, "", &format!("{disk} sendfile on;")),
            variant("nginx read, open_file_cache", Side::Nginx, "", &format!("{disk} {FILES}")),
            variant(
                "nginx sendfile, open_file_cache",
                Side::Nginx,
                "",
                &format!("{disk} sendfile on; {FILES}"),
            ),
        ];
        for (name, events) in self.drivers() {
            let disk = format!("{disk} sendfile on;");
            variants.push(variant(&name, Side::Nowait, events, &disk));
            if self.candidate == Some(Candidate::Nowait) {
                let label = format!("{name}, memory tier");
                let memory = format!("{} sendfile on;", cache(" memory=64m"));
                variants.push(variant(&label, Side::Nowait, events, &memory));
            }
        }
        variants
    }

    /// Both servers with the same compression and open_file_cache.
    pub fn coding_variants(&self, coding: Coding, level: u8) -> Vec<Variant> {
        const MODULE: &str = "load_module /usr/lib/nginx/modules/ngx_http_brotli_filter_module.so;";
        let mut variants = self.plain_variants();
        for variant in &mut variants {
            let lines = coding.lines(level);
            variant.http = format!("sendfile on; open_file_cache max=1000; {lines}");
            if variant.side == Side::Nginx && coding == Coding::Brotli {
                variant.main = MODULE.to_owned();
            }
        }
        variants
    }

    /// Adds the floor.
    pub fn with_floor(&self, mut variants: Vec<Variant>) -> Vec<Variant> {
        variants.push(variant("floor", Side::Floor, "", ""));
        variants
    }

    /// Adds the peers that can do this.
    pub fn with_peers(&self, mut variants: Vec<Variant>, duty: Duty, tls: bool) -> Vec<Variant> {
        let peers = Peer::ALL.into_iter().filter(|peer| peer.can(duty, tls));
        let peers = peers.filter(|peer| self.options.peers.of(*peer).is_some());
        variants.extend(peers.map(|peer| variant(peer.name(), Side::Peer(peer), "", "")));
        variants
    }

    /// What `return 200` answers as a file, for peers that have only files.
    pub fn write_tiny(&self) -> Result<(), String> {
        let path = self.directory.join("www/tiny");
        std::fs::write(&path, "OK").map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Adds those of the other build of Nowait, each behind the same one of this build.
    pub fn with_other_build(&self, variants: Vec<Variant>) -> Vec<Variant> {
        let other = |variant: &Variant| {
            let is_wanted = variant.side == Side::Nowait && self.options.against.is_some();
            let label = server::other_build(&variant.label);
            is_wanted.then(|| Variant { label, side: Side::Against, ..variant.clone() })
        };
        variants
            .into_iter()
            .flat_map(|variant| {
                let other = other(&variant);
                std::iter::once(variant).chain(other)
            })
            .collect()
    }

    /// Where the caches of proxies stand.
    pub fn cache(&self) -> PathBuf {
        self.directory.join("cache")
    }

    /// The block that names the origin.
    pub fn upstream(&self) -> String {
        format!("upstream origin {{ server {ORIGIN}; keepalive 128; }}")
    }

    /// Starts an origin, on the load generator's processor.
    pub fn origin(&self) -> Result<ServerProcess, String> {
        let setup = self.setup(1);
        let directory = self.directory.join("origin");
        let text = origin_configuration(&directory, &setup.root, &setup.main);
        let (binary, cpus) = (&self.options.nginx, &setup.client_cpus);
        ServerProcess::launch(binary, &directory, ORIGIN, &text, cpus, cpus)
            .map_err(|error| format!("origin: {error}"))
    }

    /// Starts an application that speaks FastCGI, or takes uploads, on the load generator's processor.
    pub fn application(&self, kind: floor::FloorKind) -> Result<ServerProcess, String> {
        let cpus = &self.setup(1).client_cpus;
        let directory = self.directory.join("origin");
        let program = self.own.display().to_string();
        let [argument, kind, threads, file] = floor::arguments(kind, 1, None);
        let wrapper = [program, argument, kind, threads, file];
        ServerProcess::launch_under(&wrapper, &self.own, &directory, ORIGIN, "", cpus, cpus)
            .map_err(|error| format!("application: {error}"))
    }

    /// The names and `use` lines of what is compared with nginx.
    pub fn drivers(&self) -> Vec<(String, &'static str)> {
        match self.candidate {
            Some(Candidate::Nowait) => vec![
                ("nowait epoll".to_owned(), "use epoll;"),
                ("nowait io_uring".to_owned(), "use io_uring;"),
            ],
            Some(Candidate::Nginx) => vec![("nginx again".to_owned(), "use epoll;")],
            None => Vec::new(),
        }
    }

    /// Measures all variants, one after the other, in every round. One that fails has no results.
    ///
    /// # Errors
    /// All failed.
    pub fn alternate(
        &self,
        scenario: &Subject,
        variants: &[Variant],
        measure: impl Fn(&Variant) -> Result<Measured, String>,
    ) -> Result<Vec<Samples>, String> {
        let mut samples: Vec<Samples> =
            variants.iter().map(|v| Samples::new(&v.label, v.side)).collect();
        let mut failed = vec![None; variants.len()];
        for round in 0..self.options.rounds {
            for index in 0..variants.len() {
                // Every other round backwards, so that no variant always follows the same one.
                let index = if round % 2 == 0 { index } else { variants.len() - 1 - index };
                let label = &variants[index].label;
                if failed[index].is_some() {
                    continue;
                }
                match measure(&variants[index]) {
                    Ok(measured) => {
                        self.progress(scenario, round, label, &measured.text);
                        samples[index].push(measured.value, &measured.also);
                    }
                    Err(error) => {
                        self.progress(scenario, round, label, &format!("FAILED: {error}"));
                        samples[index].values.clear();
                        failed[index] = Some(format!("{label}: {error}"));
                    }
                }
            }
        }
        match samples.iter().all(|samples| samples.values.is_empty()) {
            true => Err(failed.into_iter().flatten().next().unwrap_or_default()),
            false => Ok(samples),
        }
    }

    /// A line of progress.
    pub fn progress(&self, scenario: &Subject, round: usize, label: &str, text: &str) {
        let (name, rounds) = (scenario.name, self.options.rounds);
        println!("{name:18} {:2}/{rounds}  {label:34} {text}", round + 1);
    }
}

/// A variant without lines for the main block.
pub fn variant(label: &str, side: Side, events: &str, http: &str) -> Variant {
    Variant {
        label: label.to_owned(),
        side,
        main: String::new(),
        events: events.to_owned(),
        http: http.to_owned(),
    }
}
