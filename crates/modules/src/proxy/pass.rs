//! `proxy_pass`: reads the destination of requests, and makes the proxy the content of a location.

use std::sync::Arc;

use bytes::Bytes;
use nowait_backend::url::{self, Url, UrlError};
use nowait_conf::{Cx, Diagnostic, Node, Span, Word};
use nowait_http::conf::upstream::{Groups, UpstreamServer};
use nowait_http::conf::uri_scope::{UriScope, place};
use nowait_http::conf::{HttpConf, complex};
use nowait_http::module::{set_auto_redirect, set_content};
use nowait_upstream::conf::target_error;
use nowait_variables::assigned_urls::{self, Assigned};

use super::conf::SCHEMES;
use super::handler::content;
use crate::proxy::conf::{Pass, PassLayer, StaticPass};

nowait_conf::rows! {
    pub static PASS_ROWS, module "proxy";

    /// Passes requests to an HTTP server, over TLS if the URL begins with `https://`: an address, a name, a Unix-domain socket
    /// (`http://unix:/run/app.sock:/uri/`) or an `upstream`. If the URL contains a URI, it replaces
    /// the location's part of the request URI; otherwise the URI is passed as the client sent it,
    /// or as rewritten. With variables, the server is looked up among the `upstream`s and then
    /// resolved; a URI in such a URL is passed unchanged.
    ///
    /// nginx differs: it resolves names when it reads the configuration; Nowait does so at run
    /// time.
    "proxy_pass" => proxy_pass, in LOCATION | LOCATION_IF | LIMIT_EXCEPT, take exactly(1), inheritance Own, args "URL";
}

/// The variables that a `proxy_pass` takes its URL from, with its position.
#[derive(Default)]
struct UrlVariables(Vec<(String, Span)>);

/// Warns about configured values of such variables that are not valid URLs. Called after the whole
/// configuration was read.
pub fn warn_of_schemes(cx: &mut Cx<'_>, _: &mut HttpConf) {
    let urls = cx.take_global::<Assigned>();
    for (name, pass) in cx.take_global::<UrlVariables>().0 {
        for (url, span) in urls.unsupported(&name, &["http", "https"]) {
            let url = String::from_utf8_lossy(url).into_owned();
            let warning = Diagnostic::warn(format!("\"proxy_pass\" does not support \"{url}\""));
            cx.report(
                warning
                    .at(span)
                    .expected("http:// or https://")
                    .note(pass, "requests with this URL get 500"),
            );
        }
    }
}

/// Rejects a URL whose variables follow an unsupported scheme.
fn check_start(word: &Word) -> Result<(), Diagnostic> {
    let Some(end) = word.text.windows(3).position(|three| three == b"://") else { return Ok(()) };
    match &word.text[..end] {
        scheme if scheme.contains(&b'$') => Ok(()),
        scheme if [&b"http"[..], b"https"].iter().any(|s| scheme.eq_ignore_ascii_case(s)) => Ok(()),
        _ => Err(word.error("invalid URL prefix").expected("http:// or https://")),
    }
}

/// nginx: `ngx_http_proxy_pass`.
fn proxy_pass(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    if cx.layer::<PassLayer>().pass.is_some() {
        return Err(node.directive_error("is duplicate"));
    }
    let text = complex(word, cx)?;
    let Some(url) = text.literal().cloned() else {
        check_start(word)?;
        if let Some(name) = assigned_urls::leading_variable(&word.text) {
            cx.global::<UrlVariables>().0.push((name.to_owned(), word.span));
        }
        pass_to(cx, node, Pass::Variable { url: text, span: word.span });
        return Ok(());
    };
    let parsed = Url::parse(&url, SCHEMES).map_err(|error| match error {
        UrlError::Prefix => word.error("invalid URL prefix").expected("http:// or https://"),
        UrlError::Server(problem) => {
            let server = url::after_scheme(&word.text);
            let server = String::from_utf8_lossy(server);
            target_error(problem, word, &server)
        }
    })?;
    let location = match place(cx) {
        UriScope::Prefix(name) => name,
        UriScope::Other if parsed.destination.uri.is_empty() => Bytes::new(),
        UriScope::Other => {
            let uri = String::from_utf8_lossy(&parsed.destination.uri).into_owned();
            let error = word.error(
                "\"proxy_pass\" cannot have URI part in location given by regular expression, or \
                 inside predicate location, or inside named location, or inside \"if\" statement, or inside \"limit_except\" \
                 block",
            );
            return Err(error.hint(format!(
                "remove \"{uri}\": there is no prefix for it to replace; \"rewrite\" changes the URI"
            )));
        }
    };
    let server = UpstreamServer {
        text: parsed.server,
        host: parsed.host,
        port: parsed.port,
        default_port: Some(parsed.default_port),
        span: word.span,
    };
    let group = cx.global::<Groups>().implicit(server);
    let group = group.map_err(|text| word.error(text))?;
    let pass =
        StaticPass { url, group, destination: parsed.destination, location, span: word.span };
    pass_to(cx, node, Pass::Static(Arc::new(pass)));
    Ok(())
}

/// Makes the proxy the content of the block being read.
fn pass_to(cx: &mut Cx<'_>, node: &Node, pass: Pass) {
    cx.layer::<PassLayer>().pass = Some(pass.clone());
    set_content(cx, node, move |cx, chain, parts| content(cx, chain, parts, pass.clone()));
    set_auto_redirect(cx);
}
