//! The agent of an Arc machine, which challenges its caller to read a file of the agent's group
//! (learn.microsoft.com, "Authenticate against Azure resources with Azure Arc-enabled servers").

use std::io::Read as _;
use std::path::{Path, PathBuf};

use http::HeaderValue;
use keyward_machine::secret_string::SecretString;
use rustix::fs::{Mode, OFlags};
use url::Url;

use super::error::{AttemptError, ErrorResponse};
use super::transport::Transport;

/// Requests a token for `resource`, byte for byte.
pub(super) async fn request_token(
    transport: &Transport,
    endpoint: &Url,
    folder: &Path,
    resource: &str,
) -> Result<SecretString, AttemptError> {
    let mut url = endpoint.clone();
    // A version that Microsoft documents for the agent.
    url.query_pairs_mut().append_pair("api-version", "2020-06-01").append_pair("resource", resource);
    let ask = || transport.http.get(url.clone()).header("metadata", "true");
    let challenge = match transport.send(ask()).await {
        Err(AttemptError::Refused(ErrorResponse { status: 401, challenge: Some(challenge), .. })) => challenge,
        Err(AttemptError::Refused(ErrorResponse { status: 401, .. })) | Ok(_) => {
            return Err(AttemptError::setting("the Arc agent sent no challenge"));
        }
        Err(failure) => return Err(failure),
    };
    let key = read_key(&challenged_path(&challenge)?, folder)?;
    let mut value = HeaderValue::from_str(&format!("Basic {}", key.as_str())).map_err(|_| {
        AttemptError::setting("the Arc agent's key file contains characters that are invalid in a header")
    })?;
    value.set_sensitive(true);
    transport.with_redacted_secret(key.as_str().into()).request_token(ask().header("authorization", value)).await
}

/// Parses the path in `Basic realm=PATH`.
fn challenged_path(challenge: &str) -> Result<PathBuf, AttemptError> {
    let unknown = || AttemptError::setting("the Arc agent's challenge is not of the form Basic realm=PATH");
    let realm = challenge.split_once("realm=").ok_or_else(unknown)?.1.trim().trim_matches('"');
    if realm.is_empty() { Err(unknown()) } else { Ok(realm.into()) }
}

/// Reads the key file, which has to be in the agent's folder.
///
/// Otherwise an impostor of the agent could have any file of this machine sent to it.
fn read_key(path: &Path, folder: &Path) -> Result<String, AttemptError> {
    let refuse = |why: &str| AttemptError::setting(format!("the Arc agent named {}, which {why}", path.display()));
    if path.extension().is_none_or(|extension| extension != "key") {
        return Err(refuse("is not a .key file"));
    }
    let cannot = |file: &Path, error: &std::io::Error| AttemptError::Setting {
        message: format!("cannot read {}: {error}", file.display()),
        hint: Some("run as root or in the group himds"),
    };
    let home = folder.canonicalize().map_err(|error| cannot(folder, &error))?;
    let parent = path.parent().filter(|_| path.is_absolute()).ok_or_else(|| refuse("is not an absolute path"))?;
    // Compared with symlinks resolved, so that neither `..` nor a link leads out of the folder.
    let parent = parent.canonicalize().map_err(|_| refuse(OUTSIDE))?;
    let name = path.file_name().filter(|_| parent == home).ok_or_else(|| refuse(OUTSIDE))?;
    // NONBLOCK: opening a FIFO would wait for its writer. NOFOLLOW: the last part of the path is not resolved above.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(home.join(name), flags, Mode::empty()) {
        Ok(file) => std::fs::File::from(file),
        Err(rustix::io::Errno::LOOP) => return Err(refuse("is a symlink")),
        Err(error) => return Err(cannot(path, &error.into())),
    };
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(refuse("is not a regular file"));
    }
    // Not empty: into an empty string the library reads its first bytes by way of the stack.
    let mut key = String::with_capacity(4096);
    // One byte more than allowed shows that the file is larger, whatever size it had when it was opened.
    file.take(MAX_KEY_SIZE + 1).read_to_string(&mut key).map_err(|error| cannot(path, &error))?;
    if key.len() as u64 > MAX_KEY_SIZE {
        return Err(refuse("is larger than 4096 bytes"));
    }
    Ok(key.trim().to_owned())
}

const OUTSIDE: &str = "is not in its own folder";
const MAX_KEY_SIZE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_key_file_of_the_agents_own_folder_is_read() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let folder = root.join("tokens");
        std::fs::create_dir_all(folder.join("deeper")).unwrap();
        let write = |path: &str, bytes: usize| std::fs::write(root.join(path), "k".repeat(bytes)).unwrap();
        write("tokens/good.key", 4096);
        write("tokens/large.key", 4097);
        write("tokens/other.txt", 1);
        write("tokens/deeper/x.key", 1);
        write("x.key", 1);
        std::os::unix::fs::symlink(root.join("x.key"), folder.join("link.key")).unwrap();
        std::os::unix::fs::symlink(&folder, root.join("way")).unwrap();
        std::fs::create_dir(folder.join("folder.key")).unwrap();
        let check = |path: &str, expected: &str| {
            let path = if path.starts_with('/') || path == "good.key" { path.into() } else { root.join(path) };
            match read_key(&path, &folder) {
                Ok(key) => assert_eq!(format!("{} bytes", key.len()), expected, "{}", path.display()),
                Err(failure) => assert!(failure.to_string().contains(expected), "{failure}"),
            }
        };
        check("tokens/good.key", "4096 bytes");
        check("way/good.key", "4096 bytes");
        check("tokens/large.key", "larger than 4096");
        check("tokens/other.txt", "not a .key file");
        check("tokens/../x.key", "not in its own folder");
        check("tokens/deeper/x.key", "not in its own folder");
        check("x.key", "not in its own folder");
        check("/etc/shadow.key", "not in its own folder");
        check("/nonexistent/x.key", "not in its own folder");
        check("good.key", "not an absolute path");
        check("tokens/link.key", "symlink");
        check("tokens/folder.key", "not a regular file");
        check("tokens/gone.key", "cannot read");
    }

    #[test]
    fn the_challenge_names_a_path() {
        let check = |challenge: &str, expected: Option<&str>| {
            assert_eq!(challenged_path(challenge).ok(), expected.map(PathBuf::from), "{challenge}");
        };
        check("Basic realm=/var/opt/azcmagent/tokens/1.key", Some("/var/opt/azcmagent/tokens/1.key"));
        check("Basic realm=\"/a b.key\"", Some("/a b.key"));
        check("Basic realm=", None);
        check("Bearer", None);
    }
}
