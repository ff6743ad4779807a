//! The files of a certificate: written together, and read again by the next process. Blocks.

use std::ffi::CString;
use std::path::PathBuf;
use std::time::SystemTime;

use keyward_machine::atomic_file::{self, Attributes, Outcome, ReplaceError};
use keyward_machine::secure_dir::Dir;
use keyward_machine::versioned_folder;

use super::facts::Unusable;
use super::issued::{Content, IssuedCertificate};
use super::key::{PrepareError, read_password};
use super::pkcs12::{self, Pkcs12Error};
use super::records;
use super::ssh::SshFiles;
use super::x509::X509Files;
use crate::output_command::add_marker;

/// Files of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateOutput {
    /// Path of the folder or file.
    pub path: PathBuf,
    /// Form of the output.
    pub form: OutputForm,
    /// Mode and owner of each file.
    pub attributes: Attributes,
}

/// Form of the files of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputForm {
    /// The path is a symlink to a folder with `key.pem`, `cert.pem`, `chain.pem` and `fullchain.pem`.
    Folder,
    /// A PEM file with the leaf, the authorities below the root, and the key.
    Bundle,
    /// A PKCS#12 file with the same.
    Pkcs12 {
        /// File that holds its password.
        password_file: PathBuf,
        /// Friendly name of the key, the alias of Java.
        alias: String,
    },
    /// The path is a symlink to a folder with `key`, `key.pub` and `key-cert.pub` of OpenSSH.
    SshFolder,
    /// A file with the certificate of OpenSSH alone.
    SshCertificate,
}

/// Reason why the files were not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error(transparent)]
    Replace(#[from] ReplaceError),
    #[error(transparent)]
    Password(#[from] PrepareError),
    #[error(transparent)]
    Pkcs12(#[from] Pkcs12Error),
    #[error("the certificate has another kind than its output; this is a bug in keyward")]
    OtherKind,
}

/// Reason why the files of an earlier process are not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotReused {
    /// There are none.
    Missing,
    /// They were requested with other settings, or nothing says with which.
    OtherRequest,
    /// They cannot be used.
    Unusable(Unusable),
}

impl NotReused {
    /// Returns a fixed word for the log.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::OtherRequest => "other_request",
            Self::Unusable(Unusable::Expired) => "expired",
            Self::Unusable(Unusable::OtherKey) => "other_key",
            Self::Unusable(Unusable::OtherPassword) => "other_password",
            Self::Unusable(_) => "damaged",
        }
    }
}

const KEY: &str = "key.pem";
const LEAF: &str = "cert.pem";
const CHAIN: &str = "chain.pem";
const FULL_CHAIN: &str = "fullchain.pem";
const SSH_KEY: &str = "key";
const SSH_PUBLIC: &str = "key.pub";
const SSH_CERTIFICATE: &str = "key-cert.pub";

impl CertificateOutput {
    /// Writes the files of a certificate that was requested with settings of this digest. A change leaves the marker of the
    /// output's command, if it has one.
    pub(super) fn write(
        &self,
        certificate: &IssuedCertificate,
        digest: &str,
        has_command: bool,
    ) -> Result<Outcome, WriteError> {
        // Before the files: a process that ends in between finds the record of both, whichever is there.
        records::add(&self.path, digest, certificate.fingerprint())?;
        match (&self.form, &certificate.content) {
            (OutputForm::Folder, Content::X509(files)) => {
                let (chain, full_chain) = (files.chain(), files.full_chain());
                let files = [
                    (KEY, files.key().expose_bytes()),
                    (LEAF, files.leaf().as_bytes()),
                    (CHAIN, chain.as_bytes()),
                    (FULL_CHAIN, full_chain.as_bytes()),
                ];
                self.write_folder(&files, has_command)
            }
            (OutputForm::Bundle, Content::X509(files)) => {
                let bundle = [files.full_chain().as_bytes(), files.key().expose_bytes()].concat();
                self.write_file(&bundle, has_command)
            }
            (OutputForm::Pkcs12 { password_file, alias }, Content::X509(files)) => {
                let password = read_password(password_file)?;
                let file = match self.current_pkcs12(certificate, &password) {
                    Some(file) => file,
                    None => pkcs12::encode(files, alias, &password)?,
                };
                self.write_file(&file, has_command)
            }
            (OutputForm::SshFolder, Content::Ssh(files)) => {
                let public = files.public();
                let files = [
                    (SSH_KEY, files.key()),
                    (SSH_PUBLIC, public.as_bytes()),
                    (SSH_CERTIFICATE, files.certificate().as_bytes()),
                ];
                self.write_folder(&files, has_command)
            }
            (OutputForm::SshCertificate, Content::Ssh(files)) => {
                self.write_file(files.certificate().as_bytes(), has_command)
            }
            _ => Err(WriteError::OtherKind),
        }
    }

    fn write_folder(&self, files: &[(&str, &[u8])], has_command: bool) -> Result<Outcome, WriteError> {
        if has_command && !versioned_folder::is_current(&self.path, files, &self.attributes) {
            add_marker(&self.path);
        }
        Ok(versioned_folder::replace(&self.path, files, &self.attributes)?)
    }

