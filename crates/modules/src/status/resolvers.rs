//! Counters of resolvers, for both forms of the report. They are those of NGINX Plus.

use nowait_resolver::{NameServer, Resolver, Statistics};
use serde_json::{Value, json};

/// A resolver's counters under its name.
pub struct ResolverReport {
    /// `status_zone`, otherwise its first name server.
    pub name: String,
    /// Names in its cache.
    pub remembered: usize,
    /// The counters.
    pub counts: Statistics,
}

impl ResolverReport {
    /// The current state.
    pub fn new(resolver: &Resolver) -> Self {
        Self {
            name: name(resolver),
            remembered: resolver.remembered(),
            counts: resolver.statistics(),
        }
    }

    /// Responses by result.
    pub fn responses(&self) -> [(&'static str, u64); 8] {
        let counts = &self.counts;
        [
            ("noerror", counts.noerror),
            ("formerr", counts.formerr),
            ("servfail", counts.servfail),
            ("nxdomain", counts.nxdomain),
            ("notimp", counts.notimp),
            ("refused", counts.refused),
            ("timedout", counts.timedout),
            ("unknown", counts.unknown),
        ]
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let Self { name, remembered, counts } = self;
        let responses: serde_json::Map<String, Value> = self
            .responses()
            .into_iter()
            .map(|(what, count)| (what.to_owned(), count.into()))
            .collect();
        json!({
            "name": name,
            "names": remembered,
            "cached": counts.cached,
            "overloaded": counts.overloaded,
            "rejected": counts.rejected,
            "requests": { "name": counts.name, "srv": counts.srv },
            "responses": responses,
        })
    }
}

fn name(resolver: &Resolver) -> String {
    let Some(settings) = resolver.settings() else { return "system".to_owned() };
    match (&settings.status_zone, settings.servers.first()) {
        (Some(zone), _) => zone.to_string(),
        (None, Some(NameServer::Address(address))) => address.to_string(),
        (None, Some(NameServer::Name { host, port })) => format!("{host}:{port}"),
        (None, None) => String::new(),
    }
}
