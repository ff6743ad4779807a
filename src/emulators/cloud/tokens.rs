//! Access tokens of the emulated cloud: version 1.0, with the claims of real ones.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::State;
use super::identities::Identity;

/// Principal of a token, by the way it was authenticated.
#[derive(Debug, Clone, Copy)]
pub(super) enum Principal {
    /// System-assigned identity of the machine.
    System,
    /// User-assigned identity of the machine.
    User,
    /// Identity that is federated with a service account.
    Workload,
    /// Service principal, by its secret or certificate.
    Application,
}

/// A signed token and its times.
pub(super) struct IssuedToken {
    pub(super) token: String,
    pub(super) client_id: String,
    /// Seconds since 1970.
    pub(super) not_before: i64,
    /// Seconds since 1970.
    pub(super) expires: i64,
    /// Lifetime from now, in seconds.
    pub(super) life: i64,
}

impl State {
    /// Returns the issuer (`iss`). The real one is `https://sts.windows.net/TENANT/`.
    pub(super) fn issuer(&self) -> String {
        format!("{}{}/", self.authority, self.identities.tenant)
    }

    /// Returns the time of the cloud's clocks, which a fault may have shifted.
    pub(super) fn shifted_now(&self) -> SystemTime {
        let skew = self.faults.settings().skew_seconds;
        let now = self.clock.now().wall;
        let by = Duration::from_secs(skew.unsigned_abs());
        if skew < 0 { now - by } else { now + by }
    }

    pub(super) fn identity(&self, principal: Principal) -> &Identity {
        match principal {
            Principal::System => &self.identities.system,
            Principal::User => &self.identities.user,
            Principal::Workload => &self.identities.workload,
            Principal::Application => &self.identities.application,
        }
    }

    /// Signs a token for `audience`. `None` if the kernel returns no random bytes.
    pub(super) fn issue(&self, principal: Principal, audience: &str) -> Option<IssuedToken> {
        let settings = self.faults.settings();
        let identity = self.identity(principal);
        let now = seconds(self.clock.now().wall).saturating_add(settings.skew_seconds);
        let life = settings.token_life.unwrap_or(self.token_life);
        let life = i64::try_from(life.as_secs()).unwrap_or(i64::MAX);
        // Real tokens start five minutes before they are issued.
        let start = now.saturating_sub(300);
        let end = now.saturating_add(life);
        let audience = settings.audience.as_deref().unwrap_or(audience);
        let mut claims = json!({
            "aud": audience, "iss": self.issuer(), "idp": self.issuer(), "iat": start, "nbf": start, "exp": end,
            "appid": identity.client_id, "appidacr": if matches!(principal, Principal::Application) { "1" } else { "2" },
            "idtyp": "app", "oid": identity.object_id, "sub": identity.object_id, "tid": self.identities.tenant,
            "uti": uuid::Uuid::new_v4().simple().to_string(), "ver": "1.0",
        });
        if first_party(audience) {
            self.add_resource_claims(principal, &mut claims);
        }
        let token = self.signing_key.sign(&claims)?;
        Some(IssuedToken { token, client_id: identity.client_id.clone(), not_before: start, expires: end, life })
    }

    fn add_resource_claims(&self, principal: Principal, claims: &mut Value) {
        match principal {
            Principal::System => claims["xms_mirid"] = self.identities.machine_id(self.machine).into(),
            Principal::User => {
                claims["xms_mirid"] = self.identities.user_identity_id().into();
                claims["xms_az_rid"] = self.identities.machine_id(self.machine).into();
            }
            Principal::Workload => claims["xms_mirid"] = self.identities.identity_id("keyward-workload").into(),
            Principal::Application => {}
        }
    }
}

/// Returns true for audiences for which the real cloud adds resource ids to tokens: its own services only.
fn first_party(audience: &str) -> bool {
    const OWN: [&str; 6] = [
        "https://management.azure.com",
        "https://management.core.windows.net",
        "https://vault.azure.net",
        "https://storage.azure.com",
        "https://graph.microsoft.com",
        "https://database.windows.net",
    ];
    OWN.contains(&audience.strip_suffix('/').unwrap_or(audience))
}

/// Converts a time to seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
