//! Classifies failed logins by text and status.
//!
//! Auth methods answer most refusals with HTTP 500 (Vault's SDK makes one of every plain error), so the message decides
//! first, and the status only if the message is unknown.

use keyward_telemetry::error_code::ErrorCode;

use super::AuthMethodKind;
use crate::server_client::{CallError, TokenVerdict, is_outage};

/// Class of a failed login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginFailureKind {
    /// An operator has to change a setting or a right first.
    Refused,
    /// The failure may pass by itself.
    Unavailable,
    /// The request was malformed or lacked a field.
    Bug,
    /// The proof is expired.
    Expired,
    /// The proof is not valid yet.
    NotYet,
}

/// Returns the class of a failed login and advice for the operator.
pub fn classify(method: AuthMethodKind, error: &CallError) -> (LoginFailureKind, Option<&'static str>) {
    match error {
        CallError::Status { status, errors, .. } => classify_status(method, *status, &errors.join("\n")),
        CallError::LimitedUse { .. } => (LoginFailureKind::Refused, Some(LIMITED_ROLE)),
        CallError::NoSecret { .. } => (LoginFailureKind::Refused, None),
        CallError::Unreachable { .. }
        | CallError::TimedOut { .. }
        | CallError::InvalidResponse { .. }
        | CallError::TooLarge { .. } => (LoginFailureKind::Unavailable, None),
    }
}

/// Returns the advice about a refused token in a file, where it differs from that about a login.
pub(super) fn token_file_hint(error: &CallError) -> Option<&'static str> {
    match error {
        CallError::LimitedUse { .. } => Some(LIMITED_FILE),
        error => match error.verdict() {
            TokenVerdict::Denied => Some(NO_LOOKUP),
            verdict => verdict.suspects_token().then_some(DEAD),
        },
    }
}

/// Returns the code of a refused login by its advice.
pub(super) fn refusal_code(hint: Option<&'static str>) -> ErrorCode {
    match hint {
        Some(AUDIENCE) => ErrorCode::LoginAudience,
        Some(ISSUER | OTHER_CLOUD | OTHER_TENANT) => ErrorCode::LoginIssuer,
        Some(SKEW) => ErrorCode::LoginClock,
        Some(PRINCIPAL | SERVICE_ACCOUNT | IAM_PRINCIPAL | GOOGLE_PRINCIPAL) => ErrorCode::LoginPrincipal,
        Some(NO_ROLE | NO_ROLE_ID) => ErrorCode::LoginRoleUnknown,
        Some(WRONG_MOUNT | WRONG_MOUNT_OR_ADDRESS) => ErrorCode::LoginMount,
        Some(FIELDS | OTHER_MACHINE | NO_MACHINE | ROLE_BOUNDS | NO_SCALE_SET | BAD_FIELD) => ErrorCode::LoginMachine,
        Some(SERVER_SETTINGS | SERVER_RIGHTS) => ErrorCode::LoginServerSettings,
        Some(SECRET_ID) => ErrorCode::LoginSecretId,
        Some(LIMITED_ROLE | LIMITED_FILE) => ErrorCode::TokenLimitedUse,
        Some(DEAD) => ErrorCode::TokenDead,
        _ => ErrorCode::LoginRefused,
    }
}

