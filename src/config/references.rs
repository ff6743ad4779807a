//! Strings that may refer to a variable, a file, or a credential of systemd: `${env:NAME}`, `${file:PATH}` and
//! `${credential:NAME}`. In all strings, `$${` is a literal `${`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::error::Error as _;
use std::path::{Path, PathBuf};

use keyward_agent::systemd_credentials::is_credential_name;
use keyward_machine::secret;

use super::Environment;
use super::diagnostic::{Diagnostics, Location};
use super::need::{Need, NeedKind, PathUse};
use super::tree::quote;

/// The keys that may hold references, anywhere in their text; `*` stands for a name.
pub const REFERENCE_KEYS: [&str; 118] = [
    "acl.client_ca_file",
    "acl.data_dir",
    "acl.etcd.ca_file",
    "acl.etcd.client_cert",
    "acl.etcd.client_key",
    "acl.etcd.endpoints",
    "acl.etcd.password_file",
    "acl.etcd.user",
    "acl.key_file",
    "acl.listen",
    "acl.method.*.api_url",
    "acl.method.*.audience",
    "acl.method.*.ca_file",
    "acl.method.*.discovery_url",
    "acl.method.*.issuer",
    "acl.method.*.jwks_url",
    "acl.method.*.role.*.accounts",
    "acl.method.*.role.*.namespaces",
    "acl.method.*.role.*.principals",
    "acl.method.*.role.*.projects",
    "acl.method.*.role.*.service_accounts",
    "acl.method.*.role.*.subscriptions",
    "acl.method.*.server_id",
    "acl.method.*.sts_url",
    "acl.method.*.token_file",
    "acl.tls_cert",
    "acl.tls_key",
    "agent.state_dir",
    "audit.*.checkpoint_file",
    "audit.*.key_file",
    "audit.*.path",
    "certificate.*.alt_names",
    "certificate.*.bundle",
    "certificate.*.cert_file",
    "certificate.*.common_name",
    "certificate.*.critical_options",
    "certificate.*.extensions",
    "certificate.*.folder",
    "certificate.*.ip_sans",
    "certificate.*.key_file",
    "certificate.*.key_id",
    "certificate.*.password_file",
    "certificate.*.pkcs12",
    "certificate.*.spiffe_id",
    "certificate.*.uri_sans",
    "certificate.*.valid_principals",
    "certificate.*.workload_api",
    "gateway.ca_file",
    "gateway.listen",
    "gateway.local_token_file",
    "gateway.mint.parent_token_file",
    "gateway.token_file",
    "gateway.upstream",
    "identity.*.aws_role.audience",
    "identity.*.aws_role.region",
    "identity.*.aws_role.role_arn",
    "identity.*.cloud.client_id",
    "identity.*.cloud.object_id",
    "identity.*.gcp.service_account",
    "identity.*.jwt.file",
    "identity.*.resources",
    "listener.*.address",
    "listener.*.client_ca_file",
    "listener.*.credential.*.source",
    "listener.*.key_file",
    "listener.*.tls_cert",
    "listener.*.tls_key",
    "server.*.address",
    "server.*.ca_dir",
    "server.*.ca_file",
    "server.*.client_cert",
    "server.*.client_key",
    "server.*.proxy",
    "server.*.server_name",
    "session.*.approle.role_id_file",
    "session.*.approle.secret_id_file",
    "session.*.approle.secret_id_wrapping_path",
    "session.*.auth_method",
    "session.*.aws.credentials_file",
    "session.*.aws.profile",
    "session.*.aws.region",
    "session.*.aws.role",
    "session.*.aws.server_id",
    "session.*.cert.client_cert",
    "session.*.cert.client_key",
    "session.*.cert.role",
    "session.*.cloud.client_id",
    "session.*.cloud.object_id",
    "session.*.cloud.resource",
    "session.*.cloud.resource_group_name",
    "session.*.cloud.resource_id",
    "session.*.cloud.role",
    "session.*.cloud.scope",
    "session.*.cloud.subscription_id",
    "session.*.cloud.vm_name",
    "session.*.cloud.vmss_name",
    "session.*.gcp.audience",
    "session.*.gcp.credentials_file",
    "session.*.gcp.role",
    "session.*.gcp.service_account",
    "session.*.jwt.audience",
    "session.*.jwt.file",
    "session.*.jwt.role",
    "session.*.jwt.service_connection",
    "session.*.jwt.spiffe_id",
    "session.*.jwt.variable",
    "session.*.jwt.workload_api",
    "session.*.kubernetes.file",
    "session.*.kubernetes.role",
    "session.*.mount",
    "session.*.namespace",
    "session.*.seal_key_file",
    "session.*.token_file.file",
    "sink.*.encrypt.aad",
    "sink.*.encrypt.public_key_file",
    "sink.*.path",
    "template.*.destination",
    "template.*.source",
];

