//! The command line of the benchmark program.

use std::path::PathBuf;

use crate::peer::{Peer, Programs};

pub const USAGE: &str = "usage: cargo xtask bench [OPTIONS]

Runs nginx and Nowait side by side, alternating, and prints the ratios.

  --only A,B        only these scenarios (see --list); printed only, unless --out is given
  --list            list the scenarios
  --rounds N        measurements of every variant, default 12; every other round runs backwards
  --seconds S       length of one measurement, default 2
  --retries N       repeat a measurement that other programs disturb, default 2
  --quick           3 rounds of 1 second, no retries; printed only, unless --out is given
  --nginx PATH      the reference, default: nginx from PATH
  --nowait PATH     what is measured, default: target/dist/nowait; an nginx here measures
                    the benchmark itself (the ratio must be 1.00)
  --haproxy PATH    HAProxy, H2O and Varnish, beside which some scenarios are measured, too;
  --h2o PATH        default: those in PATH. What is not there is left out
  --varnish PATH
  --no-peers        none of them
  --against PATH    another build of Nowait, which runs in the same rounds; throughput scenarios
                    only, printed only
  --out DIR         where results.json, table.md and the charts go, default of a full run:
                    bench/results; scenarios that are not measured keep their results there
  --growth          what more connections, servers, locations, entries and so on cost, in several
                    sizes; default of --out: bench/results/growth. --list and --only go with it
  --count           count user instructions (valgrind) and system calls (strace) per request
                    instead of measuring time; throughput scenarios only, printed only
  --check-counts FILE   count user instructions of a few scenarios, and fail if one has grown by more
                    than 2 % (cargo xtask counts)
  --record-counts FILE  write that file
  --in-place        do not make a network namespace (results are marked)
";

/// Whether kept counts are compared or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Check,
    Record,
}

/// What the operator asked for.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// Empty: all scenarios.
    pub only: Vec<String>,
    pub list: bool,
    /// Measure curves instead of scenarios.
    pub growth: bool,
    pub rounds: usize,
    /// Length of one measurement, without its warm-up.
    pub seconds: f64,
    /// How often a disturbed measurement is repeated.
    pub retries: usize,
    pub nginx: PathBuf,
    pub nowait: PathBuf,
    /// Other servers.
    pub peers: Programs,
    /// Those of them that were named.
    pub named_peers: Vec<Peer>,
    /// Another build of Nowait.
    pub against: Option<PathBuf>,
    /// `None`: results are printed, not kept.
    pub out: Option<PathBuf>,
    pub in_place: bool,
    /// Count instructions and system calls instead of measuring time.
    pub count: bool,
    /// Compare or write the instruction counts of this file instead.
    pub counts: Option<(Mode, PathBuf)>,
}

