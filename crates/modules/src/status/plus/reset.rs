//! Resetting statistics: numbers of this API begin anew, those of other pages go on.
//!
//! Workers count in their own memory, which nobody else writes. So a reset remembers the numbers of that moment,
//! and the tree shows the difference. Counters of upstream servers are shared, and really reset.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nowait_http::request::Request;
use serde_json::{Map, Value};

use super::super::report::Report;
use super::answer::{Answer, note};
use super::error::ApiError;
use super::{find, made, servers};

/// Maximum number of objects that have been reset; beyond, those that no longer exist are forgotten, and then
/// the others.
const RESETS_MAX: usize = 16_384;

/// Members that are no counts: they stay.
const GAUGES: [&str; 9] =
    ["processing", "active", "idle", "current", "size", "max_size", "pid", "id", "respawned"];

/// The numbers at the last reset, by path behind the version.
static BASELINES: Mutex<BTreeMap<Vec<String>, Value>> = Mutex::new(BTreeMap::new());

fn baselines() -> MutexGuard<'static, BTreeMap<Vec<String>, Value>> {
    BASELINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// DELETE of a path with statistics.
pub(super) async fn reset(request: &Request, steps: &[&str]) -> Result<Answer, ApiError> {
    match steps {
        [protocol @ ("http" | "stream"), "upstreams", name] => {
            servers::group(request, protocol, name)?.reset_statistics();
        }
        ["processes" | "connections" | "ssl"]
        | ["http", "requests"]
        | [
            "http",
            "server_zones" | "location_zones" | "caches" | "limit_conns" | "limit_reqs",
            _,
        ]
        | ["stream", "server_zones" | "limit_conns", _]
        | ["resolvers" | "workers", _] => {
            let path = steps.iter().map(|step| (*step).to_owned()).collect();
            made(request, move |report| remember(&report, path)).await?;
        }
        ["slabs", _] => return Err(ApiError::missing(steps)),
        _ => return Err(ApiError::METHOD),
    }
    note(request, &format!("statistics of {} were reset", steps.join("/").escape_default()));
    Ok(Answer::EMPTY)
}

/// Remembers the numbers at a path.
fn remember(report: &Report, path: Vec<String>) -> Result<(), ApiError> {
    // The numbers themselves, not what has been counted since an earlier reset.
    baselines().remove(&path);
    let value = find(report, &path.iter().map(|step| &**step).collect::<Vec<_>>())?;
    let mut all = baselines();
    if all.len() >= RESETS_MAX {
        all.retain(|path, _| find_quietly(&super::tree::root(report), path).is_some());
    }
    if all.len() >= RESETS_MAX {
        all.clear();
    }
    all.insert(path, value);
    Ok(())
}

fn find_quietly<'v>(root: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(root, |value, step| value.get(step))
}

/// Takes the numbers of the last resets off the tree.
pub(super) fn subtract(root: &mut Value) {
    for (path, baseline) in baselines().iter() {
        let found = path.iter().try_fold(&mut *root, |value, step| match value {
            Value::Array(elements) => {
                let id = step.parse::<u64>().ok()?;
                elements.iter_mut().find(|element| element["id"] == id)
            }
            value => value.get_mut(step),
        });
        if let (Some(Value::Object(members)), Value::Object(baseline)) = (found, baseline) {
            subtract_members(members, baseline);
        }
    }
}

fn subtract_members(members: &mut Map<String, Value>, baseline: &Map<String, Value>) {
    for (name, value) in members.iter_mut().filter(|(name, _)| !GAUGES.contains(&&name[..])) {
        match (&mut *value, baseline.get(name)) {
            (Value::Object(inner), Some(Value::Object(baseline))) => {
                subtract_members(inner, baseline);
            }
            (Value::Number(number), Some(Value::Number(before))) => {
                if let (Some(number), Some(before)) = (number.as_u64(), before.as_u64()) {
                    *value = number.saturating_sub(before).into();
                }
            }
            _ => {}
        }
    }
    // Statuses that have not occurred since.
    if let Some(Value::Object(codes)) = members.get_mut("codes") {
        codes.retain(|_, count| *count != 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_begin_anew_and_states_stay() {
        let mut now = json!({
            "processing": 3, "requests": 10, "name": "text",
            "responses": { "2xx": 9, "codes": { "200": 9, "404": 1 } },
        });
        let before = json!({
            "processing": 2, "requests": 7, "name": "text",
            "responses": { "2xx": 9, "codes": { "200": 9 } },
        });
        let (Value::Object(members), Value::Object(before)) = (&mut now, &before) else {
            panic!("objects")
        };
        subtract_members(members, before);
        let expected = json!({
            "processing": 3, "requests": 3, "name": "text",
            "responses": { "2xx": 0, "codes": { "404": 1 } },
        });
        assert_eq!(now, expected);
    }
}
