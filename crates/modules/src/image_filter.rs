//! `image_filter`: images are checked, described, or made smaller. nginx: `ngx_http_image_filter_module`.
//!
//! The filter reads the whole response before later filters receive its head, because the content may turn
//! out not to be an image. Decoding and encoding (`nowait-images`) run in the pool `compute`.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Scope, Setting, Size as Bytes64, Word, arity};
use nowait_http::body::{Piece, Sequence, collect};
use nowait_http::log::Level;
use nowait_http::module::{Filter, FilterStage, LocationBuilder, Module};
use nowait_http::outcome::StatusResponse;
use nowait_http::request::Request;
use nowait_http::response::{AcceptRanges, Body, BodyError, Head, LocalFuture, Part, Response};
use nowait_http::slots::Key;
use nowait_http::variables::complex::Complex;
use nowait_images::{Angle, Facts, Format, Plan, START_BYTES, Shape, Size, facts, transform};
use nowait_message::etag;
use nowait_runtime::pool::{Class, Op};

/// This module.
pub static MODULE: Module =
    Module { rows: &[IMAGE_ROWS, ImageFilterConf::ROWS], build: Some(build), ..Module::EMPTY };

nowait_conf::rows! {
    static IMAGE_ROWS, module "image_filter";

    /// Checks or transforms JPEG, GIF, PNG and WebP images. `test` passes images on and refuses other
    /// responses with 415. `size` describes the image as JSON, `{}` if it is none. `resize` makes it
    /// smaller until it fits, `crop` until one side fits, and cuts the other. A dash does not limit a
    /// side; small images are never enlarged. `rotate`, also beside `resize` or `crop`, turns the image
    /// counter-clockwise. Values may have variables. Images that can't be decoded, with more than 40
    /// million pixels, or larger than `image_filter_buffer` are refused with 415. Transformed images have a weak
    /// entity tag, no metadata, and only the first picture of an animation. They are made by the thread
    /// pool `compute`; use a cache in front.
    "image_filter" => image_filter, in LOCATION, take between(1, 3), inheritance List,
        args "off | test | size | rotate degrees | resize width height | crop width height";
}

nowait_conf::directives! {
    /// How images are transformed.
    #[derive(Debug)]
    module "image_filter";
    pub struct ImageFilterConf with ImageFilterConfLayer;

    /// Maximum size of an image. Larger responses are refused with 415.
    image_filter_buffer: Bytes64 = "1m", in HTTP | SERVER | LOCATION, args "size";
    /// Makes images that can be shown before they are complete: progressive JPEG images and interlaced
    /// GIF images. It has no effect on the others.
    image_filter_interlace: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Quality of transformed JPEG images, from 1 to 100. It may have variables.
    image_filter_jpeg_quality: Quality = "75", in HTTP | SERVER | LOCATION, args "quality";
    /// Makes transformed images sharper, by this many percent. It may have variables.
    image_filter_sharpen: Percent = "0", in HTTP | SERVER | LOCATION, args "percent";
    /// Keeps transparency in GIF images and in PNG images with a palette. Transparency of other images is
    /// always kept.
    image_filter_transparency: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
    /// Accepted for compatibility: transformed WebP images have no losses, and are larger than those of
    /// nginx.
    image_filter_webp_quality: Quality = "80", in HTTP | SERVER | LOCATION, args "quality";
}

/// A number, or a text with variables that evaluates to a number.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Number {
    Fixed(u32),
    Text(Complex),
}

impl Number {
    /// Reads a number that `valid` accepts, or a text with variables.
    fn parse(
        word: &Word,
        cx: &mut Cx<'_>,
        valid: impl Fn(u32) -> bool,
        wrong: &str,
    ) -> Result<Self, Diagnostic> {
        let text = nowait_http::conf::complex(word, cx)?;
        let Some(literal) = text.literal() else { return Ok(Self::Text(text)) };
        let number = number(literal);
        if !valid(number) {
            return Err(word.error(format!("invalid {wrong} \"{word}\"")));
        }
        Ok(Self::Fixed(number))
    }

    fn value(&self, request: &Request) -> u32 {
        match self {
            Self::Fixed(number) => *number,
            Self::Text(text) => number(&request.evaluate(text)),
        }
    }
}

/// A positive number; a dash is no limit; anything else is 0. nginx: `ngx_http_image_filter_value`.
fn number(text: &[u8]) -> u32 {
    match text {
        b"-" => u32::MAX,
        text => nowait_conf::number(text).map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX)),
    }
}

/// The quality of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quality(Number);

impl Setting for Quality {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        Number::parse(word, cx, |number| number > 0, "value").map(Self)
    }
}

/// A percentage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Percent(Number);

