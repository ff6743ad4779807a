//! Audits as verified and shown.

/// Every line is verified or has a finding, what is said of it is one line, and a line that is repeated at the end is found.
pub(crate) fn audit(bytes: &[u8]) {
    let (report, shown) = keyward::audit::fuzz::verify(bytes);
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() as u64;
    assert_eq!(report.lines, lines);
    assert!(report.verified + report.findings.len() as u64 + report.notes.len() as u64 >= lines, "{report:?}");
    for finding in &report.findings {
        super::assert_one_line(&finding.to_string());
    }
    assert!(shown.len() as u64 <= lines);
    let mut doubled = bytes.to_vec();
    doubled.push(b'\n');
    doubled.extend_from_slice(bytes);
    let (doubled, _) = keyward::audit::fuzz::verify(&doubled);
    assert!(lines == 0 || !doubled.is_intact(), "an audit that is repeated is found");
}
