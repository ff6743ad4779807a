//! `keyward acl backup` and `restore`: everything that a running service keeps, to a file and back.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use serde_json::json;
use tokio::sync::mpsc;

use super::connection::Service;
use super::failure::Failure;
use crate::acl::client::{self, SnapshotDownload};
use crate::atomic_file::{self, Attributes};
use crate::cli::{Exit, note, say};

/// Write everything that a running service keeps into a file.
#[derive(Debug, Args)]
pub(super) struct Backup {
    /// File to write with mode 0600, or - for standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: PathBuf,
}

/// Replace everything that a running service keeps.
#[derive(Debug, Args)]
pub(super) struct Restore {
    /// File that a backup wrote
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

impl Backup {
    pub(super) async fn run(self, service: &Service) -> Result<(), Failure> {
        let Self { out } = self;
        let mut snapshot = service.client.snapshot().await?;
        if out == Path::new("-") {
            while let Some(bytes) = snapshot.chunk().await? {
                std::io::stdout().write_all(&bytes).map_err(|error| Failure::local(&error))?;
            }
            std::io::stdout().flush().map_err(|error| Failure::local(&error))?;
            note(&format!("{} records", snapshot.records()));
            return Ok(());
        }
        into_file(&mut snapshot, &out).await?;
        let records = snapshot.records();
        service.show(&json!({"Records": records, "File": out}), || {
            say(&format!("{records} records are in {}; keep the server's key file too, apart from it", out.display()));
        });
        Ok(())
    }
}

/// Streams the response into a file, which gets its name only when it is complete.
async fn into_file(snapshot: &mut SnapshotDownload, path: &Path) -> Result<(), Failure> {
    let (give, mut take) = mpsc::channel::<Option<bytes::Bytes>>(8);
    let path = path.to_owned();
    let writing = tokio::task::spawn_blocking(move || {
        let attributes = Attributes { mode: 0o600, owner: None, group: None };
        atomic_file::replace_by(&path, &attributes, |file| {
            loop {
                match take.blocking_recv() {
                    Some(Some(bytes)) => file.write_all(&bytes)?,
                    Some(None) => return Ok(()),
                    None => return Err(std::io::Error::other("the snapshot broke off")),
                }
            }
        })
    });
    let taken = async {
        while let Some(bytes) = snapshot.chunk().await? {
            if give.send(Some(bytes)).await.is_err() {
                break;
            }
        }
        // It does not wait after a failed write, which is reported below.
        let _ = give.send(None).await;
        Ok::<_, client::AclClientError>(())
    };
    let taken = taken.await;
    drop(give);
    let written = writing.await;
    taken?;
    written.map_err(|error| Failure::local(&error))?.map_err(|error| Failure::local(&error))
}

impl Restore {
    pub(super) async fn run(self, service: &Service) -> Result<(), Failure> {
        restore(service, &self.file).await
    }
}

async fn restore(service: &Service, path: &Path) -> Result<(), Failure> {
    let opened = tokio::fs::File::open(path).await;
    let opened =
        opened.map_err(|error| Failure::new(Exit::Failed, format!("cannot read {}: {error}", path.display())))?;
    let restored = match service.client.restore(opened.into()).await {
        Err(error) if error.is_in_doubt() => {
            let hint = "the service may be shut now: restore again with the same token";
            return Err(Failure::from(error).and(hint));
        }
        outcome => outcome?,
    };
    service.show(&json!({"Records": restored.records, "Index": restored.index}), || {
        say(&format!(
            "{} records are restored; tokens that are not among them open nothing any more",
            restored.records
        ));
    });
    Ok(())
}
