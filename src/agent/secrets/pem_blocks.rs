//! PEM blocks in the texts of a secret. A server trims the newline after its blocks, and may put several into one field.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keyward_http::tls;

/// A block whose content is valid.
pub(crate) struct PemBlock {
    /// Label, such as `EC PRIVATE KEY`.
    pub(crate) label: String,
    /// Decoded content, which may be a key.
    pub(crate) content: Vec<u8>,
    /// Lines before the content, such as `DEK-Info`, with an empty line after them.
    headers: String,
}

impl PemBlock {
    /// Creates a block without headers.
    pub(crate) fn new(label: &str, content: Vec<u8>) -> Self {
        Self { label: label.to_owned(), content, headers: String::new() }
    }

    /// Lists the blocks of a text in their order. Skips what is not one.
    pub(crate) fn parse_all(text: &str) -> Vec<Self> {
        if !text.contains("-----BEGIN ") {
            return Vec::new();
        }
        tls::pem_blocks(text.as_bytes()).filter_map(Self::parse).collect()
    }

    fn parse(block: tls::PemBlock<'_>) -> Option<Self> {
        let text = std::str::from_utf8(block.text).ok()?;
        let lines: Vec<&str> = text.trim().lines().map(str::trim).collect();
        let [_, inner @ .., _] = lines.as_slice() else { return None };
        let headers = inner.iter().position(|line| line.is_empty()).filter(|_| inner[0].contains(':'));
        let (headers, inner) = inner.split_at(headers.map_or(0, |at| at + 1));
        let content = STANDARD.decode(inner.concat().as_bytes()).ok()?;
        let headers = headers.iter().flat_map(|line| [line, "\n"]).collect();
        Some(Self { label: String::from_utf8(block.label.to_vec()).ok()?, content, headers })
    }

    /// Formats the block with lines of 64 characters, each ended by a newline.
    pub(crate) fn to_pem(&self) -> String {
        let Self { label, content, headers } = self;
        let base64 = STANDARD.encode(content);
        let mut pem = format!("-----BEGIN {label}-----\n{headers}");
        for line in base64.as_bytes().chunks(LINE) {
            pem.push_str(std::str::from_utf8(line).unwrap_or_default());
            pem.push('\n');
        }
        pem + &format!("-----END {label}-----\n")
    }
}

/// Length of a line (RFC 7468, 2).
const LINE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_split_and_end_with_a_newline() {
        let check = |text: &str, expected: &[&str]| {
            let blocks: Vec<_> = PemBlock::parse_all(text).iter().map(PemBlock::to_pem).collect();
            assert_eq!(blocks, expected, "{text}");
        };
        let key = "-----BEGIN EC PRIVATE KEY-----\nAQID\n-----END EC PRIVATE KEY-----";
        let certificate = "-----BEGIN CERTIFICATE-----\nBAUG\n-----END CERTIFICATE-----";
        let lines = [format!("{key}\n"), format!("{certificate}\n")];
        check(key, &[&lines[0]]);
        check(&format!("{key}\n{certificate}"), &[&lines[0], &lines[1]]);
        check(&format!("text\r\n{}\r\n", certificate.replace('\n', "\r\n")), &[&lines[1]]);
        let long = format!("-----BEGIN CERTIFICATE-----\n{}\n{}\n-----END CERTIFICATE-----\n", "A".repeat(64), "AAAA");
        check(&long.replace("A\nA", "AA"), &[&long]);
        let locked = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: x,y\n\nAQID\n-----END RSA PRIVATE KEY-----\n";
        check(locked, &[locked]);
        check("-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----", &[]);
        check("-----BEGIN CERTIFICATE-----\n", &[]);
        check("-----BEGIN X-----\n-----END X-----\n", &["-----BEGIN X-----\n-----END X-----\n"]);
        check("none", &[]);
    }
}
