//! The files of a certificate: written together, and read again by the next process. Blocks.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

use keyward_machine::atomic_file::{self, Attributes, Outcome, ReplaceError};
use keyward_machine::secure_dir::Dir;
use keyward_machine::versioned_folder;

use super::issued::{IssuedCertificate, Unusable};
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputForm {
    /// The path is a symlink to a folder with `key.pem`, `cert.pem`, `chain.pem` and `fullchain.pem`.
    Folder,
    /// A PEM file with the leaf, the authorities below the root, and the key.
    Bundle,
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
            Self::Unusable(_) => "damaged",
        }
    }
}

const KEY: &str = "key.pem";
const LEAF: &str = "cert.pem";
const CHAIN: &str = "chain.pem";
const FULL_CHAIN: &str = "fullchain.pem";

impl CertificateOutput {
    /// Writes the files of a certificate that was requested with settings of this digest. A change leaves the marker of the
    /// output's command, if it has one.
    pub(super) fn write(
        &self,
        certificate: &IssuedCertificate,
        digest: &str,
        has_command: bool,
    ) -> Result<Outcome, ReplaceError> {
        // Before the files: a process that ends in between finds the record of both, whichever is there.
        self.write_record(certificate, digest)?;
        match self.form {
            OutputForm::Folder => {
                let (chain, full_chain) = (certificate.chain(), certificate.full_chain());
                let files = [
                    (KEY, certificate.key().expose_bytes()),
                    (LEAF, certificate.leaf().as_bytes()),
                    (CHAIN, chain.as_bytes()),
                    (FULL_CHAIN, full_chain.as_bytes()),
                ];
                if has_command && !versioned_folder::is_current(&self.path, &files, &self.attributes) {
                    add_marker(&self.path);
                }
                versioned_folder::replace(&self.path, &files, &self.attributes)
            }
            OutputForm::Bundle => {
                let bundle = [certificate.full_chain().as_bytes(), certificate.key().expose_bytes()].concat();
                let (folder, _) = Dir::open_parent(&self.path)?;
                if has_command && !atomic_file::is_current_in(&folder, &self.path, &bundle, &self.attributes) {
                    add_marker(&self.path);
                }
                atomic_file::replace_in(&folder, &self.path, &bundle, &self.attributes)
            }
        }
    }

