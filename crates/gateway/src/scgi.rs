//! The beginning of SCGI requests: a netstring with headers. nginx: `ngx_http_scgi_create_request`.

use crate::ParamForm;

/// Headers of a request: where they begin.
#[derive(Debug)]
pub struct Headers(usize);

/// The name or the value of the header with this name contains a zero byte, which ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZeroByte(pub Vec<u8>);

impl Headers {
    /// Begins a request with `CONTENT_LENGTH`, which comes first.
    pub fn begin(content_length: u64, out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(b"CONTENT_LENGTH\0");
        out.extend_from_slice(content_length.to_string().as_bytes());
        out.push(0);
        Self(start)
    }

    /// Completes the netstring; what follows the beginning is its content.
    pub fn end(self, out: &mut Vec<u8>) {
        let Self(start) = self;
        let length = format!("{}:", out.len() - start);
        out.splice(start..start, length.into_bytes());
        out.push(b',');
    }
}

impl ParamForm for Headers {
    type Error = ZeroByte;

    fn open(list: &mut Vec<u8>, _: usize, name: impl FnOnce(&mut Vec<u8>)) {
        name(list);
        list.push(0);
    }

    fn close(list: &mut Vec<u8>, start: usize, value: usize) -> Result<(), ZeroByte> {
        let (name, text) = (&list[start..value - 1], &list[value..]);
        if name.contains(&0) || text.contains(&0) {
            return Err(ZeroByte(name.to_vec()));
        }
        list.push(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_netstring() {
        let mut out = b">".to_vec();
        let headers = Headers::begin(27, &mut out);
        for (name, value) in
            [("SCGI", "1"), ("REQUEST_METHOD", "POST"), ("REQUEST_URI", "/deepthought")]
        {
            Headers::push(&mut out, name.as_bytes(), value.as_bytes()).unwrap();
        }
        headers.end(&mut out);
        // The example of the specification.
        let text = ">70:CONTENT_LENGTH\x0027\0SCGI\x001\0REQUEST_METHOD\0POST\0REQUEST_URI\0/deepthought\0,";
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }

    #[test]
    fn a_zero_byte() {
        let mut list = Vec::new();
        assert_eq!(Headers::push(&mut list, b"X", b"a\0b"), Err(ZeroByte(b"X".to_vec())));
        assert_eq!(Headers::push(&mut list, b"Y\0", b""), Err(ZeroByte(b"Y\0".to_vec())));
    }

    #[test]
    fn an_empty_value() {
        let mut list = Vec::new();
        Headers::push(&mut list, b"X", b"").unwrap();
        assert_eq!(list, b"X\0\0");
    }
}
