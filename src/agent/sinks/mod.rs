//! Token files (sinks), each kept equal to its session's token.

// 0: the content of the file, the lock on it, and errors
mod metrics;
mod file_lock;
mod shared_folder;
mod format;
mod envelope;
mod error;

// 1: the file that follows a session's token
mod file;

pub use self::file::FileSink;
pub use self::metrics::SinkMetrics;

use std::path::PathBuf;

use crate::output_watch::OnMissing;

/// Options of one token file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkOptions {
    /// The sink's name.
    pub name: String,
    /// Path of the file.
    pub path: PathBuf,
    /// Format of its content.
    pub format: SinkFormat,
    /// Encryption for one reader; `None` for plain content.
    pub encrypt: Option<SinkEncryption>,
    /// Permission bits.
    pub mode: u32,
    /// Numeric owner; `None` for the agent's user.
    pub owner: Option<u32>,
    /// Numeric group; `None` for the agent's group.
    pub group: Option<u32>,
    /// Reaction to the end of the token when there is no other.
    pub on_expiry: OnExpiry,
    /// Reaction when the file is deleted or changed from outside; `None` for content that differs at each write, which is not
    /// watched.
    pub on_missing: Option<OnMissing>,
    /// Others than root and the agent's user may own or write the folder.
    pub shared_folder: bool,
    /// The agent is not ready before the file is written.
    pub required: bool,
}

/// Format of a token file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkFormat {
    /// The token's text, without a newline.
    Raw,
    /// An object with `token`, `accessor` (or null), `expires_at` (RFC 3339, or null for a token that never ends),
    /// `renewable` and `policies`. For a wrapped login, what Vault's own agent writes: `token`, `accessor`, `ttl`
    /// (seconds), `creation_time`, `creation_path`.
    Json,
    /// A line `NAME=TOKEN`, for systemd's `EnvironmentFile=` and shells.
    Env(&'static str),
}

/// Encryption of a token file for the owner of a key pair, in the format of Vault Agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkEncryption {
    /// File with the reader's public key: JSON with `curve25519_public_key`, 32 bytes in base64. It is read once; a key that
    /// changes later is ignored.
    pub public_key_file: PathBuf,
    /// Derive the encryption key from the shared secret and both public keys (HKDF) instead of using the shared secret.
    pub derive_key: bool,
    /// Additional authenticated data, which the reader needs besides its key.
    pub aad: String,
}

/// Reaction to the end of a sink's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExpiry {
    /// Keep the file.
    Keep,
    /// Empty the file.
    Truncate,
    /// Remove the file.
    Remove,
}