impl Setting for Percent {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        Number::parse(word, cx, |_| true, "value").map(Self)
    }
}

/// The operation on images.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Off,
    Test,
    Describe,
    Rotate,
    Resize,
    Crop,
}

/// `image_filter` of one block; inherited as a whole.
#[derive(Default, Clone)]
struct ImageLayer {
    stated: bool,
    kind: Kind,
    sides: Option<(Number, Number)>,
    angle: Option<Number>,
}

fn image_filter(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let invalid = |word: &Word| word.error(format!("invalid parameter \"{word}\""));
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    let (kind, sides, angle) = match (&word.text[..], &node.args[1..]) {
        (b"off", []) => (Kind::Off, None, None),
        (b"test", []) => (Kind::Test, None, None),
        (b"size", []) => (Kind::Describe, None, None),
        (b"rotate", [degrees]) => {
            let valid = |number| Angle::of(number).is_some();
            (Kind::Rotate, None, Some(Number::parse(degrees, cx, valid, "parameter")?))
        }
        (b"resize" | b"crop", [width, height]) => {
            let mut side = |word| Number::parse(word, cx, |number| number > 0, "parameter");
            let kind = if word.text[..] == *b"crop" { Kind::Crop } else { Kind::Resize };
            (kind, Some((side(width)?, side(height)?)), None)
        }
        _ => return Err(invalid(word)),
    };
    let layer = cx.layer::<ImageLayer>();
    layer.stated = true;
    if angle.is_none() || !matches!(layer.kind, Kind::Resize | Kind::Crop) {
        layer.kind = kind;
    }
    layer.sides = sides.or(layer.sides.take());
    layer.angle = angle.or(layer.angle.take());
    Ok(())
}

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let stated = |scope: &&&Scope| scope.get::<ImageLayer>().is_some_and(|layer| layer.stated);
    let Some(layer) = chain.iter().rev().find(stated).and_then(|scope| scope.get::<ImageLayer>())
    else {
        return;
    };
    if layer.kind != Kind::Off {
        let conf = ImageFilterConf::resolve(cx, chain);
        parts.filter(FilterStage::Replacement, Images { layer: layer.clone(), conf });
    }
}

/// The response has been replaced; its error page is left alone.
static DONE: Key<bool> = Key::new();

/// Checks or transforms images.
struct Images {
    layer: ImageLayer,
    conf: Arc<ImageFilterConf>,
}

impl Filter for Images {
    fn apply(&self, _: &mut Request, _: &mut Response) -> Result<(), Box<StatusResponse>> {
        Ok(())
    }

    fn replaces(&self, request: &mut Request, response: &Response) -> bool {
        // A response of this location that replaces a refused one.
        let done = request.round_mut().of_mut(&DONE);
        !std::mem::replace(done, true) && response.head.status != 304
    }

    fn replace<'a>(
        &'a self,
        request: &'a mut Request,
        response: Response,
    ) -> LocalFuture<'a, Result<Response, Box<StatusResponse>>> {
        Box::pin(async move {
            self.made(request, response).await.map_err(|refusal| {
                if let Some(why) = &refusal.why {
                    request.log(Level::Error, format_args!("image filter: {why}"));
                }
                Box::new(StatusResponse { status: refusal.status, ..StatusResponse::default() })
            })
        })
    }
}

/// The reason for a response other than an image.
struct Refusal {
    status: u16,
    why: Option<String>,
}

impl Refusal {
    /// The content is not a usable image.
    fn media(why: impl ToString) -> Self {
        Self { status: 415, why: Some(why.to_string()) }
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        let status = if matches!(error, BodyError::Upstream(_)) { 502 } else { 500 };
        Self { status, why: Some(error.to_string()) }
    }
}

