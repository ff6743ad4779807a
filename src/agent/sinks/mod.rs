//! Where tokens are written.

use std::path::PathBuf;

/// A file that holds a session's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The sink's name.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// What stands in it.
    pub format: Format,
    /// Its mode.
    pub mode: u32,
    /// Its owner, if not the agent's user.
    pub owner: Option<u32>,
    /// Its group, if not the agent's group.
    pub group: Option<u32>,
    /// What becomes of it when the token has ended and there is no other.
    pub on_expiry: OnExpiry,
    /// Whether the agent is not ready before it is written.
    pub required: bool,
}

/// What stands in a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The token's text, without a newline.
    Raw,
    /// An object with `token`, `accessor`, `expires_at`, `renewable`, `policies`; for a wrapped login, the wrapping's fields.
    Json,
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