fn classify_status(method: AuthMethodKind, status: u16, text: &str) -> (LoginFailureKind, Option<&'static str>) {
    if is_outage(status) && status != 500 {
        return (LoginFailureKind::Unavailable, None);
    }
    // Errors between the server and Azure, or a token's issuer, are quoted inside other messages, so they are checked first.
    let quotes_issuer = QUOTING.iter().any(|start| text.starts_with(start));
    if (status == 500 || quotes_issuer) && TEMPORARY.iter().any(|pattern| text.contains(pattern)) {
        return (LoginFailureKind::Unavailable, Some(if quotes_issuer { NO_ISSUER } else { NO_AZURE }));
    }
    if let Some((_, kind, hint)) = PATTERNS.iter().find(|(pattern, ..)| text.contains(pattern)) {
        return (*kind, (!hint.is_empty()).then_some(hint));
    }
    match status {
        // The method sends this text whatever the reason, even while the API server of the cluster restarts.
        403 if method == AuthMethodKind::Kubernetes && text == "permission denied" => {
            (LoginFailureKind::Unavailable, Some(UNVERIFIED))
        }
        // Texts of the servers' core; other auth methods use others.
        403 if text.is_empty() || text.contains("permission denied") => {
            (LoginFailureKind::Refused, Some(WRONG_MOUNT_OR_ADDRESS))
        }
        404 | 405 => (LoginFailureKind::Refused, Some(WRONG_MOUNT)),
        500 => (LoginFailureKind::Unavailable, None),
        _ => (LoginFailureKind::Refused, None),
    }
}

/// Starts of messages of the methods `jwt`, `kubernetes`, `aws` and `gcp`, at 400 and 403, that may quote a failure between the
/// server and the issuer of the proof.
const QUOTING: &[&str] = &[
    "error validating token",
    "error configuring token validator",
    "namespace not authorized err=",
    "error making upstream request",
    "unable to get public key for signed JWT",
];

/// Texts of temporary failures between the server and Azure, or the issuer of a token.
const TEMPORARY: &[&str] = &[
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
    // Of STS and of Google, whose 4xx are refusals.
    "giving up after",
    "received error code 5",
    "got HTTP response code 5",
];

const NO_AZURE: &str = "the server could not query Azure";
const NO_ISSUER: &str = "the server could not query the issuer of the token";
pub(super) const UNVERIFIED: &str = "the server could not verify the service account at the Kubernetes API (unreachable, \
                                     wrong cluster, no system:auth-delegator), or the mount path is wrong, or the role \
                                     bound to other addresses";
const AUDIENCE: &str =
    "the configured resource must be the auth method's `resource` byte for byte, a slash at the end included";
const ISSUER: &str = "the tenant, the cloud or the token's version differs; an application of your own must have \
                      requestedAccessTokenVersion 1 or null";
const SKEW: &str = "the clock of this machine, the server or Azure is wrong; the server allows no difference";
const SERVER_SETTINGS: &str = "the server's auth method is not configured";
const PRINCIPAL: &str =
    "the role must bind this identity's object id; changed groups show in a new token only, up to a day later";
const FIELDS: &str = "the role is bound to machines: set subscription_id, resource_group_name and one of vm_name, \
                      vmss_name, resource_id, or bind the role only to service principals";
const OTHER_MACHINE: &str = "a login field names a different machine than the token; in a pod, set resource_id to the cluster, or bind the role to service principals only";
const NO_MACHINE: &str = "a token for an audience of your own does not name a machine; use the cloud's management \
                          audience, or bind the role only to service principals";
const WRONG_MOUNT: &str = "the mount path or the namespace may be wrong";
const WRONG_MOUNT_OR_ADDRESS: &str = "the mount path or namespace may be wrong, or the role bound to other addresses";
const NO_ROLE: &str = "the server has no role of this name";
const NO_ROLE_ID: &str = "the server has no role of this id";
const OTHER_CLOUD: &str = "the token may come from another cloud";
const OTHER_TENANT: &str = "the token may come from another cloud or tenant";
const SERVER_RIGHTS: &str = "the server's own identity lacks the right to read the machine in Azure";
const ROLE_BOUNDS: &str = "the role is bound to other machines";
const NO_SCALE_SET: &str =
    "the role is bound to scale sets: on a machine of a flexible scale set, set vmss_name to the name of the set";
const SERVICE_ACCOUNT: &str = "the role must bind this service account and its namespace";
const BAD_FIELD: &str = "the server rejects such names; leave the field out if the role does not need it";

