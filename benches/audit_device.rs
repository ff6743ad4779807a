//! Options of an audit to a file, for benchmarks.

use std::path::PathBuf;
use std::time::Duration;

use keyward_machine::atomic_file::Attributes;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::audit::{AuditFileOptions, AuditOptions, AuditTarget, Fsync, OnFailure};

/// Returns the default options of a configuration, with a size limit that no benchmark reaches.
pub(crate) fn audit_options(path: PathBuf) -> AuditOptions {
    let file = AuditFileOptions {
        path,
        attributes: Attributes { mode: 0o600, owner: None, group: None },
        max_bytes: 4 << 30,
        keep: 2,
        fsync: Fsync::Interval,
    };
    AuditOptions {
        name: "bench".to_owned(),
        key: SecretString::from("k".repeat(64)),
        on_failure: OnFailure::Closed,
        target: AuditTarget::File(file),
        checkpoint_file: None,
        checkpoint_records: 1000,
        checkpoint_interval: Duration::from_mins(5),
    }
}