    fn write_file(&self, content: &[u8], has_command: bool) -> Result<Outcome, WriteError> {
        let (folder, _) = Dir::open_parent(&self.path).map_err(ReplaceError::from)?;
        if has_command && !atomic_file::is_current_in(&folder, &self.path, content, &self.attributes) {
            add_marker(&self.path);
        }
        Ok(atomic_file::replace_in(&folder, &self.path, content, &self.attributes)?)
    }

    /// Returns the PKCS#12 file that is there, if it holds this certificate: another one would have other bytes.
    fn current_pkcs12(&self, certificate: &IssuedCertificate, password: &CString) -> Option<Vec<u8>> {
        let file = atomic_file::read(&self.path, MAX_FILE)?;
        let (facts, _) = pkcs12::read(&file, password, certificate.life().begins).ok()?;
        (facts.fingerprint == certificate.fingerprint()).then_some(file)
    }

    /// Checks what a write needs before a certificate is requested.
    pub(super) fn prepare(&self) -> Result<(), PrepareError> {
        match &self.form {
            OutputForm::Pkcs12 { password_file, .. } => read_password(password_file).map(drop),
            OutputForm::Folder | OutputForm::Bundle | OutputForm::SshFolder | OutputForm::SshCertificate => Ok(()),
        }
    }

    /// Reads the files of an earlier process, if they were requested with settings of this digest and are valid.
    pub(super) fn read(&self, digest: &str, now: SystemTime) -> Result<IssuedCertificate, NotReused> {
        let certificate = self.read_files(now)?.map_err(NotReused::Unusable)?;
        let is_of_request = records::contain(&self.path, digest, certificate.fingerprint());
        if is_of_request { Ok(certificate) } else { Err(NotReused::OtherRequest) }
    }

    fn read_files(&self, now: SystemTime) -> Result<Result<IssuedCertificate, Unusable>, NotReused> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap_or_default();
        let file = || atomic_file::read(&self.path, MAX_FILE).ok_or(NotReused::Missing);
        let folder = |names: &[&str]| {
            let files = versioned_folder::read(&self.path, names, MAX_FILE).ok_or(NotReused::Missing)?;
            Ok(files.into_iter().map(text).collect::<Vec<_>>())
        };
        Ok(match &self.form {
            OutputForm::Folder => {
                let files = folder(&[KEY, LEAF, CHAIN])?;
                let [key, leaf, chain] = files.as_slice() else { return Err(NotReused::Missing) };
                IssuedCertificate::x509(X509Files::from_files(key, &format!("{leaf}{chain}"), now))
            }
            OutputForm::Bundle => {
                let bundle = text(file()?);
                IssuedCertificate::x509(X509Files::from_files(&bundle, &bundle, now))
            }
            OutputForm::Pkcs12 { password_file, .. } => {
                let password =
                    read_password(password_file).map_err(|_| NotReused::Unusable(Unusable::OtherPassword))?;
                IssuedCertificate::x509(pkcs12::read(&file()?, &password, now))
            }
            OutputForm::SshFolder => {
                let files = folder(&[SSH_KEY, SSH_CERTIFICATE])?;
                let [key, certificate] = files.as_slice() else { return Err(NotReused::Missing) };
                IssuedCertificate::ssh(SshFiles::from_files(key, certificate, now))
            }
            OutputForm::SshCertificate => IssuedCertificate::ssh(SshFiles::from_certificate(&text(file()?), now)),
        })
    }

    /// Names of the files in the folder; empty for one file.
    const fn names(&self) -> &'static [&'static str] {
        match self.form {
            OutputForm::Folder => &[KEY, LEAF, CHAIN, FULL_CHAIN],
            OutputForm::SshFolder => &[SSH_KEY, SSH_PUBLIC, SSH_CERTIFICATE],
            OutputForm::Bundle | OutputForm::Pkcs12 { .. } | OutputForm::SshCertificate => &[],
        }
    }

    /// Removes what interrupted writes left behind. Returns the number of files or folders.
    pub(super) fn sweep(&self) -> usize {
        let files = [&self.path, &records::path(&self.path)].map(|path| atomic_file::sweep(path).unwrap_or_default());
        let folders = if self.names().is_empty() { 0 } else { versioned_folder::sweep(&self.path) };
        files.iter().sum::<usize>() + folders
    }

    /// Returns the files to watch for changes by others.
    pub(super) fn watched_paths(&self) -> Vec<PathBuf> {
        let mut paths = vec![self.path.clone()];
        if !self.names().is_empty()
            && let Some(folder) = versioned_folder::current(&self.path)
        {
            paths.extend(self.names().iter().map(|name| folder.join(name)));
        }
        paths
    }

    /// Returns the files of a server's certificate: the chain and the key. `None` for a form that keyward's own servers do not read.
    pub fn pair(&self) -> Option<(PathBuf, PathBuf)> {
        match self.form {
            OutputForm::Folder => Some((self.path.join(FULL_CHAIN), self.path.join(KEY))),
            OutputForm::Bundle => Some((self.path.clone(), self.path.clone())),
            OutputForm::Pkcs12 { .. } | OutputForm::SshFolder | OutputForm::SshCertificate => None,
        }
    }

    /// Returns the file of all its authorities, by which others check certificates. `None` for a form without it.
    pub fn chain_file(&self) -> Option<PathBuf> {
        (self.form == OutputForm::Folder).then(|| self.path.join(CHAIN))
    }
}

