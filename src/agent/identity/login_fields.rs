//! Login fields beside the token, read from the token's own claims so that they never contradict it.

use keyward_credentials::jwt::UnverifiedClaims;

use super::LoginFields;

/// Part of the metadata service's instance document that a login may name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct InstanceMetadata {
    pub(super) name: String,
    pub(super) subscription: String,
    pub(super) resource_group: String,
    pub(super) scale_set: String,
    pub(super) resource_id: String,
}

/// Returns true if the claims name the resource that used the identity.
pub(super) fn names_resource(claims: &UnverifiedClaims) -> bool {
    resource(claims).is_some()
}

/// Returns the fields of a login: from the claims, else from the instance document; `overrides` win.
///
/// Names that the server's rules would refuse are omitted, unless the configuration sets them.
pub(super) fn login_fields(
    claims: Option<&UnverifiedClaims>,
    instance: Option<&InstanceMetadata>,
    overrides: &LoginFields,
) -> LoginFields {
    let fields = match (claims.and_then(resource), instance) {
        (Some(id), _) => fields_from_resource_id(id),
        (None, Some(instance)) => fields_from_instance(instance),
        (None, None) => LoginFields::default(),
    };
    let fields = LoginFields {
        subscription_id: fields.subscription_id.filter(|id| is_guid(id)),
        resource_group_name: fields.resource_group_name.filter(|name| is_group_name(name)),
        vm_name: fields.vm_name.filter(|name| is_vm_name(name)),
        vmss_name: fields.vmss_name.filter(|name| is_vm_name(name)),
        resource_id: fields.resource_id,
    };
    let or = |set: &Option<String>, detected: Option<String>| set.clone().or(detected);
    LoginFields {
        subscription_id: or(&overrides.subscription_id, fields.subscription_id),
        resource_group_name: or(&overrides.resource_group_name, fields.resource_group_name),
        vm_name: or(&overrides.vm_name, fields.vm_name),
        vmss_name: or(&overrides.vmss_name, fields.vmss_name),
        resource_id: or(&overrides.resource_id, fields.resource_id),
    }
}

/// Returns the resource that used the identity: `xms_az_rid` for a user-assigned one, `xms_mirid` for a system-assigned.
fn resource(claims: &UnverifiedClaims) -> Option<&str> {
    claims.xms_az_rid.as_deref().or(claims.xms_mirid.as_deref()).filter(|id| parts(id).is_some())
}

/// Splits `/subscriptions/S/resourcegroups/G/providers/P/T/N...`; the fixed segments are case-insensitive.
fn parts(id: &str) -> Option<(&str, &str, &str, &str)> {
    let mut parts = id.strip_prefix('/')?.splitn(6, '/');
    let mut value_of = |name: &str| {
        parts.next().filter(|part| part.eq_ignore_ascii_case(name))?;
        parts.next().filter(|value| !value.is_empty())
    };
    let subscription = value_of("subscriptions")?;
    let group = value_of("resourcegroups")?;
    parts.next().filter(|part| part.eq_ignore_ascii_case("providers"))?;
    let (provider, rest) = parts.next()?.split_once('/')?;
    Some((subscription, group, provider, rest))
}

fn fields_from_resource_id(id: &str) -> LoginFields {
    let Some((subscription, group, provider, rest)) = parts(id) else { return LoginFields::default() };
    let mut fields = LoginFields {
        subscription_id: Some(subscription.to_owned()),
        resource_group_name: Some(group.to_owned()),
        ..LoginFields::default()
    };
    let compute = provider.eq_ignore_ascii_case("Microsoft.Compute");
    match rest.split('/').collect::<Vec<_>>().as_slice() {
        [kind, name] if compute && kind.eq_ignore_ascii_case("virtualMachines") => {
            fields.vm_name = Some((*name).to_owned());
        }
        [kind, name, ..] if compute && kind.eq_ignore_ascii_case("virtualMachineScaleSets") => {
            fields.vmss_name = Some((*name).to_owned());
        }
        // The identity itself, as in a pod: the resource is unknown, and the server refuses one without an identity.
        _ if provider.eq_ignore_ascii_case("Microsoft.ManagedIdentity") => {}
        _ => fields.resource_id = Some(id.to_owned()),
    }
    fields
}

fn fields_from_instance(instance: &InstanceMetadata) -> LoginFields {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let vm = some(&instance.name);
    let set = some(&instance.scale_set);
    let resource = some(&instance.resource_id).filter(|_| vm.is_none() && set.is_none());
    LoginFields {
        subscription_id: some(&instance.subscription),
        resource_group_name: some(&instance.resource_group),
        // With a scale set the server ignores the machine's name, but refuses one that its rule forbids.
        vm_name: if set.is_some() { None } else { vm },
        vmss_name: set,
        resource_id: resource,
    }
}

/// Returns true for a GUID in its usual form.
fn is_guid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The server's rule `^[\-_.()\pL\pN]*[\-_()\pL\pN]$`.
fn is_group_name(text: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || "-_.()".contains(c);
    text.chars().all(fits) && !text.is_empty() && !text.ends_with('.')
}

