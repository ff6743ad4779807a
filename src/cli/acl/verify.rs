//! `keyward acl verify`.

use std::path::PathBuf;

use clap::Args;
use keyward_acl::client::VerifyResponse;
use keyward_acl::store::{Embedded, Verification};
use keyward_telemetry::error_code::ErrorCode;

use super::connection::AclConnection;
use super::failure::CommandFailure;
use crate::cli::{Exit, print_line};

/// Verify that all records are present and intact.
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

    pub(super) async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        let response = match &self.dir {
            Some(folder) => Embedded::verify_file(folder)
                .map(to_response)
                .map_err(|error| CommandFailure { code: Some(error.code()), ..CommandFailure::local(&error) })?,
            None => service.client.verify().await?,
        };
        service.show(&response, || describe(&response));
        if response.clean {
            return Ok(());
        }
        let text = "the store is damaged: restore an earlier snapshot, or copy back a backup of the file";
        Err(CommandFailure { code: Some(ErrorCode::StoreDamaged), ..CommandFailure::new(Exit::Failed, text) })
    }
}

fn to_response(verification: Verification) -> VerifyResponse {
    VerifyResponse {
        clean: verification.is_clean(),
        records: verification.records,
        without_checksum: verification.unchecked,
        damaged: verification.damaged,
        damaged_keys: verification.damaged_keys,
        damaged_kinds: verification.damaged_kinds,
        pages: verification.pages,
    }
}

fn describe(response: &VerifyResponse) {
    let VerifyResponse { records, without_checksum, damaged, .. } = response;
    print_line(&format!("{records} records, {without_checksum} of them without a checksum; {damaged} are damaged"));
    response.damaged_keys.iter().for_each(|key| print_line(&format!("damaged: {key}")));
    for kind in &response.damaged_kinds {
        print_line(&format!("records are missing or were replaced: {kind}"));
    }
    if response.pages == Some(false) {
        print_line("pages of the file are damaged");
    }
}
