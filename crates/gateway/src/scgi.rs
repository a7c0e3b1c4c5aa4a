//! The beginning of SCGI requests: a netstring with headers. nginx: `ngx_http_scgi_create_request`.

/// Headers of a request.
#[derive(Debug)]
pub struct Headers(Vec<u8>);

/// A name or a value contains a zero byte, which ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zero;

impl Headers {
    /// `CONTENT_LENGTH`, which comes first.
    pub fn new(content_length: u64) -> Self {
        Self(format!("CONTENT_LENGTH\0{content_length}\0").into_bytes())
    }

    /// Adds a header.
    ///
    /// # Errors
    /// [`Zero`]
    pub fn push(&mut self, name: &[u8], value: &[u8]) -> Result<(), Zero> {
        if name.contains(&0) || value.contains(&0) {
            return Err(Zero);
        }
        for part in [name, value] {
            self.0.extend_from_slice(part);
            self.0.push(0);
        }
        Ok(())
    }

    /// Appends the netstring.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.len().to_string().as_bytes());
        out.push(b':');
        out.extend_from_slice(&self.0);
        out.push(b',');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_netstring() {
        let mut headers = Headers::new(27);
        headers.push(b"SCGI", b"1").unwrap();
        headers.push(b"REQUEST_METHOD", b"POST").unwrap();
        headers.push(b"REQUEST_URI", b"/deepthought").unwrap();
        let mut out = Vec::new();
        headers.write(&mut out);
        // The example of the specification.
        let text = "70:CONTENT_LENGTH\x0027\0SCGI\x001\0REQUEST_METHOD\0POST\0REQUEST_URI\0/deepthought\0,";
        assert_eq!(String::from_utf8(out).unwrap(), text);
        assert_eq!(headers.push(b"X", b"a\0b"), Err(Zero));
    }
}
