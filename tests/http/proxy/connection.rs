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
            ("/a", "200\nX-Up: group 80 127.0.0.1:* 127.0.0.1:*\n\ngroup /answer/a"),
            ("/variable", "200\n\nGROUP /answer/v"),
        ],
    );
}
