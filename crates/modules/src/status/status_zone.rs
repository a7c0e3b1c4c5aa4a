//! `status_zone`: counts the requests of a server or of a location under a name. NGINX Plus: the directive of
//! `ngx_http_api_module`.

use std::sync::Arc;

use nowait_conf::{Context, Cx, Scope};
use nowait_front::zones::StatusZoneSetting;
use nowait_http::module::{Handler, LocationBuilder, Observer, Phase, Step};
use nowait_http::request::Request;
use nowait_http::slots::Key;

use super::zone::{self, Processing, RequestCounters, Zone};

nowait_conf::directives! {
    /// Counters of requests.
    #[derive(Debug)]
    module "status";
    pub struct ZoneConf with ZoneConfLayer;

    /// Counts requests under a name, for `status_api`, `metrics` and `api`: those being processed, responses by
    /// status, bytes, and times. In a server, all its requests; in a location, those that end there. Servers with
    /// the same name are counted together, and so are locations. The counters survive reloads.
    status_zone: nowait_conf::LocalSetting<StatusZoneSetting<RequestCounters>>, in SERVER | LOCATION | LOCATION_IF, args "zone";
}

/// The request's count in the zone of its server.
static PROCESSING: Key<Processing> = Key::new();

/// Adds what the location of a chain of blocks has to count.
pub fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let own = ZoneConf::resolve(cx, chain).status_zone.0.clone();
    let last = chain.last().map(|scope| scope.context());
    let server = match last {
        Some(Context::SERVER) => own.clone(),
        _ => chain
            .iter()
            .position(|scope| scope.context() == Context::SERVER)
            .and_then(|at| ZoneConf::resolve(cx, &chain[..=at]).status_zone.0.clone()),
    };
    let server = server.or_else(|| super::vts::zone(cx, chain).map(StatusZoneSetting));
    if let Some(StatusZoneSetting(zone)) = server {
        parts.handler(Phase::PostRead, Enter(zone.clone()));
        parts.observer(Count(zone));
    }
    if let Some(StatusZoneSetting(zone)) = own.filter(|_| last != Some(Context::SERVER)) {
        parts.observer(Count(zone));
    }
}

/// Counts a request as being processed by its server.
struct Enter(Arc<Zone>);

impl Handler for Enter {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if request.state().get(&PROCESSING).is_none() {
            let processing = zone::enter(&self.0);
            request.state_mut().set(&PROCESSING, processing);
        }
        Step::Next(request)
    }
}

/// Counts a request that has ended.
struct Count(Arc<Zone>);

impl Observer for Count {
    fn ended(&self, request: &Request) {
        zone::count(&self.0, request);
    }
}
