//! Describes certificates for `keyward check`.

use keyward_agent::certificates::{CertificateOptions, KeyOrigin, OutputForm, RenewAt};
use keyward_agent::output_command::OutputCommand;
use keyward_telemetry::time_format::format_duration;

use super::format_window;
use crate::Certificate;
use crate::values::describe_owner;

/// Describes a certificate for `keyward check`, one clause per entry; `describe_value` replaces a value by its reference.
pub(crate) fn describe(certificate: &Certificate, describe_value: impl Fn(&str, &str) -> String) -> Vec<String> {
    let CertificateOptions { request, output, renewal, command, required, .. } = &certificate.options;
    let names = |key: &str, names: &[String]| match names {
        [] => None,
        names => Some(describe_value(key, &names.join(", "))),
    };
    let addresses: Vec<_> = request.ip_sans.iter().map(ToString::to_string).collect();
    let all = [
        names("common_name", std::slice::from_ref(&request.common_name)),
        names("alt_names", &request.alt_names),
        names("ip_sans", &addresses),
        names("uri_sans", &request.uri_sans),
    ];
    let all: Vec<_> = all.into_iter().flatten().collect();
    let ttl = request.ttl.map(|ttl| format!(", valid for {}", format_duration(ttl))).unwrap_or_default();
    let key = match &request.key {
        KeyOrigin::Generated(key_type) => format!("a key ({}) that is made here", key_type.name()),
        KeyOrigin::File(path) => format!("the key in {}", describe_value("key_file", &path.display().to_string())),
        KeyOrigin::Server => "a key that the server makes".to_owned(),
    };
    let mut does = vec![format!(
        "requests a certificate for {}{ttl}, from {} by session {}, for {key}",
        all.join(", "),
        request.path(),
        certificate.session,
    )];
    let (key, what) = match output.form {
        OutputForm::Folder => ("folder", "key.pem, cert.pem, chain.pem and fullchain.pem in the folder"),
        OutputForm::Bundle => ("bundle", "certificate, chain and key in"),
    };
    let path = describe_value(key, &output.path.display().to_string());
    let attributes = &output.attributes;
    let owner = describe_owner(attributes.owner, attributes.group);
    does.push(format!("writes {what} {path}, mode {:04o}{owner}", attributes.mode));
    let due = match renewal.renew_at {
        None => "after 63 to 70 % of its life".to_owned(),
        Some(RenewAt::Percent(percent)) => format!("after {percent} % of its life"),
        Some(RenewAt::BeforeEnd(span)) => format!("{} before its end", format_duration(span)),
    };
    let window = renewal.window.map(|window| format!(", at {} UTC", format_window(window))).unwrap_or_default();
    does.push(format!("replaces it {due}{window}, and uses it again after a restart"));
    if let Some(OutputCommand { command, timeout }) = command {
        does.push(format!("after a change runs {}, for {} at most", command.join(" "), format_duration(*timeout)));
    }
    if !required {
        does.push("is not required for readiness".to_owned());
    }
    does
}
