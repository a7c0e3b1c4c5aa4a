//! Settings of slices. nginx: `ngx_http_slice_filter_module`.

use nowait_conf::Size;

nowait_conf::directives! {
    /// Fetching large responses in parts.
    #[derive(Debug)]
    module "slice";
    pub struct SliceConf with SliceConfLayer;

    /// Size of the parts in which responses are fetched, so that a cache need not have all of a large
    /// one to serve a range of it; zero: they are fetched as a whole. To be used together with
    /// `proxy_set_header Range $slice_range;`, with `$slice_range` in the key of the cache, and with
    /// `proxy_cache_valid 206 1h;`.
    slice: Size = "0", in HTTP | SERVER | LOCATION, args "size";
}
