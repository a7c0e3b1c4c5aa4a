//! `ssl_preread`. nginx: `ngx_stream_ssl_preread_module`.

nowait_conf::directives! {
    /// Whether TLS clients are listened to.
    #[derive(Debug)]
    module "stream_ssl_preread";
    pub struct SslPrereadConf with SslPrereadLayer;

    /// Whether the first message of a TLS client is read before it is decided what becomes of the
    /// session, without taking part in the TLS connection: for the `$ssl_preread_` variables, and to
    /// choose among the servers of an address by `server_name`. Clients that speak something else are
    /// served, too; those that say nothing wait until `preread_timeout`.
    ssl_preread: bool = "off", in STREAM | STREAM_SERVER, args "on | off";
}