    /// Reads the files of an earlier process, if they were requested with settings of this digest and are valid.
    pub(super) fn read(&self, digest: &str, now: SystemTime) -> Result<IssuedCertificate, NotReused> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap_or_default();
        let read = match self.form {
            OutputForm::Folder => {
                let files = versioned_folder::read(&self.path, &[KEY, LEAF, CHAIN], MAX_FILE);
                let files = files.ok_or(NotReused::Missing)?.into_iter().map(text).collect::<Vec<_>>();
                let [key, leaf, chain] = files.as_slice() else { return Err(NotReused::Missing) };
                IssuedCertificate::from_files(key, &format!("{leaf}{chain}"), now)
            }
            OutputForm::Bundle => {
                let bundle = text(atomic_file::read(&self.path, MAX_FILE).ok_or(NotReused::Missing)?);
                IssuedCertificate::from_files(&bundle, &bundle, now)
            }
        };
        let certificate = read.map_err(NotReused::Unusable)?;
        let records = self.read_records();
        let is_of_request = |record: &Record| *record == Record::new(digest, certificate.fingerprint());
        if records.iter().any(is_of_request) { Ok(certificate) } else { Err(NotReused::OtherRequest) }
    }

    /// Removes what interrupted writes left behind. Returns the number of files or folders.
    pub(super) fn sweep(&self) -> usize {
        let files = [&self.path, &self.record_path()].map(|path| atomic_file::sweep(path).unwrap_or_default());
        let folders = if self.form == OutputForm::Folder { versioned_folder::sweep(&self.path) } else { 0 };
        files.iter().sum::<usize>() + folders
    }

    /// Returns the files to watch for changes by others.
    pub(super) fn watched_paths(&self) -> Vec<PathBuf> {
        let mut paths = vec![self.path.clone()];
        if self.form == OutputForm::Folder
            && let Some(folder) = versioned_folder::current(&self.path)
        {
            paths.extend([KEY, LEAF, CHAIN, FULL_CHAIN].map(|name| folder.join(name)));
        }
        paths
    }

    /// Returns the files of a server's certificate: the chain and the key.
    pub fn pair(&self) -> (PathBuf, PathBuf) {
        match self.form {
            OutputForm::Folder => (self.path.join(FULL_CHAIN), self.path.join(KEY)),
            OutputForm::Bundle => (self.path.clone(), self.path.clone()),
        }
    }

    /// Records the request of a certificate beside its files, and keeps the record of the one before.
    fn write_record(&self, certificate: &IssuedCertificate, digest: &str) -> Result<(), ReplaceError> {
        let new = Record::new(digest, certificate.fingerprint());
        let mut records = self.read_records();
        if records.contains(&new) {
            return Ok(());
        }
        records.insert(0, new);
        records.truncate(RECORDS);
        let text: String = records.iter().map(Record::to_line).collect();
        let attributes = Attributes { mode: 0o600, owner: None, group: None };
        atomic_file::replace(&self.record_path(), text.as_bytes(), &attributes).map(drop)
    }

    fn read_records(&self) -> Vec<Record> {
        let text = atomic_file::read(&self.record_path(), MAX_FILE);
        let text = text.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        text.lines().filter_map(Record::parse).take(RECORDS).collect()
    }

    /// `.NAME.request` beside the output. Not longer than the name of its temporary file.
    fn record_path(&self) -> PathBuf {
        let mut name = OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(".request");
        self.path.with_file_name(name)
    }
}

/// The certificate on the disk, and the one that takes its place.
const RECORDS: usize = 2;

/// Bounds a file that is read.
const MAX_FILE: usize = 1 << 20;

/// A line of the record: the digest of the settings with which a certificate was requested, and that of the certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    request: String,
    certificate: String,
}

impl Record {
    fn new(request: &str, certificate: &str) -> Self {
        Self { request: request.to_owned(), certificate: certificate.to_owned() }
    }

    fn parse(line: &str) -> Option<Self> {
        let parts: Vec<&str> = line.split(' ').collect();
        let [VERSION, request, certificate] = parts.as_slice() else { return None };
        Some(Self::new(request, certificate))
    }

    fn to_line(&self) -> String {
        format!("{VERSION} {} {}\n", self.request, self.certificate)
    }
}

/// Version of the record's form.
const VERSION: &str = "1";

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
        IssuedCertificate::from_answer(&fields, Some(SecretString::from(key.serialize_pem())), NOW).unwrap()
    }

    fn output(folder: &Path, form: OutputForm) -> CertificateOutput {
        let attributes = Attributes { mode: 0o640, owner: None, group: None };
        CertificateOutput { path: folder.join("web"), form, attributes }
    }

    #[test]
    fn a_valid_certificate_of_the_same_request_is_read_again() {
        for form in [OutputForm::Folder, OutputForm::Bundle] {
            let folder = tempfile::tempdir().unwrap();
            let output = output(folder.path(), form);
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
            std::fs::remove_file(output.record_path()).unwrap();
            assert_eq!(reason("a", 0), NotReused::OtherRequest, "nobody knows its request");
        }
    }

    #[test]
    fn a_process_that_ends_between_record_and_files_uses_what_is_there() {
        for form in [OutputForm::Folder, OutputForm::Bundle] {
            let folder = tempfile::tempdir().unwrap();
            let output = output(folder.path(), form);
            let (first, second) = (issued(2), issued(3));
            output.write(&first, "a", false).unwrap();
            output.write_record(&second, "a").unwrap();
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
        for form in [OutputForm::Folder, OutputForm::Bundle] {
            let folder = tempfile::tempdir().unwrap();
            let output = output(folder.path(), form);
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
