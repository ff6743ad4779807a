//! A profile of a credentials file, with static keys
//! (docs.aws.amazon.com, "Shared config and credentials files").

use std::path::Path;

use keyward_machine::secret;
use keyward_telemetry::error_chain::format_chain;

use super::credentials::AwsCredentials;
use crate::identity::error::AttemptError;

/// Reads the profile `name` of the file.
pub(super) fn read(file: &Path, name: &str) -> Result<AwsCredentials, AttemptError> {
    let text = secret::read_file(file).map_err(|error| AttemptError::NoAssertion(format_chain(&error)))?;
    parse(text.expose_secret(), name).map_err(|reason| AttemptError::Setting {
        message: format!("{}: {reason}", file.display()),
        hint: Some("a profile needs aws_access_key_id and aws_secret_access_key; roles and processes are not followed"),
    })
}

/// Parses the profile `name`. Errors quote no value.
fn parse(text: &str, name: &str) -> Result<AwsCredentials, String> {
    let mut is_found = false;
    let mut is_inside = false;
    let (mut id, mut secret, mut session) = (None, None, None);
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            let section = section.0.trim();
            is_inside = section.strip_prefix("profile ").map_or(section, str::trim) == name;
            is_found |= is_inside;
        } else if is_inside
            && !line.starts_with(['#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            let field = match key.trim() {
                "aws_access_key_id" => &mut id,
                "aws_secret_access_key" => &mut secret,
                "aws_session_token" => &mut session,
                _ => continue,
            };
            *field = Some(value.trim());
        }
    }
    let (Some(id), Some(secret)) = (id, secret) else {
        let found = if is_found { "has no access key" } else { "does not exist" };
        return Err(format!("the profile {name} {found}"));
    };
    AwsCredentials::new(id, secret, session.filter(|token| !token.is_empty()))
        .map_err(|reason| format!("the profile {name} {reason}"))
}

#[cfg(test)]
mod tests {
    use keyward_machine::secret_string::SecretString;

    use super::*;

    #[test]
    fn the_named_profile_is_read() {
        let text = "[default]\naws_access_key_id = A1\naws_secret_access_key = s1\n# [web]\n\n\
                    [profile web]\naws_access_key_id=A2\naws_secret_access_key=s2==\naws_session_token = t2\nregion = eu\n\
                    [empty]\nregion = eu\n[bad]\naws_access_key_id = A\naws_secret_access_key = canary canary\n";
        let check = |name: &str, expected: Result<(&str, &str, Option<&str>), &str>| {
            let parsed = parse(text, name);
            let found = parsed.as_ref().map(|it| {
                let session = it.session_token.as_ref().map(SecretString::expose_secret);
                (it.access_key_id.as_str(), it.secret_access_key.expose_secret(), session)
            });
            assert_eq!(found.map_err(String::as_str), expected);
        };
        check("default", Ok(("A1", "s1", None)));
        check("web", Ok(("A2", "s2==", Some("t2"))));
        check("empty", Err("the profile empty has no access key"));
        check("other", Err("the profile other does not exist"));
        check("bad", Err("the profile bad has a secret with characters that none has"));
    }
}
