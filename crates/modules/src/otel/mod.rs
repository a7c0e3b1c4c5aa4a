//! `otel_*`: OpenTelemetry traces. nginx: `ngx_otel_module`.
//!
//! A handler decides, before the location's rewriting, whether a request is traced, and hands its context on to
//! servers behind this one. When the request has ended, an observer writes its span, in the form in which it will be
//! sent, into a buffer of the worker ([`queue`]); a task of the worker sends full buffers ([`export`]). Requests never
//! wait for a collector: if there is no room, spans are lost and counted.

mod conf;
mod context;
mod export;
mod proto;
mod queue;
mod span;

use nowait_conf::{Cx, Scope};
use nowait_http::conf::HttpConf;
use nowait_http::module::{
    Handler, HandlerExplanation, LocationBuilder, Module, Observer, Phase, Step,
};
use nowait_http::request::Request;
use nowait_http::response::LocalFuture;
use nowait_http::slots::Key;
use nowait_http::trace::Trace;
use nowait_http::variables::Builtin;
use nowait_http::variables::complex::Complex;
use nowait_http::variables::core::builtins;

use self::conf::{ContextUse, ExporterConf, ExporterDraft, OtelConf, SpanAttribute};
use self::context::SpanContext;

/// This module.
pub static MODULE: Module = Module {
    rows: &[OtelConf::ROWS, conf::EXPORTER_ROWS],
    build: Some(build),
    variables: BUILTINS,
    finish: Some(finish),
    start: Some(export::start),
    ..Module::EMPTY
};

/// The exporter of a configuration.
static EXPORTER: Key<ExporterConf> = Key::new();

/// Locations where contexts are extracted from requests, for variables.
static EXTRACTS: Key<()> = Key::new();

/// The context of a request and its subrequests.
static CONTEXT: Key<std::cell::OnceCell<SpanContext>> = Key::new();

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let conf = OtelConf::resolve(cx, chain);
    if conf.otel_trace_context.extracts() {
        parts.settings.set(&EXTRACTS, ());
    }
    if conf.otel_trace.is_some() || conf.otel_trace_context != ContextUse::Ignore {
        parts.handler(
            Phase::Rewrite,
            Begin { trace: conf.otel_trace.clone(), context: conf.otel_trace_context },
        );
    }
    // A request may end in another location than the one where it was chosen.
    if cx.global::<ExporterDraft>().is_configured() {
        parts.note_times();
        parts.observer(End {
            name: conf.otel_span_name.clone(),
            attributes: conf.otel_span_attr.clone().into(),
        });
    }
}

fn finish(cx: &mut Cx<'_>, conf: &mut HttpConf) {
    if let Some(exporter) = cx.take_global::<ExporterDraft>().complete() {
        conf.settings.set(&EXPORTER, exporter);
    }
}

/// The variables of this module.
const BUILTINS: &[Builtin] = builtins! {
    /// Identifier of the request's trace: 16 bytes in hexadecimal. It is that of the client if `otel_trace_context`
    /// says `extract` or `propagate` and the client has sent one.
    "otel_trace_id" => |r, out| context(r).append_trace_id(out);
    /// Identifier of the request's span: 8 bytes in hexadecimal.
    "otel_span_id" => |r, out| context(r).append_span_id(out);
    /// Identifier of the client's span, if it was extracted.
    "otel_parent_id" => |r, out| context(r).append_parent_id(out);
    /// `1` if a context was extracted from the request, and the client says that the trace is recorded; otherwise `0`.
    "otel_parent_sampled" => |r, out| {
        out.push(if context(r).is_parent_sampled() { b'1' } else { b'0' });
        true
    };
};

/// The context of a request, made when it is first needed.
fn context(request: &Request) -> &SpanContext {
    request.shared().state.of(&CONTEXT).get_or_init(|| {
        let extracts = request.location().settings.get(&EXTRACTS).is_some();
        SpanContext::new(extracts.then_some(request.head()))
    })
}

/// Decides whether a request is traced, and passes its context on.
struct Begin {
    trace: Option<Complex>,
    context: ContextUse,
}

impl Handler for Begin {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        // An internal redirect does not change the decision.
        if request.is_internal() || request.is_nested() {
            return Step::Next(request);
        }
        let value = self.trace.as_ref().map(|trace| request.evaluate(trace));
        let sampled = matches!(value.as_deref(), Some(b"on" | b"1"));
        if !sampled && self.context == ContextUse::Ignore {
            return Step::Next(request);
        }
        let context = context(request);
        context.set_sampled(sampled);
        if self.context.injects() {
            let (parent, state) = (context.traceparent(), context.state().clone());
            let head = request.head_mut();
            // Errors are those of `Host` alone.
            let _ = head.set_field(b"traceparent", &parent);
            if state.is_empty() {
                head.remove_fields(|name| name.eq_ignore_ascii_case(b"tracestate"));
            } else {
                let _ = head.set_field(b"tracestate", &state);
            }
        }
        Step::Next(request)
    }

    fn explain<'a>(
        &'a self,
        _: &'a mut Request,
        _: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        Box::pin(async { HandlerExplanation::Next })
    }
}

/// Writes the span of a request that has ended.
struct End {
    name: Option<Complex>,
    attributes: Box<[SpanAttribute]>,
}

impl Observer for End {
    fn ended(&self, request: &Request) {
        let context = request.shared().state.get(&CONTEXT).and_then(|context| context.get());
        let Some(context) = context.filter(|context| context.is_sampled()) else { return };
        let current = request.current();
        let Some(exporter) = current.conf.settings.get(&EXPORTER) else { return };
        queue::add(exporter.limits, |out| {
            span::write(request, context, self.name.as_ref(), &self.attributes, out);
        });
    }
}
