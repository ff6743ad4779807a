//! Options of one audit device.

use std::path::PathBuf;
use std::time::Duration;

use keyward_machine::atomic_file::Attributes;
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;

/// Options of one audit device.
#[derive(Debug, Clone)]
pub struct AuditOptions {
    /// Name of the section.
    pub name: String,
    /// Key of the chain and of hashed values.
    pub key: SecretString,
    /// Consequence of a record that cannot be kept.
    pub on_failure: OnFailure,
    /// Destination of the records.
    pub target: AuditTarget,
    /// File to which checkpoints are exported.
    pub checkpoint_file: Option<PathBuf>,
    /// Records from one checkpoint to the next.
    pub checkpoint_records: u64,
    /// Time from a record to the next checkpoint.
    pub checkpoint_interval: Duration,
}

impl PartialEq for AuditOptions {
    /// Compares keys in constant time.
    fn eq(&self, other: &Self) -> bool {
        let Self { name, key, on_failure, target, checkpoint_file, checkpoint_records, checkpoint_interval } = self;
        *name == other.name
            && secret::ct_eq(key, other.key.expose_secret().as_bytes())
            && *on_failure == other.on_failure
            && *target == other.target
            && *checkpoint_file == other.checkpoint_file
            && *checkpoint_records == other.checkpoint_records
            && *checkpoint_interval == other.checkpoint_interval
    }
}

/// Consequence of a record that cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// The request gets a 503 and is not forwarded.
    Closed,
    /// The request is served; the record is counted as lost.
    Open,
}

/// Destination of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditTarget {
    /// A file that keyward rotates.
    File(AuditFileOptions),
    /// A stream socket that a collector listens on.
    Socket(PathBuf),
    /// The socket of journald's native protocol.
    Journald(PathBuf),
}

impl AuditTarget {
    /// Returns the path for operators.
    pub(super) fn path(&self) -> String {
        match self {
            Self::File(file) => file.path.display().to_string(),
            Self::Socket(path) | Self::Journald(path) => path.display().to_string(),
        }
    }
}

/// Options of an audit file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditFileOptions {
    /// Path of the file; older ones have `.1`, `.2` and so on appended.
    pub path: PathBuf,
    /// Mode and ownership of the files.
    pub attributes: Attributes,
    /// Size at which a new file begins, in bytes.
    pub max_bytes: u64,
    /// Number of older files.
    pub keep: u32,
    /// Time at which records reach the disk.
    pub fsync: Fsync,
}

/// Time at which records reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// Before the request is served.
    Always,
    /// Within a second.
    Interval,
    /// When the system writes them.
    Never,
}
