//! Where tokens are written: files, each kept the same as its session's token.

// 0: what stands in the file, and who may write it
mod file_lock;
mod format;
mod envelope;

// 1: the file that follows a watch
mod file;

pub use self::file::FileSink;

use std::path::PathBuf;

use crate::agent::output_watch::OnMissing;

/// A file that holds a session's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkOptions {
    /// The sink's name.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// What stands in it.
    pub format: SinkFormat,
    /// Whom it is sealed for, if anyone.
    pub encrypt: Option<SinkEncryption>,
    /// Its mode.
    pub mode: u32,
    /// Its owner, if not the agent's user.
    pub owner: Option<u32>,
    /// Its group, if not the agent's group.
    pub group: Option<u32>,
    /// What becomes of it when the token has ended and there is no other.
    pub on_expiry: OnExpiry,
    /// Reaction when somebody else deletes or changes it; `None` for content that is made anew each time, which is not watched.
    pub on_missing: Option<OnMissing>,
    /// Whether the agent is not ready before it is written.
    pub required: bool,
}

/// What stands in a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkFormat {
    /// The token's text, without a newline.
    Raw,
    /// An object with `token`, `accessor` (or null), `expires_at` (RFC 3339, or null for a token that never ends),
    /// `renewable` and `policies`. For a wrapped login, what Vault's own agent writes: `token`, `accessor`, `ttl`
    /// (seconds), `creation_time`, `creation_path`.
    Json,
    /// A line `NAME=TOKEN`, as a service manager's `EnvironmentFile=` and a shell read it.
    Env(&'static str),
}

/// Who alone can read a sink: whoever has the private key to a public one. The envelope is that of Vault's own agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkEncryption {
    /// The file with the reader's public key: JSON with `curve25519_public_key`, 32 bytes in base64. The key that is read
    /// first holds as long as the sink runs.
    pub public_key_file: PathBuf,
    /// Whether the sealing key is derived from what both keys agree on, and both public keys (HKDF), rather than just that.
    pub derive_key: bool,
    /// What the reader must know to open it, beside its key.
    pub aad: String,
}

/// What becomes of a sink when its token has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExpiry {
    /// It stays as it is.
    Keep,
    /// It is emptied.
    Truncate,
    /// It is removed.
    Remove,
}