/// Maximum length of one value after expansion, in bytes.
const MAX_VALUE: usize = 64 * 1024;

/// Maximum length of all expanded values together, in bytes.
const MAX_ALL: usize = 4 * 1024 * 1024;

/// Advice that shows the forms of a reference.
const FORMS: &str = "write ${env:NAME}, ${file:/PATH} or ${credential:NAME}, or $${ for a literal ${";

/// Shared state of all readers.
#[derive(Debug)]
pub(super) struct ReadContext<'a> {
    pub(super) diagnostics: &'a Diagnostics,
    pub(super) environment: &'a Environment,
    /// References as written, by the key whose value they replace.
    pub(super) references: RefCell<BTreeMap<String, String>>,
    /// Bytes of all values with references so far.
    pub(super) expanded: Cell<usize>,
    /// Needs that were read.
    pub(super) needs: RefCell<Vec<Need>>,
}

/// A string of the file, its references resolved.
#[derive(Debug, Clone)]
pub(super) struct Text {
    /// Location of the value.
    pub(super) at: Location,
    /// Full key.
    pub(super) key: String,
    /// Value with references resolved. May be a secret if `written` is set.
    pub(super) value: String,
    /// Text of the file, if it holds a reference.
    pub(super) written: Option<String>,
    /// True if a reference could not be resolved, which was reported: `value` must not be used.
    pub(super) unknown: bool,
}

impl Text {
    /// Formats the text for a message, without a value that may be secret.
    pub(super) fn display(&self) -> String {
        match &self.written {
            Some(written) => format!("the value of {}", quote(written)),
            None => quote(&self.value),
        }
    }
}

impl ReadContext<'_> {
    /// Resolves the references in a key's string; `pattern` is the key with `*` for names.
    pub(super) fn resolve(&self, at: Location, key: &str, pattern: &str, written: &str) -> Text {
        let mut text = Text { at, key: key.to_owned(), value: unescape(written), written: None, unknown: false };
        if !has_reference(written) {
            return text;
        }
        text.written = Some(written.to_owned());
        if REFERENCE_KEYS.binary_search(&pattern).is_err() {
            text.unknown = true;
            let keys = REFERENCE_KEYS.join(", ");
            let advice = format!("write $${{ for a literal ${{, or use a key that accepts references: {keys}");
            self.diagnostics.error(at, key, "this key does not accept references", advice);
            return text;
        }
        self.references.borrow_mut().insert(key.to_owned(), written.to_owned());
        text.value.clear();
        let mut rest = written;
        while let Some((before, after)) = split_at_reference(rest) {
            text.value.push_str(&unescape(before));
            let Some((inside, after)) = after.split_once('}') else {
                self.diagnostics.error(at, key, format!("{} is not closed", quote(&format!("${{{after}"))), FORMS);
                text.unknown = true;
                break;
            };
            match self.look_up(at, key, inside) {
                Some(value) if !self.expand(&mut text, &value) => break,
                Some(_) => {}
                None => text.unknown = true,
            }
            rest = after;
        }
        if !text.unknown {
            self.expand(&mut text, &unescape(rest));
        }
        text
    }

    /// Appends to a value within the bounds for expanded references; reports a value that is too long. Otherwise a file
    /// that names one large file many times would exhaust memory.
    fn expand(&self, text: &mut Text, part: &str) -> bool {
        let all = self.expanded.get() + part.len();
        let most = if text.value.len() + part.len() > MAX_VALUE {
            "64 KiB in one value"
        } else if all > MAX_ALL {
            "4 MiB in all values"
        } else {
            self.expanded.set(all);
            text.value.push_str(part);
            return true;
        };
        let message = format!("{} expands to more than {most}", text.display());
        self.diagnostics.error(text.at, &text.key, message, "refer to shorter variables and files");
        text.value.clear();
        text.unknown = true;
        false
    }

    fn look_up(&self, at: Location, key: &str, reference: &str) -> Option<String> {
        let quoted = quote(&format!("${{{reference}}}"));
        if let Some(name) = reference.strip_prefix("env:").filter(|name| is_variable(name)) {
            let message = match self.environment.variables.get(name) {
                Some(value) if !value.is_empty() => return Some(value.clone()),
                Some(_) => format!("{quoted}: the variable is empty"),
                None => format!("{quoted}: the variable is not set"),
            };
            self.diagnostics.unknown(at, key, message, "set it in the agent's environment");
        } else if let Some(path) = reference.strip_prefix("file:").filter(|path| path.starts_with('/')) {
            let kind = NeedKind::Path(PathBuf::from(path), PathUse::ReadSecret);
            self.needs.borrow_mut().push(Need { key: key.to_owned(), is_hidden: false, kind });
            match secret::read_file(Path::new(path)) {
                Ok(value) => return Some(value.expose_secret().to_owned()),
                Err(error) => {
                    let why = error.source().map(ToString::to_string).unwrap_or_default();
                    self.diagnostics.unknown(at, key, format!("{quoted}: {why}"), "the file must hold one line");
                }
            }
        } else if let Some(name) = reference.strip_prefix("credential:").filter(|name| is_credential_name(name)) {
            match credential_path(self.environment.variables.get(CREDENTIALS).map(Path::new), name) {
                Ok(path) => return Some(path),
                Err(why) => {
                    let advice = format!(
                        "write LoadCredential={name}:/PATH, or LoadCredentialEncrypted= for an encrypted file, in [Service] of \
                         the agent's unit (systemctl edit keyward.service)"
                    );
                    self.diagnostics.unknown_credential(at, key, format!("{quoted}: {why}"), advice);
                }
            }
        } else {
            self.diagnostics.error(at, key, format!("{quoted} is not a reference"), FORMS);
        }
        None
    }
}

