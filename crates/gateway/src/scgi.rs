//! The beginning of SCGI requests: a netstring with headers. nginx: `ngx_http_scgi_create_request`.

use crate::ParamList;

/// Headers of a request.
#[derive(Debug)]
pub struct Headers {
    list: Vec<u8>,
    /// The first one that cannot be sent.
    wrong: Option<Zero>,
}

/// The name or the value of the header with this name contains a zero byte, which ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zero(pub Vec<u8>);

impl Headers {
    /// `CONTENT_LENGTH`, which comes first.
    pub fn new(content_length: u64) -> Self {
        Self { list: format!("CONTENT_LENGTH\0{content_length}\0").into_bytes(), wrong: None }
    }

    /// Appends the netstring.
    ///
    /// # Errors
    /// [`Zero`]; nothing is appended.
    pub fn write(self, out: &mut Vec<u8>) -> Result<(), Zero> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        out.extend_from_slice(self.list.len().to_string().as_bytes());
        out.push(b':');
        out.extend_from_slice(&self.list);
        out.push(b',');
        Ok(())
    }
}

impl ParamList for Headers {
    fn add(
        &mut self,
        if_not_empty: bool,
        name: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.list.len();
        name(&mut self.list);
        let middle = self.list.len();
        self.list.push(0);
        value(&mut self.list);
        let (name, value) = (&self.list[start..middle], &self.list[middle + 1..]);
        if if_not_empty && value.is_empty() {
            self.list.truncate(start);
            return;
        }
        if name.contains(&0) || value.contains(&0) {
            self.wrong.get_or_insert_with(|| Zero(name.to_vec()));
        }
        self.list.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_netstring() {
        let mut headers = Headers::new(27);
        headers.push(b"SCGI", b"1");
        headers.push(b"REQUEST_METHOD", b"POST");
        headers.push(b"REQUEST_URI", b"/deepthought");
        headers.add(true, |out| out.extend_from_slice(b"NONE"), |_| ());
        let mut out = Vec::new();
        headers.write(&mut out).unwrap();
        // The example of the specification.
        let text = "70:CONTENT_LENGTH\x0027\0SCGI\x001\0REQUEST_METHOD\0POST\0REQUEST_URI\0/deepthought\0,";
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }

    #[test]
    fn a_zero_byte() {
        let mut headers = Headers::new(0);
        headers.push(b"X", b"a\0b");
        headers.push(b"Y\0", b"");
        let mut out = Vec::new();
        assert_eq!(headers.write(&mut out), Err(Zero(b"X".to_vec())));
        assert!(out.is_empty());
    }
}
