//! `keyward acl backup` and `restore`: all records of a server, to a file and back.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use keyward_acl::client::{self, SnapshotDownload};
use keyward_acl::model::snapshot::is_snapshot;
use keyward_machine::atomic_file::{self, Attributes};
use serde_json::json;
use tokio::sync::mpsc;

use super::connection::AclConnection;
use super::failure::CommandFailure;
use crate::cli::{Exit, print_line, print_note};

/// Write a snapshot of all records of a running server to a file; replaces an earlier snapshot.
#[derive(Debug, Args)]
pub(super) struct Backup {
    /// File to write with mode 0600, or - for standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: PathBuf,
    /// Replace the file of --out even if it is not a snapshot
    #[arg(long)]
    force: bool,
}

/// Replace all records of a running server by a snapshot.
#[derive(Debug, Args)]
pub(super) struct Restore {
    /// File that a backup wrote
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Restore without asking on a terminal
    #[arg(long)]
    yes: bool,
}

impl Backup {
    pub(super) async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        let Self { out, force } = self;
        if !force && out != Path::new("-") {
            refuse_other_file(&out)?;
        }
        let mut snapshot = service.client.snapshot().await?;
        if out == Path::new("-") {
            while let Some(bytes) = snapshot.chunk().await? {
                std::io::stdout().write_all(&bytes).map_err(|error| CommandFailure::local(&error))?;
            }
            std::io::stdout().flush().map_err(|error| CommandFailure::local(&error))?;
            print_note(&format!("{} records", snapshot.records()));
            return Ok(());
        }
        into_file(&mut snapshot, &out).await?;
        let records = snapshot.records();
        service.show(&json!({"Records": records, "File": out}), || {
            print_line(&format!(
                "{records} records are in {}; keep the server's key file too, apart from it",
                out.display()
            ));
        });
        Ok(())
    }
}

/// Refuses a file that exists and is not a snapshot, such as one of a token. A later snapshot replaces an earlier one.
fn refuse_other_file(path: &Path) -> Result<(), CommandFailure> {
    // Anything but a regular file is refused when it is written.
    if !path.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Ok(());
    }
    let mut start = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(64).read_to_end(&mut start));
    let reason = match read {
        Ok(_) if is_snapshot(&start) => return Ok(()),
        Ok(_) => "is not a snapshot".to_owned(),
        Err(error) => format!("cannot be read, and may not be a snapshot ({error})"),
    };
    let text =
        format!("{} exists and {reason}; name another file with --out, or replace it with --force", path.display());
    Err(CommandFailure::new(Exit::Failed, text))
}

/// Streams the response into a file, which gets its name only when it is complete.
async fn into_file(snapshot: &mut SnapshotDownload, path: &Path) -> Result<(), CommandFailure> {
    let (give, mut take) = mpsc::channel::<Option<bytes::Bytes>>(8);
    let path = path.to_owned();
    let writing = tokio::task::spawn_blocking(move || {
        let attributes = Attributes { mode: 0o600, owner: None, group: None };
        atomic_file::replace_with(&path, &attributes, |file| {
            loop {
                match take.blocking_recv() {
                    Some(Some(bytes)) => file.write_all(&bytes)?,
                    Some(None) => return Ok(()),
                    None => return Err(std::io::Error::other("the snapshot broke off")),
                }
            }
        })
    });
    let copying = async {
        while let Some(bytes) = snapshot.chunk().await? {
            if give.send(Some(bytes)).await.is_err() {
                break;
            }
        }
        // It does not wait after a failed write, which is reported below.
        let _ = give.send(None).await;
        Ok::<_, client::AclClientError>(())
    };
    let copying = copying.await;
    drop(give);
    let written = writing.await;
    copying?;
    written.map_err(|error| CommandFailure::local(&error))?.map_err(|error| CommandFailure::local(&error))
}

impl Restore {
    pub(super) async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        if !self.yes && std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
            confirm(service, &self.file)?;
        }
        restore(service, &self.file).await
    }
}

/// Asks before all records are replaced. Scripts, which have no terminal, are not asked.
fn confirm(service: &AclConnection, path: &Path) -> Result<(), CommandFailure> {
    print_note(&format!(
        "this replaces all records of {} by those of {}; tokens that are not in the snapshot become invalid",
        service.address,
        path.display()
    ));
    print_note("type yes to go on");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|error| CommandFailure::local(&error))?;
    if answer.trim() == "yes" {
        return Ok(());
    }
    Err(CommandFailure::new(Exit::Failed, "nothing was restored; pass --yes to restore without asking".to_owned()))
}

async fn restore(service: &AclConnection, path: &Path) -> Result<(), CommandFailure> {
    let opened = tokio::fs::File::open(path).await;
    let opened = opened
        .map_err(|error| CommandFailure::new(Exit::Failed, format!("cannot read {}: {error}", path.display())))?;
    let restored = match service.client.restore(opened.into()).await {
        Err(error) if error.is_in_doubt() => {
            let hint =
                "the server may refuse requests until a restore succeeds: run the restore again with the same token";
            return Err(CommandFailure::from(error).and(hint));
        }
        outcome => outcome?,
    };
    service.show(&json!({"Records": restored.records, "Index": restored.index}), || {
        print_line(&format!(
            "restored {} records; tokens that are not in the snapshot are now invalid",
            restored.records
        ));
    });
    Ok(())
}
