//! The state of caches, for both forms of the report.

use nowait_backend::cache::responses::{CacheResponses, StatusResponses};
use nowait_cache::{Statistics, Why};
use nowait_caching::status::Status;
use serde_json::{Map, Value, json};

use super::openmetrics::MetricsText;
use super::report::Report;

/// The cache statuses, with their names and whether responses from the origin have it, some of which are stored.
pub const STATUSES: [(&str, Status, bool); 7] = [
    ("hit", Status::Hit, false),
    ("stale", Status::Stale, false),
    ("updating", Status::Updating, false),
    ("revalidated", Status::Revalidated, false),
    ("miss", Status::Miss, true),
    ("expired", Status::Expired, true),
    ("bypass", Status::Bypass, true),
];

/// Responses by cache status. The names are those of NGINX Plus.
pub fn responses(all: &CacheResponses) -> Map<String, Value> {
    let one = |(name, status, is_from_origin): (&str, Status, bool)| {
        let counts = all.of(status);
        let mut value = json!({ "responses": counts.responses, "bytes": counts.bytes });
        if is_from_origin {
            value["responses_written"] = counts.written_responses.into();
            value["bytes_written"] = counts.written_bytes.into();
        }
        (name.to_owned(), value)
    };
    STATUSES.into_iter().map(one).collect()
}

/// As JSON.
pub fn json(cache: &Statistics, responses_of: &CacheResponses) -> Value {
    let operations: Map<String, Value> =
        cache.counts().map(|(name, count)| (name.to_owned(), count.into())).collect();
    json!({
        "name": cache.zone,
        "directory": cache.directory,
        "device": cache.device,
        "in_use": cache.out_of_use.is_none(),
        "out_of_use_because": cache.out_of_use.map(Why::name),
        "stores": cache.stores_nothing.is_none(),
        "stores_nothing_because": cache.stores_nothing.map(Why::name),
        "cold": cache.loading,
        "objects": cache.entries,
        "objects_max": cache.entries_max,
        "size": cache.bytes,
        "max_size": cache.bytes_max,
        "filling": cache.filling,
        "under_way": cache.under_way,
        "memory": cache.memory.as_ref().map(|memory| json!({
            "objects": memory.objects,
            "size": memory.bytes,
            "max_size": memory.bytes_max,
            "hits": memory.hits,
        })),
        "responses": responses(responses_of),
        "operations": operations,
    })
}

/// Reads a number from a cache's statistics; `None` if it has none.
type Number = fn(&Statistics) -> Option<u64>;

/// As OpenMetrics.
pub fn openmetrics(report: &Report, text: &mut MetricsText) {
    if report.caches.is_empty() {
        return;
    }
    let gauges: [(&str, &str, Number); 10] = [
        ("nowait_cache_up", "Whether the cache is in use.", |cache| {
            Some(u64::from(cache.out_of_use.is_none()))
        }),
        ("nowait_cache_stores", "Whether new objects are stored.", |cache| {
            Some(u64::from(cache.stores_nothing.is_none()))
        }),
        ("nowait_cache_cold", "Whether its disk is still being read after the start.", |cache| {
            Some(u64::from(cache.loading))
        }),
        ("nowait_cache_objects", "Objects in the cache.", |cache| Some(cache.entries)),
        ("nowait_cache_objects_max", "Objects that the keys zone can hold.", |cache| {
            Some(cache.entries_max)
        }),
        ("nowait_cache_size_bytes", "Bytes on disk.", |cache| Some(cache.bytes)),
        ("nowait_cache_max_size_bytes", "Limit of the bytes on disk.", |cache| cache.bytes_max),
        ("nowait_cache_filling", "Objects being stored.", |cache| Some(cache.filling)),
        ("nowait_cache_under_way", "Operations that wait for the disk.", |cache| {
            Some(cache.under_way)
        }),
        ("nowait_cache_memory_bytes", "Bytes in the memory tier.", |cache| {
            cache.memory.as_ref().map(|memory| memory.bytes)
        }),
    ];
    for (name, help, get) in gauges {
        let unit = if name.ends_with("_bytes") { "bytes" } else { "" };
        text.family(name, "gauge", unit, help);
        for cache in &report.caches {
            if let Some(value) = get(cache) {
                text.sample(name, &[("cache", &cache.zone)], value);
            }
        }
    }
    const NAME: &str = "nowait_cache_operations";
    text.family(NAME, "counter", "", "Outcomes of look-ups, fills and objects.");
    for cache in &report.caches {
        for (operation, count) in cache.counts() {
            let labels = [("cache", &*cache.zone), ("operation", operation)];
            text.sample(&format!("{NAME}_total"), &labels, count);
        }
    }
    of_responses(report, text);
}

/// Reads a number from the responses with a cache status.
type Count = fn(StatusResponses) -> u64;

fn of_responses(report: &Report, text: &mut MetricsText) {
    let families: [(&str, &str, &str, bool, Count); 4] = [
        ("nowait_cache_responses", "", "Responses by cache status.", false, |one| one.responses),
        (
            "nowait_cache_responses_bytes",
            "bytes",
            "Bytes of their bodies: of whole stored objects, or as received from the origin.",
            false,
            |one| one.bytes,
        ),
        ("nowait_cache_written", "", "Responses from the origin that were stored.", true, |one| {
            one.written_responses
        }),
        ("nowait_cache_written_bytes", "bytes", "Bytes of their bodies.", true, |one| {
            one.written_bytes
        }),
    ];
    for (name, unit, help, only_from_origin, get) in families {
        text.family(name, "counter", unit, help);
        for cache in &report.caches {
            let all = report.responses_of(cache);
            for (status_name, status, is_from_origin) in STATUSES {
                if is_from_origin || !only_from_origin {
                    let labels = [("cache", &*cache.zone), ("status", status_name)];
                    text.sample(&format!("{name}_total"), &labels, get(all.of(status)));
                }
            }
        }
    }
}
