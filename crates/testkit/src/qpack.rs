//! QPACK as a client of the tests needs it (RFC 9204): an encoder without the dynamic table, and a complete decoder.
//!
//! Written apart from the server's, so that both can't be wrong in the same way; only Huffman codes and integers are
//! shared.

use nowait_fields::{huffman, integer};

/// A field: its name and its value.
pub type FieldPair = (String, String);

/// What can't be decoded. Always the server's fault.
pub type Fault = &'static str;

/// Bytes of a string, at most.
const STRING_BYTES_MAX: usize = 1 << 20;

/// The dynamic table of what the server sends.
#[derive(Debug, Default)]
pub struct Decoder {
    /// All entries that were inserted, the first one first; evicted ones stay, and may not be used.
    entries: Vec<FieldPair>,
    /// Entries that were evicted.
    evicted: usize,
    /// The capacity now, and the one that was permitted, in bytes.
    capacity: usize,
    capacity_max: usize,
    /// Bytes of the encoder stream whose instruction is not complete.
    pending: Vec<u8>,
}

impl Decoder {
    /// For a server that may use this many bytes of memory.
    pub fn new(capacity_max: usize) -> Decoder {
        Decoder { capacity_max, ..Decoder::default() }
    }

    /// Entries that were inserted so far.
    pub fn inserted(&self) -> usize {
        self.entries.len()
    }

    /// Takes bytes of the encoder stream.
    ///
    /// # Errors
    /// They are no instructions.
    pub fn instructions(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut rest = &pending[..];
        while !rest.is_empty() {
            match self.instruction(rest)? {
                Some(after) => rest = after,
                None => break,
            }
        }
        self.pending = rest.to_vec();
        Ok(())
    }

    /// The rest after an instruction; `None`: it is not complete.
    fn instruction<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, Fault> {
        let first = bytes[0];
        if first & 0x80 != 0 {
            let Some((index, rest)) = number(bytes, 6) else { return Ok(None) };
            let Some((value, rest)) = string(rest, 7)? else { return Ok(None) };
            let name = match first & 0x40 != 0 {
                true => STATIC.get(index).ok_or("no such static name")?.0.to_owned(),
                false => self.relative(self.entries.len(), index)?.0.clone(),
            };
            self.insert(name, value)?;
            return Ok(Some(rest));
        }
        if first & 0x40 != 0 {
            let Some((name, rest)) = string(bytes, 5)? else { return Ok(None) };
            let Some((value, rest)) = string(rest, 7)? else { return Ok(None) };
            self.insert(name, value)?;
            return Ok(Some(rest));
        }
        let Some((value, rest)) = number(bytes, 5) else { return Ok(None) };
        if first & 0x20 != 0 {
            if value > self.capacity_max {
                return Err("a larger table than permitted");
            }
            self.capacity = value;
            self.evict(0)?;
        } else {
            let (name, value) = self.relative(self.entries.len(), value)?.clone();
            self.insert(name, value)?;
        }
        Ok(Some(rest))
    }

    fn insert(&mut self, name: String, value: String) -> Result<(), Fault> {
        self.evict(size(&(name.clone(), value.clone())))?;
        self.entries.push((name, value));
        Ok(())
    }

    /// Evicts until there is room for so many bytes.
    fn evict(&mut self, room: usize) -> Result<(), Fault> {
        if room > self.capacity {
            return Err("an entry is larger than the table");
        }
        let mut used: usize = self.entries[self.evicted..].iter().map(size).sum();
        while used + room > self.capacity {
            used -= size(&self.entries[self.evicted]);
            self.evicted += 1;
        }
        Ok(())
    }

    fn relative(&self, base: usize, index: usize) -> Result<&FieldPair, Fault> {
        self.absolute(base.checked_sub(index + 1).ok_or("an index before the table")?)
    }

    fn absolute(&self, index: usize) -> Result<&FieldPair, Fault> {
        if index < self.evicted {
            return Err("an evicted entry");
        }
        self.entries.get(index).ok_or("an entry that does not exist")
    }

    /// Decodes a section. `None`: entries are missing that are on their way. The number: entries that it needed, for
    /// its acknowledgement.
    ///
    /// # Errors
    /// It is not well-formed.
    pub fn section(&self, bytes: &[u8]) -> Result<Option<(Vec<FieldPair>, usize)>, Fault> {
        let (encoded, rest) = number(bytes, 8).ok_or("no insert count")?;
        let required = self.required(encoded)?;
        if required > self.entries.len() {
            return Ok(None);
        }
        let negative = rest.first().ok_or("no base")? & 0x80 != 0;
        let (delta, mut rest) = number(rest, 7).ok_or("no base")?;
        let base = match negative {
            true => required.checked_sub(delta + 1).ok_or("a base before the table")?,
            false => required + delta,
        };
        let mut fields = Vec::new();
        while let Some(&first) = rest.first() {
            let field;
            (field, rest) = self.line(first, rest, base)?;
            fields.push(field);
        }
        Ok(Some((fields, required)))
    }

    /// RFC 9204, 4.5.1.1.
    fn required(&self, encoded: usize) -> Result<usize, Fault> {
        if encoded == 0 {
            return Ok(0);
        }
        let entries_max = self.capacity_max / 32;
        let range = 2 * entries_max;
        if range == 0 || encoded > range {
            return Err("an insert count that is too large");
        }
        let max = self.entries.len() + entries_max;
        let wrapped = max / range * range;
        let required = wrapped + encoded - 1;
        match required > max {
            true => {
                required.checked_sub(range).filter(|count| *count > 0).ok_or("a wrong insert count")
            }
            false => Ok(required),
        }
    }

