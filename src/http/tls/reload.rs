//! TLS configurations that follow their files: each new connection uses the current files.
//!
//! `stat(2)` runs for each connection: microseconds beside a handshake of milliseconds, and reliable on file systems
//! without notifications. Unusable files leave the configuration unchanged: a writer may have replaced the certificate but
//! not yet the key.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keyward_telemetry::error_chain::{causes, format_chain};
use parking_lot::Mutex;

use super::config::{client_config, without_certificate};
use super::pem::certificate_files;
use super::{CertificateError, ServerCertificate, TlsOptions};

/// A value that is built from files, and built again when they change. Clones share it.
pub struct FileBacked<T>(Arc<Inner<T>>);

struct Inner<T> {
    paths: Vec<PathBuf>,
    build: Box<dyn Fn() -> Result<T, BuildFailure> + Send + Sync>,
    loaded: Mutex<LoadedValue<T>>,
}

struct LoadedValue<T> {
    value: T,
    stamps: Vec<FileStamp>,
}

/// Reason why files cannot be used.
struct BuildFailure {
    error: String,
    /// The files could not be read, which another attempt may do.
    is_transient: bool,
}

/// Identifies the content of a file without reading it: device, inode, change time in seconds and nanoseconds,
/// length. `None` for a file that is not there.
type FileStamp = Option<(u64, u64, i64, i64, u64)>;

impl<T: Clone> FileBacked<T> {
    /// Builds the value, and again for a later [`FileBacked::current`] after one of `paths` has changed. A path
    /// of a folder stands for the certificate files in it.
    ///
    /// # Errors
    /// The first build failed.
    pub fn new<E: std::error::Error + 'static>(
        paths: Vec<PathBuf>,
        build: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        // Before the files are read: one that changes meanwhile is read again.
        let stamps = stamps(&paths);
        let loaded = Mutex::new(LoadedValue { value: build()?, stamps });
        let build = Box::new(move || {
            build().map_err(|error| BuildFailure { is_transient: is_read_failure(&error), error: format_chain(&error) })
        });
        Ok(Self(Arc::new(Inner { paths, build, loaded })))
    }

    /// The value from the files as they are now, or from the last ones that could be used.
    pub fn current(&self) -> T {
        let Inner { paths, build, loaded } = &*self.0;
        let mut loaded = loaded.lock();
        if paths.is_empty() {
            return loaded.value.clone();
        }
        let now = stamps(paths);
        if now != loaded.stamps {
            // A running agent also watches these files, and reports to operators: see `app/certificate_watch.rs`.
            match build() {
                Ok(value) => {
                    (loaded.value, loaded.stamps) = (value, now);
                    tracing::debug!(
                        event = "tls.files.loaded",
                        paths = join_paths(paths),
                        "loaded new certificate files"
                    );
                }
                Err(BuildFailure { error, is_transient }) => {
                    // Files that could not be read, as without a free descriptor, are read again at the next connection.
                    if !is_transient {
                        loaded.stamps = now;
                    }
                    tracing::debug!(
                        event = "tls.files.rejected",
                        paths = join_paths(paths),
                        error,
                        "rejected new certificate files; the old ones stay in use"
                    );
                }
            }
        }
        loaded.value.clone()
    }
}

/// Returns a build from files that are awaited: until they have been of use once, `without` them. Damaged files too: whoever writes the
/// first ones replaces them. Later files that are of no use leave the last value in use.
fn awaiting<T, E: std::error::Error + 'static>(
    is_awaited: bool,
    build: impl Fn() -> Result<T, E>,
    without: impl Fn() -> Result<T, E>,
) -> impl Fn() -> Result<T, E> {
    let is_awaited = AtomicBool::new(is_awaited);
    move || match build() {
        // Files that are there and could not be read are read again.
        Err(error) if is_awaited.load(Ordering::Relaxed) && !is_read_failure(&error) => without(),
        Err(error) => Err(error),
        Ok(value) => {
            is_awaited.store(false, Ordering::Relaxed);
            Ok(value)
        }
    }
}

