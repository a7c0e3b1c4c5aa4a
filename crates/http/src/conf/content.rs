//! Settings of index files, listings and content types.

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};

use crate::variables::complex::Complex;

nowait_conf::directives! {
    /// The index file of a directory.
    #[derive(Debug)]
    module "index";
    pub struct IndexConf with IndexConfLayer;

    /// Files to look for in a directory, in this order. A last entry that begins with a slash is
    /// used without a check.
    index: Index = "index.html", in HTTP | SERVER | LOCATION, args "file ...";
}

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

nowait_conf::directives! {
    /// A randomly chosen file of a directory.
    #[derive(Debug)]
    module "random_index";
    pub struct RandomIndexConf with RandomIndexConfLayer;

    /// Serves a random file of a directory. Takes precedence over `index`.
    random_index: bool = "off", in LOCATION, args "on | off";
}

nowait_conf::directives! {
    /// Content types.
    #[derive(Debug)]
    module "core";
    pub struct MimeConf with MimeConfLayer;

    /// Content type of files whose extension is not in `types`.
    default_type: ContentType = "text/plain", in HTTP | SERVER | LOCATION, args "mime-type";
    /// Accepted for compatibility: the table needs no tuning.
    types_hash_max_size: u32 = "1024", in HTTP | SERVER | LOCATION, args "size";
    /// Accepted for compatibility: the table needs no tuning.
    types_hash_bucket_size: u32 = "64", in HTTP | SERVER | LOCATION, args "size";
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

/// `index`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index(pub Vec<Complex>);

impl Setting for Index {
    const ARITY: arity::Arity = arity::at_least(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let last = node.args.len().saturating_sub(1);
        let mut files = Vec::with_capacity(node.args.len());
        for (n, word) in node.args.iter().enumerate() {
            if word.text.is_empty() {
                return Err(word.error("index \"\" in \"index\" directive is invalid"));
            }
            if word.text.first() == Some(&b'/') && n != last {
                cx.report(
                    Diagnostic::warn(
                        "only the last index in \"index\" directive should be absolute",
                    )
                    .at(word.span),
                );
            }
            files.push(super::complex(word, cx)?);
        }
        Ok(Self(files))
    }

    /// Several `index` directives of one block add up.
    fn again(&mut self, node: &Node, cx: &mut Cx<'_>) -> Result<(), Diagnostic> {
        self.0.extend(Self::parse(node, cx)?.0);
        Ok(())
    }
}

/// A content type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentType(pub Bytes);

impl Setting for ContentType {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        Ok(Self(nowait_variables::interned(&word.text)))
    }
}
