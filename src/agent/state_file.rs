//! Files of the state folder: read without trust, replaced as a whole, with secrets encrypted.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use rustix::fs::{Mode, OFlags};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use crate::aead;
use crate::atomic_file::{Attributes, replace, sweep_at_start};

/// A file of the state folder. Its writes keep their order.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    written: Mutex<u64>,
}

impl StateFile {
    pub(super) fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Self { path, written: Mutex::new(0) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads at most `largest` bytes of a regular file, following no symlink; returns `None` if there is no file.
    ///
    /// Removes temporary files of interrupted writes beside it. Blocks.
    pub(super) fn read(&self, largest: u64) -> std::io::Result<Option<Zeroizing<Vec<u8>>>> {
        sweep_at_start(&self.path);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            opened => std::fs::File::from(opened?),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(std::io::Error::other("not a regular file"));
        }
        let size = usize::try_from(metadata.len().min(largest)).unwrap_or_default();
        let mut bytes = Zeroizing::new(Vec::with_capacity(size));
        file.take(largest).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Replaces the file with mode 0600, unless a write with a later `order` has done so.
    pub(super) async fn write(
        self: Arc<Self>,
        order: u64,
        bytes: Vec<u8>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut written = self.written.lock().await;
        if *written >= order {
            return Ok(());
        }
        let file = Arc::clone(&self);
        let attributes = Attributes { mode: 0o600, owner: None, group: None };
        tokio::task::spawn_blocking(move || replace(&file.path, &bytes, &attributes)).await??;
        *written = order;
        Ok(())
    }

    /// Renames the file to `FILE.refused`, replacing an earlier one, and returns the new path. Blocks.
    pub(super) fn set_aside(&self) -> std::io::Result<PathBuf> {
        let mut aside = self.path.clone().into_os_string();
        aside.push(".refused");
        let aside = PathBuf::from(aside);
        std::fs::rename(&self.path, &aside)?;
        Ok(aside)
    }
}

/// Encryption key of a state file, with the names that it is bound to.
#[derive(Debug)]
pub(super) struct SealingKey {
    key: aead::AeadKey,
    bound_to: Vec<u8>,
}

impl SealingKey {
    /// Derives the key for one purpose from `text`, which should be random: this is no password hash. Data that was encrypted
    /// for other names in `bound_to` does not open.
    pub(super) fn new(text: &SecretString, used_for: KeyPurpose, bound_to: &[&str]) -> Result<Self, Unspecified> {
        let mut key = Zeroizing::new([0_u8; 32]);
        let derived = Salt::new(HKDF_SHA256, used_for.salt()).extract(text.expose_secret().as_bytes());
        derived.expand(&[b"seal 1"], KeyLength)?.fill(&mut *key)?;
        let mut bound = vec![1];
        for name in bound_to {
            bound.extend_from_slice(&(name.len() as u64).to_be_bytes());
            bound.extend_from_slice(name.as_bytes());
        }
        Ok(Self { key: aead::AeadKey::new(&key)?, bound_to: bound })
    }

    /// Encrypts `plain`.
    pub(super) fn seal(&self, plain: &[u8]) -> Result<Vec<u8>, Unspecified> {
        self.key.seal(plain, &self.bound_to)
    }

    /// Decrypts the output of [`SealingKey::seal`].
    pub(super) fn open(&self, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Unspecified> {
        self.key.open(sealed, &self.bound_to)
    }

    /// Returns the additional data: an unambiguous encoding of the names that the key is bound to.
    pub(super) fn bound_to(&self) -> &[u8] {
        &self.bound_to
    }
}

/// Purpose of a key; each has a key derivation of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyPurpose {
    /// Token of a session.
    Token,
    /// Cached responses of the API proxy.
    Answers,
    /// Secrets of templates.
    Secrets,
}

impl KeyPurpose {
    const fn salt(self) -> &'static [u8] {
        match self {
            Self::Token => b"keyward session state",
            Self::Answers => b"keyward kept answers",
            Self::Secrets => b"keyward kept secrets",
        }
    }
}

struct KeyLength;

impl KeyType for KeyLength {
    fn len(&self) -> usize {
        32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(key: &str, used_for: KeyPurpose, bound_to: &[&str]) -> SealingKey {
        SealingKey::new(&SecretString::from(key), used_for, bound_to).unwrap()
    }

    #[test]
    fn data_opens_only_with_the_same_key_purpose_and_names() {
        let names = ["web", "https://vault:8200", "role"];
        let sealed = seal("key", KeyPurpose::Token, &names).seal(b"hvs.canary").unwrap();
        assert_eq!(&**seal("key", KeyPurpose::Token, &names).open(&sealed).unwrap(), b"hvs.canary");
        assert!(seal("other", KeyPurpose::Token, &names).open(&sealed).is_err());
        assert!(seal("key", KeyPurpose::Secrets, &names).open(&sealed).is_err());
        assert!(seal("key", KeyPurpose::Token, &["web", "https://vault:8200", "other"]).open(&sealed).is_err());
        assert!(seal("key", KeyPurpose::Token, &["webh", "ttps://vault:8200", "role"]).open(&sealed).is_err());
    }
}
