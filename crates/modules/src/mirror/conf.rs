//! Settings of `mirror`. nginx: `ngx_http_mirror_module`.

use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};

nowait_conf::directives! {
    /// Copies of requests.
    #[derive(Debug)]
    module "mirror";
    pub struct MirrorConf with MirrorConfLayer;

    /// Sends a copy of each request to this URI of the same server, which usually passes it to
    /// another upstream. Responses to copies are discarded, and the client does not wait for them.
    /// May be given several times. `off` cancels the setting of an outer block.
    mirror: Option<Mirrors>, in HTTP | SERVER | LOCATION, args "uri | off";
    /// Controls whether copies include the request body, which is then read before they are sent.
    mirror_request_body: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
}

impl MirrorConf {
    /// The URIs of the copies.
    pub fn uris(&self) -> &[Box<[u8]>] {
        self.mirror.as_ref().map_or(&[], |mirrors| &mirrors.0)
    }
}

/// `mirror`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirrors(Vec<Box<[u8]>>);

impl Setting for Mirrors {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        Ok(Self(if *word == *"off" { Vec::new() } else { vec![word.text[..].into()] }))
    }

    /// Several directives of one block accumulate, but `off` must be alone.
    fn again(&mut self, node: &Node, cx: &mut Cx<'_>) -> Result<(), Diagnostic> {
        let more = Self::parse(node, cx)?;
        if self.0.is_empty() || more.0.is_empty() {
            return Err(node.directive_error("is duplicate"));
        }
        self.0.extend(more.0);
        Ok(())
    }
}
