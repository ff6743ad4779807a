//! `keyward acl rekey`.

use clap::Args;

use super::connection::AclConnection;
use super::failure::CommandFailure;
use crate::cli::{Exit, print_line, print_note};

/// Re-encrypt all tokens with another key.
#[derive(Debug, Args)]
pub(super) struct Rekey {
    /// Let the server create a new key first, and put it before the others in its key file
    #[arg(long)]
    generate: bool,
}

impl Rekey {
    /// Calls until all tokens have moved: one call moves some thousands.
    pub(super) async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        let mut response = service.client.rekey(self.generate).await?;
        let mut rewritten = response.rewritten;
        while !response.done && response.unreadable.is_empty() {
            print_note(&format!("re-encrypted {rewritten} tokens with the key {}; more remain", response.key_id));
            response = service.client.rekey(false).await?;
            rewritten += response.rewritten;
        }
        response.rewritten = rewritten;
        service.show(&response, || {
            print_line(&format!("{rewritten} tokens were moved to the key {}", response.key_id));
            if response.done {
                print_line(
                    "all tokens use this key: remove the other lines from the key file of every server, and \
                     keep them elsewhere as long as you keep older snapshots",
                );
            }
        });
        if response.done {
            return Ok(());
        }
        let text = format!(
            "unreadable tokens still need the old key: {}; delete them or restore a snapshot, then run this again",
            response.unreadable.join(", ")
        );
        Err(CommandFailure::new(Exit::Failed, text))
    }
}
