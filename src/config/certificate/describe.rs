//! Describes certificates for `keyward check`.

use std::collections::BTreeMap;

use keyward_agent::certificates::{
    CertificateOptions, CertificateSubject, KeyOrigin, OutputForm, PkiSubject, RenewAt, SshSubject,
};
use keyward_agent::output_command::OutputCommand;
use keyward_telemetry::time_format::format_duration;

use super::format_window;
use crate::values::describe_owner;
use crate::{Certificate, CertificateIssuer, EngineCertificate, workload_api};

/// Describes a certificate for `keyward check`, one clause per entry; `describe_value` replaces a value by its reference.
pub(crate) fn describe(certificate: &Certificate, describe_value: impl Fn(&str, &str) -> String) -> Vec<String> {
    let CertificateOptions { output, command, required, .. } = &certificate.options;
    let (issues, replaces) = match &certificate.issuer {
        CertificateIssuer::Engine(engine) => describe_engine(engine, &describe_value),
        CertificateIssuer::WorkloadApi(options) => (
            workload_api::describe_certificate(options, &describe_value),
            "replaces it when the API sends another one".to_owned(),
        ),
    };
    let mut does = vec![issues];
    let (key, what) = match &output.form {
        OutputForm::Folder => ("folder", "key.pem, cert.pem, chain.pem and fullchain.pem in the folder".to_owned()),
        OutputForm::Bundle => ("bundle", "certificate, chain and key in".to_owned()),
        OutputForm::Pkcs12 { password_file, .. } => {
            let password = describe_value("password_file", &password_file.display().to_string());
            ("pkcs12", format!("certificate, chain and key, with the password of {password}, in the PKCS#12 file"))
        }
        OutputForm::SshFolder => ("folder", "key, key.pub and key-cert.pub in the folder".to_owned()),
        OutputForm::SshCertificate => ("cert_file", "the certificate in".to_owned()),
    };
    let path = describe_value(key, &output.path.display().to_string());
    let attributes = &output.attributes;
    let owner = describe_owner(attributes.owner, attributes.group);
    does.push(format!("writes {what} {path}, mode {:04o}{owner}", attributes.mode));
    does.push(format!("{replaces}, and uses it again after a restart"));
    if let Some(OutputCommand { command, timeout }) = command {
        does.push(format!("after a change runs {}, for {} at most", command.join(" "), format_duration(*timeout)));
    }
    if !required {
        does.push("is not required for readiness".to_owned());
    }
    does
}

/// Describes the requests to an engine, and their times.
fn describe_engine(engine: &EngineCertificate, describe_value: &impl Fn(&str, &str) -> String) -> (String, String) {
    let EngineCertificate { session, request, renewal, .. } = engine;
    let subject = match &request.subject {
        CertificateSubject::Pki(subject) => describe_pki(subject, describe_value),
        CertificateSubject::Ssh(subject) => describe_ssh(subject, describe_value),
    };
    let ttl = request.ttl.map(|ttl| format!(", valid for {}", format_duration(ttl))).unwrap_or_default();
    let key = match &request.key {
        KeyOrigin::Generated(key_type) => format!("a key ({}) that is made here", key_type.name()),
        KeyOrigin::File(path) => format!("the key in {}", describe_value("key_file", &path.display().to_string())),
        KeyOrigin::Server => "a key that the server makes".to_owned(),
    };
    let issues = format!("requests {subject}{ttl}, from {} by session {session}, for {key}", request.path());
    let due = match renewal.renew_at {
        None => "after 63 to 70 % of its life".to_owned(),
        Some(RenewAt::Percent(percent)) => format!("after {percent} % of its life"),
        Some(RenewAt::BeforeEnd(span)) => format!("{} before its end", format_duration(span)),
    };
    let window = renewal.window.map(|window| format!(", at {} UTC", format_window(window))).unwrap_or_default();
    (issues, format!("replaces it {due}{window}"))
}

/// Describes an X.509 certificate with its names.
fn describe_pki(subject: &PkiSubject, describe_value: impl Fn(&str, &str) -> String) -> String {
    let names = |key: &str, names: &[String]| match names {
        [] => None,
        names => Some(describe_value(key, &names.join(", "))),
    };
    let addresses: Vec<_> = subject.ip_sans.iter().map(ToString::to_string).collect();
    let all = [
        names("common_name", std::slice::from_ref(&subject.common_name)),
        names("alt_names", &subject.alt_names),
        names("ip_sans", &addresses),
        names("uri_sans", &subject.uri_sans),
    ];
    format!("a certificate for {}", all.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// Describes a certificate of OpenSSH with its names and options.
fn describe_ssh(subject: &SshSubject, describe_value: impl Fn(&str, &str) -> String) -> String {
    let kind = subject.kind.name();
    let text = match subject.principals.as_slice() {
        [] => format!("an SSH certificate for the role's default {kind}"),
        names => format!("an SSH certificate for the {kind} {}", describe_value("valid_principals", &names.join(", "))),
    };
    let mut details = Vec::new();
    if let Some(key_id) = &subject.key_id {
        details.push(format!("key id {}", describe_value("key_id", key_id)));
    }
    for (key, words, options) in [
        ("critical_options", "critical options", &subject.critical_options),
        ("extensions", "extensions", &subject.extensions),
    ] {
        if !options.is_empty() {
            details.push(format!("{words} {}", describe_value(key, &format_options(options))));
        }
    }
    if details.is_empty() { text } else { format!("{text} ({})", details.join("; ")) }
}

fn format_options(options: &BTreeMap<String, String>) -> String {
    let format = |(name, value): (&String, &String)| match value.as_str() {
        "" => name.clone(),
        value => format!("{name}={value}"),
    };
    options.iter().map(format).collect::<Vec<_>>().join(", ")
}
