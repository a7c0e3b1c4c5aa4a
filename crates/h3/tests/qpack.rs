//! QPACK: what is encoded arrives, in any order of streams and instructions, and the examples of the RFC.

mod support;

use std::collections::VecDeque;

use nowait_h3::qpack::{Decoder, Encoder, FieldError, QpackError, Refused};
use support::id;

type Field = (Vec<u8>, Vec<u8>);

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|octet| !octet.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

fn decoded(decoder: &mut Decoder, section: &[u8]) -> Result<Vec<(String, String)>, FieldError> {
    let mut section = decoder.section(section, 1000).map_err(FieldError::from)?;
    assert!(!section.is_blocked());
    let mut fields = Vec::new();
    while let Some(field) = section.next()? {
        let text = |octets: &[u8]| String::from_utf8(octets.to_vec()).unwrap();
        fields.push((text(field.name), text(field.value)));
    }
    Ok(fields)
}

fn pairs(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

/// RFC 9204 appendix B.
#[test]
fn the_examples_of_the_rfc() {
    let mut decoder = Decoder::new(220, 4096);
    let allowed = &mut 100;
    let path = hex("0000 510b 2f69 6e64 6578 2e68 746d 6c");
    assert_eq!(decoded(&mut decoder, &path), Ok(pairs(&[(":path", "/index.html")])));

    let instructions =
        "3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468";
    decoder.receive(&hex(instructions), allowed).unwrap();
    assert_eq!(decoder.inserted(), 2);
    let both = [(":authority", "www.example.com"), (":path", "/sample/path")];
    assert_eq!(decoded(&mut decoder, &hex("0381 10 11")), Ok(pairs(&both)));

    let insert = "4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565";
    decoder.receive(&hex(insert), allowed).unwrap();
    decoder.receive(&hex("02"), allowed).unwrap();
    let three = [(":authority", "www.example.com"), (":path", "/"), ("custom-key", "custom-value")];
    assert_eq!(decoded(&mut decoder, &hex("0500 80 c1 81")), Ok(pairs(&three)));

    let insert = "810d 6375 7374 6f6d 2d76 616c 7565 32";
    decoder.receive(&hex(insert), allowed).unwrap();
    assert_eq!(decoder.inserted(), 5);
    assert_eq!(*allowed, 94);
    // The oldest entry was evicted.
    let evicted = decoded(&mut decoder, &hex("0280 10"));
    assert_eq!(evicted, Err(FieldError::Invalid(QpackError::InvalidIndex)));
}

#[test]
fn instructions_may_come_in_pieces() {
    let instructions = hex(
        "3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d 4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565 01",
    );
    let mut decoder = Decoder::new(220, 4096);
    for octet in instructions {
        decoder.receive(&[octet], &mut 100).unwrap();
    }
    assert_eq!(decoder.inserted(), 3);
    assert!(!decoder.has_begun());
    let expected = [(":authority", "www.example.com"), ("custom-key", "custom-value")];
    assert_eq!(decoded(&mut decoder, &hex("0400 80 81")), Ok(pairs(&expected)));
}

#[test]
fn insertions_are_counted_before_they_are_made() {
    let mut decoder = Decoder::new(4096, 4096);
    decoder.receive(&hex("3fe11f 4161 0131"), &mut 2).unwrap();
    let duplicates = vec![0; 10];
    let mut allowed = 4;
    assert_eq!(decoder.receive(&duplicates, &mut allowed), Err(Refused::TooMany));
    assert_eq!((decoder.inserted(), allowed), (5, 0));
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn field(&mut self) -> Field {
        const NAMES: [&str; 12] = [
            ":status",
            "server",
            "content-type",
            "etag",
            "x-a",
            "x-some-longer-name",
            "cookie",
            "set-cookie",
            "content-length",
            "alt-svc",
            "vary",
            "authorization",
        ];
        let name = NAMES[self.below(NAMES.len())];
        let value = match self.below(4) {
            0 => "accept-encoding".to_string(),
            1 => self.below(5).to_string().repeat(1 + self.below(40)),
            2 => "\u{e9}~{}".repeat(self.below(30)),
            _ => self.below(1000).to_string(),
        };
        (name.as_bytes().to_vec(), value.into_bytes())
    }
}

/// Sections and instructions arrive late and in any order between streams; acknowledgements, too.
#[test]
fn what_is_encoded_arrives() {
    for seed in 0..300u64 {
        let mut random = Random(seed);
        let capacity = [0, 100, 220, 1000, 4096, 65_535][random.below(6)];
        let mut decoder = Decoder::new(capacity, 4096);
        let mut encoder = Encoder::default();
        encoder.allow(capacity.into());
        let mut sections: VecDeque<(u64, Vec<u8>, Vec<Field>)> = VecDeque::new();
        let (mut stream, mut indexed) = (0, 0);
        for _ in 0..200 {
            match random.below(6) {
                0 | 1 => {
                    let fields: Vec<Field> = (0..random.below(8)).map(|_| random.field()).collect();
                    encoder.begin();
                    for (name, value) in &fields {
                        encoder.field(name, value, random.below(10) == 0);
                    }
                    let mut section = Vec::new();
                    encoder.finish(id(stream), |prefix, rest| section = [prefix, rest].concat());
                    indexed += usize::from(section[0] != 0);
                    sections.push_back((stream, section, fields));
                    stream += 4;
                }
                2 => {
                    let instructions = encoder.take_output();
                    let cut = random.below(instructions.len() + 1);
                    decoder.receive(&instructions[..cut], &mut 1000).unwrap();
                    decoder.receive(&instructions[cut..], &mut 1000).unwrap();
                }
                3 => {
                    let instructions = decoder.take_output();
                    let cut = random.below(instructions.len() + 1);
                    encoder.receive(&instructions[..cut]).unwrap();
                    encoder.receive(&instructions[cut..]).unwrap();
                }
                4 if !sections.is_empty() => {
                    let at = random.below(sections.len());
                    let (stream, section, fields) = sections.remove(at).unwrap();
                    let mut reading = decoder.section(&section, 5000).unwrap();
                    let required = reading.required();
                    assert!(!reading.is_blocked(), "seed {seed}: no section waits");
                    for (name, value) in &fields {
                        let field = reading.next().unwrap().unwrap();
                        assert_eq!(
                            (field.name, field.value),
                            (&name[..], &value[..]),
                            "seed {seed}"
                        );
                    }
                    assert_eq!(reading.next(), Ok(None), "seed {seed}");
                    decoder.acknowledge(id(stream), required);
                }
                5 if !sections.is_empty() => {
                    let at = random.below(sections.len());
                    let (stream, ..) = sections.remove(at).unwrap();
                    decoder.cancel(id(stream));
                }
                _ => {}
            }
            assert!(encoder.heap() <= 64 * 1024 && decoder.heap() <= 256 * 1024);
        }
        assert!(capacity < 1000 || indexed > 1, "seed {seed}: {indexed} of {stream}");
    }
}

/// An entry whose name a field refers to must not be evicted by the insertion of the same field.
#[test]
fn an_insertion_keeps_the_name_that_its_field_refers_to() {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new(100, 4096));
    encoder.allow(100);
    let mut section = Vec::new();
    for (stream, value) in [(0, "1"), (4, "1"), (8, "2"), (12, "2"), (16, "3"), (20, "3")] {
        encoder.begin();
        encoder.field(b"x-own-name", value.as_bytes(), false);
        encoder.finish(id(stream), |prefix, rest| section = [prefix, rest].concat());
        decoder.receive(&encoder.take_output(), &mut 100).unwrap();
        assert_eq!(decoded(&mut decoder, &section), Ok(pairs(&[("x-own-name", value)])));
        let required = decoder.section(&section, 100).unwrap().required();
        decoder.acknowledge(id(stream), required);
        encoder.receive(&decoder.take_output()).unwrap();
    }
    assert_ne!(section[0], 0);
}

#[test]
fn a_peer_that_acknowledges_nothing_costs_nothing() {
    let mut encoder = Encoder::default();
    encoder.allow(4096);
    let mut section = Vec::new();
    for stream in 0..10_000u64 {
        encoder.begin();
        encoder.field(b"x-a", b"repeated", false);
        encoder.field(b"server", stream.to_string().as_bytes(), false);
        encoder.finish(id(4 * stream), |prefix, rest| section = [prefix, rest].concat());
        assert_eq!(section[0], 0);
    }
    assert!(encoder.heap() < 20 * 1024, "{}", encoder.heap());
    // Nor does one that acknowledges insertions, but no sections.
    let instructions = encoder.take_output();
    let mut decoder = Decoder::new(4096, 4096);
    decoder.receive(&instructions, &mut u32::MAX.clone()).unwrap();
    encoder.receive(&decoder.take_output()).unwrap();
    for stream in 10_000..20_000u64 {
        encoder.begin();
        encoder.field(b"x-a", b"repeated", false);
        encoder.finish(id(4 * stream), |prefix, rest| section = [prefix, rest].concat());
    }
    assert_eq!(section[0], 0);
    assert!(encoder.heap() < 32 * 1024, "{}", encoder.heap());
}
