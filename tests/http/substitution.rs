//! Configurations that were made of templates, and of which a name was left: `envsubst` did not know it, or
//! was forgotten.

use crate::stage::{refused, server, site};

#[test]
fn variables_are_refused_where_none_are_evaluated() {
    for (name, directive) in [
        ("$NAMESERVER", "resolver $NAMESERVER;"),
        ("${NS}", "resolver 127.0.0.1 ${NS}:53 valid=1s;"),
        ("${HOST}", "upstream u { server ${HOST}:80; }"),
        ("$host", "upstream u { server $host:80; }"),
        ("$ZONE", "upstream u { zone $ZONE 64k; server 127.0.0.1:1; }"),
        ("${PORT}", "server { listen ${PORT}; }"),
        ("$SOCKET", "server { listen unix:$SOCKET; }"),
        ("$NAME", "server { listen 127.0.0.1:1; server_name a $NAME; }"),
        ("${NAME}", "server { listen 127.0.0.1:1; server_name www.${NAME}; }"),
        ("$LOG", "error_log $LOG;"),
        ("${CA}", "proxy_ssl_trusted_certificate ${CA};"),
        ("${ZONE}", "proxy_cache_path /tmp/http-none keys_zone=${ZONE}:1m;"),
        ("$ZONE", "limit_req_zone $uri zone=$ZONE:1m rate=1r/s;"),
        ("$DIR", "include $DIR/*.conf;"),
        ("$TYPES", "gzip_types text/css $TYPES;"),
        ("$HEADER", "real_ip_header $HEADER;"),
        ("$X", "proxy_hide_header $X;"),
    ] {
        refused(&site(directive), &format!("takes no variables, but there is \"{name}\""));
        refused(&site(directive), "envsubst");
    }
    // Those that fail in any case get the advice.
    for directive in ["keepalive_requests ${N};", "gzip $GZIP;"] {
        refused(&site(directive), "envsubst");
    }
}

#[test]
fn dollar_signs_that_are_no_variables_are_accepted() {
    let names = r#"server_name $hostname ~^(?<x>a+)$ "~^(b|c$)";"#;
    let types = "set $x $uri; if ($uri ~ ^/a$) { return 204; } gzip_disable a$;";
    server(&format!("{names} {types}")).start().stop();
}
