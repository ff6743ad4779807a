//! The API proxy with a third-party client of Vault: hvac. Its calls and expectations are in
//! `tests/clients`.

use keyward_agent::api_proxy::ApiProxyOptions;
use keyward_emulators::secrets::{Role, Secrets};
use keyward_http::client::ServerAddress;
use keyward_http::guard::AccessMode;
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;

use crate::emulators::secrets_clients::{hvac, options};
use crate::harness::vault::{Proxied, rules};

const KEY: &str = "0123456789abcdef";

/// A proxy with a token of this server's, which may do everything. Its session finds the token alive at each check.
fn in_front_of(secrets: &Secrets, admit: AccessMode, change: impl FnOnce(&mut ApiProxyOptions)) -> Proxied {
    let mut proxied = Proxied::admitting(admit, |options, upstream| {
        upstream.client.address = ServerAddress::Url(secrets.url().parse().unwrap());
        change(options);
    });
    let token = secrets.token(&Role { policies: vec!["root".to_owned()], ..Role::default() });
    proxied.publish(token.expose_secret());
    let refresh_signal = proxied.refresh_signal.clone();
    proxied.servers.spawn(async move {
        loop {
            refresh_signal.requested().await;
            refresh_signal.complete();
        }
    });
    proxied
}

#[tokio::test]
async fn hvac_reads_writes_and_lends_through_the_proxy_without_a_token_of_its_own() {
    let mut tasks = TaskGroup::default();
    let secrets = Secrets::start(options(), &mut tasks).unwrap();
    let open = in_front_of(&secrets, AccessMode::AnyLocalUser, |_| {});
    let keyed = in_front_of(&secrets, AccessMode::Key(SecretString::from(KEY)), |_| {});
    let unix = format!("unix://{}", open.socket.display());
    // Without a token hvac does not look itself up.
    let parts = ["anything", "plain", "versioned", "leases", "certificates"];
    let tokenless = (open.url.as_str(), "", &parts[..]);
    for (address, token, parts) in [tokenless, (unix.as_str(), "", &parts), (keyed.url.as_str(), KEY, &[])] {
        let (ok, output) = hvac(address, token, true, parts).await;
        assert!(ok, "{address}: {output}");
    }
}

#[tokio::test]
async fn hvac_wraps_and_makes_tokens_through_the_proxy_where_that_is_lifted() {
    let mut tasks = TaskGroup::default();
    let secrets = Secrets::start(options(), &mut tasks).unwrap();
    let strict = in_front_of(&secrets, AccessMode::AnyLocalUser, |_| {});
    for part in ["wrapping", "tokens"] {
        let (ok, output) = hvac(&strict.url, "", true, &[part]).await;
        assert!(!ok && output.contains("is not allowed with the agent's token"), "{part}: {output}");
    }
    let lifted = in_front_of(&secrets, AccessMode::AnyLocalUser, |options| {
        options.rules = rules(&[], &[], &["auth/token/create", "sys/wrapping"]);
    });
    let (ok, output) = hvac(&lifted.url, "", true, &["wrapping", "tokens"]).await;
    assert!(ok, "{output}");
}
