//! The emulated Vault with a third-party client: hvac. Its calls and expectations are in
//! `tests/clients`; here the server is started for it.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use keyward_emulators::secrets::{LeaseTerms, Role, Secrets, SecretsOptions};
use keyward_machine::clock::Clock;
use keyward_machine::tasks::TaskGroup;

use crate::acl::third_party_clients::{clients, scripts};

/// A server as the script expects it, by the machine's clock.
pub(crate) fn options() -> SecretsOptions {
    let terms = LeaseTerms { ttl: Duration::from_mins(10), max_ttl: Duration::from_hours(1), renewable: true };
    let database = BTreeMap::from([("dev".to_owned(), terms)]);
    SecretsOptions { database, ..SecretsOptions::for_anyone(Clock::System, "dev", Role::default()) }
}

/// Runs the script against an address (`http://...`, `unix:///...`); returns its success and its output. `in_between` is
/// true if a proxy sets its own token; `parts` are then all parts that can run, if none is named.
pub(crate) async fn hvac(address: &str, token: &str, in_between: bool, parts: &[&str]) -> (bool, String) {
    let mut command = tokio::process::Command::new(clients().join("bin/python"));
    command.arg("secrets_hvac.py").args(parts).current_dir(scripts()).env_clear();
    command.env("HOME", "/nonexistent").env("LC_ALL", "C.UTF-8").env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("VAULT_ADDR", address).env("VAULT_TOKEN", token).env("IN_BETWEEN", if in_between { "1" } else { "" });
    let output = command.stdin(Stdio::null()).output().await.unwrap();
    let bytes = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test]
async fn hvac_reads_writes_lends_and_makes_tokens_on_the_emulated_server() {
    let mut tasks = TaskGroup::default();
    let secrets = Secrets::start(options(), &mut tasks).unwrap();
    let token = secrets.token(&Role { policies: vec!["root".to_owned()], ttl: Duration::ZERO, ..Role::default() });
    let (ok, output) = hvac(secrets.url(), token.expose_secret(), false, &[]).await;
    assert!(ok, "{output}");
    assert_eq!((secrets.faults().leases(), secrets.faults().leases_issued()), (0, 2));
}
