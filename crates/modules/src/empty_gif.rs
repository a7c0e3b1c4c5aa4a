//! `empty_gif`: a transparent image of one pixel. nginx: `ngx_http_empty_gif_module`.

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node};
use nowait_http::module::{Handler, HandlerExplanation, Module, Step, set_content};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Body, Head, LocalFuture, Response};
use nowait_http::trace::Trace;
use nowait_message::Method;

/// This module.
pub static MODULE: Module = Module { rows: &[EMPTY_GIF_ROWS], ..Module::EMPTY };

nowait_conf::rows! {
    static EMPTY_GIF_ROWS, module "empty_gif";

    /// Responds with a transparent image of one pixel.
    "empty_gif" => empty_gif, in LOCATION, take none(), inheritance Own, args "";
}

fn empty_gif(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    set_content(cx, node, |_, _, _| EmptyGif);
    Ok(())
}

/// A GIF89a of 1 by 1 pixel in 43 bytes: two-colour palette, colour 1 transparent. The same bytes
/// as nginx's, so that caches and monitors that compare them agree.
const GIF: &[u8] = &[
    b'G', b'I', b'F', b'8', b'9', b'a', 1, 0, 1, 0, // size
    0x80, 1, 0, // two colours, background 1, square pixels
    0, 0, 0, 0xff, 0xff, 0xff, // black and white
    0x21, 0xf9, 4, 1, 0, 0, 1, 0, // colour 1 is transparent
    0x2c, 0, 0, 0, 0, 1, 0, 1, 0, 0, // the image fills the screen
    2, 2, 0x4c, 1, 0, // clear, colour 1, end
    0x3b,
];

/// The image's modification time: nginx's date, so that caches agree.
const LAST_MODIFIED: i64 = 23_349_600;

/// Responds with the image.
struct EmptyGif;

impl Handler for EmptyGif {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if !matches!(request.method(), Method::Get | Method::Head) {
            return Step::Done(request, Outcome::status(405));
        }
        let mut head = Head::new(200);
        head.content_type = Some(Bytes::from_static(b"image/gif"));
        head.content_length = Some(GIF.len() as u64);
        head.last_modified = Some(LAST_MODIFIED);
        Step::Done(request, Response { head, body: Body::from_static(GIF) }.into())
    }

    fn explain<'a>(
        &'a self,
        _: &'a mut Request,
        _: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        HandlerExplanation::run()
    }
}
