//! `empty_gif`: a transparent image of one pixel. nginx: `ngx_http_empty_gif_module`.

use bytes::Bytes;
use nowait_message::Method;

use crate::outcome::Outcome;
use crate::request::Request;
use crate::response::{Body, Head, Response};

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
pub fn run(request: &mut Request) -> Outcome {
    if !matches!(request.method, Method::Get | Method::Head) {
        return Outcome::status(405);
    }
    let mut head = Head::new(200);
    head.content_type = Some(Bytes::from_static(b"image/gif"));
    head.content_length = Some(GIF.len() as u64);
    head.last_modified = Some(LAST_MODIFIED);
    Response { head, body: Body::from_static(GIF) }.into()
}
