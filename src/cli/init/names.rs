//! Checks of names and ids that are written into files: a mistake would show only in the cluster, or at a login.

/// A name that Kubernetes takes for a deployment, a label, a service account and a namespace (RFC 1123).
pub(super) fn kubernetes_name(text: &str) -> Result<String, String> {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let ends = text.as_bytes().first().zip(text.as_bytes().last());
    let has_good_ends = ends.is_some_and(|(first, last)| *first != b'-' && *last != b'-');
    if (1..=63).contains(&text.len()) && text.bytes().all(is_inner) && has_good_ends {
        return Ok(text.to_owned());
    }
    Err("Kubernetes takes 1 to 63 lower-case letters, digits and -, and no - at either end".to_owned())
}

/// An id of Azure: a GUID.
pub(super) fn guid(text: &str) -> Result<String, String> {
    let lengths = text.split('-').map(str::len);
    if lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
        return Ok(text.to_owned());
    }
    Err("write the id as a GUID, such as 11111111-2222-3333-4444-555555555555; a name is none".to_owned())
}

/// The name of an image: nothing that YAML reads as more than text.
pub(super) fn image(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/:@".contains(&byte);
    if text.bytes().all(is_plain) && text.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return Ok(text.to_owned());
    }
    Err("write only letters, digits and - . _ / : @".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_takes_names_of_lower_case_letters_digits_and_hyphens() {
        for good in ["web", "web-1", "1", "a".repeat(63).as_str()] {
            assert!(kubernetes_name(good).is_ok(), "{good}");
        }
        for bad in ["", "Web", "web_1", "web.prod", "-web", "web-", "a/b", "a:b", "caf\u{e9}", "a".repeat(64).as_str()]
        {
            assert!(kubernetes_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_id_is_a_guid() {
        for good in ["11111111-2222-3333-4444-555555555555", "AAAAAAAA-bbbb-CCCC-dddd-eeeeeeeeeeee"] {
            assert!(guid(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "web-identity",
            "11111111-2222-3333-4444-55555555555",
            "1111111122223333444455555555555555",
            "g1111111-2222-3333-4444-555555555555",
            "{11111111-2222-3333-4444-555555555555}",
        ] {
            assert!(guid(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_image_has_a_registry_a_tag_or_a_digest() {
        assert!(image("r.example:5000/a/b:1.0").is_ok() && image("a@sha256:00").is_ok());
        for bad in ["", ":1", "a b", "a\"b", "a#b"] {
            assert!(image(bad).is_err(), "{bad}");
        }
    }
}
