//! Checks of names and ids that are written into files: a mistake would show only in the cluster, or at a login.

use keyward_agent::identity::is_aws_region;

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

/// The name of an image, as registries take it: `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`.
pub(super) fn image(text: &str) -> Result<String, String> {
    let advice = "write REGISTRY/NAME:TAG; the name has lower-case letters, digits and - . _ /";
    let (name, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_digest = digest.is_none_or(|digest| {
        digest.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.bytes().all(is_hex))
    });
    // A colon behind the last slash begins the tag; one before is a port.
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    let (path, tag) = match name[last..].rfind(':') {
        Some(colon) => (&name[..last + colon], Some(&name[last + colon + 1..])),
        None => (name, None),
    };
    let is_tag = tag.is_none_or(|tag| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        (1..=128).contains(&tag.len()) && tag.bytes().all(is_letter) && !tag.starts_with(['-', '.'])
    });
    let mut parts = path.split('/');
    let (host, rest) = match path.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => (parts.next(), parts),
        _ => (None, parts),
    };
    let is_host = host.is_none_or(|host| {
        let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
            && name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && port.is_none_or(|port| port.parse::<u16>().is_ok())
    });
    let is_part = |part: &str| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
        let is_end = |end: char| end.is_ascii_lowercase() || end.is_ascii_digit();
        part.bytes().all(is_inner) && part.starts_with(is_end) && part.ends_with(is_end)
    };
    if is_digest && is_tag && is_host && rest.clone().count() > 0 && rest.clone().all(is_part) {
        return Ok(text.to_owned());
    }
    Err(advice.to_owned())
}

/// The number of an account of AWS.
pub(super) fn aws_account(text: &str) -> Result<String, String> {
    if text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(text.to_owned());
    }
    Err("write the twelve digits of the account, such as 111122223333".to_owned())
}

/// The name of a region of AWS.
pub(super) fn aws_region(text: &str) -> Result<String, String> {
    if is_aws_region(text) {
        return Ok(text.to_owned());
    }
    Err("write the name of a region, such as eu-west-1".to_owned())
}

/// The name of an IAM role, without path (docs.aws.amazon.com, "IAM and AWS STS quotas").
pub(super) fn iam_role(text: &str) -> Result<String, String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+=,.@-_".contains(&byte);
    if (1..=64).contains(&text.len()) && text.bytes().all(is_letter) {
        return Ok(text.to_owned());
    }
    Err("write the name of the role without its path: up to 64 letters, digits and + = , . @ - _".to_owned())
}

/// The id of a project of Google Cloud; old ones have a domain in front.
pub(super) fn gcp_project(text: &str) -> Result<String, String> {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_letter) && text.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Ok(text.to_owned());
    }
    Err("write the project's id, such as my-project-1; neither its name nor its number".to_owned())
}

/// The e-mail of a service account of Google Cloud.
pub(super) fn service_account(text: &str) -> Result<String, String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(is_letter);
    if text.split_once('@').is_some_and(|(name, domain)| is_part(name) && is_part(domain)) {
        return Ok(text.to_owned());
    }
    Err("write the e-mail of the account, such as web@my-project.iam.gserviceaccount.com".to_owned())
}

/// The name of a resource group or of a cluster, as Azure takes it.
pub(super) fn azure_name(text: &str) -> Result<String, String> {
    let is_letter = |letter: char| letter.is_alphanumeric() || "-_.()".contains(letter);
    if (1..=90).contains(&text.chars().count()) && text.chars().all(is_letter) && !text.ends_with('.') {
        return Ok(text.to_owned());
    }
    Err("Azure takes 1 to 90 letters, digits and - _ . ( ), and no . at the end".to_owned())
}

/// The mode of a file: three or four octal digits.
pub(super) fn file_mode(text: &str) -> Result<String, String> {
    if (3..=4).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte)) {
        return Ok(text.to_owned());
    }
    Err("write three or four octal digits, such as 0640".to_owned())
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
    fn names_of_aws_and_google_cloud_are_written_in_full() {
        let check = |read: fn(&str) -> Result<String, String>, good: &[&str], bad: &[&str]| {
            for text in good {
                assert!(read(text).is_ok(), "{text}");
            }
            for text in bad {
                assert!(read(text).is_err(), "{text}");
            }
        };
        check(aws_account, &["111122223333"], &["", "1111222233334", "11112222333a", "*"]);
        check(iam_role, &["web", "a+=,.@-_1"], &["", "path/web", "a b", "a*", &"a".repeat(65)]);
        check(gcp_project, &["my-project-1", "example.com:my-project"], &["", "My Project", "42", "p\"]"]);
        check(service_account, &["web@p.iam.gserviceaccount.com"], &["", "web", "@p", "web@", "a b@c", "a@b@c"]);
    }

    #[test]
    fn an_image_has_a_registry_a_tag_or_a_digest() {
        let digest = format!("docker.io/library/web:1@sha256:{}", "0a".repeat(32));
        for good in ["web", "web:1.0", "r.example:5000/a/b:1.0", "localhost/a_b:v1", "r.example/a", digest.as_str()] {
            assert!(image(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            ":1",
            "a b",
            "a\"b",
            "a#b",
            "Web:1",
            "r.example/",
            "r.example:x/a",
            "a@sha256:00",
            "a:",
            "a:-1",
            "/a",
            "a//b",
        ] {
            assert!(image(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn azure_takes_names_of_groups_without_a_dot_at_the_end() {
        assert!(azure_name("rg_1.(x)-y").is_ok());
        for bad in ["", "a b", "a'b", "a.", "a".repeat(91).as_str()] {
            assert!(azure_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_mode_has_octal_digits() {
        assert!(file_mode("0640").is_ok() && file_mode("644").is_ok());
        for bad in ["", "64", "0680", "06400", "rw"] {
            assert!(file_mode(bad).is_err(), "{bad}");
        }
    }
}
