//! `connections_api`: the clients of all workers and what each waits for, for `nowait connections`.

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Scope};
use nowait_http::clients::{
    self, AllConnections, CONNECTIONS_MAX, ConnectionFacts, InProgress, RequestFacts, WaitsFor,
};
use nowait_http::module::{Handler, LocationBuilder, Module, Step, set_content};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Body, Head, Response};
use nowait_http::variables::core::argument_value;
use nowait_message::Method;
use nowait_runtime::pool::{Class, Op};
use serde_json::{Value, json};
use std::time::Duration;

/// Connections of each worker in a response, unless the argument `limit` says otherwise.
const LIMIT_DEFAULT: usize = 500;

/// This module.
pub static MODULE: Module =
    Module { rows: &[CONNECTIONS_ROWS], build: Some(build), ..Module::EMPTY };

nowait_conf::rows! {
    static CONNECTIONS_ROWS, module "requests";

    /// Responds with the connections of all workers as JSON: client, age, bytes, requests, how long it has been idle,
    /// and the requests in progress with what each waits for: a file or another module (`handler`), an upstream server,
    /// or the client. The argument `limit` is how many of each worker are shown (500; at most 2000). A configuration
    /// with this directive keeps a list of the requests in progress. What is shown tells much about clients: allow it to
    /// administrators only. `nowait connections` shows it in a terminal.
    "connections_api" => connections_api, in LOCATION, take none(), inheritance Own, args "";
}

/// The configuration has the directive somewhere.
#[derive(Default)]
struct IsWanted(bool);

fn connections_api(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.global::<IsWanted>().0 = true;
    set_content(cx, node, |_, _, _| Api);
    Ok(())
}

fn build(cx: &mut Cx<'_>, _: &[&Scope], parts: &mut LocationBuilder) {
    if cx.global::<IsWanted>().0 {
        InProgress::build(parts);
    }
}

/// Responds with the connections.
struct Api;

impl Handler for Api {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if !matches!(request.method(), Method::Get | Method::Head) {
            return Step::Done(request, Outcome::status(405));
        }
        let limit = match argument_value(request, b"limit") {
            None => Some(LIMIT_DEFAULT),
            Some(text) => nowait_conf::number(text).and_then(|limit| usize::try_from(limit).ok()),
        };
        let Some(limit) = limit.filter(|limit| (1..=CONNECTIONS_MAX).contains(limit)) else {
            return Step::Done(request, Outcome::status(400));
        };
        Step::wait(async move {
            let all = clients::of_all_workers(limit).await;
            let pool = request.current().compute_pool().clone();
            let client = request.client().number;
            let work = move || serde_json::to_vec(&render(&all)).unwrap_or_default();
            let outcome = match pool.run(Class::Bulk, client, Op::Blocking, work).await {
                Ok(text) => respond(text.into()),
                Err(_) => Outcome::status(503),
            };
            Step::Done(request, outcome)
        })
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn render(all: &AllConnections) -> Value {
    json!({
        "has_more": all.has_more,
        "silent_workers": all.silent,
        "connections": all.connections.iter().map(connection).collect::<Vec<_>>(),
    })
}

fn connection(facts: &ConnectionFacts) -> Value {
    let state = match (facts.idle, facts.in_progress.first()) {
        (Some(_), None) => "idle".to_owned(),
        (_, Some(request)) => waits_for(request),
        (None, None) => "busy".to_owned(),
    };
    json!({
        "number": facts.number,
        "worker": facts.worker,
        "client": facts.client,
        "listen": facts.listen,
        "protocol": facts.protocol,
        "tls": facts.tls,
        "age_ms": ms(facts.age),
        "requests": facts.requests,
        "idle_ms": facts.idle.map(ms),
        "received": facts.bytes.map(|bytes| bytes.0),
        "sent": facts.bytes.map(|bytes| bytes.1),
        "state": state,
        "in_progress": facts.in_progress.iter().map(|request| json!({
            "request": request.text,
            "elapsed_ms": ms(request.elapsed),
            "waits_for": waits_for(request),
        })).collect::<Vec<_>>(),
    })
}

fn waits_for(request: &RequestFacts) -> String {
    match &request.waits_for {
        WaitsFor::Handler => "handler".to_owned(),
        WaitsFor::Client => "client".to_owned(),
        WaitsFor::Upstream(peer, action) if peer.is_empty() => format!("upstream: {action}"),
        WaitsFor::Upstream(peer, action) => format!("upstream {peer}: {action}"),
    }
}

fn respond(text: Bytes) -> Outcome {
    let mut head = Head::new(200);
    head.content_type = Some(Bytes::from_static(b"application/json"));
    head.content_length = Some(text.len() as u64);
    head.add("Cache-Control", Bytes::from_static(b"no-store"));
    Response { head, body: Body::Bytes(text) }.into()
}