/// Error messages of the auth methods of Vault, OpenBao and keyward's ACL server, with class and advice, in any order.
const PATTERNS: &[(&str, LoginFailureKind, &str)] = &[
    ("jwt is required", LoginFailureKind::Bug, ""),
    ("role is required", LoginFailureKind::Bug, ""),
    ("malformed jwt", LoginFailureKind::Bug, "the identity source returned something else than a signed token"),
    ("subscription_id and resource_group_name are required", LoginFailureKind::Bug, FIELDS),
    ("token is expired", LoginFailureKind::Expired, SKEW),
    ("before the nbf (not before) time", LoginFailureKind::NotYet, SKEW),
    ("token is not yet valid", LoginFailureKind::NotYet, SKEW),
    ("invalid role name", LoginFailureKind::Refused, NO_ROLE),
    ("invalid subscription id", LoginFailureKind::Refused, BAD_FIELD),
    ("invalid resource group name", LoginFailureKind::Refused, BAD_FIELD),
    ("invalid vmss_name", LoginFailureKind::Refused, BAD_FIELD),
    ("invalid vm name", LoginFailureKind::Refused, BAD_FIELD),
    ("tenant_id is required", LoginFailureKind::Refused, SERVER_SETTINGS),
    ("resource is required", LoginFailureKind::Refused, SERVER_SETTINGS),
    ("no cloud configuration matching", LoginFailureKind::Refused, SERVER_SETTINGS),
    ("id token issued by a different provider", LoginFailureKind::Refused, ISSUER),
    ("expected audience", LoginFailureKind::Refused, AUDIENCE),
    ("unsupported algorithm", LoginFailureKind::Refused, OTHER_CLOUD),
    ("failed to verify signature", LoginFailureKind::Refused, OTHER_TENANT),
    (
        "both cannot be empty or '*'",
        LoginFailureKind::Refused,
        "this server requires the role to bind service principals or groups",
    ),
    ("both cannot be '*'", LoginFailureKind::Refused, "the role must bind service principals or groups"),
    ("service principal not authorized", LoginFailureKind::Refused, PRINCIPAL),
    ("groups not authorized", LoginFailureKind::Refused, PRINCIPAL),
    ("xms_az_rid and xms_mirid claims are missing", LoginFailureKind::Refused, NO_MACHINE),
    ("token claim does not match", LoginFailureKind::Refused, OTHER_MACHINE),
    ("failed to verify flexible vmss claim", LoginFailureKind::Refused, OTHER_MACHINE),
    ("failed to verify uniform vmss claim", LoginFailureKind::Refused, OTHER_MACHINE),
    ("provided resource_id does not match", LoginFailureKind::Refused, "resource_id must lie in resource_group_name"),
    ("unable to retrieve", LoginFailureKind::Refused, SERVER_RIGHTS),
    ("unable to get the provider", LoginFailureKind::Refused, SERVER_RIGHTS),
    ("unable to parse the resource ID", LoginFailureKind::Refused, "resource_id is not the full id of a resource"),
    ("failed to create", LoginFailureKind::Refused, SERVER_RIGHTS),
    ("did not return identity information", LoginFailureKind::Refused, "the machine has no managed identity"),
    ("this vm isn't in a scale set", LoginFailureKind::Refused, NO_SCALE_SET),
    ("scale set requires the vmss_name field", LoginFailureKind::Refused, FIELDS),
    ("differs from what the token says", LoginFailureKind::Refused, OTHER_MACHINE),
    ("virtual machine not authorized", LoginFailureKind::Refused, ROLE_BOUNDS),
    ("scale set not authorized", LoginFailureKind::Refused, ROLE_BOUNDS),
    ("subscription not authorized", LoginFailureKind::Refused, ROLE_BOUNDS),
    ("resource group not authorized", LoginFailureKind::Refused, ROLE_BOUNDS),
    (
        "location is empty",
        LoginFailureKind::Refused,
        "a role bound to locations accepts only virtual machines and scale sets",
    ),
    ("location not authorized", LoginFailureKind::Refused, ROLE_BOUNDS),
    ("one of vm_name, vmss_name, resource_id", LoginFailureKind::Refused, FIELDS),
    ("token object id does not match", LoginFailureKind::Refused, OTHER_MACHINE),
    ("neither token object id nor token app id", LoginFailureKind::Refused, OTHER_MACHINE),
    // AWS: texts of the method, and of STS that it quotes.
    ("entry for role", LoginFailureKind::Refused, NO_ROLE),
    ("does not belong to the role", LoginFailureKind::Refused, IAM_PRINCIPAL),
    ("X-Vault-AWS-IAM-Server-ID", LoginFailureKind::Refused, SERVER_ID),
    ("Signature expired", LoginFailureKind::Expired, SKEW),
    ("Signature not yet current", LoginFailureKind::NotYet, SKEW),
    ("ExpiredToken", LoginFailureKind::Expired, "the AWS credentials have ended"),
    ("should be scoped to a valid region", LoginFailureKind::Refused, REGION),
    (
        "InvalidClientTokenId",
        LoginFailureKind::Refused,
        "AWS does not know the access key, or it is of another partition",
    ),
    // Google Cloud.
    ("\" not found", LoginFailureKind::Refused, NO_ROLE),
    ("no Google OAuth2 provider key found", LoginFailureKind::Refused, GOOGLE_KEY),
    ("JWT is expired", LoginFailureKind::Expired, SKEW),
    ("JWT must expire in", LoginFailureKind::Refused, SKEW),
    ("is not authorized for role", LoginFailureKind::Refused, GOOGLE_PRINCIPAL),
    ("not in bound", LoginFailureKind::Refused, GOOGLE_PRINCIPAL),
    ("service account JWTs expire within", LoginFailureKind::Refused, "set max_jwt_exp of the role to 10m or more"),
    ("does not allow GCE inference", LoginFailureKind::Refused, "the role is of the type iam: set type = \"iam\""),
    ("claims with GCE metadata", LoginFailureKind::Refused, "the role is of the type gce: leave type out"),
    // Auth methods outside of a cloud.
    ("invalid role or secret ID", LoginFailureKind::Refused, SECRET_ID),
    ("invalid secret id", LoginFailureKind::Refused, SECRET_ID),
    ("invalid role ID", LoginFailureKind::Refused, NO_ROLE_ID),
    ("service account name not authorized", LoginFailureKind::Refused, SERVICE_ACCOUNT),
    ("namespace not authorized", LoginFailureKind::Refused, SERVICE_ACCOUNT),
    ("missing secret_id", LoginFailureKind::Refused, "the role requires a secret id: set secret_id_file"),
    ("could not be found", LoginFailureKind::Refused, NO_ROLE),
    (
        "no client certificate",
        LoginFailureKind::Refused,
        "the certificate did not reach the server: something before it ends TLS",
    ),
    ("failed to match all constraints", LoginFailureKind::Refused, "the role allows other names or another authority"),
    ("bad token", LoginFailureKind::Refused, DEAD),
    ("invalid token", LoginFailureKind::Refused, DEAD),
];

const IAM_PRINCIPAL: &str = "the role must bind this principal by bound_iam_principal_arn; for temporary credentials that is the ARN of \
                             the IAM role";
const SERVER_ID: &str = "set server_id to iam_server_id_header_value of the server's method";
const REGION: &str = "set region to sts_region of the server's method, or leave both out";
const GOOGLE_KEY: &str =
    "the role is of the type gce: leave type out; with type = \"gce\" the server could not get Google's keys";
const GOOGLE_PRINCIPAL: &str = "the role must bind this service account, project or instance";
const SECRET_ID: &str = "it may have ended, been used up, or belong to another role";
const LIMITED_ROLE: &str = "set token_num_uses = 0 in the role";
const LIMITED_FILE: &str = "put a token without a limit of uses into the file";
const NO_LOOKUP: &str =
    "the token in the file may not look itself up; one that is response-wrapped has to be unwrapped first";
const DEAD: &str = "the token in the file has ended or was revoked: put a new one there";

#[cfg(test)]
mod tests;
