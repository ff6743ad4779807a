//! Who a cloud identity is and whether a role lets it in, judged on the signed claims alone.
//!
//! What the caller states beside its token is only compared: a field that differs from its claim is refused, and none
//! stands in for a claim that is missing. (Servers that trusted a stated machine name let one machine log in as
//! another: CVE-2025-3879.)

mod refusal;

use std::collections::BTreeMap;

use serde::Deserialize;

use super::resource_id::ResourceId;
use super::timestamp::Timestamp;

pub use refusal::Refusal;

/// Claims of a token whose signature holds. Only the verifier of the signature may make one, and tests.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct SignedClaims {
    /// Who made the token.
    #[serde(default)]
    pub iss: String,
    /// Whom it is for.
    #[serde(default)]
    pub aud: Audience,
    /// When it ends, in seconds since 1970. A token without an end is refused.
    pub exp: Option<u64>,
    /// When it starts, in seconds since 1970.
    pub nbf: Option<u64>,
    /// Object id of the identity: the principal.
    pub oid: Option<String>,
    /// Tenant.
    pub tid: Option<String>,
    /// Client id of the identity.
    pub appid: Option<String>,
    /// Resource id of the managed identity; for a system-assigned one that of the machine.
    pub xms_mirid: Option<String>,
    /// Resource id of the machine that a user-assigned identity was used on.
    pub xms_az_rid: Option<String>,
}

/// One audience or many (RFC 7519, 4.1.3).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Audience {
    /// A single text.
    One(String),
    /// A list of texts.
    Many(Vec<String>),
}

impl Default for Audience {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

/// As it stands in the token: a quoted text, or a list of them.
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
    pub(super) fn contains(&self, wanted: &str) -> bool {
        match self {
            Self::One(name) => name == wanted,
            Self::Many(names) => names.iter().any(|name| name == wanted),
        }
    }
}

/// Whom an auth method trusts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    /// The issuer, byte for byte.
    pub issuer: String,
    /// The audience, byte for byte.
    pub audience: String,
}

/// Whom a role lets in. An empty list does not bind; a list binds to any one of its entries. Compared without regard
/// to ASCII case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
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

impl Bounds {
    /// What is wrong with them, in words; `None` if nothing.
    pub fn mistake(&self) -> Option<&'static str> {
        let below = [&self.resource_groups, &self.scale_sets, &self.virtual_machines];
        let mut all = below.into_iter().chain([&self.principals, &self.subscriptions]);
        if all.clone().all(Vec::is_empty) {
            Some("it has no bound and would let in every identity of the tenant; name principals or subscriptions")
        } else if all.any(|list| list.iter().any(|entry| entry.is_empty() || entry == "*")) {
            Some("a bound is empty or \"*\"; leave the list out where it is not to bind")
        } else if self.subscriptions.is_empty() && below.into_iter().any(|list| !list.is_empty()) {
            Some("names of groups and machines say nothing outside of their subscription; name subscriptions too")
        } else {
            None
        }
    }
}

/// What the caller said of itself beside its token.
#[derive(Debug, Clone, Default)]
pub struct Stated {
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

/// An identity that was let in, as its signed claims tell it: name of a fact to its value.
pub type Facts = BTreeMap<String, String>;

/// The names of the facts that an identity can have.
pub const FACTS: [&str; 8] = [
    "principal_id",
    "tenant_id",
    "app_id",
    "subscription_id",
    "resource_group_name",
    "vm_name",
    "vmss_name",
    "resource_id",
];

/// A cloud identity that the issuer vouches for, toward us, now.
#[derive(Debug)]
pub struct Identity<'a> {
    claims: &'a SignedClaims,
    principal: &'a str,
    machine: Machine<'a>,
}

/// Who a token is of. `audiences` are those that it may be for.
///
/// Time has no leeway: an instance's clock and this server's are both kept by the network, and a token's start lies
/// minutes before it is handed out.
///
/// # Errors
/// The first rule that the token does not meet.
pub fn identify<'a>(
    claims: &'a SignedClaims,
    issuer: &str,
    audiences: &[String],
    now: Timestamp,
) -> Result<Identity<'a>, Refusal> {
    if claims.iss != issuer {
        return Err(Refusal::Issuer { wanted: issuer.to_owned(), found: claims.iss.clone() });
    }
    if !audiences.iter().any(|audience| claims.aud.contains(audience)) {
        return Err(Refusal::Audience { wanted: audiences.join(", "), found: claims.aud.clone() });
    }
    let end = claims.exp.ok_or(Refusal::NoEnd)?;
    if end <= now.unix_seconds() {
        return Err(Refusal::Expired { end });
    }
    if let Some(start) = claims.nbf.filter(|start| *start > now.unix_seconds()) {
        return Err(Refusal::NotYet { start, now: now.unix_seconds() });
    }
    let principal = claims.oid.as_deref().filter(|oid| !oid.is_empty()).ok_or(Refusal::NoPrincipal)?;
    Ok(Identity { claims, principal, machine: Machine::of(claims)? })
}

