//! A handwritten TLS ClientHello.

fn sized(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("short").to_be_bytes();
    [&length[..], content].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &sized(content)].concat()
}

/// The ClientHello of a client that requests a host (SNI) and offers these protocols (ALPN), in
/// records of at most `size` bytes. An empty host is omitted.
///
/// # Panics
/// If the names are too long for their fields.
pub fn client_hello(host: &str, protocols: &[&str], size: usize) -> Vec<u8> {
    let name = [&[0][..], &sized(host.as_bytes())].concat();
    let list = protocols.iter().flat_map(|one| [&[one.len() as u8], one.as_bytes()].concat());
    let mut extensions = Vec::new();
    if !host.is_empty() {
        extensions.extend(extension(0, &sized(&name)));
    }
    if !protocols.is_empty() {
        extensions.extend(extension(16, &sized(&list.collect::<Vec<u8>>())));
    }
    let fixed = [&[3, 3][..], &[5; 32], &[0], &[0, 2, 0x13, 1], &[1, 0]].concat();
    let content = [fixed, sized(&extensions)].concat();
    let length = u32::try_from(content.len()).expect("short").to_be_bytes();
    let message = [&[1][..], &length[1..], &content].concat();
    message.chunks(size).flat_map(|part| [&[22, 3, 1][..], &sized(part)].concat()).collect()
}
