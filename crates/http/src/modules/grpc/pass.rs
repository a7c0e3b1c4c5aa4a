//! `grpc_pass`: reads the destination of calls, and makes this module the content of a location.

use std::sync::Arc;

use nowait_conf::{Cx, Diagnostic, Node};

use super::conf::{CONF, GrpcConf, Pass, PassLayer, SCHEMES};
use crate::backend::Passing;
use crate::backend::url::{self, Url, UrlError};
use crate::conf::complex;
use crate::conf::upstream::{Groups, Server};
use crate::module::{set_auto_redirect, set_content};

nowait_conf::rows! {
    pub static PASS_ROWS, module "grpc";

    /// Passes calls to a gRPC server: an address with a port, a name, a Unix-domain socket
    /// (`unix:/run/app.sock`) or an `upstream`, with or without `grpc://` in front of it; `grpcs://`
    /// stands for TLS. With variables, the server is looked up among the `upstream`s and then
    /// resolved. Calls share HTTP/2 connections, and are streamed in both directions.
    "grpc_pass" => grpc_pass, in LOCATION | LOCATION_IF, take exactly(1), args "address";
}

/// nginx: `ngx_http_grpc_pass`.
fn grpc_pass(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    if cx.layer::<PassLayer>().pass.replace(word.span).is_some() {
        return Err(node.directive_error("is duplicate"));
    }
    let text = complex(word, cx)?;
    let Some(url) = text.literal().cloned() else {
        pass_to(cx, node, Pass::Variable(text));
        return Ok(());
    };
    let parsed = Url::parse(&url, SCHEMES).map_err(|error| match error {
        UrlError::Prefix => word.error("invalid URL prefix"),
        UrlError::Server(problem) => {
            let server = String::from_utf8_lossy(url::after_scheme(&word.text)).into_owned();
            let server = if server.is_empty() { word.to_string() } else { server };
            word.error(format!("{problem} in upstream \"{server}\""))
        }
    })?;
    let server = Server {
        text: parsed.server,
        host: parsed.host,
        port: parsed.port,
        default_port: None,
        span: word.span,
    };
    let group = cx.global::<Groups>().implicit(server);
    let group = group.map_err(|text| word.error(text))?;
    pass_to(cx, node, Pass::Static { group, destination: Arc::new(parsed.destination) });
    Ok(())
}

/// Makes this module the content of the block being read.
fn pass_to(cx: &mut Cx<'_>, node: &Node, pass: Pass) {
    set_content(cx, node, move |cx, chain, parts| {
        let conf = Arc::new(GrpcConf::resolve(cx, chain, pass.clone()));
        parts.settings.set(&CONF, conf.clone());
        Passing::new(conf, None, parts)
    });
    set_auto_redirect(cx);
}
