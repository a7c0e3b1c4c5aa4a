//! Images of all formats, made here, and what becomes of them.

use super::*;
use crate::picture::Picture;

const FORMATS: [Format; 4] = [Format::Jpeg, Format::Gif, Format::Png, Format::Webp];

const PLAN: Plan = Plan {
    shape: Shape::Whole,
    angle: None,
    jpeg_quality: 90,
    sharpen: 0,
    transparency: true,
    interlace: false,
};

fn size(width: u32, height: u32) -> Size {
    Size { width, height }
}

/// An image: red, green, blue and white quarters.
fn image(format: Format, size: Size) -> Vec<u8> {
    let colour = |x: u32, y: u32| match (x < size.width / 2, y < size.height / 2) {
        (true, true) => [255, 0, 0, 255],
        (false, true) => [0, 255, 0, 255],
        (true, false) => [0, 0, 255, 255],
        (false, false) => [255, 255, 255, 255],
    };
    let pixels = (0..size.height).flat_map(|y| (0..size.width).map(move |x| colour(x, y)));
    let picture = Picture::new(size, pixels.collect()).unwrap();
    encode::encode(format, picture, &PLAN, false).unwrap()
}

fn decoded(format: Format, image: &[u8]) -> Picture {
    decode::decode(format, image).unwrap().picture
}

/// The names of the colours in the middle of the quarters of a picture.
fn quarters(picture: &Picture) -> String {
    let Size { width, height } = picture.size();
    let at = |x: u32, y: u32| picture.pixels()[(y * width + x) as usize];
    let places = [(1, 1), (3, 1), (1, 3), (3, 3)];
    let name = |(x, y)| match at(width * x / 4, height * y / 4).map(|value| value > 128) {
        [true, false, false, true] => 'r',
        [false, true, false, true] => 'g',
        [false, false, true, true] => 'b',
        [true, true, true, true] => 'w',
        _ => '?',
    };
    places.into_iter().map(name).collect()
}

#[test]
fn formats_and_sizes_are_recognised() {
    for format in FORMATS {
        let image = image(format, size(60, 40));
        assert_eq!(Format::of(&image), Some(format));
        assert_eq!(Format::of(&image[..15]), None);
        let expected = Facts { size: size(60, 40), is_heavy: false };
        assert_eq!(facts(format, &image), Some(expected), "{format:?}");
        for end in 0..image.len() {
            let _ = facts(format, &image[..end]);
        }
        assert_eq!(facts(format, &image[..9]), None);
    }
    assert_eq!(Format::of(b"<svg xmlns='http://www.w3.org/2000/svg'>"), None);
}

#[test]
fn images_fit_or_fill() {
    for format in FORMATS {
        let image = image(format, size(80, 40));
        for (shape, expected, names) in [
            (Shape::Fit(size(20, 20)), size(20, 10), "rgbw"),
            (Shape::Fit(size(u32::MAX, 20)), size(40, 20), "rgbw"),
            (Shape::Fit(size(20, u32::MAX)), size(20, 10), "rgbw"),
            (Shape::Fit(size(7, 100)), size(7, 3), ""),
            (Shape::Fill(size(20, 20)), size(20, 20), "rgbw"),
            (Shape::Fill(size(100, 10)), size(80, 10), "rgbw"),
            (Shape::Fill(size(60, 60)), size(60, 40), "rgbw"),
            (Shape::Fit(size(1, 1)), size(1, 1), ""),
        ] {
            let made = transform(format, &image, &Plan { shape, ..PLAN }).unwrap().unwrap();
            let made = decoded(format, &made);
            assert_eq!(made.size(), expected, "{format:?} {shape:?}");
            if !names.is_empty() {
                assert_eq!(quarters(&made), names, "{format:?} {shape:?}");
            }
        }
        for shape in [Shape::Fit(size(80, 40)), Shape::Fill(size(u32::MAX, u32::MAX))] {
            assert_eq!(transform(format, &image, &Plan { shape, ..PLAN }), Ok(None));
        }
    }
}

