//! Lines of a cache for `nowait explain`: its zone, the key of a request, and the rules for it.
//!
//! Whether a response is stored is left out: only the running server knows that.

use nowait_caching::validity::ValidByStatus;
use nowait_conf::Seconds;
use nowait_http::module::HandlerExplanation;
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::trace::{Trace, TraceSubject, quoted};

use super::conf::{CacheConf, Texts};
use super::origin::Origin;
use super::path::paths;
use super::purge::conf::Asked;
use super::serve::{CacheUse, key, position};

/// Describes what the cache of a location does with a request; `None`: it may go to the origin.
pub fn explain(
    request: &Request,
    origin: &dyn Origin,
    conf: &CacheConf,
    trace: &mut Trace,
) -> Option<HandlerExplanation> {
    let names = conf.names;
    let mut add = |by, text: String| {
        trace.by = by;
        trace.add(TraceSubject::Cache, None, text);
    };
    let at = match position(request, conf) {
        Ok(Some(at)) => at,
        Ok(None) => {
            add(names.cache, format!("{}: off for this request", names.cache));
            return None;
        }
        Err(outcome) => {
            let text = format!("{}: the zone is unknown: {}", names.cache, outcome.describe());
            add(names.cache, text);
            return Some(HandlerExplanation::Done(outcome));
        }
    };
    if let Some(path) = paths(&request.current().conf).get(at) {
        let (zone, path) = (quoted(path.zone.as_bytes()), quoted(&path.path));
        add(names.cache, format!("{}: zone {zone} in {path}", names.cache));
    }
    let target = key(request, origin, conf);
    let from = if conf.key.is_some() { names.key } else { names.cache };
    let default = if conf.key.is_some() { "" } else { " (the default)" };
    add(from, format!("key {}{default}", quoted(&target.text)));
    match CacheUse::of(request, conf) {
        CacheUse::Purge(asked) => {
            let text = match asked {
                Asked::Condition | Asked::Method => "the request purges this key",
                Asked::All => "the request purges the whole cache",
                Asked::Refused => "the request may not purge: 403",
            };
            add(names.purge, format!("{}: {text}", names.purge));
            return Some(match asked {
                Asked::Refused => HandlerExplanation::Done(Outcome::status(403)),
                // What is stored is not known.
                Asked::Condition | Asked::Method | Asked::All => HandlerExplanation::Unknown,
            });
        }
        CacheUse::Pass => {
            let method = String::from_utf8_lossy(request.method_name());
            let text = format!("{method} is neither answered from the cache nor stored");
            add(names.methods, text);
            return None;
        }
        CacheUse::Serve => {}
    }
    if let Some(text) = condition(request, &conf.bypass, "so the cache is not searched") {
        add(names.bypass, format!("{}: {text}", names.bypass));
    }
    if let Some(text) = condition(request, &conf.no_cache, "so the response is not stored") {
        add(names.no_cache, format!("{}: {text}", names.no_cache));
    }
    if conf.min_uses > 1 {
        let text = format!("{}: stored from request {} on", names.min_uses, conf.min_uses);
        add(names.min_uses, text);
    }
    match conf.valid.0.is_empty() {
        true => add(
            names.cache,
            "only responses whose own fields say for how long they are valid are stored".to_owned(),
        ),
        false => {
            let text = format!(
                "{}: {}, unless the response says otherwise",
                names.valid,
                times(&conf.valid)
            );
            add(names.valid, text);
        }
    }
    None
}

/// A condition that may be there.
fn condition(request: &Request, texts: &Texts, effect: &str) -> Option<String> {
    if texts.0.is_empty() {
        return None;
    }
    Some(match texts.deciding(request) {
        Some(value) => format!("{} is neither empty nor \"0\", {effect}", quoted(&value)),
        None => "does not hold, as far as the request tells".to_owned(),
    })
}

/// `200, 301 for 10m; any for 1m`: the entries in their order.
fn times(valid: &ValidByStatus) -> String {
    let shown = |code: &Option<u16>| code.map_or_else(|| "any".to_owned(), |code| code.to_string());
    let groups = valid.0.chunk_by(|a, b| a.1 == b.1).map(|group| {
        let codes: Vec<String> = group.iter().map(|(code, _)| shown(code)).collect();
        let seconds = group.first().map_or(0, |(_, seconds)| *seconds);
        match seconds {
            0 => format!("{} not at all", codes.join(", ")),
            seconds => format!("{} for {}", codes.join(", "), Seconds(seconds)),
        }
    });
    groups.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_their_order() {
        let valid = vec![(Some(200), 600), (Some(301), 600), (Some(404), 0), (None, 60)];
        let expected = "200, 301 for 10m; 404 not at all; any for 1m";
        assert_eq!(times(&ValidByStatus(valid)), expected);
    }
}
