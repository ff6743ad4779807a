//! Projected service-account token: a file that is replaced as a kubelet does it, by swapping a symlink.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::assertion::EXCHANGE_AUDIENCE;
use super::folder::{PrivateDir, write_private};
use super::tokens::seconds;
use super::{CloudIdentities, StartError, State};

/// Path of the projected token in the emulated cloud's folder.
pub(super) const TOKEN_FILE: &str = "projected/azure-identity-token";

pub(super) struct Projection {
    folder: PathBuf,
    state: Arc<State>,
    life: Duration,
    round: u32,
}

impl Projection {
    /// Writes the first token.
    pub(super) fn start(folder: &PrivateDir, state: Arc<State>, life: Duration) -> Result<Self, StartError> {
        let path = folder.create_subfolder("projected")?;
        let mut projection = Self { folder: path, state, life, round: 0 };
        projection.replace().map_err(|cause| StartError::File { path: projection.folder.clone(), cause })?;
        Ok(projection)
    }

    /// Replaces the token after four fifths of its lifetime, until `stop`.
    pub(super) async fn keep_fresh(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        let clock = self.state.clock.clone();
        loop {
            tokio::select! {
                () = clock.sleep(self.life.mul_f64(0.8)) => self.replace()?,
                () = stop.cancelled() => return Ok(()),
            }
        }
    }

    fn replace(&mut self) -> std::io::Result<()> {
        let now = seconds(self.state.clock.now().wall);
        let claims = json!({
            "iss": self.state.cluster_issuer(), "sub": CloudIdentities::SERVICE_ACCOUNT, "aud": [EXCHANGE_AUDIENCE],
            "iat": now, "nbf": now, "exp": now.saturating_add(i64::try_from(self.life.as_secs()).unwrap_or(i64::MAX)),
        });
        let token = self.state.cluster_key.sign(&claims).ok_or_else(|| std::io::Error::other("cannot sign"))?;
        let old = std::fs::read_link(self.folder.join("..data")).ok();
        self.round += 1;
        // A crashed process leaves its folders behind: the time makes our names distinct.
        let folder = format!("..{now}_{}_{}", std::process::id(), self.round);
        std::fs::create_dir_all(self.folder.join(&folder))?;
        write_private(&self.folder.join(&folder).join(NAME), token.as_bytes())?;
        link(Path::new(&folder), &self.folder.join("..data"))?;
        link(&Path::new("..data").join(NAME), &self.folder.join(NAME))?;
        if let Some(old) = old.filter(|old| old.as_os_str() != folder.as_str()) {
            // Best effort: what remains is an expired token in our own folder.
            let _ = std::fs::remove_dir_all(self.folder.join(old));
        }
        Ok(())
    }
}

/// Replaces a symlink atomically.
fn link(target: &Path, path: &Path) -> std::io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".draft");
    if let Err(error) = std::fs::remove_file(&draft)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error);
    }
    std::os::unix::fs::symlink(target, &draft)?;
    std::fs::rename(draft, path)
}

const NAME: &str = "azure-identity-token";
