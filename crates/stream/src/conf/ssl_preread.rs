//! `ssl_preread`. nginx: `ngx_stream_ssl_preread_module`.

nowait_conf::directives! {
    /// Whether the ClientHello is read.
    #[derive(Debug)]
    module "stream_ssl_preread";
    pub struct SslPrereadConf with SslPrereadLayer;

    /// Reads the first message of a TLS client before the session is routed, without taking part in
    /// the TLS connection: for the `$ssl_preread_` variables, and for the choice among the servers
    /// of an address by `server_name`. Clients of other protocols are served too; silent clients
    /// wait until `preread_timeout`.
    ssl_preread: bool = "off", in STREAM | STREAM_SERVER, args "on | off";
}
