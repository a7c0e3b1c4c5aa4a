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
    /// Offers directories as archives: `?archive=tar` or `?archive=zip` responds with everything below the directory, and the
    /// page for browsers has links. Files are not compressed, so that the length is known, and read while they are sent.
    /// Symbolic links and names that begin with a dot are left out, also files that the server may not read. Locations and
    /// access rules for names *below* the directory do not apply. A tree of more than 100,000 entries gets 413.
    autoindex_archive: ArchiveFormats = "off", in HTTP | SERVER | LOCATION, args "off | tar | zip ...";
    /// Controls whether the page for browsers (`autoindex_format page`) ends with the README of the directory: `README.md`,
    /// `README.markdown`, `README.txt` or `README` in any case, up to 64 KB. Markdown is rendered; HTML in it is shown as
    /// text.
    autoindex_readme: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// The format of listings. `html` is nginx's page; `json`, `jsonp` and `xml` list names, types,
    /// times and sizes for programs. `jsonp` calls the function named by the request argument
    /// `callback`. What is no text in a name is a replacement character (U+FFFD) there: bytes that are not
    /// UTF-8, and control characters in XML. Such an entry also has `uri`, the percent-encoded name.
    ///
    /// `page` (Nowait's own) is a page for browsers, which are recognised by `text/html` in `Accept`;
    /// other clients, such as `curl` and `wget`, get `html`. The page can be sorted by
    /// `?sort=name`, `size` or `date` with `&order=asc` or `desc`, shows sizes both rounded and
    /// exact, and loads nothing from elsewhere.
    autoindex_format: ListingFormat = "html", in HTTP | SERVER | LOCATION, args "html | page | xml | json | jsonp";
}

nowait_conf::setting_flags! {
    /// `autoindex_archive`
    pub struct ArchiveFormats {
        /// None.
        OFF = "off",
        /// `tar`
        TAR = "tar",
        /// `zip`
        ZIP = "zip",
    }
}

nowait_conf::setting_enum! {
    /// `autoindex_format`
    pub enum ListingFormat {
        /// nginx's page.
        Html = "html",
        /// A page for browsers.
        Page = "page",
        /// JSON.
        Json = "json",
        /// JSON in a function call.
        Jsonp = "jsonp",
        /// XML.
        Xml = "xml",
    }
}
