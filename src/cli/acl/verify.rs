//! `keyward acl verify`.

use std::path::PathBuf;

use clap::Args;

use super::connection::Service;
use super::failure::Failure;
use crate::acl::client::VerifyResponse;
use crate::acl::store::{Embedded, Verification};
use crate::cli::{Exit, say};
use crate::error_code::ErrorCode;

/// Look whether all records are there and whole.
#[derive(Debug, Args)]
pub(super) struct Verify {
    /// Read the store in this folder instead of asking a server; no server may run on it. Changes nothing
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

impl Verify {
    /// Returns true if a file is verified instead of a running server.
    pub(super) fn is_offline(&self) -> bool {
        self.dir.is_some()
    }

    pub(super) async fn run(self, service: &Service) -> Result<(), Failure> {
        let found = match &self.dir {
            Some(folder) => Embedded::verify_file(folder)
                .map(verified)
                .map_err(|error| Failure { code: Some(error.code()), ..Failure::local(&error) })?,
            None => service.client.verify().await?,
        };
        service.show(&found, || describe(&found));
        if found.clean {
            return Ok(());
        }
        let text = "the store is damaged: restore a snapshot from before it was, or put a copy of the file back";
        Err(Failure { code: Some(ErrorCode::StoreDamaged), ..Failure::new(Exit::Failed, text) })
    }
}

fn verified(found: Verification) -> VerifyResponse {
    VerifyResponse {
        clean: found.is_clean(),
        records: found.records,
        without_checksum: found.unchecked,
        damaged: found.damaged,
        damaged_keys: found.damaged_keys,
        damaged_kinds: found.damaged_kinds,
        pages: found.pages,
    }
}

fn describe(found: &VerifyResponse) {
    let VerifyResponse { records, without_checksum, damaged, .. } = found;
    say(&format!("{records} records, {without_checksum} of them without a checksum; {damaged} are damaged"));
    found.damaged_keys.iter().for_each(|key| say(&format!("damaged: {key}")));
    for kind in &found.damaged_kinds {
        say(&format!("records are missing, or are others than were written: {kind}"));
    }
    if found.pages == Some(false) {
        say("pages of the file are damaged");
    }
}
