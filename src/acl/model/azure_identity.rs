//! Verification of Azure managed identities only by their signed claims.
//!
//! Fields that the caller claims beside its token are only compared: one that differs from the signed claim is
//! rejected, and none replaces a missing claim. (Vault trusted a claimed machine name, so one machine could log in as
//! another: CVE-2025-3879.)

mod error;

use std::collections::BTreeMap;

use serde::Deserialize;

use super::resource_id::ResourceId;
use super::timestamp::Timestamp;

pub(crate) use error::ClaimsError;

/// Claims of a token whose signature is valid. Only the signature verifier and tests may create them.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct SignedClaims {
    /// Issuer.
    #[serde(default)]
    pub iss: String,
    /// Audience.
    #[serde(default)]
    pub aud: Audience,
    /// Expiration, in seconds since 1970. Required.
    pub exp: Option<u64>,
    /// Start, in seconds since 1970.
    pub nbf: Option<u64>,
    /// Object id of the identity: the principal.
    pub oid: Option<String>,
    /// Tenant id.
    pub tid: Option<String>,
    /// Client id of the identity.
    pub appid: Option<String>,
    /// Resource id of the managed identity; for a system-assigned one that of the machine.
    pub xms_mirid: Option<String>,
    /// Resource id of the machine that a user-assigned identity was used on.
    pub xms_az_rid: Option<String>,
}

/// One audience or several (RFC 7519, 4.1.3).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Audience {
    /// A string.
    One(String),
    /// A list of strings.
    Many(Vec<String>),
}

impl Default for Audience {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

/// Formats as in the token: a quoted string, or a list of them.
impl std::fmt::Display for Audience {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |name: &String| serde_json::Value::from(name.as_str()).to_string();
        match self {
            Self::One(one) => formatter.write_str(&name(one)),
            Self::Many(names) => write!(formatter, "[{}]", names.iter().map(name).collect::<Vec<_>>().join(", ")),
        }
    }
}

impl Audience {
    pub(super) fn contains(&self, audience: &str) -> bool {
        match self {
            Self::One(name) => name == audience,
            Self::Many(names) => names.iter().any(|name| name == audience),
        }
    }
}

/// Trusted issuer of an auth method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerConfig {
    /// Issuer, compared byte by byte.
    pub issuer: String,
    /// Audience, compared byte by byte.
    pub audience: String,
}

/// Identities that a role accepts. An empty list accepts all; otherwise one entry must match, without regard to ASCII
/// case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BoundClaims {
    /// Object ids of identities.
    pub principals: Vec<String>,
    /// Subscriptions of the machine.
    pub subscriptions: Vec<String>,
    /// Resource groups of the machine.
    pub resource_groups: Vec<String>,
    /// Scale sets that the machine belongs to.
    pub scale_sets: Vec<String>,
    /// Names of virtual machines.
    pub virtual_machines: Vec<String>,
}

impl BoundClaims {
    /// Returns the error text if the bounds are invalid.
    pub fn validation_error(&self) -> Option<&'static str> {
        let below = [&self.resource_groups, &self.scale_sets, &self.virtual_machines];
        let mut all = below.into_iter().chain([&self.principals, &self.subscriptions]);
        if all.clone().all(Vec::is_empty) {
            Some("the role has no bounds and would admit every identity of the tenant; set principals or subscriptions")
        } else if all.any(|list| list.iter().any(|entry| entry.is_empty() || entry == "*")) {
            Some("a bound is empty or \"*\"; omit the list to leave it unbound")
        } else if self.subscriptions.is_empty() && below.into_iter().any(|list| !list.is_empty()) {
            Some("resource group and machine names are unique only within a subscription; set subscriptions too")
        } else {
            None
        }
    }
}

/// Unsigned fields that the caller sends beside its token.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClaimedFields {
    /// `vm_name`.
    pub vm_name: Option<String>,
    /// `vmss_name`.
    pub vmss_name: Option<String>,
    /// `resource_group_name`.
    pub resource_group_name: Option<String>,
    /// `subscription_id`.
    pub subscription_id: Option<String>,
    /// `resource_id`.
    pub resource_id: Option<String>,
}

/// Facts from the signed claims of a verified identity, by name.
pub(crate) type VerifiedFacts = BTreeMap<String, String>;

/// Names of the facts.
pub(crate) const FACT_NAMES: [&str; 8] = [
    "principal_id",
    "tenant_id",
    "app_id",
    "subscription_id",
    "resource_group_name",
    "vm_name",
    "vmss_name",
    "resource_id",
];

/// A verified identity: issuer, audience and times are valid.
#[derive(Debug)]
pub(crate) struct AzureIdentity<'a> {
    claims: &'a SignedClaims,
    principal: &'a str,
    machine: ClaimedMachine<'a>,
}

/// Verifies issuer, audience and times of the claims. `audiences` are the accepted ones.
///
/// Times have no leeway: both clocks are synchronized, and a token becomes valid minutes before it is issued.
pub(crate) fn verify_identity<'a>(
    claims: &'a SignedClaims,
    issuer: &str,
    audiences: &[String],
    now: Timestamp,
) -> Result<AzureIdentity<'a>, ClaimsError> {
    if claims.iss != issuer {
        return Err(ClaimsError::Issuer { expected: issuer.to_owned(), found: claims.iss.clone() });
    }
    if !audiences.iter().any(|audience| claims.aud.contains(audience)) {
        return Err(ClaimsError::Audience { expected: audiences.join(", "), found: claims.aud.clone() });
    }
    let end = claims.exp.ok_or(ClaimsError::MissingExpiration)?;
    // RFC 7519, 4.1.4: not on or after the expiration.
    if end <= now.unix_seconds() {
        return Err(ClaimsError::Expired { end });
    }
    // RFC 7519, 4.1.5: not before this time.
    if let Some(start) = claims.nbf.filter(|start| *start > now.unix_seconds()) {
        return Err(ClaimsError::NotYetValid { start, now: now.unix_seconds() });
    }
    let principal = claims.oid.as_deref().filter(|oid| !oid.is_empty()).ok_or(ClaimsError::NoPrincipal)?;
    Ok(AzureIdentity { claims, principal, machine: ClaimedMachine::from_claims(claims)? })
}