#[test]
fn images_are_turned_counter_clockwise() {
    for format in FORMATS {
        let image = image(format, size(80, 40));
        for (degrees, expected, names) in
            [(90, size(40, 80), "gwrb"), (180, size(80, 40), "wbgr"), (270, size(40, 80), "brwg")]
        {
            let plan = Plan { angle: Angle::of(degrees), ..PLAN };
            let made = transform(format, &image, &plan).unwrap().unwrap();
            let made = decoded(format, &made);
            assert_eq!((made.size(), quarters(&made).as_str()), (expected, names), "{format:?}");
        }
        // It fits before it is turned, and is cut afterwards.
        let shape = Shape::Fill(size(20, 20));
        let plan = Plan { shape, angle: Some(Angle::Quarter), ..PLAN };
        let made = transform(format, &image, &plan).unwrap().unwrap();
        assert_eq!(decoded(format, &made).size(), size(20, 20));
    }
    assert_eq!(Angle::of(45), None);
}

#[test]
fn transparency_of_palettes_can_be_dropped() {
    let pixels = (0..100).map(|n| if n % 10 < 5 { [9, 9, 9, 0] } else { [200, 0, 0, 255] });
    let picture = Picture::new(size(10, 10), pixels.collect()).unwrap();
    for (format, has_palette) in
        [(Format::Gif, true), (Format::Png, true), (Format::Png, false), (Format::Webp, false)]
    {
        let image = encode::encode(format, picture.clone(), &PLAN, has_palette).unwrap();
        for transparency in [true, false] {
            let plan = Plan { transparency, angle: Some(Angle::Half), ..PLAN };
            let made = decoded(format, &transform(format, &image, &plan).unwrap().unwrap());
            let opaque = made.pixels().iter().filter(|pixel| pixel[3] == 255).count();
            let expected = if transparency || !has_palette { 50 } else { 100 };
            assert_eq!(opaque, expected, "{format:?} {has_palette} {transparency}");
        }
    }
}

#[test]
fn transparent_pixels_have_no_colour() {
    let pixels = vec![[0, 255, 0, 0], [200, 0, 0, 255], [200, 0, 0, 255], [0, 255, 0, 0]];
    let picture = Picture::new(size(2, 2), pixels).unwrap();
    assert_eq!(picture.resampled(size(1, 1)).pixels(), [[200, 0, 0, 128]]);
}

#[test]
fn means_are_exact() {
    // Three pixels become two: the one in the middle belongs to both.
    let grey = |value| [value, value, value, 255];
    let picture = Picture::new(size(3, 1), vec![grey(0), grey(90), grey(180)]).unwrap();
    assert_eq!(picture.resampled(size(2, 1)).pixels(), [grey(30), grey(150)]);
}

#[test]
fn sharpness_increases_differences() {
    let grey = |value| [value, value, value, 255];
    let mut picture =
        Picture::new(size(4, 1), vec![grey(100), grey(100), grey(140), grey(140)]).unwrap();
    picture.sharpen(100);
    let values: Vec<u8> = picture.pixels().iter().map(|pixel| pixel[0]).collect();
    assert_eq!(values, [100, 90, 150, 140]);
}

#[test]
fn interlaced_images_are_the_same() {
    for format in FORMATS {
        let source = image(format, size(33, 21));
        let made = |interlace| {
            let plan = Plan { angle: Some(Angle::Half), interlace, ..PLAN };
            transform(format, &source, &plan).unwrap().unwrap()
        };
        let (plain, interlaced) = (made(false), made(true));
        let differs = matches!(format, Format::Jpeg | Format::Gif);
        assert_eq!(plain != interlaced, differs);
        assert_eq!(quarters(&decoded(format, &interlaced)), "wbgr");
        if format == Format::Gif {
            assert_eq!(decoded(format, &plain), decoded(format, &interlaced));
        }
    }
}

