//! Settings of slices. nginx: `ngx_http_slice_filter_module`.

use nowait_conf::Size;

nowait_conf::directives! {
    /// Fetching large responses in parts.
    #[derive(Debug)]
    module "slice";
    pub struct SliceConf with SliceConfLayer;

    /// Size of the parts in which responses are fetched, so that a cache can serve a range of a
    /// large response without having all of it. Zero fetches responses as a whole. Use it together
    /// with `proxy_set_header Range $slice_range;`, `$slice_range` in the cache key, and
    /// `proxy_cache_valid 206 1h;`.
    slice: Size = "0", in HTTP | SERVER | LOCATION, args "size";
}