/// Verifies a login against the bounds of a role. The returned facts come only from the signed claims.
pub(crate) fn verify_login(
    claims: &SignedClaims,
    trust: &IssuerConfig,
    bounds: &BoundClaims,
    claimed: &ClaimedFields,
    now: Timestamp,
) -> Result<VerifiedFacts, ClaimsError> {
    let identity = verify_identity(claims, &trust.issuer, std::slice::from_ref(&trust.audience), now)?;
    let AzureIdentity { principal, machine, .. } = &identity;
    machine.check_claimed_fields(claimed)?;

    let bound = |list: &[String], value: Option<&str>, refusal: fn() -> ClaimsError| {
        let fits = |value: &str| list.iter().any(|entry| entry.eq_ignore_ascii_case(value));
        if list.is_empty() || value.is_some_and(fits) { Ok(()) } else { Err(refusal()) }
    };
    if !bounds.subscriptions.is_empty() && machine.id.is_none() {
        return Err(ClaimsError::NoMachine);
    }
    bound(&bounds.principals, Some(principal), || ClaimsError::Principal)?;
    bound(&bounds.subscriptions, machine.subscription(), || ClaimsError::Subscription)?;
    bound(&bounds.resource_groups, machine.resource_group(), || ClaimsError::ResourceGroup)?;
    bound(&bounds.scale_sets, machine.scale_set(), || ClaimsError::ScaleSet)?;
    bound(&bounds.virtual_machines, machine.virtual_machine(), || ClaimsError::VirtualMachine)?;
    // Last: without bounds no check above could reject.
    if bounds.validation_error().is_some() {
        return Err(ClaimsError::Principal);
    }
    Ok(identity.facts())
}

impl AzureIdentity<'_> {
    /// Returns the facts of the signed claims.
    pub(crate) fn facts(&self) -> VerifiedFacts {
        let Self { claims, principal, machine } = self;
        let facts = [
            Some(*principal),
            claims.tid.as_deref(),
            claims.appid.as_deref(),
            machine.subscription(),
            machine.resource_group(),
            machine.virtual_machine(),
            machine.scale_set(),
            machine.texts.first().copied(),
        ];
        let facts = FACT_NAMES.into_iter().zip(facts);
        facts.filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect()
    }
}

/// Machine that the claims name, if any.
#[derive(Debug)]
struct ClaimedMachine<'a> {
    id: Option<ResourceId>,
    /// Resource ids of the claims, the machine's first.
    texts: Vec<&'a str>,
}

impl<'a> ClaimedMachine<'a> {
    fn from_claims(claims: &'a SignedClaims) -> Result<Self, ClaimsError> {
        let [used_on, identity] = [&claims.xms_az_rid, &claims.xms_mirid].map(|claim| claim.as_deref());
        let texts = used_on.into_iter().chain(identity).collect();
        let machine_id = identity.and_then(ResourceId::parse).filter(|id| !id.is_user_assigned_identity());
        let id = match (used_on, machine_id) {
            (None, machine_id) => machine_id,
            (Some(used_on), None) => ResourceId::parse(used_on),
            (Some(used_on), Some(machine_id)) if identity.is_some_and(|text| text.eq_ignore_ascii_case(used_on)) => {
                Some(machine_id)
            }
            // The claims name two machines; bounds that fit one of them must not admit the other.
            (Some(_), Some(_)) => return Err(ClaimsError::ConflictingMachines),
        };
        Ok(Self { id, texts })
    }

    fn subscription(&self) -> Option<&str> {
        self.id.as_ref().map(|id| id.subscription.as_str())
    }

    fn resource_group(&self) -> Option<&str> {
        self.id.as_ref()?.resource_group.as_deref()
    }

    fn scale_set(&self) -> Option<&str> {
        self.id.as_ref()?.scale_set()
    }

    fn virtual_machine(&self) -> Option<&str> {
        self.id.as_ref()?.virtual_machine()
    }

    /// Rejects claimed fields that differ from the signed claims. Fields without a signed counterpart are ignored and
    /// stored nowhere.
    fn check_claimed_fields(&self, claimed: &ClaimedFields) -> Result<(), ClaimsError> {
        let check = |field, claimed: &Option<String>, signed: &[&str]| {
            let Some(claimed) = claimed.as_deref().filter(|claimed| !claimed.is_empty()) else { return Ok(()) };
            let differs = !signed.is_empty() && !signed.iter().any(|signed| signed.eq_ignore_ascii_case(claimed));
            if differs { Err(ClaimsError::FieldMismatch { field }) } else { Ok(()) }
        };
        check("subscription_id", &claimed.subscription_id, self.subscription().as_slice())?;
        check("resource_group_name", &claimed.resource_group_name, self.resource_group().as_slice())?;
        check("vm_name", &claimed.vm_name, self.virtual_machine().as_slice())?;
        check("vmss_name", &claimed.vmss_name, self.scale_set().as_slice())?;
        check("resource_id", &claimed.resource_id, &self.texts)
    }
}

#[cfg(test)]
mod tests;
