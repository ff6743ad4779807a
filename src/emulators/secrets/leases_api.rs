//! Requests about leases and leased credentials.

use http::StatusCode;
use keyward_machine::clock::ClockReading;
use serde_json::{Value, json};

use super::handler::RequestHandler;
use super::leases::LeasedCredential;
use super::reply::{WrappableResponse, build_leased, empty, refusal, success};
use super::route::{LeaseCall, Route, Verb, seconds};
use super::terraform::Credential;
use super::tokens::random_text;

impl RequestHandler {
    /// Handles a call about leases.
    pub(super) async fn lease(
        &self,
        call: LeaseCall,
        route: &Route<'_>,
        body: &Value,
        now: ClockReading,
    ) -> WrappableResponse {
        // The id is in the body, or at the end of the path.
        let prefixes = ["sys/leases/lookup", "sys/leases/renew", "sys/leases/revoke-prefix", "sys/leases/revoke"];
        let old_prefixes = ["sys/renew", "sys/revoke-prefix", "sys/revoke"];
        let prefix = prefixes.iter().chain(&old_prefixes).find(|prefix| route.path.starts_with(**prefix));
        let below = route.strip_prefix(prefix.copied().unwrap_or_default());
        let id = body.get("lease_id").and_then(Value::as_str).unwrap_or(below);
        match call {
            LeaseCall::Lookup if route.verb == Verb::List => {
                let keys = self.faults().with_leases(|leases| leases.list(below));
                if keys.is_empty() { empty() } else { success("data", json!({ "keys": keys })) }
            }
            LeaseCall::Lookup => match self.faults().with_leases(|leases| leases.look_up(id, now)) {
                Some(data) => success("data", data),
                None => refusal(StatusCode::BAD_REQUEST, "invalid lease"),
            },
            LeaseCall::Renew => {
                let increment = body.get("increment").and_then(seconds);
                match self.faults().with_leases(|leases| leases.renew(id, increment, now)) {
                    Ok(ttl) => build_leased(id, ttl, true, Value::Null),
                    Err(why) => refusal(StatusCode::BAD_REQUEST, why),
                }
            }
            LeaseCall::Revoke => {
                if let Some(leased) = self.faults().with_leases(|leases| leases.revoke(id)) {
                    self.revoke_credential(&leased).await;
                }
                WrappableResponse::Nothing
            }
            LeaseCall::RevokePrefix => {
                for leased in self.faults().with_leases(|leases| leases.revoke_below(below)) {
                    self.revoke_credential(&leased).await;
                }
                WrappableResponse::Nothing
            }
        }
    }

    /// Revokes the credential of an ended lease.
    pub(super) async fn revoke_credential(&self, leased: &LeasedCredential) {
        match leased {
            LeasedCredential::PlatformToken(id) => self.engine.end(id).await,
            LeasedCredential::Nothing => {}
        }
    }

    /// Handles a request below `terraform/`. `owner` is the token of the request.
    pub(super) async fn platform_token(&self, route: &Route<'_>, owner: &str, now: ClockReading) -> WrappableResponse {
        let (kind, name) = route.strip_prefix("terraform").split_once('/').unwrap_or_default();
        if !matches!(kind, "creds" | "rotate-role") {
            return refusal(StatusCode::NOT_FOUND, "no handler for route");
        }
        let Some(role) = self.engine.role(name) else {
            return refusal(StatusCode::BAD_REQUEST, &format!("unknown role {name:?}"));
        };
        let read = matches!(route.verb, Verb::Read | Verb::Write);
        let (created, terms) = match (kind, role) {
            ("rotate-role", Credential::TeamLegacy) if route.verb == Verb::Write => {
                return match self.engine.rotate(name).await {
                    Ok(_) => WrappableResponse::Nothing,
                    Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error),
                };
            }
            ("creds", Credential::TeamLegacy) if read => (self.engine.single_token(name).await, None),
            ("creds", Credential::Team(terms)) if read => {
                (self.engine.create(&format!("{name} {}", random_text())).await, Some(*terms))
            }
            _ => return refusal(StatusCode::METHOD_NOT_ALLOWED, "unsupported operation"),
        };
        let created = match created {
            Ok(created) => created,
            Err(error) => return refusal(StatusCode::INTERNAL_SERVER_ERROR, &error),
        };
        let credential = json!({ "token": created.token, "token_id": created.id, "role": name });
        match terms {
            None => success("data", credential),
            Some(terms) => {
                let leased = LeasedCredential::PlatformToken(created.id);
                let id = self.faults().with_leases(|leases| leases.issue_lease(&route.path, owner, terms, leased, now));
                build_leased(&id, terms.first_ttl(), terms.renewable, credential)
            }
        }
    }

    /// Handles a request below `pki/` that needs a token.
    pub(super) fn certificate(
        &self,
        route: &Route<'_>,
        owner: &str,
        body: &Value,
        now: ClockReading,
    ) -> WrappableResponse {
        let (path, roles) = (route.strip_prefix("pki"), &self.options().certificates);
        let issued = match path.split_once('/').filter(|_| route.verb == Verb::Write) {
            Some(("issue", role)) => self.authority().issue(roles, role, body, now.wall),
            Some(("sign", role)) => self.authority().sign_request(roles, role, body, now.wall),
            _ => return refusal(StatusCode::NOT_FOUND, "unsupported path"),
        };
        let issued = match issued {
            Ok(issued) => issued,
            Err(refused) => return refused,
        };
        let mut response = match issued.terms {
            None => success("data", issued.data),
            Some(terms) => {
                let leased = LeasedCredential::Nothing;
                let id = self.faults().with_leases(|leases| leases.issue_lease(&route.path, owner, terms, leased, now));
                build_leased(&id, terms.first_ttl(), terms.renewable, issued.data)
            }
        };
        if let WrappableResponse::Json(_, response) = &mut response
            && !issued.warnings.is_empty()
        {
            response["warnings"] = issued.warnings.into();
        }
        response
    }

    /// Handles a request below `database/`: a name and a password without use.
    pub(super) fn database_credential(&self, route: &Route<'_>, owner: &str, now: ClockReading) -> WrappableResponse {
        let Some(name) = route.strip_prefix("database").strip_prefix("creds/").filter(|_| route.verb == Verb::Read)
        else {
            return refusal(StatusCode::NOT_FOUND, "no handler for route");
        };
        let Some(terms) = self.options().database.get(name) else {
            return refusal(StatusCode::BAD_REQUEST, &format!("unknown role: {name}"));
        };
        let credential = json!({ "username": format!("v-{name}-{}", random_text()), "password": random_text() });
        let leased = LeasedCredential::Nothing;
        let id = self.faults().with_leases(|leases| leases.issue_lease(&route.path, owner, *terms, leased, now));
        build_leased(&id, terms.first_ttl(), terms.renewable, credential)
    }
}
