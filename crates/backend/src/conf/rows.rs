//! The tables of directives that backends share, as macros that write them under a module's prefix.

/// Generates the rows about connections to upstream servers, under a module's prefix, further rows of
/// the module, and a function for the engine's settings.
///
/// `connection_rows! { module "memcached", prefix "memcached_"; pub struct MemcachedConf with
/// MemcachedLayer; … }`
#[macro_export]
macro_rules! connection_rows {
    (
        module $module:literal, prefix $prefix:literal;
        $(#[$meta:meta])*
        pub struct $conf:ident with $layer:ident;
        $($more:tt)*
    ) => {
        nowait_conf::directives! {
            $(#[$meta])*
            #[derive(Debug)]
            module $module, prefix $prefix;
            pub struct $conf with $layer;

            /// Maximum size of a response head; a longer head is an error. By default one memory
            /// page.
            buffer_size: nowait_conf::Size = "4k" => $crate::conf::page, in HTTP | SERVER | LOCATION, args "size";
            /// Maximum time for connecting to a server.
            connect_timeout: nowait_conf::Msec = "60s", in HTTP | SERVER | LOCATION, args "time";
            /// Maximum time between two writes of a request.
            send_timeout: nowait_conf::Msec = "60s", in HTTP | SERVER | LOCATION, args "time";
            /// Maximum time for receiving the response head as a whole, and then between two reads
            /// of the body. If the head is late, the client gets 504 unless another server is
            /// tried; if the body is late, the response is cut off. An interim response (1xx) renews
            /// the time for the head; more than 32 of them are an error (502).
            read_timeout: nowait_conf::Msec = "60s", in HTTP | SERVER | LOCATION, args "time";
            /// Maximum number of servers to try per request; zero means all of them.
            next_upstream_tries: u32 = "0", in HTTP | SERVER | LOCATION, args "number";
            /// Maximum time for trying servers per request; zero means no limit.
            next_upstream_timeout: nowait_conf::Msec = "0", in HTTP | SERVER | LOCATION, args "time";
            /// Local address, optionally with a port, of upstream connections. With `transparent`
            /// it may be a non-local address, such as `$remote_addr`. Variables are allowed; an
            /// empty value means `off`.
            bind: Option<nowait_front::bind::BindOrOff<nowait_http::variables::complex::HttpVariables>>, in HTTP | SERVER | LOCATION, args "address [transparent] | off";
            /// Enables or disables TCP keepalive probes on upstream connections (`SO_KEEPALIVE`).
            socket_keepalive: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
            /// Receive buffer of upstream connections (`SO_RCVBUF`); zero leaves the choice to the
            /// kernel.
            socket_rcvbuf: nowait_conf::Size = "0", in HTTP | SERVER | LOCATION, args "size";
            /// Send buffer of upstream connections (`SO_SNDBUF`); zero leaves the choice to the
            /// kernel.
            socket_sndbuf: nowait_conf::Size = "0", in HTTP | SERVER | LOCATION, args "size";
            $($more)*
        }

        impl $conf {
            /// The engine's settings for a location, without those for buffers and other servers.
            pub fn settings(&self) -> $crate::upstream::Settings {
                use $crate::conf::bytes32;
                $crate::upstream::Settings {
                    connect_timeout: self.connect_timeout.duration(),
                    send_timeout: self.send_timeout.duration(),
                    read_timeout: self.read_timeout.duration(),
                    buffer_size: bytes32(self.buffer_size.0),
                    buffering: false,
                    request_buffering: false,
                    next_upstream_tries: self.next_upstream_tries,
                    next_upstream_timeout: self.next_upstream_timeout.duration(),
                    socket_keepalive: self.socket_keepalive,
                    socket_rcvbuf: bytes32(self.socket_rcvbuf.0),
                    socket_sndbuf: bytes32(self.socket_sndbuf.0),
                    ..$crate::upstream::Settings::default()
                }
            }
        }
    };
}

/// Generates the rows that all modules with upstream servers for HTTP share, under a module's prefix,
/// and a function that converts them to a [`Backend`](super::Backend) that buffers nothing.
///
/// `upstream_rows! { module "grpc", prefix "grpc_"; pub struct GrpcUpstreamConf with
/// GrpcUpstreamLayer; }`
#[macro_export]
macro_rules! upstream_rows {
    (
        module $module:literal, prefix $prefix:literal;
        $(#[$meta:meta])*
        pub struct $conf:ident with $layer:ident;
    ) => {
        $crate::connection_rows! {
            module $module, prefix $prefix;
            $(#[$meta])*
            pub struct $conf with $layer;

            /// When to try another server: after a connection error, a timeout, a malformed or
            /// empty response, or a response with one of these statuses. Non-idempotent requests
            /// (POST, LOCK, PATCH) are not repeated once they were sent, unless `non_idempotent` is
            /// given. A request is not repeated once a part of the response was sent to the client.
            next_upstream: $crate::conf::NextUpstream = "error timeout", in HTTP | SERVER | LOCATION, args "error | timeout | invalid_header | http_500 | http_502 | http_503 | http_504 | http_403 | http_404 | http_429 | non_idempotent | off ...";
            /// A response field that is passed on although it is hidden by default.
            pass_header: Vec<$crate::conf::HeaderName>, in HTTP | SERVER | LOCATION, args "field";
            /// A response field that is not passed to clients, in addition to those hidden by
            /// default.
            hide_header: Vec<$crate::conf::HeaderName>, in HTTP | SERVER | LOCATION, args "field";
            /// Response fields that are passed on but have no effect.
            ignore_headers: $crate::conf::IgnoreHeaders = "" => $crate::conf::nothing_ignored, in HTTP | SERVER | LOCATION, args "field ...";
            /// Controls whether responses with a status that an `error_page` names are replaced by
            /// that page.
            intercept_errors: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
        }

        impl $conf {
            /// The engine's settings for a location. `hidden`: the response fields that are hidden by
            /// default.
            pub fn backend(
                cx: &mut nowait_conf::Cx<'_>,
                chain: &[&nowait_conf::Scope],
                hidden: &[&str],
            ) -> $crate::conf::Backend {
                use $crate::conf::{Backend, NameSet, early_hints};
                let own = std::sync::Arc::unwrap_or_clone(Self::resolve(cx, chain));
                let settings = $crate::upstream::Settings {
                    next_upstream: own.next_upstream.causes(),
                    ..own.settings()
                };
                Backend {
                    settings: std::sync::Arc::new(settings),
                    bind: own.bind.and_then(|bind| bind.0),
                    hide: NameSet::hidden(hidden, &own.hide_header, &own.pass_header),
                    ignore: own.ignore_headers,
                    intercept_errors: own.intercept_errors,
                    early_hints: early_hints(cx, chain),
                    ..Backend::new($module)
                }
            }
        }
    };
}

/// Generates the rows of modules that buffer requests and responses, in addition to those of
/// [`upstream_rows!`](crate::upstream_rows), and a function that completes their [`Backend`](super::Backend).
///
/// `backend_rows! { module "proxy", prefix "proxy_", temp "proxy_temp 1 2"; pub struct
/// ProxyBackendConf
/// with ProxyBackendLayer; }`
#[macro_export]
macro_rules! backend_rows {
    (
        module $module:literal, prefix $prefix:literal, temp $temp:literal;
        $(#[$meta:meta])*
        pub struct $conf:ident with $layer:ident;
    ) => {
        nowait_conf::directives! {
            $(#[$meta])*
            #[derive(Debug)]
            module $module, prefix $prefix;
            pub struct $conf with $layer;

            /// Controls whether a response is read as fast as the server sends it, into buffers and
            /// then into a temporary file, or only as fast as the client accepts it. The server can
            /// override this with `X-Accel-Buffering: yes` or `no`.
            buffering: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
            /// Controls whether the whole request body is read before a server is contacted.
            /// Otherwise it is forwarded as it arrives, and no other server can be tried once a
            /// part of it was sent. If an address, a field or parameter of the request, or the key
            /// of `hash` has `$request_body`, the body is read before in any case.
            request_buffering: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
            /// Number and size of the buffers for a response body; at least two.
            buffers: $crate::conf::BackendBuffers = "8 4k" => $crate::conf::eight_pages, in HTTP | SERVER | LOCATION, args "number size";
            /// The part of the buffers that may be in flight to a slow client while the rest is
            /// being filled or written to a temporary file. By default twice the larger of the two
            /// buffer sizes.
            busy_buffers_size: Option<nowait_conf::Size>, in HTTP | SERVER | LOCATION, args "size";
            /// Maximum size of the temporary file for a response that exceeds the buffers; by
            /// default `1024m`. Zero disables temporary files, and the response is then read only
            /// as fast as the client accepts it.
            max_temp_file_size: Option<nowait_conf::Size>, in HTTP | SERVER | LOCATION, args "size";
            /// Bytes written to a temporary file at once. By default twice the larger of the two buffer
            /// sizes.
            temp_file_write_size: Option<nowait_conf::Size>, in HTTP | SERVER | LOCATION, args "size";
            /// Directory for temporary files, with up to three levels of subdirectories.
            temp_path: nowait_http::conf::body::TempPath = $temp, in HTTP | SERVER | LOCATION, args "path [level1 [level2 [level3]]]";
            /// Controls whether a request is completed after its client has disconnected.
            ignore_client_abort: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
            /// Limits the rate at which a buffered response is read, in bytes per second; zero
            /// means no limit. Variables are allowed.
            limit_rate: Option<nowait_http::conf::SizeText>, in HTTP | SERVER | LOCATION, args "rate";
            /// Controls whether ranges are served from all responses, even if the server does not allow
            /// that.
            force_ranges: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
            /// Controls whether the header of the client's request is passed on.
            pass_request_headers: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
            /// Controls whether the body of the client's request is passed on.
            pass_request_body: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
            /// Saves responses with status 200 as files: with `on` at the path given by `root` or
            /// `alias`, otherwise at this path, in which variables are allowed. A file appears when
            /// it is complete, with the response's `Last-Modified` as its modification time.
            store: $crate::conf::StoreTarget = "off", in HTTP | SERVER | LOCATION, args "on | off | path";
            /// Permissions of the files and directories that `store` creates.
            store_access: $crate::conf::StoreAccess = "user:rw", in HTTP | SERVER | LOCATION, args "users:permissions ...";
        }

        impl $crate::conf::keeping::Stores for $layer {
            const MODULE: &'static str = $module;

            fn target(&self) -> Option<&$crate::conf::StoreTarget> {
                self.store.as_ref()
            }
        }

        impl $conf {
            /// Completes the settings of a location. `at`: the directive that passes requests on, for
            /// errors.
            pub fn complete(
                cx: &mut nowait_conf::Cx<'_>,
                chain: &[&nowait_conf::Scope],
                at: nowait_conf::Span,
                backend: $crate::conf::Backend,
            ) -> $crate::conf::Backend {
                use $crate::conf::{Backend, Sizes, Store, bytes32, note_temp_path};
                let own = std::sync::Arc::unwrap_or_clone(Self::resolve(cx, chain));
                let sizes = Sizes {
                    buffer: nowait_conf::Size(backend.settings.buffer_size.into()),
                    buffers: own.buffers.0,
                    busy: own.busy_buffers_size,
                    temp_file_max: own.max_temp_file_size,
                    temp_file_write: own.temp_file_write_size,
                };
                let fitting = sizes.check(cx, $module, at);
                note_temp_path(cx, &own.temp_path);
                let settings = $crate::upstream::Settings {
                    buffers: $crate::upstream::Buffers {
                        count: bytes32(own.buffers.0.count as u64),
                        size: bytes32(own.buffers.0.size.0),
                    },
                    busy_buffers_size: fitting.busy,
                    max_temp_file_size: fitting.temp_file_max,
                    temp_file_write_size: fitting.temp_file_write,
                    temp_path: own.temp_path,
                    buffering: own.buffering,
                    request_buffering: own.request_buffering,
                    ignore_client_abort: own.ignore_client_abort,
                    ..$crate::upstream::Settings::clone(&backend.settings)
                };
                Backend {
                    settings: std::sync::Arc::new(settings),
                    limit_rate: own.limit_rate,
                    force_ranges: own.force_ranges,
                    pass_request_headers: own.pass_request_headers,
                    pass_request_body: own.pass_request_body,
                    store: Store::new(own.store, own.store_access),
                    ..backend
                }
            }
        }
    };
}
