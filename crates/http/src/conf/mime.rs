//! Settings of content types: `types` is read with the blocks.

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};

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
