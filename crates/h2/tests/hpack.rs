//! HPACK: the examples of RFC 7541 appendix C, malformed blocks, and both sides together.

use nowait_h2::hpack::{Decoder, Encoder, HpackError, HpackField, Token};

const STRING_MAX: usize = 4096;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|c| !c.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<String>, HpackError> {
    let mut block = decoder.block(block, STRING_MAX);
    let mut fields = Vec::new();
    while let Some(field) = block.next()? {
        assert_eq!(field.token, Token::of(field.name));
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        let mark = if field.sensitive { "!" } else { "" };
        fields.push(format!("{mark}{}: {}", text(field.name), text(field.value)));
    }
    Ok(fields)
}

fn check(table: u32, blocks: &[(&str, &[&str])]) {
    let mut decoder = Decoder::default();
    if table != 4096 {
        decode(&mut decoder, &[0x3f, (table - 31) as u8 | 0x80, ((table - 31) >> 7) as u8])
            .unwrap();
    }
    for (block, fields) in blocks {
        assert_eq!(decode(&mut decoder, &hex(block)).unwrap(), *fields);
    }
}

#[test]
fn c2_single_representations() {
    check(
        4096,
        &[(
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            &["custom-key: custom-header"],
        )],
    );
    check(4096, &[("040c 2f73 616d 706c 652f 7061 7468", &[":path: /sample/path"])]);
    check(4096, &[("1008 7061 7373 776f 7264 0673 6563 7265 74", &["!password: secret"])]);
    check(4096, &[("82", &[":method: GET"])]);
}

const REQUESTS: [&[&str]; 3] = [
    &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"],
    &[
        ":method: GET",
        ":scheme: http",
        ":path: /",
        ":authority: www.example.com",
        "cache-control: no-cache",
    ],
    &[
        ":method: GET",
        ":scheme: https",
        ":path: /index.html",
        ":authority: www.example.com",
        "custom-key: custom-value",
    ],
];

#[test]
fn c3_requests() {
    check(
        4096,
        &[
            ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", REQUESTS[0]),
            ("8286 84be 5808 6e6f 2d63 6163 6865", REQUESTS[1]),
            (
                "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
                REQUESTS[2],
            ),
        ],
    );
}

#[test]
fn c4_requests_with_huffman_coding() {
    check(
        4096,
        &[
            ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", REQUESTS[0]),
            ("8286 84be 5886 a8eb 1064 9cbf", REQUESTS[1]),
            ("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", REQUESTS[2]),
        ],
    );
}

const RESPONSES: [&[&str]; 3] = [
    &[
        ":status: 302",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:21 GMT",
        "location: https://www.example.com",
    ],
    &[
        ":status: 307",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:21 GMT",
        "location: https://www.example.com",
    ],
    &[
        ":status: 200",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:22 GMT",
        "location: https://www.example.com",
        "content-encoding: gzip",
        "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
    ],
];

/// With evictions: the table has 256 octets.
#[test]
fn c5_responses() {
    check(
        256,
        &[
            (
                "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133
                 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70
                 6c65 2e63 6f6d",
                RESPONSES[0],
            ),
            ("4803 3330 37c1 c0bf", RESPONSES[1]),
            (
                "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d
                 54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049
                 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e
                 3d31",
                RESPONSES[2],
            ),
        ],
    );
}

#[test]
fn c6_responses_with_huffman_coding() {
    check(
        256,
        &[
            (
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6
                 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                RESPONSES[0],
            ),
            ("4883 640e ffc1 c0bf", RESPONSES[1]),
            (
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab
                 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f
                 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
                RESPONSES[2],
            ),
        ],
    );
}

