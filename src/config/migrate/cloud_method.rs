//! `config {}` of the methods of other clouds: `aws` and `gcp`.

use super::input::Block;
use super::output::Section;

/// Reads the method `aws`. Vault Agent takes an access key from its configuration; keyward has no secret in one.
pub(super) fn aws(config: &mut Block<'_>, section: &mut Section) {
    if let Some(input) = config.take("type") {
        match input.text() {
            Some("iam") => input.record_kept("iam is the only type"),
            _ => input.action(
                "only iam is supported: create a role of that type, which binds the machine's IAM role instead of its document",
            ),
        }
    }
    for (source_key, key) in [("role", "role"), ("header_value", "server_id")] {
        if let Some(input) = config.take(source_key)
            && let Some(text) = input.required_text()
        {
            section.at(input.origin()).text(key, text);
            input.record_kept(key);
        }
    }
    if let Some(input) = config.take("region")
        && let Some(text) = input.required_text()
    {
        // There the peer signs for the global endpoint.
        if text == "us-east-1" {
            input.record_kept("the global endpoint of STS is the default");
        } else {
            section.at(input.origin()).text("region", text);
            input.record_kept("region");
        }
    }
    for key in ["access_key", "secret_key", "session_token"] {
        if let Some(input) = config.take(key) {
            input.action(
                "not written: set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN for keyward, or credentials_file",
            );
        }
    }
    config.drop_keys(&["nonce"], "only for the type ec2");
    config.drop_keys(&["credential_poll_interval"], "each login gets its credentials anew");
}

/// Reads the method `gcp`.
pub(super) fn gcp(config: &mut Block<'_>, section: &mut Section) {
    let kind = config.take("type");
    let is_iam = kind.as_ref().and_then(|kind| kind.text()) == Some("iam");
    if let Some(input) = &kind {
        match input.text() {
            Some(text @ ("gce" | "iam")) => {
                section.at(input.origin()).text("type", text);
                input.record_kept("type");
            }
            _ => input.action("write the type of the role, gce or iam"),
        }
    }
    if let Some(input) = config.take("role")
        && let Some(text) = input.required_text()
    {
        section.at(input.origin()).text("role", text);
        input.record_kept("role");
    }
    let credentials = config.take("credentials");
    let has_key = is_iam && credentials.is_some();
    if let Some(input) = credentials
        && let Some(text) = input.required_text()
    {
        if is_iam {
            section.at(input.origin()).text("credentials_file", text);
            input.record_changed("credentials_file: its key signs for its own service account, without a call");
        } else {
            input.record_changed("not written: the type gce does not use it");
        }
    }
    if let Some(input) = config.take("service_account")
        && let Some(text) = input.required_text()
    {
        if has_key {
            input.action(
                "not written: credentials_file signs for the service account that it names; leave one of them out",
            );
        } else {
            section.at(input.origin()).text("service_account", text);
            input.record_kept("service_account");
        }
    }
    config.drop_keys(&["project"], "the service account says it");
    config.drop_keys(&["jwt_exp"], "a signed token is valid for ten minutes");
}