#[test]
fn heavy_metadata_are_dropped() {
    let plain = image(Format::Jpeg, size(60, 40));
    let segment = [&b"\xff\xe1\x10\x00"[..], &[0; 0x0ffe]].concat();
    let heavy = [&plain[..2], &segment, &plain[2..]].concat();
    assert!(facts(Format::Jpeg, &heavy).unwrap().is_heavy);
    let plan = Plan { shape: Shape::Fit(size(100, 100)), ..PLAN };
    assert!(transform(Format::Jpeg, &heavy, &plan).unwrap().unwrap().len() < heavy.len());
    assert_eq!(transform(Format::Jpeg, &plain, &plan), Ok(None));
}

#[test]
fn many_pixels_are_refused_before_they_are_decoded() {
    let plan = Plan { shape: Shape::Fit(size(10, 10)), ..PLAN };
    for format in FORMATS {
        let mut image = image(format, size(60, 40));
        let side = 16_000_u16;
        match format {
            Format::Jpeg => {
                let at = image.windows(2).position(|marker| marker == b"\xff\xc0").unwrap();
                image[at + 5..][..2].copy_from_slice(&side.to_be_bytes());
                image[at + 7..][..2].copy_from_slice(&side.to_be_bytes());
            }
            Format::Gif => {
                image[6..][..2].copy_from_slice(&side.to_le_bytes());
                image[8..][..2].copy_from_slice(&side.to_le_bytes());
            }
            Format::Png => {
                image[16..][..4].copy_from_slice(&u32::from(side).to_be_bytes());
                image[20..][..4].copy_from_slice(&u32::from(side).to_be_bytes());
                let checksum = crc(&image[12..29]).to_be_bytes();
                image[29..][..4].copy_from_slice(&checksum);
            }
            Format::Webp => {
                let bits = u32::from_le_bytes(*image[21..].first_chunk().unwrap()) >> 28 << 28;
                let bits = bits | u32::from(side - 1) | u32::from(side - 1) << 14;
                image[21..][..4].copy_from_slice(&bits.to_le_bytes());
            }
        }
        let error = ImageError::TooLarge(size(side.into(), side.into()));
        assert_eq!(transform(format, &image, &plan), Err(error));
    }
}

/// The checksum of PNG's chunks.
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| {
        if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
    };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// Everything that is cut off or changed: an image or an error.
#[test]
fn broken_images_are_errors() {
    let plan = Plan { shape: Shape::Fit(size(10, 10)), sharpen: 50, ..PLAN };
    for format in FORMATS {
        let image = image(format, size(20, 16));
        for end in START_BYTES..image.len() {
            let _ = transform(format, &image[..end], &plan);
        }
        for at in START_BYTES..image.len() {
            for value in [0, 0x7f, 0xff] {
                let mut image = image.clone();
                image[at] = value;
                let _ = transform(format, &image, &plan);
            }
        }
        let error = transform(format, &image[..START_BYTES + 9], &plan).unwrap_err();
        assert!(matches!(error, ImageError::Broken(of, _) if of == format), "{error}");
    }
}

/// The last codes of narrow pictures of one colour stand for several rows.
#[test]
fn interlaced_gifs_of_every_size() {
    for (width, height) in (1..12).flat_map(|width| (1..40).map(move |height| (width, height))) {
        for colours in [1, 2, 3] {
            let colour = |n: u32| [[9, 9, 9, 255], [200, 0, 0, 255], [0, 0, 90, 255]][n as usize];
            let size = Size { width, height };
            let pixels: Vec<[u8; 4]> =
                (0..width * height).map(|n| colour(n / 5 % colours)).collect();
            let picture = || Picture::new(size, pixels.clone()).unwrap();
            let plan = Plan { interlace: true, ..PLAN };
            let made = encode::encode(Format::Gif, picture(), &plan, true).unwrap();
            let again = decode::decode(Format::Gif, &made).unwrap().picture;
            assert!(again.pixels() == pixels, "{size:?}, {colours} colours");
        }
    }
}