impl Images {
    async fn made(&self, request: &Request, response: Response) -> Result<Response, Refusal> {
        let Response { mut head, body } = response;
        let is_stream = |of: &[u8]| {
            let kind = b"multipart/x-mixed-replace";
            of.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind))
        };
        if head.content_type.as_deref().is_some_and(is_stream) {
            let why = Some("multipart/x-mixed-replace response".to_owned());
            return Err(Refusal { status: 500, why });
        }
        let max = self.conf.image_filter_buffer.bytes();
        if let Some(len) = head.content_length.filter(|&len| len > max as u64) {
            return Err(Refusal::media(format_args!("too big response: {len}")));
        }
        head.remove(|header| header.name.eq_ignore_ascii_case(b"refresh"));
        head.accept_ranges = AcceptRanges::No;
        let body = body.safe(request);
        if self.layer.kind == Kind::Test {
            let (start, body) = begin(body).await?;
            let format = Format::of(&start).ok_or(Refusal { status: 415, why: None })?;
            set_type(&mut head, format.content_type());
            return Ok(Response { head, body });
        }
        let image = collect(body, max).await?;
        let image = image.ok_or_else(|| Refusal::media("too big response"))?;
        let format = Format::of(&image[..image.len().min(START_BYTES)]);
        if self.layer.kind == Kind::Describe {
            return Ok(description(format.and_then(|of| Some((of, facts(of, &image)?)))));
        }
        let format = format.ok_or(Refusal { status: 415, why: None })?;
        let plan = self.plan(request, format).ok_or(Refusal { status: 415, why: None })?;
        set_type(&mut head, format.content_type());
        let pool = request.current().compute_pool();
        let source = image.clone();
        let work = move || transform(format, &source, &plan);
        let made = pool.run(Class::Bulk, request.client().number, Op::Blocking, work).await;
        let made = made.map_err(|error| Refusal { status: 500, why: Some(error.to_string()) })?;
        let body = match made.map_err(Refusal::media)? {
            None => image,
            Some(made) => {
                head.etag = head.etag.as_ref().and_then(etag::weaken);
                Bytes::from(made)
            }
        };
        head.content_length = Some(body.len() as u64);
        Ok(Response { head, body: Body::Bytes(body) })
    }

    /// The transformation for a request; `None`: its variables have no valid values.
    fn plan(&self, request: &Request, format: Format) -> Option<Plan> {
        let angle = self.layer.angle.as_ref().map(|angle| angle.value(request));
        let mut plan = Plan {
            shape: Shape::Whole,
            // Without a valid angle an image that is made smaller is not turned.
            angle: angle.and_then(Angle::of),
            jpeg_quality: 0,
            sharpen: self.conf.image_filter_sharpen.0.value(request),
            transparency: self.conf.image_filter_transparency,
            interlace: self.conf.image_filter_interlace,
        };
        if self.layer.kind == Kind::Rotate {
            plan.angle?;
        } else if let Some((width, height)) = &self.layer.sides {
            let size = Size { width: width.value(request), height: height.value(request) };
            if size.width == 0 || size.height == 0 {
                return None;
            }
            plan.shape =
                if self.layer.kind == Kind::Crop { Shape::Fill(size) } else { Shape::Fit(size) };
        }
        let quality = match format {
            Format::Webp => &self.conf.image_filter_webp_quality,
            _ => &self.conf.image_filter_jpeg_quality,
        };
        let quality = match format {
            Format::Jpeg | Format::Webp => quality.0.value(request),
            Format::Gif | Format::Png => 100,
        };
        plan.jpeg_quality = u8::try_from(quality.min(100)).ok().filter(|&quality| quality > 0)?;
        Some(plan)
    }
}

/// The type of the image replaces the type set before.
fn set_type(head: &mut Head, content_type: &'static str) {
    head.content_type = Some(Bytes::from_static(content_type.as_bytes()));
    head.content_type_text = None;
    head.charset = None;
}

/// The response with the description of an image.
fn description(image: Option<(Format, Facts)>) -> Response {
    let text = match image {
        None => "{}\r\n".to_owned(),
        Some((format, Facts { size: Size { width, height }, .. })) => format!(
            "{{ \"img\" : {{ \"width\": {width}, \"height\": {height}, \"type\": \"{}\" }} }}\r\n",
            format.name()
        ),
    };
    let mut head = Head::new(200);
    head.content_length = Some(text.len() as u64);
    set_type(&mut head, "application/json");
    Response { head, body: Body::Bytes(text.into()) }
}

/// The first bytes of a body, and the body.
async fn begin(mut body: Body) -> Result<(Vec<u8>, Body), BodyError> {
    let mut start = Vec::new();
    let mut taken = VecDeque::new();
    while start.len() < START_BYTES {
        let Some(part) = body.next().await? else { break };
        match &part {
            Part::Bytes(bytes) => start.extend(bytes.iter().take(START_BYTES)),
            Part::File(file) => {
                let len = usize::try_from(file.len).unwrap_or(usize::MAX).min(START_BYTES);
                start.extend(file.read(&file.io, len).await.map_err(BodyError::File)?);
            }
        }
        taken.push_back(part);
    }
    start.truncate(START_BYTES);
    let body = match body {
        Body::Empty if taken.len() == 1 => match taken.pop_front() {
            Some(Part::File(file)) => Body::File(file),
            Some(Part::Bytes(bytes)) => Body::Bytes(bytes),
            None => Body::Empty,
        },
        Body::Empty => Body::Parts(taken),
        Body::Parts(rest) => {
            taken.extend(rest);
            Body::Parts(taken)
        }
        rest => Sequence::new([Piece::Body(Body::Parts(taken)), Piece::Body(rest)]).into_body(),
    };
    Ok((start, body))
}
