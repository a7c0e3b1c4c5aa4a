//! Settings of `auth_request`. nginx: `ngx_http_auth_request_module`.

use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};
use nowait_http::variables::complex::{Complex, SetTarget, Table};

nowait_conf::directives! {
    /// Authorisation by a subrequest.
    #[derive(Debug)]
    module "auth_request";
    pub struct AuthRequestConf with AuthRequestConfLayer;

    /// Authorises each request by a subrequest for this URI, which has the client's header fields
    /// but no body. A 2xx status grants access. 401 and 403 are passed on, 401 with its
    /// `WWW-Authenticate`; any other status is an error (500). `off` cancels the setting of an
    /// outer block.
    auth_request: Option<AuthUri>, in HTTP | SERVER | LOCATION, args "uri | off";
    /// Sets a variable of the request after the subrequest of `auth_request` has finished. The
    /// value may contain variables of the subrequest, such as `$upstream_http_x_user` and
    /// `$sent_http_x_user`.
    auth_request_set: Vec<AuthSet>, in HTTP | SERVER | LOCATION, args "$variable value";
}

/// `auth_request`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthUri(Option<Box<[u8]>>);

impl AuthRequestConf {
    /// The URI of the subrequest.
    pub fn uri(&self) -> Option<&[u8]> {
        self.auth_request.as_ref()?.0.as_deref()
    }
}

impl Setting for AuthUri {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        Ok(Self((*word != *"off" && !word.text.is_empty()).then(|| word.text[..].into())))
    }
}

/// One `auth_request_set`.
#[derive(Debug, Clone)]
pub struct AuthSet {
    /// The variable to set.
    pub place: SetTarget,
    /// The value, evaluated in the subrequest.
    pub value: Complex,
}

impl Setting for AuthSet {
    const ARITY: arity::Arity = arity::exactly(2);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let [name, value] = &node.args[..] else { return Err(node.arity_error()) };
        let variable = nowait_variables::variable_name(name)?;
        let place = cx.global::<Table>().define_result(variable);
        let place = place.map_err(|error| name.error(error.to_string()))?;
        Ok(Self { place, value: nowait_http::conf::complex(value, cx)? })
    }
}