/// Returns true if a file that exists could not be read.
fn is_read_failure(error: &(dyn std::error::Error + 'static)) -> bool {
    let failed = |cause: &(dyn std::error::Error + 'static)| {
        let os_error = cause.downcast_ref::<std::io::Error>().filter(|error| error.raw_os_error().is_some());
        os_error.is_some_and(|error| error.kind() != std::io::ErrorKind::NotFound)
    };
    causes(error).any(failed)
}

impl<T> Clone for FileBacked<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for FileBacked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileBacked").field("paths", &self.0.paths).finish_non_exhaustive()
    }
}

fn join_paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn stamps(paths: &[PathBuf]) -> Vec<FileStamp> {
    let mut stamps = Vec::with_capacity(paths.len());
    for path in paths {
        stamps.push(stamp(path));
        if path.is_dir() {
            stamps.extend(certificate_files(path).unwrap_or_default().iter().map(|file| stamp(file)));
        }
    }
    stamps
}

fn stamp(path: &Path) -> FileStamp {
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.ctime(), file.ctime_nsec(), file.len()))
}

/// A client's TLS, from its files as they are at each connection.
#[derive(Debug, Clone)]
pub struct ClientTls(FileBacked<Arc<rustls::ClientConfig>>);

impl ClientTls {
    /// Reads the files.
    pub(crate) fn new(tls: &TlsOptions) -> Result<Self, CertificateError> {
        FileBacked::new(tls.files(), tls.follow(|tls| client_config(tls).map(Arc::new))).map(Self)
    }

    /// The configuration for the next connection.
    pub(crate) fn current(&self) -> Arc<rustls::ClientConfig> {
        self.0.current()
    }
}

/// A server's TLS, from its files as they are at each connection.
#[derive(Debug, Clone)]
pub struct ServerTls(FileBacked<Arc<rustls::ServerConfig>>);

impl ServerTls {
    /// Reads the files.
    pub fn new(certificate: &ServerCertificate) -> Result<Self, CertificateError> {
        let certificate = certificate.clone();
        let mut paths = vec![certificate.certificate.clone(), certificate.key.clone()];
        paths.extend(certificate.client_ca.iter().map(|authorities| authorities.file.clone()));
        let is_awaited = certificate.is_awaited();
        FileBacked::new(paths, awaiting(is_awaited, move || certificate.server(), without_certificate)).map(Self)
    }

    /// The configuration for the next connection.
    pub(crate) fn current(&self) -> Arc<rustls::ServerConfig> {
        self.0.current()
    }
}

impl From<Arc<rustls::ServerConfig>> for ServerTls {
    /// A configuration that never changes.
    fn from(config: Arc<rustls::ServerConfig>) -> Self {
        let loaded = Mutex::new(LoadedValue { value: Arc::clone(&config), stamps: Vec::new() });
        Self(FileBacked(Arc::new(Inner {
            paths: Vec::new(),
            build: Box::new(move || Ok(Arc::clone(&config))),
            loaded,
        })))
    }
}

impl TlsOptions {
    /// Returns a build from the files as they are then. A client certificate that is awaited is left out until its files have been of
    /// use once; later ones that are not leave the last result in use.
    pub fn follow<T, E, F>(&self, build: F) -> impl Fn() -> Result<T, E> + use<T, E, F>
    where
        E: std::error::Error + 'static,
        F: Fn(&Self) -> Result<T, E>,
    {
        let (options, without) = (self.clone(), Self { identity: None, ..self.clone() });
        let is_awaited = self.identity.as_ref().is_some_and(|identity| identity.is_awaited);
        let build = Arc::new(build);
        let other = Arc::clone(&build);
        awaiting(is_awaited, move || build(&options), move || other(&without))
    }

    /// The files and folders that it names.
    pub fn files(&self) -> Vec<PathBuf> {
        let identity = self.identity.iter().flat_map(|identity| [&identity.certificate, &identity.key]);
        self.ca_file.iter().chain(&self.ca_dir).chain(identity).cloned().collect()
    }
}

#[cfg(test)]
mod tests;
