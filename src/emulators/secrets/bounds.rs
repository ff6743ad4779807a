//! Bounds of a role: the checks of the real Azure auth method, with its messages. For facts that the real one asks
//! Azure about, this one trusts the signed claims.

use std::collections::BTreeMap;

use serde_json::Value;

use super::verify::Claims;

/// Identities that a role admits. An empty list binds nothing; `*` matches any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Object ids of identities. This or `group_ids` must be set.
    pub service_principal_ids: Vec<String>,
    /// Ids of groups of the identity.
    pub group_ids: Vec<String>,
    /// Subscriptions of machines.
    pub subscription_ids: Vec<String>,
    /// Resource groups of machines.
    pub resource_groups: Vec<String>,
    /// Scale sets of machines.
    pub scale_sets: Vec<String>,
}

/// Fields of a login besides its proof.
#[derive(Debug)]
pub(super) struct LoginFields<'a> {
    pub subscription_id: &'a str,
    pub resource_group_name: &'a str,
    pub vm_name: &'a str,
    pub vmss_name: &'a str,
    pub resource_id: &'a str,
}

impl<'a> LoginFields<'a> {
    pub(super) fn from_body(body: &'a Value) -> Self {
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        Self {
            subscription_id: text("subscription_id"),
            resource_group_name: text("resource_group_name"),
            vm_name: text("vm_name"),
            vmss_name: text("vmss_name"),
            resource_id: text("resource_id"),
        }
    }

    /// Returns the error message (HTTP 400) of the first malformed field.
    pub(super) fn find_malformed(&self) -> Option<String> {
        let bad = |name: &str, value: &str, good: fn(&str) -> bool| {
            (!value.is_empty() && !good(value)).then(|| format!("invalid {name} {value:?}"))
        };
        bad("subscription id", self.subscription_id, is_guid)
            .or_else(|| bad("resource group name", self.resource_group_name, is_group_name))
            .or_else(|| bad("vmss_name", self.vmss_name, is_machine_name))
            .or_else(|| bad("vm name", self.vm_name, is_machine_name))
    }

    /// Returns the unchecked fields that the token's metadata repeats.
    pub(super) fn metadata(&self) -> BTreeMap<String, String> {
        [
            ("subscription_id", self.subscription_id),
            ("resource_group_name", self.resource_group_name),
            ("vm_name", self.vm_name),
            ("vmss_name", self.vmss_name),
            ("resource_id", self.resource_id),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
    }
}

impl Bounds {
    /// Admits an identity, or returns the error message (HTTP 500).
    pub(super) fn admit(&self, claims: &Claims, fields: &LoginFields<'_>) -> Result<(), String> {
        let open = |list: &[String]| list.is_empty() || list.iter().any(|entry| entry == "*");
        if open(&self.service_principal_ids) && open(&self.group_ids) {
            return Err("expected specific bound_group_ids or bound_service_principal_ids; \
                        both cannot be empty or '*'"
                .to_owned());
        }
        let oid = claim(claims, "oid");
        if !allows(&self.service_principal_ids, oid) {
            return Err(format!("service principal not authorized: {oid}"));
        }
        let groups: Vec<&str> = claims
            .get("groups")
            .and_then(Value::as_array)
            .map(|groups| groups.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        if !open(&self.group_ids) && !groups.iter().any(|group| allows(&self.group_ids, group)) {
            return Err(format!("groups not authorized: {groups:?}"));
        }
        let machines_bound =
            [&self.subscription_ids, &self.resource_groups, &self.scale_sets].iter().any(|list| !list.is_empty());
        if machines_bound { self.admit_machine(claims, fields) } else { Ok(()) }
    }

    fn admit_machine(&self, claims: &Claims, fields: &LoginFields<'_>) -> Result<(), String> {
        if fields.subscription_id.is_empty() || fields.resource_group_name.is_empty() {
            return Err("subscription_id and resource_group_name are required".to_owned());
        }
        let resources = ClaimedResources::find(claims, fields)?;
        resources.check_group(fields)?;
        resources.check_subscription(fields)?;
        if !allows(&self.subscription_ids, fields.subscription_id) {
            return Err("subscription not authorized".to_owned());
        }
        if !allows(&self.resource_groups, fields.resource_group_name) {
            return Err("resource group not authorized".to_owned());
        }
        if self.scale_sets.is_empty() {
            return Ok(());
        }
        match fields.vmss_name {
            "" if fields.vm_name.is_empty() => Err("scale set requires the vmss_name field to be set".to_owned()),
            // Whatever the machine is: one of a flexible scale set looks like a standalone one.
            "" => Err("bound scale set defined but this vm isn't in a scale set".to_owned()),
            name if allows(&self.scale_sets, name) => Ok(()),
            _ => Err("scale set not authorized".to_owned()),
        }
    }
}

/// Resource ids in a proof's claims, in lower case as Azure compares them.
struct ClaimedResources {
    ids: Vec<String>,
}

impl ClaimedResources {
    /// Finds the machine or resource of the fields among the claims.
    fn find(claims: &Claims, fields: &LoginFields<'_>) -> Result<Self, String> {
        let ids = ["xms_az_rid", "xms_mirid"].map(|name| claim(claims, name).to_lowercase());
        let resources = Self { ids: ids.into_iter().filter(|id| !id.is_empty()).collect() };
        if fields.vmss_name.is_empty() && fields.vm_name.is_empty() {
            return resources.resource(claims, fields);
        }
        if resources.ids.is_empty() {
            return Err("xms_az_rid and xms_mirid claims are missing from token".to_owned());
        }
        if fields.vmss_name.is_empty() {
            let vm = fields.vm_name;
            return if resources.contains(&format!("/virtualmachines/{vm}")) {
                Ok(resources)
            } else {
                Err(mismatch("vm_name", vm))
            };
        }
        let vmss = fields.vmss_name;
        let flexible = resources.contains(&format!("/virtualmachines/{vmss}_"));
        if flexible || resources.contains(&format!("/virtualmachinescalesets/{vmss}")) {
            Ok(resources)
        } else {
            let mismatch = mismatch("vmss_name", vmss);
            Err(format!(
                "failed to verify flexible vmss claim: {mismatch}\nfailed to verify uniform vmss claim: {mismatch}"
            ))
        }
    }

