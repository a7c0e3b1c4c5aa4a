//! A service that answers every request with the number of its generation: enough to test the life
//! of the program without HTTP proper.

use std::collections::HashMap;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nowait_conf::{Context, Cx, Diagnostic, Node, Row, Scope, rows};
use nowait_runtime::net::{Accepted, SendOptions};
use nowait_runtime::worker;
use nowait_sys::listen::{ListenAddress, ListenSpec};

use crate::service::{Current, Needs, Resources, Service};
use crate::settings::Settings;

/// The service.
pub struct StubService;

/// What the configuration says.
#[derive(Default)]
pub struct StubPlan {
    needs: Needs,
    text: String,
}

/// A generation.
pub struct StubGeneration {
    text: String,
    _lifeline: Box<dyn std::any::Any + Send + Sync>,
}

rows! {
    static ROWS, module "stub";

    /// Provides the context of the HTTP directives.
    block "http" => http, in MAIN, take none(), args "{ ... }";
    /// Sets configuration for a virtual server.
    block "server" => server, in HTTP, take none(), args "{ ... }";
    /// Sets the address.
    "listen" => listen, in SERVER, take at_least(1), args "address[:port]";
    /// Sets the text of every response.
    "return" => return_text, in SERVER, take exactly(2), args "code text";
    /// Ignored.
    "client_body_temp_path" => ignore, in HTTP, take exactly(1), args "path";
    /// Ignored.
    "access_log" => ignore, in HTTP | SERVER, take at_least(1), args "...";
    /// Ignored.
    "root" => ignore, in HTTP | SERVER, take exactly(1), args "path";
    /// Ignored.
    "autoindex" => ignore, in HTTP | SERVER, take exactly(1), args "on | off";
}

fn http(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.block(Context::HTTP, node.children());
    Ok(())
}

fn server(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.block(Context::SERVER, node.children());
    Ok(())
}

fn ignore(_cx: &mut Cx<'_>, _node: &Node) -> Result<(), Diagnostic> {
    Ok(())
}

fn return_text(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let word = node.args.last().ok_or_else(|| node.arity_error())?;
    cx.global::<StubPlan>().text = word.to_str()?.to_owned();
    Ok(())
}

fn listen(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    let text = word.to_str()?;
    let address = match text.strip_prefix("unix:") {
        Some(path) => ListenAddress::Unix(path.into()),
        None => ListenAddress::Inet(
            text.parse()
                .or_else(|_| {
                    text.parse().map(|port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
                })
                .map_err(|_| word.error(format!("invalid port in \"{word}\"")))?,
        ),
    };
    let mut spec = ListenSpec::new(address);
    spec.reuseport = node.args.iter().any(|word| *word == "reuseport");
    cx.global::<StubPlan>().needs.listens.push(spec);
    Ok(())
}

impl Service for StubService {
    type Plan = StubPlan;
    type Generation = StubGeneration;

    fn tables() -> Vec<&'static [Row]> {
        vec![ROWS]
    }

    fn plan(cx: &mut Cx<'_>, _main: &Scope, _settings: &Settings) -> StubPlan {
        cx.take_global()
    }

    fn needs(plan: &StubPlan) -> Needs {
        plan.needs.clone()
    }

    fn activate(
        plan: StubPlan,
        resources: Resources,
        _previous: Option<&Arc<StubGeneration>>,
    ) -> Result<StubGeneration, String> {
        Ok(StubGeneration { text: plan.text, _lifeline: resources.lifeline })
    }

    async fn serve(
        current: Current<StubGeneration>,
        _listener: Arc<ListenAddress>,
        accepted: Accepted,
    ) {
        let idle = Duration::from_secs(60);
        let mut first = true;
        loop {
            let request = std::pin::pin!(accepted.stream.recv(idle));
            let stopping = std::pin::pin!(worker::stopping());
            // As nginx: only a connection that had a request already is idle.
            let received =
                if first { Some(request.await) } else { either(request, stopping).await };
            let received = match received {
                Some(Ok(bytes)) if !bytes.is_empty() => bytes,
                _ => return,
            };
            first = false;
            drop(received);
            let text = current().text.clone();
            let response =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
            let chain = bytes::Bytes::from(response);
            if accepted.stream.send(chain, SendOptions::new(idle)).await.is_err() {
                return;
            }
        }
    }

    fn reopen(_generation: &Arc<StubGeneration>, _logs: HashMap<PathBuf, File>) {}

    fn flush(_generation: &Arc<StubGeneration>, _limit: Duration) {}
}

/// The output of the first future, or `None` when the second one ends before.
async fn either<T>(
    mut first: std::pin::Pin<&mut impl Future<Output = T>>,
    mut second: std::pin::Pin<&mut impl Future<Output = ()>>,
) -> Option<T> {
    std::future::poll_fn(|cx| {
        if let std::task::Poll::Ready(output) = first.as_mut().poll(cx) {
            return std::task::Poll::Ready(Some(output));
        }
        second.as_mut().poll(cx).map(|()| None)
    })
    .await
}