#[test]
fn malformed_blocks() {
    for (block, error) in [
        ("80", HpackError::InvalidIndex),
        ("be", HpackError::InvalidIndex), // the dynamic table is empty
        ("ff80 8080 00", HpackError::IntegerTooLong),
        ("ff", HpackError::Truncated),
        ("42", HpackError::Truncated),
        ("4203 4745", HpackError::Truncated),
        ("7e01 61", HpackError::InvalidIndex),
        ("0081 ff01 61", HpackError::InvalidHuffman),
        ("3fe2 1f", HpackError::InvalidTableSize), // 4097
        ("8220", HpackError::InvalidTableSize),    // not at the beginning
        ("007f ffff 7f", HpackError::StringTooLong),
        ("007f 8220", HpackError::StringTooLong),
    ] {
        assert_eq!(decode(&mut Decoder::default(), &hex(block)), Err(error), "{block}");
    }
    assert_eq!(decode(&mut Decoder::default(), &hex("20 3fe1 1f")), Ok(vec![]));
}

#[test]
fn a_smaller_table_must_be_confirmed() {
    let mut decoder = Decoder::default();
    decoder.allow(100);
    assert_eq!(decode(&mut decoder, &hex("82")), Err(HpackError::InvalidTableSize));
    assert_eq!(decode(&mut decoder, &hex("3f46 82")), Err(HpackError::InvalidTableSize)); // 101
    assert_eq!(decode(&mut decoder, &hex("3f45 82")).unwrap(), [":method: GET"]);
    assert_eq!(decode(&mut decoder, &hex("82")).unwrap(), [":method: GET"]);
}

/// The name of an entry that its own insertion evicts.
#[test]
fn a_name_survives_its_entry() {
    let mut decoder = Decoder::default();
    decode(&mut decoder, &hex("3f09 4001 6101 31")).unwrap(); // 40 octets: one entry
    assert_eq!(decode(&mut decoder, &hex("7e01 32")).unwrap(), ["a: 2"]);
    assert_eq!(decode(&mut decoder, &hex("be")).unwrap(), ["a: 2"]);
    assert_eq!(decode(&mut decoder, &hex("bf")), Err(HpackError::InvalidIndex));
}

fn encode(encoder: &mut Encoder, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    encoder.begin(&mut block);
    for (name, value) in fields {
        encoder.field(&mut block, name.as_bytes(), value.as_bytes(), false);
    }
    block
}

#[test]
fn repeated_fields_take_one_octet() {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    let fields = [(":status", "200"), ("Server", "nowait"), ("X-Odd", "1"), ("ETag", "\"a\"")];
    let text = [":status: 200", "server: nowait", "x-odd: 1", "etag: \"a\""];
    let mut lengths = Vec::new();
    for _ in 0..4 {
        let block = encode(&mut encoder, &fields);
        assert_eq!(decode(&mut decoder, &block).unwrap(), text);
        lengths.push(block.len());
    }
    assert!(lengths[0] >= lengths[1] && lengths[1] > lengths[2], "{lengths:?}");
    assert_eq!(lengths[2..], [4, 4]);
}

#[test]
fn secrets_are_never_indexed() {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    let fields = [("authorization", "secret"), ("cookie", "a=b"), ("set-cookie", "c=d")];
    for _ in 0..3 {
        let block = encode(&mut encoder, &fields);
        let text = ["!authorization: secret", "!cookie: a=b", "!set-cookie: c=d"];
        assert_eq!(decode(&mut decoder, &block).unwrap(), text);
    }
    let mut block = Vec::new();
    encoder.field(&mut block, b"server", b"x", true);
    assert_eq!(decode(&mut decoder, &block).unwrap(), ["!server: x"]);
}

#[test]
fn the_table_changes_its_size_in_both_directions() {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    let fields = [("server", "nowait"), ("vary", "accept")];
    let text = ["server: nowait", "vary: accept"];
    for size in [4096, 0, 4096, 60, 100_000, 33] {
        encoder.allow(size);
        decoder.allow(size.min(4096));
        for _ in 0..3 {
            let block = encode(&mut encoder, &fields);
            assert_eq!(decode(&mut decoder, &block).unwrap(), text, "{size}");
        }
    }
    encoder.allow(0);
    encoder.allow(4096);
    encoder.shrink();
    assert_eq!(encoder.heap(), 0);
    decoder.allow(4096);
    let block = encode(&mut encoder, &fields);
    assert_eq!(block[..4], [0x20, 0x3f, 0xe1, 0x1f]);
    assert_eq!(decode(&mut decoder, &block).unwrap(), text);
}