    fn line<'a>(
        &self,
        first: u8,
        bytes: &'a [u8],
        base: usize,
    ) -> Result<(FieldPair, &'a [u8]), Fault> {
        let cut = "a field is cut off";
        if first & 0x80 != 0 {
            let (index, rest) = number(bytes, 6).ok_or(cut)?;
            let field = match first & 0x40 != 0 {
                true => pair(STATIC.get(index).ok_or("no such static field")?),
                false => self.relative(base, index)?.clone(),
            };
            return Ok((field, rest));
        }
        if first & 0x40 != 0 {
            let (index, rest) = number(bytes, 4).ok_or(cut)?;
            let (value, rest) = string(rest, 7)?.ok_or(cut)?;
            let name = match first & 0x10 != 0 {
                true => STATIC.get(index).ok_or("no such static name")?.0.to_owned(),
                false => self.relative(base, index)?.0.clone(),
            };
            return Ok(((name, value), rest));
        }
        if first & 0x20 != 0 {
            let (name, rest) = string(bytes, 3)?.ok_or(cut)?;
            let (value, rest) = string(rest, 7)?.ok_or(cut)?;
            return Ok(((name, value), rest));
        }
        if first & 0x10 != 0 {
            let (index, rest) = number(bytes, 4).ok_or(cut)?;
            return Ok((self.absolute(base + index)?.clone(), rest));
        }
        let (index, rest) = number(bytes, 3).ok_or(cut)?;
        let (value, rest) = string(rest, 7)?.ok_or(cut)?;
        Ok(((self.absolute(base + index)?.0.clone(), value), rest))
    }
}

fn pair((name, value): &(&str, &str)) -> FieldPair {
    ((*name).to_owned(), (*value).to_owned())
}

/// RFC 9204, 3.2.1.
fn size((name, value): &FieldPair) -> usize {
    name.len() + value.len() + 32
}

fn number(bytes: &[u8], prefix: u32) -> Option<(usize, &[u8])> {
    let (value, rest) = integer::read_long(bytes, prefix).ok()?;
    Some((usize::try_from(value).ok()?, rest))
}

/// A string whose length has `prefix` bits, below the mark of Huffman codes. `None`: it is not complete.
fn string(bytes: &[u8], prefix: u32) -> Result<Option<(String, &[u8])>, Fault> {
    let Some(first) = bytes.first() else { return Ok(None) };
    let coded = first & (1 << prefix) != 0;
    let Some((len, rest)) = number(bytes, prefix) else { return Ok(None) };
    if rest.len() < len {
        return Ok(None);
    }
    let (text, rest) = rest.split_at(len);
    let mut decoded = Vec::new();
    match coded {
        true => huffman::decode(text, &mut decoded, STRING_BYTES_MAX, 7)
            .map_err(|_| "wrong Huffman codes")?,
        false => decoded.extend_from_slice(text),
    }
    Ok(Some((String::from_utf8_lossy(&decoded).into_owned(), rest)))
}

/// A section of fields as they are, without any table or Huffman codes.
pub fn encode<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    let mut out = vec![0, 0];
    for (name, value) in fields {
        let (name, value) = (name.as_ref(), value.as_ref());
        integer::write(&mut out, 0x20, 3, name.len());
        out.extend_from_slice(name);
        integer::write(&mut out, 0, 7, value.len());
        out.extend_from_slice(value);
    }
    out
}

/// RFC 9204, appendix A.
const STATIC: [(&str, &str); 99] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html;charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000;includesubdomains"),
    ("strict-transport-security", "max-age=31536000;includesubdomains;preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1;mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none';object-src 'none';base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(fields: &[(&str, &str)]) -> Vec<FieldPair> {
        fields.iter().map(pair).collect()
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let fields = [(":method", "GET"), ("x", ""), ("a-longer-name", "a longer value")];
        let section = Decoder::default().section(&encode(&fields)).unwrap().unwrap();
        assert_eq!(section, (pairs(&fields), 0));
    }

    /// RFC 9204, appendix B.
    #[test]
    fn the_examples_of_the_rfc() {
        let mut decoder = Decoder::new(220);
        let section = decoder.section(b"\x00\x00\x51\x0b/index.html").unwrap().unwrap();
        assert_eq!(section, (pairs(&[(":path", "/index.html")]), 0));
        let dynamic = b"\x03\x81\x10\x11";
        assert_eq!(decoder.section(dynamic).unwrap(), None);
        decoder.instructions(b"\x3f\xbd\x01\xc0\x0fwww.example.com\xc1\x0c/sam").unwrap();
        assert_eq!(decoder.inserted(), 1);
        decoder.instructions(b"ple/path").unwrap();
        let section = decoder.section(dynamic).unwrap().unwrap();
        let fields = [(":authority", "www.example.com"), (":path", "/sample/path")];
        assert_eq!(section, (pairs(&fields), 2));
        decoder.instructions(b"\x4acustom-key\x0ccustom-value\x02").unwrap();
        let section = decoder.section(b"\x05\x00\x80\xc1\x81").unwrap().unwrap();
        let fields =
            [(":authority", "www.example.com"), (":path", "/"), ("custom-key", "custom-value")];
        assert_eq!(section, (pairs(&fields), 4));
        decoder.instructions(b"\x81\x0dcustom-value2").unwrap();
        assert_eq!(decoder.evicted, 1);
        assert_eq!(decoder.section(b"\x02\x80\x10").unwrap_err(), "an evicted entry");
    }
}
