//! Azure resource ids, `/subscriptions/S/resourceGroups/G/providers/NAMESPACE/TYPE/NAME`, parsed strictly: searching
//! for a segment anywhere would let a resource's own name pass for its group.

/// Parsed resource id. Names keep their spelling and are compared without ASCII case, as Azure does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceId {
    /// Subscription.
    pub subscription: String,
    /// Resource group, if any.
    pub resource_group: Option<String>,
    /// Provider namespace, such as `Microsoft.Compute`; empty for a group or subscription.
    provider: String,
    /// Types and names, outermost first.
    parts: Vec<(String, String)>,
}

impl ResourceId {
    /// Parses an id; `None` if malformed.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_LENGTH || text.chars().any(char::is_control) {
            return None;
        }
        let mut segments = text.strip_prefix('/')?.split('/');
        let mut pair = || match (segments.next(), segments.next()) {
            (None, _) => Some(None),
            (Some(key), Some(name)) if is_segment(key) && is_segment(name) => Some(Some((key, name))),
            _ => None,
        };
        let (key, subscription) = pair()??;
        key.eq_ignore_ascii_case("subscriptions").then_some(())?;
        let mut id = Self {
            subscription: subscription.to_owned(),
            resource_group: None,
            provider: String::new(),
            parts: Vec::new(),
        };
        let mut next = pair()?;
        if let Some((_, group)) = next.filter(|(key, _)| key.eq_ignore_ascii_case("resourcegroups")) {
            id.resource_group = Some(group.to_owned());
            next = pair()?;
        }
        if let Some((key, provider)) = next {
            key.eq_ignore_ascii_case("providers").then_some(())?;
            provider.clone_into(&mut id.provider);
            while let Some((kind, name)) = pair()? {
                id.parts.push((kind.to_owned(), name.to_owned()));
            }
            (!id.parts.is_empty()).then_some(())?;
        }
        Some(id)
    }

    /// Returns the virtual machine's name; `None` for other resources and scale set instances.
    pub(crate) fn virtual_machine(&self) -> Option<&str> {
        match self.compute() {
            [(kind, name)] if kind.eq_ignore_ascii_case("virtualMachines") => Some(name),
            _ => None,
        }
    }

    /// Returns the name of the scale set or of the set that an instance belongs to.
    ///
    /// The id of a machine in a flexible scale set does not name the set. Its name starts with the set's name, but any
    /// machine can have such a name, so it proves nothing.
    pub(crate) fn scale_set(&self) -> Option<&str> {
        match self.compute() {
            [(kind, name), ..] if kind.eq_ignore_ascii_case("virtualMachineScaleSets") => Some(name),
            _ => None,
        }
    }

    /// Returns whether it is a user-assigned identity, which differs from the machine that uses it.
    pub(crate) fn is_user_assigned_identity(&self) -> bool {
        self.provider.eq_ignore_ascii_case("Microsoft.ManagedIdentity")
            && matches!(self.parts.as_slice(), [(kind, _)] if kind.eq_ignore_ascii_case("userAssignedIdentities"))
    }

    fn compute(&self) -> &[(String, String)] {
        if self.provider.eq_ignore_ascii_case("Microsoft.Compute") { &self.parts } else { &[] }
    }
}

const MAX_LENGTH: usize = 2048;

fn is_segment(text: &str) -> bool {
    !text.is_empty() && text != "." && text != ".." && !text.contains(['%', '?', '#', '\\'])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Subscription, group, machine, scale set, and whether it is a user-assigned identity.
    type Parts<'a> = (&'a str, Option<&'a str>, Option<&'a str>, Option<&'a str>, bool);

    #[test]
    fn a_resource_id_is_split_into_its_parts() {
        let check = |text: &str, expected: Option<Parts<'_>>| {
            let id = ResourceId::parse(text);
            let found = id.as_ref().map(|id| {
                let user = id.is_user_assigned_identity();
                (&*id.subscription, id.resource_group.as_deref(), id.virtual_machine(), id.scale_set(), user)
            });
            assert_eq!(found, expected, "{text}");
        };
        let vm = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/web";
        check(vm, Some(("s", Some("g"), Some("web"), None, false)));
        check(&vm.to_lowercase(), Some(("s", Some("g"), Some("web"), None, false)));
        let set = "/subscriptions/s/resourcegroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool";
        check(set, Some(("s", Some("g"), None, Some("pool"), false)));
        check(&format!("{set}/virtualMachines/3"), Some(("s", Some("g"), None, Some("pool"), false)));
        check(
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/u",
            Some(("s", Some("g"), None, None, true)),
        );
        check("/subscriptions/s", Some(("s", None, None, None, false)));
        check("/subscriptions/s/resourceGroups/g", Some(("s", Some("g"), None, None, false)));
        check(
            "/subscriptions/s/resourceGroups/g/providers/Other.Compute/virtualMachines/web",
            Some(("s", Some("g"), None, None, false)),
        );
        check("/subscriptions/s/providers/Microsoft.X/things/resourcegroups", Some(("s", None, None, None, false)));
        for bad in [
            "",
            "/",
            "subscriptions/s",
            "/subscriptions/",
            "/subscriptions/s/",
            "/subscriptions/s/resourceGroups",
            "/subscriptions/s/resourceGroups//providers/Microsoft.Compute/virtualMachines/web",
            "/subscriptions/s/resourceGroups/g/../h",
            "/subscriptions/s/resourceGroups/g%2Fh",
            "/subscriptions/s/other/g",
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute",
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines",
            "/tenants/t/subscriptions/s",
            &format!("/subscriptions/{}", "s".repeat(3000)),
        ] {
            check(bad, None);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_a_panic(text in "\\PC*", tail in "(/[a-zA-Z.%]{0,12}){0,9}") {
            let _ = ResourceId::parse(&text);
            if let Some(id) = ResourceId::parse(&format!("/subscriptions/s{tail}")) {
                prop_assert!(id.virtual_machine().is_none() || id.scale_set().is_none());
            }
        }
    }
}
