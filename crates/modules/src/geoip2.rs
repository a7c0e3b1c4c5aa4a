//! `geoip2`: variables from MaxMind databases. `nowait_variables` implements them, for requests and
//! sessions alike; here are the rows for the `http` block, and whose `X-Forwarded-For` is trusted.

use nowait_conf::{Cx, Diagnostic, Node};
use nowait_http::conf::{HttpConf, value};
use nowait_http::module::Module;
use nowait_http::variables::complex::HttpVariables;
use nowait_variables::cidr::Cidr;
use nowait_variables::geoip2::{self, Trust};

/// This module.
pub static MODULE: Module = Module { rows: &[GEOIP2_ROWS], finish: Some(finish), ..Module::EMPTY };

nowait_conf::rows! {
    pub static GEOIP2_ROWS, module "geoip2";

    /// Defines variables with the values that a MaxMind database has for the client's address, or for the
    /// address in the variable after `source=`. The path leads to a value through keys of maps and
    /// positions in arrays; without a value, the variable is that of `default=`. `metadata` is
    /// `build_epoch`, `last_check` or `last_change`. After each `auto_reload` time, the file is read
    /// again in a thread pool if it has changed; a broken one changes nothing.
    block "geoip2" => geoip2, in HTTP, take exactly(1), args "file { [auto_reload time;] $variable [default=value] [source=$variable] [path ...]; $variable metadata parameter; }";
    /// Trusts an address or network to state the client's address in `X-Forwarded-For`, for all
    /// variables of `geoip2` without `source=`.
    "geoip2_proxy" => proxy, in HTTP, take exactly(1), args "address | CIDR";
    /// With several trusted proxies in a row, the client's address is the last one in
    /// `X-Forwarded-For` that is not trusted.
    "geoip2_proxy_recursive" => recursive, in HTTP, take exactly(1), default "off", args "on | off";
}

fn geoip2(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    geoip2::geoip2::<HttpVariables>(cx, node)
}

fn proxy(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [word] = &node.args[..] else { return Err(node.arity_error()) };
    let Some((network, surplus)) = Cidr::parse(&word.text) else {
        return Err(word
            .error(format!("invalid network \"{word}\""))
            .expected("an address or a network such as 192.0.2.0/24"));
    };
    if surplus {
        let text = format!("low address bits of {word} are meaningless");
        cx.report(Diagnostic::warn(text).at(word.span));
    }
    cx.global::<Trust>().proxies.push(network);
    Ok(())
}

fn recursive(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    cx.global::<Trust>().recursive = value(node, 0)?;
    Ok(())
}

fn finish(cx: &mut Cx<'_>, _conf: &mut HttpConf) {
    let trust = cx.take_global::<Trust>();
    geoip2::trust::<HttpVariables>(cx, trust);
}
