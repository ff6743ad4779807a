//! Ids of `AppRole` (`auth/MOUNT/role/NAME/role-id`, `.../secret-id`). Time is passed in.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use keyward_machine::clock::ClockReading;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::login_method::LoginMethod;
use super::reply::{WrappableResponse, empty, no_route, refusal, success};
use super::route::{Route, Verb, seconds};

/// Secret ids that the server made: their ends, by mount and text.
#[derive(Debug, Default)]
pub(super) struct SecretIds(Mutex<BTreeMap<(String, String), ClockReading>>);

impl SecretIds {
    /// Returns true if a secret id of a mount has not ended.
    pub(super) fn contains(&self, mount: &str, secret_id: &str, now: ClockReading) -> bool {
        let end = self.0.lock().get(&(mount.to_owned(), secret_id.to_owned())).copied();
        end.is_some_and(|end| !now.until(end).is_zero())
    }

    /// Responds to a call about the ids of a role.
    pub(super) fn respond(
        &self,
        methods: &BTreeMap<String, LoginMethod>,
        route: &Route<'_>,
        body: &Value,
        now: ClockReading,
    ) -> WrappableResponse {
        let (mount, rest) = route.strip_prefix("auth").split_once("/role/").unwrap_or_default();
        let Some(LoginMethod::AppRole(method)) = methods.get(mount) else { return no_route(&route.path) };
        match (rest.split_once('/'), route.verb) {
            (Some((name, "role-id" | "secret-id")), _) if name != method.name => empty(),
            (Some((_, "role-id")), Verb::Read) => success("data", json!({ "role_id": method.role_id.expose_secret() })),
            (Some((_, "secret-id")), Verb::Write) => {
                let requested = body.get("ttl").and_then(seconds).filter(|ttl| !ttl.is_zero());
                let ttl = requested.map_or(method.secret_id_ttl, |ttl| ttl.min(method.secret_id_ttl));
                success(
                    "data",
                    json!({
                        "secret_id": self.create(mount, ttl, now),
                        "secret_id_accessor": uuid::Uuid::new_v4().to_string(), "secret_id_num_uses": 0,
                        "secret_id_ttl": ttl.as_secs(),
                    }),
                )
            }
            _ => refusal(StatusCode::METHOD_NOT_ALLOWED, "unsupported operation"),
        }
    }

    fn create(&self, mount: &str, ttl: Duration, now: ClockReading) -> String {
        let secret_id = uuid::Uuid::new_v4().to_string();
        self.0.lock().insert((mount.to_owned(), secret_id.clone()), now + ttl);
        secret_id
    }
}