/// The server's rule `^[a-zA-Z]$|^[a-zA-Z][a-zA-Z0-9.\-_]*[a-zA-Z0-9_]$`: a name that starts with a digit is refused.
fn is_vm_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    text.bytes().all(fits)
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.ends_with(|last: char| last.is_ascii_alphanumeric() || last == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBSCRIPTION: &str = "11111111-2222-3333-4444-555555555555";

    /// Formats fields as `subscription group vm vmss resource`, with `-` for a missing one.
    fn line(fields: &LoginFields) -> String {
        let LoginFields { subscription_id, resource_group_name, vm_name, vmss_name, resource_id } = fields;
        [subscription_id, resource_group_name, vm_name, vmss_name, resource_id]
            .map(|field| field.as_deref().unwrap_or("-").replace(SUBSCRIPTION, "S"))
            .join(" ")
    }

    fn claims(mirid: Option<&str>, az_rid: Option<&str>) -> UnverifiedClaims {
        let id = |id: Option<&str>| id.map(|id| id.replace("{S}", SUBSCRIPTION));
        UnverifiedClaims { xms_mirid: id(mirid), xms_az_rid: id(az_rid), ..UnverifiedClaims::default() }
    }

    #[test]
    fn claims_give_the_fields_of_a_login() {
        let check = |mirid: Option<&str>, az_rid: Option<&str>, expected: &str| {
            let claims = claims(mirid, az_rid);
            assert_eq!(line(&login_fields(Some(&claims), None, &LoginFields::default())), expected, "{claims:?}");
        };
        let vm = "/subscriptions/{S}/resourcegroups/Rg-1/providers/Microsoft.Compute/virtualMachines/vm1";
        let set = "/subscriptions/{S}/resourceGroups/rg/providers/microsoft.compute/virtualMachineScaleSets/set1";
        let user = "/subscriptions/{S}/resourcegroups/rg/providers/Microsoft.ManagedIdentity/userAssignedIdentities/u";
        let site = "/subscriptions/{S}/resourcegroups/rg/providers/Microsoft.Web/sites/site1";
        let arc = "/subscriptions/{S}/resourcegroups/rg/providers/Microsoft.HybridCompute/machines/m1";
        check(Some(vm), None, "S Rg-1 vm1 - -");
        check(Some(user), Some(vm), "S Rg-1 vm1 - -");
        check(Some(set), None, "S rg - set1 -");
        check(Some(user), Some(set), "S rg - set1 -");
        check(Some(&format!("{set}/virtualMachines/0")), None, "S rg - set1 -");
        check(Some(&vm.replace("vm1", "flex_ab12cd34")), None, "S Rg-1 flex_ab12cd34 - -");
        check(Some(user), None, "S rg - - -");
        check(Some(site), None, &format!("S rg - - {}", site.replace("{S}", "S")));
        check(Some(arc), None, &format!("S rg - - {}", arc.replace("{S}", "S")));
        check(None, None, "- - - - -");
        check(Some("nonsense"), None, "- - - - -");
        check(Some("/subscriptions/{S}/resourcegroups"), None, "- - - - -");
        check(Some(&vm.replace("{S}", "not-a-guid")), None, "- Rg-1 vm1 - -");
        check(Some(&vm.replace("vm1", "1vm")), None, "S Rg-1 - - -");
        check(Some(&vm.replace("Rg-1", "rg.")), None, "S - vm1 - -");
    }

    #[test]
    fn the_instance_document_is_used_only_without_resource_claims() {
        let document = InstanceMetadata {
            name: "set_0".to_owned(),
            subscription: SUBSCRIPTION.to_owned(),
            resource_group: "rg".to_owned(),
            scale_set: "set".to_owned(),
            resource_id: "/ignored".to_owned(),
        };
        let check = |claims: Option<&UnverifiedClaims>, document: &InstanceMetadata, expected: &str| {
            assert_eq!(line(&login_fields(claims, Some(document), &LoginFields::default())), expected);
        };
        let alone = InstanceMetadata { scale_set: String::new(), name: "vm".to_owned(), ..document.clone() };
        let nameless = InstanceMetadata { name: String::new(), ..alone.clone() };
        check(None, &document, "S rg - set -");
        check(None, &alone, "S rg vm - -");
        check(None, &nameless, "S rg - - /ignored");
        check(None, &InstanceMetadata::default(), "- - - - -");
        let vm = "/subscriptions/{S}/resourcegroups/own/providers/Microsoft.Compute/virtualMachines/vm1";
        check(Some(&claims(Some(vm), None)), &document, "S own vm1 - -");
    }

    #[test]
    fn the_configuration_wins_over_both() {
        let set = LoginFields { vm_name: Some("1st".to_owned()), ..LoginFields::default() };
        let vm = "/subscriptions/{S}/resourcegroups/rg/providers/Microsoft.Compute/virtualMachines/vm1";
        assert_eq!(line(&login_fields(Some(&claims(Some(vm), None)), None, &set)), "S rg 1st - -");
    }

    #[test]
    fn names_are_validated_by_the_servers_rules() {
        let check = |name: &str, machine: bool, group: bool| {
            assert_eq!((is_vm_name(name), is_group_name(name)), (machine, group), "{name:?}");
        };
        check("a", true, true);
        check("vm-1", true, true);
        check("set_0", true, true);
        check("1vm", false, true);
        check("vm-", false, true);
        check("vm.", false, false);
        check("(rg)", false, true);
        check("größe", false, true);
        check("a b", false, false);
        check("", false, false);
    }
}
