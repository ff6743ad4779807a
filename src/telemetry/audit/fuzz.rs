//! Entry point of the fuzz target `audit`.

use keyward_machine::secret_string::SecretString;

use super::{AuditKey, DisplayedRecord, LinePosition, Verifier, VerifyReport, read_lines};

/// Verifies bytes as the lines of an audit with the key of the seeds. Returns the report, and each record as text.
pub fn verify(bytes: &[u8]) -> (VerifyReport, Vec<String>) {
    let key = AuditKey::new(&SecretString::from("the key of the seeds, which is no secret"));
    let mut verifier = Verifier::new(&key, Vec::new());
    let mut number = 0;
    let mut records = Vec::new();
    // Reading from memory cannot fail.
    let _ = read_lines(&mut &*bytes, |line| {
        number += 1;
        verifier.verify_line(&LinePosition { file: "seed".into(), line: number }, line);
        records.extend(DisplayedRecord::parse(line).map(|record| record.format()));
    });
    (verifier.finish(), records)
}