/// Bounds a file that is read.
const MAX_FILE: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use keyward_machine::secret_string::SecretString;
    use rcgen::{CertificateParams, KeyPair};
    use serde_json::json;

    use super::*;
    use crate::secrets::SecretFields;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn issued(hours: u64) -> IssuedCertificate {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["web.example".to_owned()]).unwrap();
        params.not_before = NOW.into();
        params.not_after = (NOW + Duration::from_hours(hours)).into();
        let leaf = params.self_signed(&key).unwrap().pem();
        let data = json!({ "certificate": leaf, "issuing_ca": leaf });
        let fields = SecretFields::from(data.as_object().unwrap().clone());
        IssuedCertificate::x509(X509Files::from_answer(&fields, Some(SecretString::from(key.serialize_pem())), NOW))
            .unwrap()
    }

    fn output(folder: &Path, form: OutputForm) -> CertificateOutput {
        let attributes = Attributes { mode: 0o640, owner: None, group: None };
        CertificateOutput { path: folder.join("web"), form, attributes }
    }

    /// The forms of X.509. A password is beside the output.
    fn forms(folder: &Path) -> [OutputForm; 3] {
        let password_file = folder.join("password");
        std::fs::write(&password_file, "p\u{e4}ssword\n").unwrap();
        [OutputForm::Folder, OutputForm::Bundle, OutputForm::Pkcs12 { password_file, alias: "web".to_owned() }]
    }

    #[test]
    fn a_valid_certificate_of_the_same_request_is_read_again() {
        for index in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let form = forms(folder.path())[index].clone();
            let output = output(folder.path(), form.clone());
            let reason =
                |digest: &str, hours| output.read(digest, NOW + Duration::from_hours(hours)).map(|_| ()).unwrap_err();
            assert_eq!(reason("a", 0), NotReused::Missing);
            let first = issued(2);
            assert_eq!(output.write(&first, "a", false).unwrap(), Outcome::Written);
            assert_eq!(output.write(&first, "a", false).unwrap(), Outcome::Unchanged);
            let read = output.read("a", NOW).unwrap();
            assert_eq!(read.fingerprint(), first.fingerprint());
            assert_eq!(output.write(&read, "a", false).unwrap(), Outcome::Unchanged, "{form:?}");
            assert_eq!(reason("b", 0), NotReused::OtherRequest);
            assert_eq!(reason("a", 2), NotReused::Unusable(Unusable::Expired));
            let second = issued(3);
            output.write(&second, "a", false).unwrap();
            assert_eq!(output.read("a", NOW).unwrap().fingerprint(), second.fingerprint());
            std::fs::remove_file(records::path(&output.path)).unwrap();
            assert_eq!(reason("a", 0), NotReused::OtherRequest, "nobody knows its request");
        }
    }

    #[test]
    fn a_process_that_ends_between_record_and_files_uses_what_is_there() {
        for index in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let form = forms(folder.path())[index].clone();
            let output = output(folder.path(), form.clone());
            let (first, second) = (issued(2), issued(3));
            output.write(&first, "a", false).unwrap();
            records::add(&output.path, "a", second.fingerprint()).unwrap();
            assert_eq!(output.read("a", NOW).unwrap().fingerprint(), first.fingerprint());
        }
    }

    #[test]
    fn files_that_others_have_changed_are_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let bundle = output(folder.path(), OutputForm::Bundle);
        bundle.write(&issued(2), "a", false).unwrap();
        for text in ["", "x", &"x".repeat(2 << 20)] {
            std::fs::write(&bundle.path, text).unwrap();
            assert!(bundle.read("a", NOW).is_err());
        }
        let folder = tempfile::tempdir().unwrap();
        let output = output(folder.path(), OutputForm::Folder);
        output.write(&issued(2), "a", false).unwrap();
        std::fs::write(output.path.join(KEY), KeyPair::generate().unwrap().serialize_pem()).unwrap();
        assert_eq!(output.read("a", NOW).map(|_| ()), Err(NotReused::Unusable(Unusable::OtherKey)));
    }

    #[test]
    fn a_change_leaves_the_marker_of_the_command() {
        for index in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let form = forms(folder.path())[index].clone();
            let output = output(folder.path(), form.clone());
            let certificate = issued(2);
            output.write(&certificate, "a", true).unwrap();
            let marker = folder.path().join(".web.command-pending");
            assert!(marker.exists());
            std::fs::remove_file(&marker).unwrap();
            output.write(&certificate, "a", true).unwrap();
            assert!(!marker.exists());
        }
    }
}
