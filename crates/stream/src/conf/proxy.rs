//! `proxy_pass` and the directives beside it. nginx: `ngx_stream_proxy_module`.

use nowait_conf::{Cx, Diagnostic, Field, Msec, Node, Size};
use nowait_front::bind::BindOrOff;
use nowait_front::upstreams::{GroupId, Groups};

use super::blocks::ContentLayer;
use super::{Complex, Content};
use crate::proxy::server_name::ServerText;
use crate::session::Session;

nowait_conf::rows! {
    pub static PASS_ROWS, module "stream_proxy";

    /// Passes sessions to a server: an address with a port, a name with a port, a Unix-domain socket
    /// (`unix:/run/db.sock`) or an `upstream`. With variables, the server is looked for among
    /// `upstream`s, then resolved.
    ///
    /// nginx differs: names are resolved when the server runs, not when the configuration is read.
    "proxy_pass" => proxy_pass, in STREAM_SERVER, take exactly(1), args "address";
}

nowait_conf::directives! {
    /// How sessions are passed on.
    #[derive(Debug)]
    module "stream_proxy", prefix "proxy_";
    pub struct ProxyConf with ProxyLayer;

    /// Local address of connections to servers. With `transparent` it may be one that is not the
    /// machine's own, such as `$remote_addr`. Variables are allowed; an empty value is as `off`.
    bind: Option<BindOrOff<Session>>, in STREAM | STREAM_SERVER, args "address [transparent] | off";
    /// Whether the kernel tests if idle connections to servers are alive (`SO_KEEPALIVE`).
    socket_keepalive: bool = "off", in STREAM | STREAM_SERVER, args "on | off";
    /// Receive buffer of connections to servers (`SO_RCVBUF`); zero is the kernel's choice.
    socket_rcvbuf: Size = "0", in STREAM | STREAM_SERVER, args "size";
    /// Send buffer of connections to servers (`SO_SNDBUF`); zero is the kernel's choice.
    socket_sndbuf: Size = "0", in STREAM | STREAM_SERVER, args "size";
    /// How long it may take to connect to a server.
    connect_timeout: Msec = "60s", in STREAM | STREAM_SERVER, args "time";
    /// A session ends when nothing was read or written on either side for so long.
    timeout: Msec = "10m", in STREAM | STREAM_SERVER, args "time";
    /// How much is read at once from a client or a server. A session that passes nothing on holds no
    /// buffer; one whose receiver is slow holds one per direction.
    ///
    /// nginx differs: less than 16k counts as 16k; and without the directive, or from 128k on, what comes
    /// in bulk goes through a pipe in the kernel and is never read into the server.
    buffer_size: Option<Size>, in STREAM | STREAM_SERVER, args "size";
    /// Bytes per second that are read from a client; zero: no limit. Variables are allowed.
    upload_rate: Option<Complex>, in STREAM | STREAM_SERVER, args "rate";
    /// Bytes per second that are read from a server; zero: no limit. Variables are allowed.
    download_rate: Option<Complex>, in STREAM | STREAM_SERVER, args "rate";
    /// UDP: a session of a client ends when so many datagrams of it were passed on, and their
    /// responses came; the next one begins another session. Zero: a session goes on until it is idle.
    requests: u32 = "0", in STREAM | STREAM_SERVER, args "number";
    /// UDP: so many datagrams are expected from the server for each of the client's. A session
    /// ends when they came; a server that sends fewer within `proxy_timeout` has failed. By default
    /// any number is.
    responses: Option<u32>, in STREAM | STREAM_SERVER, args "number";
    /// Whether another server is tried when a connection can't be made.
    next_upstream: bool = "on", in STREAM | STREAM_SERVER, args "on | off";
    /// How many servers may be tried for one session; zero: all of them.
    next_upstream_tries: u32 = "0", in STREAM | STREAM_SERVER, args "number";
    /// For how long servers may be tried for one session; zero: without limit.
    next_upstream_timeout: Msec = "0", in STREAM | STREAM_SERVER, args "time";
    /// Whether connections to servers begin with the PROXY protocol: version 1 (`on`) or 2 (`v2`,
    /// with a checksum).
    protocol: ProxyVersion = "off", in STREAM | STREAM_SERVER, args "on | v2 | off";
    /// Whether the end of one side's sending is passed on, while the other side may go on sending. If
    /// not, the end of one side ends the session.
    half_close: bool = "off", in STREAM | STREAM_SERVER, args "on | off";
    /// Whether a session ends at once when its server is not one of its group any more: the name of a
    /// `server` with `resolve` has other addresses now.
    session_drop: bool = "off", in STREAM | STREAM_SERVER, args "on | off";
}

nowait_conf::rows! {
    pub static DEPRECATED_ROWS, module "stream_proxy";

    /// The old name of `proxy_buffer_size`.
    "proxy_downstream_buffer" => old_buffer, in STREAM | STREAM_SERVER, take exactly(1), args "size";
    /// The old name of `proxy_buffer_size`.
    "proxy_upstream_buffer" => old_buffer, in STREAM | STREAM_SERVER, take exactly(1), args "size";
}

nowait_conf::setting_enum! {
    /// Version of the PROXY protocol that servers get.
    pub enum ProxyVersion {
        /// None.
        Off = "off",
        /// Version 1.
        One = "on",
        /// Version 2.
        Two = "v2",
    }
}

/// Where sessions go.
#[derive(Clone, Debug)]
pub enum Pass {
    /// To one server or group.
    Static(GroupId),
    /// Each session tells.
    Variable(Complex),
}

/// nginx: `ngx_stream_proxy_pass`.
fn proxy_pass(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    cx.once(node)?;
    let text = nowait_variables::text::<Session>(word, cx)?;
    let pass = match text.literal() {
        None => Pass::Variable(text),
        Some(server) => {
            let parsed = ServerText::parse(server)
                .map_err(|problem| word.error(format!("{problem} in upstream \"{word}\"")))?;
            let group = cx.global::<Groups<Session>>().implicit(parsed.server(word.span));
            Pass::Static(group.map_err(|text| word.error(text))?)
        }
    };
    cx.layer::<ContentLayer>().0 = Some(Content::Proxy(pass));
    Ok(())
}

fn old_buffer(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let warning = format!(
        "the \"{}\" directive is deprecated, use the \"proxy_buffer_size\" directive instead",
        node.name
    );
    cx.report(Diagnostic::warn(warning).at(node.name.span));
    <Option<Size> as Field>::apply::<ProxyLayer>(cx, node, |layer| &mut layer.buffer_size)
}
