//! Configurations that are refused, in nginx's words.

use crate::stage::{refused, site};

/// In a site with this `http` block.
#[track_caller]
fn says(http: &str, reason: &str) {
    refused(&site(http), reason);
}

/// In a block with a server of its own.
#[track_caller]
fn block_says(block: &str, reason: &str) {
    says(&format!("upstream u {{ server 127.0.0.1:1; {block} }}"), reason);
}

#[test]
fn groups_have_servers_and_names_of_their_own() {
    says("upstream u { }", "no servers are inside upstream");
    says("upstream u { server a; } upstream U { server b; }", "duplicate upstream \"U\"");
    says("upstream u { server a backup; }", "no servers in upstream \"u\"");
    let pass = "upstream u { server 127.0.0.1; } server { location / { proxy_pass http://u:80; } }";
    says(pass, "upstream \"u\" may not have port 80");
    let pass = "server { location / { proxy_pass http://u:80; } } upstream u { server 127.0.0.1; }";
    says(pass, "upstream \"u\" may not have port 80");
}

#[test]
fn parameters_of_servers() {
    for wrong in ["weight=0", "weight=x", "max_fails=-1", "max_conns=", "fail_timeout=x", "any"] {
        block_says(&format!("server a {wrong};"), &format!("invalid parameter \"{wrong}\""));
    }
    let refused = "balancing method does not support parameter \"backup\"";
    for method in ["ip_hash", "hash $uri", "random"] {
        block_says(&format!("{method}; server 127.0.0.1 backup;"), refused);
    }
    block_says("server a:0;", "invalid port in upstream \"a:0\"");
    block_says("server :80;", "no host in upstream \":80\"");
    block_says("server unix:;", "no path in the unix domain socket in upstream \"unix:\"");
    block_says("server a route=;", "route is empty");
    block_says("server a service=http;", "service upstream \"a\" requires \"resolve\" parameter");
    block_says("server a:80 service=http resolve;", "service upstream \"a:80\" may not have port");
    let refused = "service upstream \"127.0.0.1\" requires domain name";
    block_says("server 127.0.0.1 service=http resolve;", refused);
}

#[test]
fn methods() {
    block_says("hash $uri ketama;", "invalid parameter \"ketama\"");
    block_says("random three;", "invalid parameter \"three\"");
    block_says("random two best;", "invalid parameter \"best\"");
    block_says("least_time body;", "invalid value \"body\"");
    block_says("hash $nobody_knows;", "unknown \"nobody_knows\" variable");
}

#[test]
fn connections_and_zones() {
    block_says("keepalive x;", "invalid value \"x\" in \"keepalive\" directive");
    block_says("keepalive 1; keepalive 2;", "\"keepalive\" directive is duplicate");
    block_says("zone z 1k;", "zone \"z\" is too small");
    block_says("zone z x;", "invalid zone size \"x\"");
    block_says("state '';", "invalid file name");
    block_says("queue 0;", "invalid value \"0\" in \"queue\" directive");
}

#[test]
fn stickiness() {
    block_says("sticky any x;", "unknown parameter \"any\"");
    block_says("sticky cookie x any=1;", "unknown parameter \"any=1\"");
    block_says("sticky cookie x path=/ path=/a;", "parameter \"path\" is duplicate");
    block_says("sticky cookie x samesite=any;", "invalid \"samesite\" parameter value");
    block_says("sticky route a;", "invalid variable name \"a\"");
    block_says("sticky learn zone=z:1m lookup=$arg_a;", "\"create\" parameter is not specified");
    block_says("sticky learn zone=z:1m create=$arg_a;", "\"lookup\" parameter is not specified");
    block_says("sticky learn create=$arg_a lookup=$arg_a;", "\"zone\" parameter is not specified");
}
