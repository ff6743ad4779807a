//! `keyward acl rekey`.

use clap::Args;

use super::connection::Service;
use super::failure::Failure;
use crate::cli::{Exit, note, say};

/// Change the key that tokens are under.
#[derive(Debug, Args)]
pub(super) struct Rekey {
    /// Let the server create a new key first, and put it before the others in its key file
    #[arg(long)]
    generate: bool,
}

impl Rekey {
    /// Calls until all tokens have moved: one call moves some thousands.
    pub(super) async fn run(self, service: &Service) -> Result<(), Failure> {
        let mut came = service.client.rekey(self.generate).await?;
        let mut rewritten = came.rewritten;
        while !came.done && came.unreadable.is_empty() {
            note(&format!("{rewritten} tokens were moved to the key {}, there are more", came.key_id));
            came = service.client.rekey(false).await?;
            rewritten += came.rewritten;
        }
        came.rewritten = rewritten;
        service.show(&came, || {
            say(&format!("{rewritten} tokens were moved to the key {}", came.key_id));
            if came.done {
                say("all are under it: other lines of the key file, if there are any, may go, on every server");
            }
        });
        if came.done {
            return Ok(());
        }
        let text = format!(
            "these cannot be read, and keep the old key from being dropped: {}; remove them and run this again",
            came.unreadable.join(", ")
        );
        Err(Failure::new(Exit::Failed, text))
    }
}
