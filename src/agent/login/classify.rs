//! What a failed login means. Auth methods answer most refusals with HTTP 500 (their SDK makes one of every plain
//! error), so the text decides first and the status where the text is unknown.

use crate::agent::server_client::{CallError, is_outage};

/// What a failed login means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Someone must change a setting or a right first.
    Refused,
    /// It may pass by itself.
    Unavailable,
    /// The request was wrong or lacked something.
    Bug,
    /// The proof is expired.
    Expired,
    /// The proof is not valid yet.
    NotYet,
}

/// The class of a failed login, and what may mend it.
pub fn classify(error: &CallError) -> (Class, Option<&'static str>) {
    match error {
        CallError::Status { status, errors, .. } => by_status(*status, &errors.join("\n")),
        CallError::LimitedUse { .. } | CallError::NoSecret { .. } => (Class::Refused, None),
        CallError::Unreachable { .. } | CallError::TimedOut { .. } | CallError::Garbage { .. } => {
            (Class::Unavailable, None)
        }
    }
}

fn by_status(status: u16, text: &str) -> (Class, Option<&'static str>) {
    if is_outage(status) && status != 500 {
        return (Class::Unavailable, None);
    }
    // What the server met on its way to the cloud comes inside other texts, so it is looked for first.
    if status == 500 && PASSING.iter().any(|words| text.contains(words)) {
        return (Class::Unavailable, Some("the server could not ask the cloud"));
    }
    if let Some((_, class, hint)) = TEXTS.iter().find(|(words, ..)| text.contains(words)) {
        return (*class, (!hint.is_empty()).then_some(hint));
    }
    match status {
        // The servers' own words; an auth method has others.
        403 if text.is_empty() || text.contains("permission denied") => {
            (Class::Refused, Some("the mount path or namespace may be wrong, or the role bound to other addresses"))
        }
        404 | 405 => (Class::Refused, Some("the mount path or the namespace may be wrong")),
        500 => (Class::Unavailable, None),
        _ => (Class::Refused, None),
    }
}

/// Trouble between the server and the cloud that may pass.
const PASSING: &[&str] = &[
    "fetching keys",
    "dial tcp",
    "connection refused",
    "connection reset",
    "no such host",
    "i/o timeout",
    "context deadline exceeded",
    "Client.Timeout exceeded",
    "TLS handshake",
    "tls: ",
    "x509: ",
    "unexpected EOF",
    "404 Not Found:",
    "unable to unmarshal discovery url",
    "unable to retrieve backend configuration",
    "RESPONSE 429",
    "RESPONSE 500",
    "RESPONSE 502",
    "RESPONSE 503",
    "RESPONSE 504",
    "TooManyRequests",
];

const AUDIENCE: &str =
    "the configured resource must be the auth method's `resource` byte for byte, a slash at the end included";
const ISSUER: &str = "the tenant, the cloud or the token's version differs; an application of your own must have \
                      requestedAccessTokenVersion 1 or null";
const SKEW: &str = "the clock here, at the server or at the cloud is wrong; the server allows no difference";
const SERVER_SETTINGS: &str = "the server's auth method is not configured";
const PRINCIPAL: &str =
    "the role must bind this identity's object id; changed groups show in a new token only, up to a day later";
const FIELDS: &str = "the role is bound to machines: set subscription_id, resource_group_name and one of vm_name, \
                      vmss_name, resource_id, or bind the role to service principals alone";
const FOREIGN: &str = "a login field names another machine than the token does; in a pod, set resource_id of the \
                       cluster, or bind the role to service principals alone";
const NO_MACHINE: &str = "a token for an audience of your own names no machine; take the cloud's management audience, \
                          or bind the role to service principals alone";
const SERVER_RIGHTS: &str = "the server's own identity may not read the machine in the cloud";
const ROLE_BOUNDS: &str = "the role is bound to other machines";
const BAD_FIELD: &str = "the server takes no such name; leave the field out if the role does not need it";

