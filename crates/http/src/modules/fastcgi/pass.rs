//! `fastcgi_pass`: makes this module the content of a location.

use std::sync::Arc;

use nowait_conf::{Cx, Diagnostic, Node};

use super::conf::{CACHE, CONF, FastcgiConf, SCHEMES};
use crate::backend::Passing;
use crate::backend::pass::Pass;
use crate::module::{set_auto_redirect, set_content};

nowait_conf::rows! {
    pub static PASS_ROWS, module "fastcgi";

    /// Passes requests to a FastCGI server: an address with a port, a name, a Unix-domain socket
    /// (`unix:/run/php/php-fpm.sock`) or an `upstream`. With variables, the server is looked up among
    /// the `upstream`s and then resolved.
    "fastcgi_pass" => fastcgi_pass, in LOCATION | LOCATION_IF, take exactly(1), args "address";
}

/// nginx: `ngx_http_fastcgi_pass`.
fn fastcgi_pass(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let pass = Pass::read::<FastcgiConf>(cx, node, SCHEMES)?;
    set_content(cx, node, move |cx, chain, parts| {
        let conf = Arc::new(FastcgiConf::resolve(cx, chain, pass.clone()));
        parts.settings.set(&CONF, conf.clone());
        let cache = parts.settings.get(&CACHE).cloned();
        Passing::new(conf, cache, parts)
    });
    set_auto_redirect(cx);
    Ok(())
}
