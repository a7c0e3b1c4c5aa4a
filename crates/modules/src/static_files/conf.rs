//! Settings of precompressed files. nginx: `ngx_http_gzip_static_module`; those of Brotli and Zstandard
//! are named as in ngx_brotli and zstd-nginx-module.

nowait_conf::directives! {
    /// Precompressed files.
    #[derive(Debug)]
    module "gzip_static";
    pub struct GzipStaticConf with GzipStaticConfLayer;

    /// Sends the file with the same name and the extension `.gz` instead, to clients that accept
    /// gzip (by the rules of `gzip`) or to all. Such files should have the same modification time
    /// as the originals.
    gzip_static: PrecompressedMode = "off", in HTTP | SERVER | LOCATION, args "on | off | always";
}

nowait_conf::directives! {
    /// Files precompressed by Brotli.
    #[derive(Debug)]
    module "brotli_static";
    pub struct BrotliStaticConf with BrotliStaticConfLayer;

    /// Sends the file with the same name and the extension `.br` instead, to clients that accept it
    /// or to all. Such files should have the same modification time as the originals.
    brotli_static: PrecompressedMode = "off", in HTTP | SERVER | LOCATION, args "on | off | always";
}

nowait_conf::directives! {
    /// Files precompressed by Zstandard.
    #[derive(Debug)]
    module "zstd_static";
    pub struct ZstdStaticConf with ZstdStaticConfLayer;

    /// Sends the file with the same name and the extension `.zst` instead, to clients that accept
    /// it or to all. Such files should have the same modification time as the originals.
    zstd_static: PrecompressedMode = "off", in HTTP | SERVER | LOCATION, args "on | off | always";
}

nowait_conf::setting_enum! {
    /// `gzip_static` and its like
    pub enum PrecompressedMode {
        /// `off`
        Off = "off",
        /// For clients that accept it.
        On = "on",
        /// For all clients.
        Always = "always",
    }
}