/// Texts of the cloud auth method of Vault and OpenBao and of the access-control service, in no order that matters: what
/// they hold, and what it means.
const TEXTS: &[(&str, Class, &str)] = &[
    ("jwt is required", Class::Bug, ""),
    ("role is required", Class::Bug, ""),
    ("malformed jwt", Class::Bug, "what the identity source gave is not a signed token"),
    ("subscription_id and resource_group_name are required", Class::Bug, FIELDS),
    ("token is expired", Class::Expired, SKEW),
    ("before the nbf (not before) time", Class::NotYet, SKEW),
    ("token is not yet valid", Class::NotYet, SKEW),
    ("invalid role name", Class::Refused, "the server has no role of this name"),
    ("invalid subscription id", Class::Refused, BAD_FIELD),
    ("invalid resource group name", Class::Refused, BAD_FIELD),
    ("invalid vmss_name", Class::Refused, BAD_FIELD),
    ("invalid vm name", Class::Refused, BAD_FIELD),
    ("tenant_id is required", Class::Refused, SERVER_SETTINGS),
    ("resource is required", Class::Refused, SERVER_SETTINGS),
    ("no cloud configuration matching", Class::Refused, SERVER_SETTINGS),
    ("id token issued by a different provider", Class::Refused, ISSUER),
    ("expected audience", Class::Refused, AUDIENCE),
    ("unsupported algorithm", Class::Refused, "the token may come from another cloud"),
    ("failed to verify signature", Class::Refused, "the token may come from another cloud or tenant"),
    (
        "both cannot be empty or '*'",
        Class::Refused,
        "the role must bind service principals or groups; this server wants that",
    ),
    ("both cannot be '*'", Class::Refused, "the role must bind service principals or groups"),
    ("service principal not authorized", Class::Refused, PRINCIPAL),
    ("groups not authorized", Class::Refused, PRINCIPAL),
    ("xms_az_rid and xms_mirid claims are missing", Class::Refused, NO_MACHINE),
    ("token claim does not match", Class::Refused, FOREIGN),
    ("failed to verify flexible vmss claim", Class::Refused, FOREIGN),
    ("failed to verify uniform vmss claim", Class::Refused, FOREIGN),
    ("provided resource_id does not match", Class::Refused, "resource_id must lie in resource_group_name"),
    ("unable to retrieve", Class::Refused, SERVER_RIGHTS),
    ("unable to get the provider", Class::Refused, SERVER_RIGHTS),
    ("unable to parse the resource ID", Class::Refused, "resource_id is not the full id of a resource"),
    ("failed to create", Class::Refused, SERVER_RIGHTS),
    ("did not return identity information", Class::Refused, "the machine has no managed identity"),
    ("this vm isn't in a scale set", Class::Refused, ROLE_BOUNDS),
    ("scale set requires the vmss_name field", Class::Refused, FIELDS),
    ("differs from what the token says", Class::Refused, FOREIGN),
    ("virtual machine not authorized", Class::Refused, ROLE_BOUNDS),
    ("scale set not authorized", Class::Refused, ROLE_BOUNDS),
    ("subscription not authorized", Class::Refused, ROLE_BOUNDS),
    ("resource group not authorized", Class::Refused, ROLE_BOUNDS),
    ("location is empty", Class::Refused, "a role bound to locations takes virtual machines and scale sets alone"),
    ("location not authorized", Class::Refused, ROLE_BOUNDS),
    ("one of vm_name, vmss_name, resource_id", Class::Refused, FIELDS),
    ("token object id does not match", Class::Refused, FOREIGN),
    ("neither token object id nor token app id", Class::Refused, FOREIGN),
    // Of the methods for machines without a cloud.
    ("invalid role or secret ID", Class::Refused, SECRET_ID),
    ("invalid secret id", Class::Refused, SECRET_ID),
    ("invalid role ID", Class::Refused, "the server has no role of this id"),
    ("missing secret_id", Class::Refused, "the role wants a secret id: give its file as secret_id_file"),
    ("could not be found", Class::Refused, "the server has no role of this name"),
    ("no client certificate", Class::Refused, "the certificate did not reach the server: something before it ends TLS"),
    ("failed to match all constraints", Class::Refused, "the role allows other names or another authority"),
    ("bad token", Class::Refused, DEAD),
    ("invalid token", Class::Refused, DEAD),
];

const SECRET_ID: &str = "it may have ended, been used up, or belong to another role";
pub(super) const DEAD: &str = "the token in the file has ended or was revoked: put a new one there";
