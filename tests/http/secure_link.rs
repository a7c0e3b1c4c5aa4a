//! `secure_link` and its variables.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use data_encoding::HEXLOWER;

use crate::stage::{gets, refused, server};

#[test]
fn links_with_a_checksum() {
    // MD5 of "/p SECRET" and of "/p 2147483647 SECRET" and so on, in base64url.
    let site = server(
        "location /p {
             secure_link $arg_md5; secure_link_md5 '$uri SECRET';
             return 200 [$secure_link][$secure_link_expires];
         }
         location /e {
             secure_link $arg_md5,$arg_e; secure_link_md5 '$uri $secure_link_expires SECRET';
             return 200 [$secure_link][$secure_link_expires];
         }
         location /nothing { return 200 [$secure_link]; }
         location /half { secure_link $arg_md5; return 200 [$secure_link]; }",
    );
    let padded = md5("/p SECRET");
    let plain = padded.trim_end_matches('=');
    let case = |target: String, body: &str| (target, format!("200\n\n{body}"));
    let expiring = |time: &str| {
        let md5 = md5(&format!("/e {time} SECRET"));
        format!("/e?md5={}&e={time}", md5.trim_end_matches('='))
    };
    let cases = [
        case(format!("/p?md5={padded}"), "[1][]"),
        case(format!("/p?md5={plain}"), "[1][]"),
        case(format!("/p?md5={plain}x"), "[][]"),
        case("/p?md5=".into(), "[][]"),
        case("/p?md5=ab".into(), "[][]"),
        case("/p".into(), "[][]"),
        case(expiring("2147483647"), "[1][2147483647]"),
        case(expiring("100"), "[0][100]"),
        case("/e?md5=AAAAAAAAAAAAAAAAAAAAAA&e=x".into(), "[][]"),
        case("/nothing?md5=x".into(), "[]"),
        case(format!("/half?md5={plain}"), "[]"),
    ];
    let cases: Vec<(&str, &str)> = cases.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    gets(&site, &cases);
}

#[test]
fn links_of_the_old_kind() {
    let site = server(
        "location /p/ { secure_link_secret word; return 200 [$secure_link]; }
         location /p/inner/ { secure_link $arg_x; secure_link_md5 y; return 200 [$secure_link]; }",
    );
    let hash = hex("a/b?cword");
    let wrong = "0".repeat(32);
    gets(
        &site,
        &[
            (&format!("/p/{hash}/a/b?c"), "200\n\n[a/b?c]"),
            (&format!("/p/{hash}/a/b?d"), "200\n\n[]"),
            (&format!("/p/{wrong}/a/b?c"), "200\n\n[]"),
            ("/p/x/y", "200\n\n[]"),
            (&format!("/p/inner/{hash}/a"), "200\n\n[]"),
        ],
    );
    refused(
        &server("location / { secure_link_secret a; secure_link b; }"),
        "\"secure_link_secret\" cannot be mixed with \"secure_link\" and \"secure_link_md5\"",
    );
}

/// The MD5 of a text, by openssl's numbers: computed here, since no library is at hand.
fn digest(text: &str) -> [u8; 16] {
    let shifts: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let mut message = text.as_bytes().to_vec();
    message.push(0x80);
    message.resize(message.len().next_multiple_of(64), 0);
    let length = message.len();
    assert!(text.len() < length - 8, "one more block would be needed");
    message[length - 8..].copy_from_slice(&(text.len() as u64 * 8).to_le_bytes());
    for block in message.chunks(64) {
        let word = |n: usize| u32::from_le_bytes(block[4 * n..4 * n + 4].try_into().unwrap());
        let [mut a, mut b, mut c, mut d] = state;
        for round in 0..64 {
            let (mix, index) = match round / 16 {
                0 => ((b & c) | (!b & d), round),
                1 => ((d & b) | (!d & c), (5 * round + 1) % 16),
                2 => (b ^ c ^ d, (3 * round + 5) % 16),
                _ => (c ^ (b | !d), (7 * round) % 16),
            };
            let constant = (((round + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
            let sum = a.wrapping_add(mix).wrapping_add(constant).wrapping_add(word(index));
            (a, d, c) = (d, c, b);
            b = b.wrapping_add(sum.rotate_left(shifts[round / 16][round % 4]));
        }
        for (sum, part) in state.iter_mut().zip([a, b, c, d]) {
            *sum = sum.wrapping_add(part);
        }
    }
    let mut out = [0; 16];
    for (bytes, word) in out.chunks_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    out
}

fn hex(text: &str) -> String {
    HEXLOWER.encode(&digest(text))
}

/// In base64url with padding.
fn md5(text: &str) -> String {
    URL_SAFE.encode(digest(text))
}
