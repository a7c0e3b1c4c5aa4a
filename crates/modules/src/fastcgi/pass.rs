//! `fastcgi_pass`: makes this module the content of a location.

use nowait_backend::pass::set_pass;
use nowait_conf::{Cx, Diagnostic, Node};

use super::conf::{CACHE, FastcgiConf, SCHEMES};

nowait_conf::rows! {
    pub static PASS_ROWS, module "fastcgi";

    /// Passes requests to a FastCGI server: an address with a port, a name, a Unix-domain socket
    /// (`unix:/run/php/php-fpm.sock`) or an `upstream`. With variables, the server is looked up among
    /// the `upstream`s and then resolved.
    "fastcgi_pass" => fastcgi_pass, in LOCATION | LOCATION_IF, take exactly(1), inheritance Own, args "address";
}

/// nginx: `ngx_http_fastcgi_pass`.
fn fastcgi_pass(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    set_pass(cx, node, SCHEMES, Some(&CACHE), FastcgiConf::resolve)
}
