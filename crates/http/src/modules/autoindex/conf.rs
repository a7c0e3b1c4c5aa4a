//! Settings of listings. nginx: `ngx_http_autoindex_module`.

nowait_conf::directives! {
    /// Listings of directories.
    #[derive(Debug)]
    module "autoindex";
    pub struct AutoindexConf with AutoindexConfLayer;

    /// Enables or disables listings of directories without an index file, which otherwise produce
    /// 403. Names that begin with a dot are omitted. A thread pool reads the directory.
    autoindex: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Controls whether HTML listings show exact sizes in bytes or rounded ones.
    autoindex_exact_size: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
    /// Controls whether HTML listings show local time or UTC.
    autoindex_localtime: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// The format of listings. `html` is for people; the others list names, types, times and sizes
    /// for programs. `jsonp` calls the function named by the request argument `callback`.
    autoindex_format: ListingFormat = "html", in HTTP | SERVER | LOCATION, args "html | xml | json | jsonp";
}

nowait_conf::setting_enum! {
    /// `autoindex_format`
    pub enum ListingFormat {
        /// A page.
        Html = "html",
        /// JSON.
        Json = "json",
        /// JSON in a function call.
        Jsonp = "jsonp",
        /// XML.
        Xml = "xml",
    }
}
