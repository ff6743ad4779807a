//! Files of this machine whose text goes into a pod's `ConfigMap`: templates, and the CA bundle, which no image has.

use std::io::Read as _;

/// Longest file: a `ConfigMap` holds 1 MiB.
const MAX_SIZE: u64 = 512 * 1024;

/// Reads the file that a flag names.
pub(super) fn read(flag: &str, path: &str) -> Result<String, String> {
    let failed = |why: &dyn std::fmt::Display| format!("{flag} {path}: {why}");
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| failed(&error))?;
    file.take(MAX_SIZE + 1).read_to_string(&mut text).map_err(|error| failed(&error))?;
    if text.len() as u64 > MAX_SIZE {
        return Err(failed(&"longer than 512 KiB, which is too much for a ConfigMap"));
    }
    Ok(text)
}

/// Reads the certificates of a PEM file; other blocks, such as a private key, are left out.
pub(super) fn read_ca_bundle(path: &str) -> Result<String, String> {
    let certificates = certificates(&read("--ca-file", path)?);
    if certificates.is_empty() {
        return Err(format!("--ca-file {path}: holds no certificate; name a PEM file with BEGIN CERTIFICATE"));
    }
    Ok(certificates)
}

/// Returns the lines of all certificates.
fn certificates(pem: &str) -> String {
    let mut text = String::new();
    let mut is_inside = false;
    for line in pem.lines().map(str::trim) {
        is_inside |= line == "-----BEGIN CERTIFICATE-----";
        if is_inside {
            text.push_str(line);
            text.push('\n');
        }
        is_inside &= line != "-----END CERTIFICATE-----";
    }
    // A block without its end may be half a file.
    if is_inside { String::new() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_certificates_are_taken() {
        let block = |kind: &str| format!("-----BEGIN {kind}-----\r\nAAAA\n-----END {kind}-----\n");
        let certificate = block("CERTIFICATE").replace('\r', "");
        let pem = format!("# a note\n{}{}{}", block("CERTIFICATE"), block("PRIVATE KEY"), block("CERTIFICATE"));
        assert_eq!(certificates(&pem), certificate.repeat(2));
        assert_eq!(certificates(&block("PRIVATE KEY")), "");
        assert_eq!(certificates(certificate.trim_end().trim_end_matches("-----")), "");
    }
}
