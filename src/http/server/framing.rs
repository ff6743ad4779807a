//! Detects requests with both `Content-Length` and `Transfer-Encoding` in the received bytes. hyper's parser drops
//! `Content-Length` then; a proxy in front may have framed the body by it (request smuggling).

use memchr::memchr;

/// Incremental scanner of one request head. Pure.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FramingScan {
    /// The request line has begun; empty lines before it are skipped.
    begun: bool,
    over: bool,
    /// The rest of this line is skipped.
    skips: bool,
    /// Number of compared bytes of this line.
    column: u8,
    /// Bit set of the names that this line may still begin with.
    candidates: u8,
    present: u8,
}

/// Framing of a request's body by its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// At most one of the two headers.
    Plain,
    /// Both headers.
    Both,
}

const NAMES: [&[u8]; 2] = [b"content-length", b"transfer-encoding"];

impl FramingScan {
    /// Creates a scanner of a head whose beginning was not seen: it has no result.
    pub(super) fn new_skipping() -> Self {
        Self { over: true, ..Self::default() }
    }

    /// Scans the next bytes. Returns the result with the last byte of the head, and the bytes after it.
    pub(super) fn feed<'a>(&mut self, mut bytes: &'a [u8]) -> Option<(Framing, &'a [u8])> {
        if self.over {
            return None;
        }
        loop {
            if self.skips {
                let end = memchr(b'\n', bytes)?;
                bytes = bytes.get(end + 1..)?;
                (self.skips, self.column, self.candidates) = (false, 0, 0b11);
            }
            let (&byte, rest) = bytes.split_first()?;
            bytes = rest;
            match byte {
                b'\r' if self.column == 0 => {}
                b'\n' if self.column == 0 && self.begun => {
                    self.over = true;
                    return Some((if self.present == 0b11 { Framing::Both } else { Framing::Plain }, bytes));
                }
                b'\n' => (self.column, self.candidates) = (0, 0b11),
                _ if !self.begun => (self.begun, self.skips) = (true, true),
                byte => self.compare(byte),
            }
        }
    }

    fn compare(&mut self, byte: u8) {
        let column = usize::from(self.column);
        for (index, name) in NAMES.iter().enumerate() {
            let bit = 1 << index;
            if self.candidates & bit == 0 {
                continue;
            }
            match name.get(column) {
                Some(expected) if byte.eq_ignore_ascii_case(expected) => continue,
                None if byte == b':' => self.present |= bit,
                _ => {}
            }
            self.candidates &= !bit;
        }
        self.column += 1;
        self.skips = self.candidates == 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same whether the head comes as a whole, in halves or byte by byte.
    fn scan(head: &str) -> Option<Framing> {
        let in_pieces = |size: usize| {
            let mut scan = FramingScan::default();
            head.as_bytes().chunks(size).find_map(|piece| scan.feed(piece)).map(|(framing, _)| framing)
        };
        let framing = in_pieces(head.len().max(1));
        for size in 1..head.len() {
            assert_eq!(in_pieces(size), framing, "{head:?} in pieces of {size}");
        }
        framing
    }

    #[test]
    fn both_framing_headers_are_detected_in_any_order_case_and_chunking() {
        for (head, expected) in [
            ("GET / HTTP/1.1\r\n\r\n", Some(Framing::Plain)),
            ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Some(Framing::Plain)),
            ("GET / HTTP/1.1\nHost: a\n\n", Some(Framing::Plain)),
            ("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", Some(Framing::Plain)),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nContent-Length: 5\r\n\r\n", Some(Framing::Plain)),
            ("GET / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", Some(Framing::Both)),
            ("GET / HTTP/1.1\r\ntransfer-ENCODING:chunked\r\nA: b\r\ncontent-LENGTH:0\r\n\r\n", Some(Framing::Both)),
            ("GET / HTTP/1.1\nTransfer-Encoding: chunked\nContent-Length: 5\n\n", Some(Framing::Both)),
            ("GET / HTTP/1.1\r\nTransfer-Encoding-2: a\r\nContent-Length: 5\r\n\r\n", Some(Framing::Plain)),
            ("GET / HTTP/1.1\r\nX-Transfer-Encoding: a\r\nContent-Length: 5\r\n\r\n", Some(Framing::Plain)),
            ("GET / HTTP/1.1\r\nA: Content-Length:\r\nTransfer-Encoding: chunked\r\n\r\n", Some(Framing::Plain)),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n", None),
            ("", None),
        ] {
            assert_eq!(scan(head), expected, "{head:?}");
        }
    }

    #[test]
    fn the_bytes_after_a_head_are_returned_with_its_framing() {
        let mut scan = FramingScan::default();
        assert_eq!(scan.feed(b"POST / HTTP/1.1\r\nContent-Length: 5\r"), None);
        assert_eq!(scan.feed(b"\n\r\nhel"), Some((Framing::Plain, b"hel".as_slice())));
        assert_eq!(scan.feed(b"lo"), None);
    }
}