/// Splits a value at its first reference: the text before it, and the rest after its `${`.
fn split_at_reference(written: &str) -> Option<(&str, &str)> {
    let mut starts = written.match_indices("${").map(|(start, _)| start);
    let start = starts.find(|start| !written[..*start].ends_with('$'))?;
    Some((&written[..start], &written[start + 2..]))
}

/// Returns true if a value holds a reference, or the beginning of one.
pub(super) fn has_reference(written: &str) -> bool {
    split_at_reference(written).is_some()
}

/// Replaces each `$${` by a literal `${`.
pub(super) fn unescape(written: &str) -> String {
    written.replace("$${", "${")
}

/// Writes a text so that it is read as it is, without references.
pub fn escape(text: &str) -> String {
    text.replace("${", "$${")
}

/// Lists the references in a value, such as `env:NAME`.
pub fn find_references(mut written: &str) -> Vec<&str> {
    let mut references = Vec::new();
    while let Some((_, after)) = split_at_reference(written) {
        let Some((reference, rest)) = after.split_once('}') else { break };
        references.push(reference);
        written = rest;
    }
    references
}

/// Folder of the credentials that systemd passes to the agent (systemd.exec(5)).
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// Returns the path of a credential that systemd passes to the agent, or the reason why there is none.
fn credential_path(folder: Option<&Path>, name: &str) -> Result<String, String> {
    let folder = folder.filter(|folder| folder.is_absolute());
    let folder = folder.ok_or_else(|| format!("systemd passes no credential: {CREDENTIALS} is not set"))?;
    let path = folder.join(name);
    match path.to_str().filter(|_| path.is_file()) {
        Some(path) => Ok(path.to_owned()),
        None => Err("systemd passes no credential of this name".to_owned()),
    }
}

pub(super) fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_that_take_references_are_sorted_so_that_they_are_found() {
        assert!(REFERENCE_KEYS.is_sorted());
    }
    #[test]
    fn an_escaped_reference_is_text() {
        for (written, references, text) in [
            ("a", &[][..], "a"),
            ("$${env:A}", &[], "${env:A}"),
            ("a$${", &[], "a${"),
            ("$$${env:A}", &[], "$${env:A}"),
            ("$$ {$}", &[], "$$ {$}"),
            ("${env:A}$${env:B}${file:/c}", &["env:A", "file:/c"], "${env:A}${env:B}${file:/c}"),
            ("${file:/a$${b}", &["file:/a$${b"], "${file:/a${b}"),
            ("$${a}${env:B", &[], "${a}${env:B"),
        ] {
            assert_eq!(find_references(written), references, "{written}");
            assert_eq!(unescape(written), text, "{written}");
        }
    }

    #[test]
    fn an_escaped_text_is_read_as_it_was() {
        for text in ["", "a", "${", "$", "$${", "$$${a}$", "${a}${b}", "a${${"] {
            assert!(!has_reference(&escape(text)), "{text}");
            assert_eq!(unescape(&escape(text)), text);
        }
    }
}
