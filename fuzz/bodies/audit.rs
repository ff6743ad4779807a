//! Verification and display of an audit.

/// Verifies bytes as an audit. Every line is verified or has a finding of one line, and a repetition of the audit is detected.
pub(crate) fn audit(bytes: &[u8]) {
    let (report, displayed) = keyward_telemetry::audit::fuzz::verify(bytes);
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() as u64;
    assert_eq!(report.lines, lines);
    assert!(report.verified + report.findings.len() as u64 + report.notes.len() as u64 >= lines, "{report:?}");
    for finding in &report.findings {
        super::assert_one_line(&finding.to_string());
    }
    assert!(displayed.len() as u64 <= lines);
    let mut doubled = bytes.to_vec();
    doubled.push(b'\n');
    doubled.extend_from_slice(bytes);
    let (doubled_report, _) = keyward_telemetry::audit::fuzz::verify(&doubled);
    assert!(lines == 0 || !doubled_report.is_intact(), "a repeated audit is intact");
}
