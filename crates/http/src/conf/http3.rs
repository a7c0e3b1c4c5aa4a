//! The directives of HTTP/3. They apply to addresses with `listen … quic`, which there are none of: in nginx,
//! too, they have no effect without. nginx: `ngx_http_v3_module`.

use nowait_conf::{Cx, Diagnostic, Node, Size};

nowait_conf::rows! {
    pub static HTTP3_ROWS, module "v3";

    /// Accepted for compatibility: only addresses with `quic` could have HTTP/3.
    "http3" => flag, in HTTP | SERVER, take exactly(1), default "on", args "on | off";
    /// Accepted for compatibility: only addresses with `quic` could have HTTP/3.
    "http3_hq" => flag, in HTTP | SERVER, take exactly(1), default "off", args "on | off";
    /// Accepted for compatibility: only addresses with `quic` could have HTTP/3.
    "http3_max_concurrent_streams" => number, in HTTP | SERVER, take exactly(1), default "128", args "number";
    /// Accepted for compatibility: only addresses with `quic` could have HTTP/3.
    "http3_stream_buffer_size" => size, in HTTP | SERVER, take exactly(1), default "64k", args "size";
    /// Accepted for compatibility: only addresses with `quic` could have HTTP/3.
    "quic_retry" => flag, in HTTP | SERVER, take exactly(1), default "off", args "on | off";
    /// Accepted for compatibility: only addresses with `quic` could have HTTP/3.
    "quic_gso" => flag, in HTTP | SERVER, take exactly(1), default "off", args "on | off";
    /// Accepted for compatibility: only addresses with `quic` could have HTTP/3. The file is not read.
    "quic_host_key" => file, in HTTP | SERVER, take exactly(1), args "file";
    /// Accepted for compatibility: only addresses with `quic` could have HTTP/3.
    "quic_active_connection_id_limit" => number, in HTTP | SERVER, take exactly(1), default "2", args "number";
}

fn flag(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    super::value::<bool>(node, 0).map(drop)
}

fn number(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    super::value::<u32>(node, 0).map(drop)
}

fn size(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    super::value::<Size>(node, 0).map(drop)
}

fn file(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)
}
