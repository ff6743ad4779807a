//! Requests for credentials that are lent, and for their leases.

use http::request::Parts;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::dials::Operation;
use super::reply::{Reply, envelope, json, nothing, refusal};
use super::terraform::Credential;
use super::tokens::random_text;
use super::wire::{Wire, seconds};
use crate::clock::Moment;

/// What a path of the engine asks for, and of which role.
pub(super) fn path(path: &str) -> Option<(Asked, &str)> {
    let rest = path.strip_prefix("/v1/terraform/")?;
    let (asked, role) = rest.split_once('/')?;
    match asked {
        "creds" => Some((Asked::Credential, role)),
        "rotate-role" => Some((Asked::Rotation, role)),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Credential,
    Rotation,
}

/// Whether a request is answered here.
pub(super) fn lends(operation: Operation, head: &Parts) -> bool {
    match operation {
        Operation::RenewLease | Operation::RevokeLease => true,
        Operation::Secret => path(head.uri.path()).is_some(),
        _ => false,
    }
}

impl Wire {
    /// Answers a request for a credential, or for a lease. `owner` is the token of the request.
    pub(super) async fn lend(
        &self,
        operation: Operation,
        head: &Parts,
        body: &Value,
        owner: &str,
        now: Moment,
    ) -> Reply {
        let lease_id = body.get("lease_id").and_then(Value::as_str).unwrap_or_default();
        match operation {
            Operation::RenewLease => {
                let increment = body.get("increment").and_then(seconds);
                match self.dials().with_leases(|leases| leases.renew(lease_id, increment, now)) {
                    Some(ttl) => {
                        let mut answer = envelope(&random_text(), "data", Value::Null);
                        answer["lease_id"] = lease_id.into();
                        answer["lease_duration"] = ttl.as_secs().into();
                        answer["renewable"] = true.into();
                        json(StatusCode::OK, &answer)
                    }
                    None => refusal(StatusCode::BAD_REQUEST, "lease not found"),
                }
            }
            Operation::RevokeLease => {
                if let Some(credential) = self.dials().with_leases(|leases| leases.revoke(lease_id)) {
                    self.engine.end(&credential).await;
                }
                nothing()
            }
            _ => self.credential(head, owner, now).await,
        }
    }

    async fn credential(&self, head: &Parts, owner: &str, now: Moment) -> Reply {
        let Some((asked, name)) = path(head.uri.path()) else {
            return refusal(StatusCode::NOT_FOUND, "no handler for route");
        };
        let Some(role) = self.engine.role(name) else {
            return refusal(StatusCode::BAD_REQUEST, &format!("unknown role {name:?}"));
        };
        let read = matches!(head.method, Method::GET | Method::POST | Method::PUT);
        let (made, terms) = match (asked, role) {
            (Asked::Rotation, Credential::TeamLegacy) if head.method != Method::GET => {
                return match self.engine.rotate(name).await {
                    Ok(_) => nothing(),
                    Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error),
                };
            }
            (Asked::Credential, Credential::TeamLegacy) if read => (self.engine.standing(name).await, None),
            (Asked::Credential, Credential::Team(terms)) if read => {
                (self.engine.make(&format!("{name} {}", random_text())).await, Some(*terms))
            }
            _ => return refusal(StatusCode::METHOD_NOT_ALLOWED, "unsupported operation"),
        };
        let made = match made {
            Ok(made) => made,
            Err(error) => return refusal(StatusCode::INTERNAL_SERVER_ERROR, &error),
        };
        let data = json!({ "token": made.token, "token_id": made.id, "role": name });
        let mut answer = envelope(&random_text(), "data", data);
        if let Some(terms) = terms {
            let lend = |leases: &mut super::leases::Leases| {
                leases.lend(&format!("terraform/creds/{name}"), owner, terms, &made.id, now)
            };
            answer["lease_id"] = self.dials().with_leases(lend).into();
            answer["lease_duration"] = terms.ttl.min(terms.max_ttl).as_secs().into();
            answer["renewable"] = true.into();
        }
        json(StatusCode::OK, &answer)
    }
}
