//! `$ssl_*`: the variables of a client's TLS connection. nginx: `ngx_http_ssl_module`, whose
//! directives are in `nowait_front::tls::conf` and [`nowait_http::conf::tls`].

use nowait_front::tls::variables::{Fact, SessionView};
use nowait_http::module::Module;
use nowait_http::request::Request;
use nowait_http::variables::Builtin;

/// This module.
pub static MODULE: Module = Module { variables: BUILTINS, replaceable: |_| true, ..Module::EMPTY };

const BUILTINS: &[Builtin] = nowait_front::tls_variables!(Builtin, of);

fn of(request: &Request, out: &mut Vec<u8>, fact: Fact) -> bool {
    let mut found = false;
    request.exchange().with_tls(&mut |tls| {
        let judge = request.client_trust();
        found = fact(SessionView { tls, judge }, out);
    });
    found
}