/// The encoder remembers the number of the last entry of a name, modulo 256, and `server` shares
/// its place with `content-encoding`: neither confuses it.
#[test]
fn remembered_entries_are_those_of_the_field() {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    for round in 0..3000u32 {
        let value = (round / 3).to_string();
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for token in
            [Token::SERVER, Token::of(b"content-encoding"), Token::SERVER, Token::SET_COOKIE]
        {
            if !encoder.repeat(&mut block, token, value.as_bytes()) {
                encoder.known(&mut block, token, value.as_bytes(), false);
            }
        }
        let decoded = decode(&mut decoder, &block).unwrap();
        let server = format!("server: {value}");
        let sent = [
            &server,
            &format!("content-encoding: {value}"),
            &server,
            &format!("!set-cookie: {value}"),
        ];
        assert_eq!(decoded.iter().collect::<Vec<_>>(), sent);
        if round % 3 == 1 {
            assert!(block.len() <= 6 + value.len(), "{block:x?}");
        }
    }
}

/// Any fields arrive as they were sent, no matter what the tables do, and the encoder's memory is bounded.
#[test]
fn any_sequence_of_fields() {
    let mut state = 0x2545_f491_u32;
    let mut random = |below: u32| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state % below
    };
    let names = ["server", "x-a", "X-B", "content-type", "etag", ":path", "cookie", "x-long-name"];
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    for _ in 0..3000 {
        if random(40) == 0 {
            let size = random(5000);
            encoder.allow(size);
            decoder.allow(size.min(4096));
        }
        if random(200) == 0 {
            encoder.shrink();
            decoder.shrink();
        }
        let mut fields = Vec::new();
        for _ in 0..random(12) {
            let name = names[random(names.len() as u32) as usize];
            let value = "v".repeat(random(60) as usize) + &random(6).to_string();
            fields.push((name, value));
        }
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for (name, value) in &fields {
            match Token::of(name.as_bytes()) {
                Token::OTHER => encoder.field(&mut block, name.as_bytes(), value.as_bytes(), false),
                token
                    if value.len() % 2 == 0
                        && encoder.repeat(&mut block, token, value.as_bytes()) => {}
                token => encoder.known(&mut block, token, value.as_bytes(), false),
            }
        }
        let decoded = decode(&mut decoder, &block).unwrap();
        let decoded: Vec<_> = decoded.iter().map(|field| field.trim_start_matches('!')).collect();
        let sent: Vec<_> =
            fields.iter().map(|(n, v)| format!("{}: {v}", n.to_lowercase())).collect();
        assert_eq!(decoded, sent);
        assert!(encoder.heap() < 16 * 1024, "{}", encoder.heap());
        assert!(decoder.heap() < 16 * 1024, "{}", decoder.heap());
    }
}

#[test]
fn static_fields_are_like_others() {
    let mut decoder = Decoder::default();
    for index in 1..=61 {
        let block = [0x80 | index];
        let mut block = decoder.block(&block, 100);
        let field = block.next().unwrap().unwrap();
        assert_eq!(field, HpackField::new(field.name, field.value), "index {index}");
    }
}

#[test]
fn a_field_is_the_same_however_it_is_sent() {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    let fields = [
        (":method", "GET"),
        (":path", "/a b"),
        (":authority", "x"),
        ("user-agent", "a"),
        ("referer", "a\r"),
        ("accept-encoding", "gzip, deflate"),
        ("connection", "close"),
        ("x-a", ""),
    ];
    for round in 0..4 {
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for (name, value) in fields {
            encoder.field(&mut block, name.as_bytes(), value.as_bytes(), false);
        }
        assert!(round < 3 || block.len() == fields.len(), "all are indexed by now");
        let mut block = decoder.block(&block, 100);
        for (name, value) in fields {
            let field = HpackField::new(name.as_bytes(), value.as_bytes());
            assert_eq!(block.next().unwrap(), Some(field));
        }
    }
}
