//! How servers are reached.

use crate::stage::{gets, server, site};

#[test]
fn from_an_address_of_ours() {
    gets(
        &server(
            r#"
            location /bound { proxy_pass http://127.0.0.1:%%PORT%%/addr; proxy_bind 127.0.0.2; }
            location /variable { proxy_pass http://127.0.0.1:%%PORT%%/addr; proxy_bind $arg_from; }
            location /off {
                proxy_pass http://127.0.0.1:%%PORT%%/addr;
                proxy_bind off;
                proxy_socket_keepalive on;
                proxy_socket_rcvbuf 64k;
                proxy_socket_sndbuf 64k;
            }
            location /addr { return 200 $remote_addr; }
            "#,
        ),
        &[
            ("/bound", "200\n\n127.0.0.2"),
            ("/variable?from=127.0.0.3", "200\n\n127.0.0.3"),
            ("/variable", "200\n\n127.0.0.1"),
            ("/off", "200\n\n127.0.0.1"),
        ],
    );
}

#[test]
fn by_a_unix_socket() {
    gets(
        &site(
            "server { listen 127.0.0.1:%%PORT%%;
               location / { proxy_pass http://unix:%%DIR%%/up.sock; }
               location /uri/ { proxy_pass http://unix:%%DIR%%/up.sock:/other/; }
               location /variable { set $to unix:%%DIR%%/up.sock; proxy_pass http://$to:/x; } }
             server { listen unix:%%DIR%%/up.sock; return 200 \"$http_host $request_uri\"; }",
        ),
        &[
            ("/a?b", "200\n\nlocalhost /a?b"),
            ("/uri/a", "200\n\nlocalhost /other/a"),
            ("/variable", "200\n\nlocalhost /x"),
        ],
    );
}

/// `$upstream_last_addr` has no port, so that `geo` can read it, and is that of the last server, not of all.
#[test]
fn the_address_of_the_last_server() {
    gets(
        &site(
            "upstream two { server unix:%%DIR%%/none.sock; server 127.0.0.1:%%PORT%% backup; }
             upstream none { server 127.0.0.1:%%PORT%% down; }
             geo $upstream_last_addr $place { volatile; default elsewhere; 127.0.0.0/8 here; }
             server { listen 127.0.0.1:%%PORT%%; listen unix:%%DIR%%/up.sock;
               proxy_hide_header X-Up;
               add_header X-Up \"[$upstream_last_addr] [$upstream_last_server_name] $place\" always;
               location /two/ { proxy_pass http://two/answer/; }
               location /socket/ { proxy_pass http://unix:%%DIR%%/up.sock:/answer/; }
               location /none/ { proxy_pass http://none/answer/; proxy_intercept_errors on; }
               location /again/ { proxy_pass http://none/; error_page 502 = @after; }
               location @after { rewrite ^ /answer/ break; proxy_pass http://two; }
               location /static { return 204; }
               location / { return 200 ok; } }",
        ),
        &[
            ("/two/", "200\nX-Up: [127.0.0.1] [127.0.0.1:*] here\n\nok"),
            ("/socket/", "200\nX-Up: [unix:*/up.sock] [unix:*/up.sock] elsewhere\n\nok"),
            ("/none/", "502\nX-Up: [] [] elsewhere"),
            ("/again/", "200\nX-Up: [127.0.0.1] [127.0.0.1:*] here"),
            ("/static", "204\nX-Up: [] [] elsewhere"),
        ],
    );
}

#[test]
fn by_the_name_of_a_group() {
    gets(
        &site(
            "upstream Group { server 127.0.0.1:%%PORT%%; }
             server { listen 127.0.0.1:%%PORT%%;
               location / { proxy_pass http://group/answer/; add_header X-Up \
                 \"$proxy_host $proxy_port $upstream_last_addr $upstream_last_server_name\"; }
               location /variable { set $to GROUP; proxy_pass http://$to/answer/v; }
               location /answer/ { return 200 \"$http_host $request_uri\"; } }",
        ),
        &[
            ("/a", "200\nX-Up: group 80 127.0.0.1 127.0.0.1:*\n\ngroup /answer/a"),
            ("/variable", "200\n\nGROUP /answer/v"),
        ],
    );
}
