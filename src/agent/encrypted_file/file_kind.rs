//! Kinds of encrypted files, with their labels and bounds.

/// Bounds the content of a file, in bytes before encryption.
pub(crate) const MAX_CONTENT: usize = 16 * 1024 * 1024;

/// Kind of an encrypted file; each derives a different key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// State of a session, of which only the token is encrypted.
    SessionState,
    /// Cached responses of the API proxy.
    CachedResponses,
    /// Secrets of templates.
    TemplateSecrets,
}

impl FileKind {
    /// Label of the key derivation.
    pub(super) const fn salt(self) -> &'static [u8] {
        match self {
            Self::SessionState => b"keyward session state",
            Self::CachedResponses => b"keyward kept answers",
            Self::TemplateSecrets => b"keyward kept secrets",
        }
    }

    /// Content of the file in log events.
    pub(crate) const fn describe(self) -> &'static str {
        match self {
            Self::SessionState => "the state of a session",
            Self::CachedResponses => "cached responses",
            Self::TemplateSecrets => "secrets of templates",
        }
    }

    /// Content of the file in its header, which never changes.
    pub(super) const fn content(self) -> &'static str {
        match self {
            Self::SessionState => "session state",
            Self::CachedResponses => "kept answers",
            Self::TemplateSecrets => "kept secrets",
        }
    }

    /// Largest file that is read, in bytes: the content with JSON around it.
    pub(super) const fn max_size(self) -> u64 {
        match self {
            Self::SessionState => 256 * 1024,
            Self::CachedResponses | Self::TemplateSecrets => 4 * MAX_CONTENT as u64,
        }
    }
}