    fn resource(self, claims: &Claims, fields: &LoginFields<'_>) -> Result<Self, String> {
        if fields.resource_id.is_empty() {
            return Err(if claim(claims, "appid").is_empty() {
                "one of vm_name, vmss_name, resource_id, or an appid JWT claim must be provided".to_owned()
            } else {
                RESOURCE_GROUP.to_owned()
            });
        }
        if !fields.resource_id.starts_with('/') {
            return Err(format!("unable to parse the resource ID: {:?}", fields.resource_id));
        }
        let id = fields.resource_id.to_lowercase();
        if !id.contains(&format!("/resourcegroups/{}", fields.resource_group_name.to_lowercase())) {
            return Err(RESOURCE_GROUP.to_owned());
        }
        if self.ids.contains(&id) {
            Ok(self)
        } else {
            Err("neither token object id nor token app id match expected identities".to_owned())
        }
    }

    fn check_group(&self, fields: &LoginFields<'_>) -> Result<(), String> {
        let group = fields.resource_group_name;
        let resources = self.contains(&format!("/resourcegroups/{group}"));
        if resources { Ok(()) } else { Err(mismatch("resource_group_name", group)) }
    }

    fn check_subscription(&self, fields: &LoginFields<'_>) -> Result<(), String> {
        let resources = self.contains(&format!("/subscriptions/{}/", fields.subscription_id));
        // The real server looks up the machine in the subscription of the login.
        if resources {
            Ok(())
        } else {
            Err("unable to retrieve virtual machine metadata: GET (emulated)\nRESPONSE 404: 404 Not Found\n\
                 ERROR CODE: ResourceNotFound"
                .to_owned())
        }
    }

    fn contains(&self, part: &str) -> bool {
        let part = part.to_lowercase();
        self.ids.iter().any(|id| id.contains(&part))
    }
}

const RESOURCE_GROUP: &str = "provided resource_id does not match resource_group_name";

fn mismatch(field: &str, value: &str) -> String {
    format!(
        "xms_az_rid token claim does not match {field} {value}\nxms_mirid token claim does not match {field} {value}"
    )
}

fn claim<'a>(claims: &'a Claims, name: &str) -> &'a str {
    claims.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn allows(list: &[String], value: &str) -> bool {
    list.is_empty() || list.iter().any(|entry| entry == "*" || entry.eq_ignore_ascii_case(value))
}

fn is_guid(text: &str) -> bool {
    let lengths = [8, 4, 4, 4, 12];
    let parts: Vec<&str> = text.split('-').collect();
    parts.len() == lengths.len()
        && parts
            .iter()
            .zip(lengths)
            .all(|(part, length)| part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_group_name(text: &str) -> bool {
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '(' | ')');
    text.chars().all(allowed) && !text.ends_with('.')
}

fn is_machine_name(text: &str) -> bool {
    let first = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    first && text.bytes().all(allowed) && !text.ends_with(['.', '-'])
}

#[cfg(test)]
mod tests;
