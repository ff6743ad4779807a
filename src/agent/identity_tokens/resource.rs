//! Names of resources. Pure.

/// Returns the position of a requested resource in the list of those that may be requested.
///
/// A slash at the end makes no other resource for Azure, but another audience: its SDKs leave it out of
/// `https://management.azure.com/`, and Key Vault refuses tokens whose audience has one. So the spelling in the list is used.
pub(super) fn find<'a>(listed: impl Iterator<Item = &'a str> + Clone, requested: &str) -> Option<usize> {
    let exact = listed.clone().position(|resource| resource == requested);
    exact.or_else(|| listed.into_iter().position(|resource| is_same(resource, requested)))
}

/// Returns true if two names are equal but for one slash at the end.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    one.strip_suffix('/').unwrap_or(one) == other.strip_suffix('/').unwrap_or(other)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_resource_is_found_as_it_is_listed_but_for_a_slash_at_the_end() {
        let listed =
            ["https://management.azure.com/", "https://vault.azure.net", "api://AzureADTokenExchange", "a", "a/"];
        let check = |requested: &str, expected: Option<&str>| {
            let found = find(listed.iter().copied(), requested).map(|at| listed[at]);
            assert_eq!(found, expected, "{requested}");
        };
        for resource in listed {
            check(resource, Some(resource));
        }
        check("https://management.azure.com", Some("https://management.azure.com/"));
        check("https://vault.azure.net/", Some("https://vault.azure.net"));
        for other in [
            "",
            "/",
            "https://management.azure.com//",
            "https://Management.azure.com/",
            "https://management.azure.com/.default",
            " https://vault.azure.net",
            "https://graph.microsoft.com",
        ] {
            check(other, None);
        }
    }

    proptest! {
        #[test]
        fn no_text_is_found_that_is_not_listed(requested in "[a/:.]{0,6}") {
            let listed = ["a:/a", "a.a/"];
            let found = find(listed.iter().copied(), &requested).is_some();
            prop_assert_eq!(found, ["a:/a", "a:/a/", "a.a/", "a.a"].contains(&requested.as_str()));
        }
    }
}