impl BenchOptions {
    /// Reads the arguments; `Ok(None)` when help was asked for and printed.
    pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Option<BenchOptions>, String> {
        let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or(repository.join("target"), PathBuf::from);
        let mut options = BenchOptions {
            only: Vec::new(),
            list: false,
            growth: false,
            rounds: 12,
            seconds: 2.0,
            count: false,
            counts: None,
            retries: 2,
            nginx: PathBuf::from("nginx"),
            nowait: target.join("dist/nowait"),
            peers: Programs(Peer::ALL.map(|peer| (peer, peer.program().into())).to_vec()),
            named_peers: Vec::new(),
            against: None,
            out: Some(repository.join("bench/results")),
            in_place: false,
        };
        let mut args = args.into_iter();
        let mut out_given = false;
        let mut quick = false;
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value"));
            match arg.as_str() {
                "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
                "--list" => options.list = true,
                "--growth" => options.growth = true,
                "--rounds" => options.rounds = number(&value()?)?,
                "--seconds" => options.seconds = number(&value()?)?,
                "--retries" => options.retries = number(&value()?)?,
                "--quick" => quick = true,
                "--nginx" => options.nginx = value()?.into(),
                "--haproxy" => options.name(Peer::Haproxy, value()?),
                "--h2o" => options.name(Peer::H2o, value()?),
                "--varnish" => options.name(Peer::Varnish, value()?),
                "--no-peers" => options.peers = Programs::default(),
                "--against" => options.against = Some(value()?.into()),
                "--nowait" => options.nowait = value()?.into(),
                "--out" => {
                    options.out = Some(value()?.into());
                    out_given = true;
                }
                "--in-place" => options.in_place = true,
                "--count" => options.count = true,
                "--check-counts" => options.counts = Some((Mode::Check, value()?.into())),
                "--record-counts" => options.counts = Some((Mode::Record, value()?.into())),
                "--help" | "-h" => {
                    print!("{USAGE}");
                    return Ok(None);
                }
                other => return Err(format!("unknown option \"{other}\"\n\n{USAGE}")),
            }
        }
        if options.growth && !out_given {
            options.out = Some(repository.join("bench/results/growth"));
        }
        if quick {
            (options.rounds, options.seconds, options.retries) = (3, 1.0, 0);
        }
        if options.against.is_some() {
            (options.out, out_given) = (None, true);
        }
        if options.count {
            options.out = None;
            return Ok(Some(options));
        }
        if (quick || !options.only.is_empty()) && !out_given {
            options.out = None;
        }
        if options.rounds == 0 || !(0.1..=600.0).contains(&options.seconds) {
            return Err("--rounds must be at least 1, --seconds from 0.1 to 600".to_owned());
        }
        Ok(Some(options))
    }
}

impl BenchOptions {
    fn name(&mut self, peer: Peer, path: String) {
        self.peers.0.retain(|(known, _)| *known != peer);
        self.peers.0.push((peer, path.into()));
        self.named_peers.push(peer);
    }
}

/// Where distributions keep the module of nginx.
const NGINX_STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

impl BenchOptions {
    /// nginx's `stream`, where it is a module of its own; `NGINX_STREAM_MODULE` names another place.
    pub fn nginx_stream_module(&self) -> Option<PathBuf> {
        let named = std::env::var_os("NGINX_STREAM_MODULE").map(PathBuf::from);
        named.or(Some(NGINX_STREAM_MODULE.into())).filter(|path| path.is_file())
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("\"{text}\" is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<BenchOptions>, String> {
        BenchOptions::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_partial_run_keeps_no_results_unless_told_where() {
        assert!(parse("").unwrap().unwrap().out.is_some());
        assert_eq!(parse("--only tiny").unwrap().unwrap().out, None);
        let quick = parse("--quick --only tiny,file-1k").unwrap().unwrap();
        assert_eq!((quick.rounds, quick.out), (3, None));
        assert_eq!(quick.only, ["tiny", "file-1k"]);
        assert_eq!(parse("--count --out x").unwrap().unwrap().out, None);
        assert_eq!(parse("--out x --against y").unwrap().unwrap().out, None);
        assert!(parse("--out x --quick").unwrap().unwrap().out.is_some());
        let growth = parse("--growth").unwrap().unwrap().out.unwrap();
        assert!(growth.ends_with("bench/results/growth"));
        assert_eq!(parse("--growth --only map-memory").unwrap().unwrap().out, None);
    }

    #[test]
    fn peers_can_be_named_or_left_out() {
        let options = parse("--h2o /opt/h2o").unwrap().unwrap();
        assert_eq!(options.peers.of(Peer::H2o), Some(&"/opt/h2o".into()));
        assert_eq!(options.peers.of(Peer::Haproxy), Some(&"haproxy".into()));
        assert_eq!(options.named_peers, [Peer::H2o]);
        let options = parse("--no-peers --varnish x").unwrap().unwrap();
        assert_eq!(options.peers.0, [(Peer::Varnish, "x".into())]);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["--rounds 0", "--rounds x", "--seconds 0", "--only", "--what"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
