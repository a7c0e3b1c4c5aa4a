//! `return`: the part of the rewrite module that stands. nginx: `ngx_http_rewrite_module`.

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Own, Setting, arity};

use crate::outcome::Outcome;
use crate::request::Request;
use crate::response::{Body, Head, Response};
use crate::variables::complex::Complex;

nowait_conf::directives! {
    /// What is done before a location's content is looked for.
    #[derive(Debug)]
    module "rewrite";
    pub struct RewriteConf with RewriteConfLayer;

    /// Ends the request: with a status, a status and a text, or a redirect. 444 closes the
    /// connection without an answer.
    return_("return"): Own<Return>, in SERVER | LOCATION | SERVER_IF | LOCATION_IF, args "code [text] | code URL | URL";
}

/// A `return` directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Return {
    status: u16,
    /// Text of the answer, or where a redirect leads.
    text: Option<Complex>,
}

impl Setting for Return {
    const ARITY: arity::Arity = arity::between(1, 2);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let first = node.args.first().ok_or_else(|| node.arity_error())?;
        let status = std::str::from_utf8(&first.text).ok().and_then(|text| text.parse().ok());
        match (status, node.args.get(1)) {
            (Some(status), _) if status > 999 => {
                Err(first.error(format!("invalid return code \"{first}\"")))
            }
            (Some(status), text) => {
                let text = text.map(|word| super::complex(word, cx)).transpose()?;
                Ok(Self { status, text })
            }
            (None, Some(_)) => Err(first
                .error(format!("invalid return code \"{first}\""))
                .expected("a status such as 301")),
            (None, None) => {
                let url = first.text.starts_with(b"http://")
                    || first.text.starts_with(b"https://")
                    || first.text.starts_with(b"$scheme");
                if !url {
                    return Err(first
                        .error(format!("invalid return code \"{first}\""))
                        .expected("a status, or a URL with http:// or https://"));
                }
                Ok(Self { status: 302, text: Some(super::complex(first, cx)?) })
            }
        }
    }
}

impl RewriteConf {
    /// Runs the directives; `None` lets the request go on.
    pub fn run(&self, request: &mut Request) -> Option<Outcome> {
        self.return_.as_ref().map(|answer| answer.run(request))
    }
}

impl Return {
    fn run(&self, request: &mut Request) -> Outcome {
        let Some(text) = &self.text else {
            return match self.status {
                444 => Outcome::Close,
                status @ (301 | 302 | 303 | 307 | 308 | 400..) => Outcome::status(status),
                status => self.respond(request, status, Bytes::new()),
            };
        };
        let value = request.evaluate(text);
        match self.status {
            status @ (301 | 302 | 303 | 307 | 308) => Outcome::moved(status, value),
            status => self.respond(request, status, value),
        }
    }

    /// nginx: `ngx_http_send_response`.
    fn respond(&self, request: &Request, status: u16, text: Bytes) -> Outcome {
        let mut head = Head::new(status);
        head.content_type = request.location().content_type(&request.uri);
        head.content_length = Some(text.len() as u64);
        let body = if text.is_empty() { Body::Empty } else { Body::Bytes(text) };
        Response { head, body }.into()
    }
}
