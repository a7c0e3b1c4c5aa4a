//! `status_zone`: counts the requests of a server or of a location under a name. NGINX Plus: the directive of
//! `ngx_http_api_module`.

use std::sync::Arc;

use nowait_conf::{Arity, Context, Cx, Diagnostic, Node, Scope, Setting, arity};
use nowait_http::module::{Handler, LocationBuilder, Observer, Phase, Step};
use nowait_http::request::Request;
use nowait_http::slots::Key;

use super::zone::{Processing, ZONES_MAX, Zone, ZoneKind};

nowait_conf::directives! {
    /// Counters of requests.
    #[derive(Debug)]
    module "status";
    pub struct ZoneConf with ZoneConfLayer;

    /// Counts requests under a name, for `status_api`, `metrics` and `api`: those being processed, responses by
    /// status, bytes, and times. In a server, all its requests; in a location, those that end there. Servers with
    /// the same name are counted together, and so are locations. The counters survive reloads.
    status_zone: nowait_conf::LocalSetting<ZoneSetting>, in SERVER | LOCATION | LOCATION_IF, args "zone";
}

/// The zone that a directive names.
#[derive(Clone, Debug)]
pub struct ZoneSetting(Arc<Zone>);

impl Setting for ZoneSetting {
    const ARITY: Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        let name = word.to_str()?;
        if name.is_empty() {
            return Err(word.error("invalid zone name \"\""));
        }
        if name.contains('$') {
            return Err(word.error(format!("variables in zone name \"{name}\" are not supported")));
        }
        let kind = match cx.context() {
            Context::SERVER => ZoneKind::Server,
            _ => ZoneKind::Location,
        };
        let zone = Zone::of(kind, name);
        zone.map(Self).ok_or_else(|| word.error(format!("more than {ZONES_MAX} zones")))
    }
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
    let server = server.or_else(|| super::vts::zone(cx, chain).map(ZoneSetting));
    if let Some(ZoneSetting(zone)) = server {
        parts.handler(Phase::PostRead, Enter(zone.clone()));
        parts.observer(Count(zone));
    }
    if let Some(ZoneSetting(zone)) = own.filter(|_| last != Some(Context::SERVER)) {
        parts.observer(Count(zone));
    }
}

/// Counts a request as being processed by its server.
struct Enter(Arc<Zone>);

impl Handler for Enter {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if request.state().get(&PROCESSING).is_none() {
            let processing = self.0.enter();
            request.state_mut().set(&PROCESSING, processing);
        }
        Step::Next(request)
    }
}

/// Counts a request that has ended.
struct Count(Arc<Zone>);

impl Observer for Count {
    fn ended(&self, request: &Request) {
        self.0.count(request);
    }
}