/// Judges a login. The facts that it gives come from the signed claims alone.
///
/// # Errors
/// The first rule that the token does not meet.
pub fn decide(
    claims: &SignedClaims,
    trust: &Trust,
    bounds: &Bounds,
    stated: &Stated,
    now: Timestamp,
) -> Result<Facts, Refusal> {
    let identity = identify(claims, &trust.issuer, std::slice::from_ref(&trust.audience), now)?;
    let Identity { principal, machine, .. } = &identity;
    machine.agrees_with(stated)?;

    let bound = |list: &[String], found: Option<&str>, refusal: fn() -> Refusal| {
        let fits = |found: &str| list.iter().any(|entry| entry.eq_ignore_ascii_case(found));
        if list.is_empty() || found.is_some_and(fits) { Ok(()) } else { Err(refusal()) }
    };
    if !bounds.subscriptions.is_empty() && machine.id.is_none() {
        return Err(Refusal::NoMachine);
    }
    bound(&bounds.principals, Some(principal), || Refusal::Principal)?;
    bound(&bounds.subscriptions, machine.subscription(), || Refusal::Subscription)?;
    bound(&bounds.resource_groups, machine.resource_group(), || Refusal::ResourceGroup)?;
    bound(&bounds.scale_sets, machine.scale_set(), || Refusal::ScaleSet)?;
    bound(&bounds.virtual_machines, machine.virtual_machine(), || Refusal::VirtualMachine)?;
    // Last of all: with no bound there is nothing above that could refuse.
    if bounds.mistake().is_some() {
        return Err(Refusal::Principal);
    }
    Ok(identity.facts())
}

impl Identity<'_> {
    /// What the signed claims tell of it.
    pub fn facts(&self) -> Facts {
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
        let facts = FACTS.into_iter().zip(facts);
        facts.filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect()
    }
}

/// The machine that the claims name, if they do.
#[derive(Debug)]
struct Machine<'a> {
    id: Option<ResourceId>,
    /// The resource ids of the claims, the machine's first.
    texts: Vec<&'a str>,
}

impl<'a> Machine<'a> {
    fn of(claims: &'a SignedClaims) -> Result<Self, Refusal> {
        let [used_on, identity] = [&claims.xms_az_rid, &claims.xms_mirid].map(|claim| claim.as_deref());
        let texts = used_on.into_iter().chain(identity).collect();
        let own = identity.and_then(ResourceId::parse).filter(|id| !id.is_user_assigned_identity());
        let id = match (used_on, own) {
            (None, own) => own,
            (Some(used_on), None) => ResourceId::parse(used_on),
            (Some(used_on), Some(own)) if identity.is_some_and(|text| text.eq_ignore_ascii_case(used_on)) => Some(own),
            (Some(_), Some(_)) => return Err(Refusal::TwoMachines),
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

    /// A stated field for which the claims have nothing is left aside: it binds nothing and is kept nowhere.
    fn agrees_with(&self, stated: &Stated) -> Result<(), Refusal> {
        let check = |field, stated: &Option<String>, signed: &[&str]| {
            let Some(stated) = stated.as_deref().filter(|stated| !stated.is_empty()) else { return Ok(()) };
            let differs = !signed.is_empty() && !signed.iter().any(|signed| signed.eq_ignore_ascii_case(stated));
            if differs { Err(Refusal::Differs { field }) } else { Ok(()) }
        };
        check("subscription_id", &stated.subscription_id, self.subscription().as_slice())?;
        check("resource_group_name", &stated.resource_group_name, self.resource_group().as_slice())?;
        check("vm_name", &stated.vm_name, self.virtual_machine().as_slice())?;
        check("vmss_name", &stated.vmss_name, self.scale_set().as_slice())?;
        check("resource_id", &stated.resource_id, &self.texts)
    }
}

#[cfg(test)]
mod tests;
