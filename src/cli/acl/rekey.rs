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
        let mut came = service.client.rekey(self.generate).await?;
        let mut rewritten = came.rewritten;
        while !came.done && came.unreadable.is_empty() {
            print_note(&format!("re-encrypted {rewritten} tokens with the key {}; more remain", came.key_id));
            came = service.client.rekey(false).await?;
            rewritten += came.rewritten;
        }
        came.rewritten = rewritten;
        service.show(&came, || {
            print_line(&format!("{rewritten} tokens were moved to the key {}", came.key_id));
            if came.done {
                print_line("all tokens use this key: remove the other lines from the key file of every server");
            }
        });
        if came.done {
            return Ok(());
        }
        let text = format!(
            "unreadable tokens still need the old key: {}; delete them and run this again",
            came.unreadable.join(", ")
        );
        Err(CommandFailure::new(Exit::Failed, text))
    }
}
