//! `[certificate.NAME]`: a certificate with its key, of a PKI or SSH engine or of SPIFFE's Workload API, in files that are replaced together.

mod describe;
mod output;
mod ssh;

pub(super) use self::describe::describe;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use keyward_agent::certificates::{
    CertificateOptions, CertificateOutput, CertificateRequest, CertificateSubject, KeyOrigin, KeyType, OutputForm,
    PkiSubject, RenewAt, RenewalPolicy, Window,
};
use keyward_machine::atomic_file::Attributes;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::time_format::format_duration;

use super::diagnostic::{Diagnostics, Location};
use super::output_command::{output_command, variables};
use super::reader::Reader;
use super::sink::on_missing;
use super::template::{self, TemplateContext, reject_without_secrets};
use super::values::{self, ValueError, invalid};
use super::{Certificate, CertificateIssuer, EngineCertificate, Template, workload_api};
use output::Place;

/// Default of `mode`: the owner writes, the group reads.
const DEFAULT_FILE_MODE: u32 = 0o640;

/// Default of `mode` of a key of OpenSSH, which accepts none that others may read.
const DEFAULT_SSH_KEY_MODE: u32 = 0o600;

/// Default of `mode` of a certificate without a key, which is public.
const DEFAULT_PUBLIC_MODE: u32 = 0o644;

/// Default of `mount` of each kind.
const DEFAULT_PKI_MOUNT: &str = "pki";
const DEFAULT_SSH_MOUNT: &str = "ssh";

/// Kind of an engine.
#[derive(Debug, Clone, Copy)]
pub(super) enum EngineKind {
    Pki,
    Ssh,
}

/// Tables of certificates by name.
type Tables<'a> = Vec<(String, Reader<'a>)>;

/// A certificate that was read, with the location and the name of the key of its output.
pub(super) type Located = (Certificate, Location, &'static str);

/// Returns the tables of the Workload API's certificates, which need no session, and those of engines.
pub(super) fn sort(tables: Tables<'_>) -> (Tables<'_>, Vec<(EngineKind, String, Reader<'_>)>) {
    let kinds = [("pki", Some(EngineKind::Pki)), ("ssh", Some(EngineKind::Ssh)), ("spiffe", None)];
    let (mut svids, mut engines) = (Vec::new(), Vec::new());
    for (name, mut reader) in tables {
        match reader.choice("kind", &kinds).unwrap_or(Some(EngineKind::Pki)) {
            None => svids.push((name, reader)),
            Some(kind) => engines.push((kind, name, reader)),
        }
    }
    (svids, engines)
}

/// Reads a certificate of the Workload API.
pub(super) fn read_svid(name: String, mut reader: Reader<'_>, command_debounce: Duration) -> Located {
    let issuer = CertificateIssuer::WorkloadApi(workload_api::read_certificate(&mut reader));
    let place = output::read(&mut reader, &name);
    finish(name, issuer, reader, place, command_debounce)
}

const DAY: Duration = Duration::from_hours(24);

/// Reads all certificates. Each has its own files.
pub(super) fn read_all(
    engines: Vec<(EngineKind, String, Reader<'_>)>,
    svids: Vec<Located>,
    context: TemplateContext<'_>,
    templates: &[Template],
    diagnostics: &Diagnostics,
) -> Vec<Certificate> {
    let sinks = context.sinks.iter();
    let mut files: BTreeMap<PathBuf, String> =
        sinks.map(|sink| (sink.options.path.clone(), format!("sink {}", sink.options.name))).collect();
    let rendered = templates.iter().filter_map(|template| Some((&template.options, template.options.file.as_ref()?)));
    files.extend(rendered.map(|(options, file)| (file.destination.clone(), format!("template {}", options.text.name))));
    let engines = engines.into_iter().map(|(kind, name, reader)| read_engine(name, kind, reader, context));
    let mut all: Vec<Located> = svids.into_iter().chain(engines).collect();
    all.sort_by(|(one, ..), (other, ..)| one.options.name.cmp(&other.options.name));
    let mut read = Vec::new();
    for (certificate, at, key) in all {
        let CertificateOptions { name, output, .. } = &certificate.options;
        if !output.path.as_os_str().is_empty()
            && let Some(other) = files.insert(output.path.clone(), format!("certificate {name}"))
        {
            let message = (ErrorCode::DuplicateSetting, format!("also the file of {other}"));
            diagnostics.error(at, &format!("certificate.{name}.{key}"), message, "give each one its own file");
        }
        read.push(certificate);
    }
    read
}

/// Reads a certificate of an engine.
fn read_engine(name: String, kind: EngineKind, mut reader: Reader<'_>, context: TemplateContext<'_>) -> Located {
    let session = template::session(&mut reader, context.sessions);
    reject_without_secrets(&reader, reader.at, &reader.path.clone(), &session, context.sessions);
    let (request, place) = match kind {
        EngineKind::Ssh => ssh::read(&mut reader),
        EngineKind::Pki => (read_request(&mut reader), output::read(&mut reader, &name)),
    };
    let renewal = RenewalPolicy {
        renew_at: reader.parse_text("renew_at", renew_at),
        window: reader.parse_text("window", window),
    };
    let secrets = context.secrets(&reader, &session);
    let issuer = CertificateIssuer::Engine(Box::new(EngineCertificate { session, secrets, request, renewal }));
    finish(name, issuer, reader, place, context.shared.command_debounce)
}

/// Reads the keys that certificates of all kinds have.
fn finish(
    name: String,
    issuer: CertificateIssuer,
    mut reader: Reader<'_>,
    place: Place,
    command_debounce: Duration,
) -> Located {
    let Place { path, form, at, key } = place;
    let attributes = Attributes {
        mode: match form {
            OutputForm::SshCertificate => reader.mode("mode", DEFAULT_PUBLIC_MODE),
            OutputForm::SshFolder => reader.private_mode(DEFAULT_SSH_KEY_MODE, "the private key"),
            _ => reader.private_mode(DEFAULT_FILE_MODE, "the private key"),
        },
        owner: reader.user("owner"),
        group: reader.group("group"),
    };
    let options = CertificateOptions {
        name,
        output: CertificateOutput { path, form, attributes },
        command: output_command(&mut reader),
        command_debounce,
        variables: variables(&mut reader),
        on_missing: on_missing(&mut reader),
        required: reader.flag("required", true),
    };
    reader.finish();
    (Certificate { issuer, options }, at, key)
}

fn read_request(reader: &mut Reader<'_>) -> CertificateRequest {
    let (mount, role) = read_role(reader, DEFAULT_PKI_MOUNT);
    let common_name = reader.required("common_name", "the host's name, such as \"web.example.com\"");
    let subject = PkiSubject {
        common_name: common_name.and_then(|text| reader.parse(&text, subject)).unwrap_or_default(),
        alt_names: parse_list(reader, "alt_names", alt_name),
        ip_sans: parse_list(reader, "ip_sans", address),
        uri_sans: parse_list(reader, "uri_sans", uri),
    };
    let (ttl, key) = (read_ttl(reader), read_key(reader));
    CertificateRequest { mount, role, ttl, key, subject: CertificateSubject::Pki(subject) }
}

/// Reads `mount` and `role`.
fn read_role(reader: &mut Reader<'_>, default_mount: &str) -> (String, String) {
    let mount = reader.parse_text("mount", path_of_server).unwrap_or_else(|| default_mount.to_owned());
    let role = reader.required("role", "the role of the engine that issues the certificate");
    (mount, role.and_then(|text| reader.parse(&text, role_name)).unwrap_or_default())
}

fn read_ttl(reader: &mut Reader<'_>) -> Option<Duration> {
    reader.duration_if_given("ttl", Duration::from_mins(1)..=3650 * DAY)
}

/// Reads `key_type`, `key_file` or `server_key`, of which one is allowed.
fn read_key(reader: &mut Reader<'_>) -> KeyOrigin {
    let key_type = reader.choice("key_type", &KeyType::ALL);
    let file = reader.key_file("key_file");
    let server_key = reader.flag("server_key", false);
    let given =
        [reader.locate("key_type"), reader.locate("key_file"), reader.locate("server_key").filter(|_| server_key)];
    let names = ["key_type", "key_file", "server_key"];
    let mut given = names.into_iter().zip(given).filter_map(|(name, at)| at.map(|_| name));
    if let (Some(first), Some(second)) = (given.next(), given.next()) {
        reader.conflict(second, first, "a key has one origin");
    }
    match file {
        Some(path) => KeyOrigin::File(path),
        None if server_key => KeyOrigin::Server,
        None => KeyOrigin::Generated(key_type.unwrap_or_default()),
    }
}

fn parse_list<T>(reader: &mut Reader<'_>, name: &'static str, parse: impl Fn(&str) -> Result<T, ValueError>) -> Vec<T> {
    let texts = reader.list(name).unwrap_or_default();
    texts.iter().filter_map(|text| reader.parse(text, &parse)).collect()
}

/// Parses the path of an engine: segments with slashes between them.
fn path_of_server(text: &str) -> Result<String, ValueError> {
    let is_segment = |segment: &str| !segment.is_empty() && !segment.contains(['?', '#', '%', ' ']);
    let path = text.trim_end_matches('/');
    if text.starts_with('/') || text.starts_with("v1/") || !path.split('/').all(is_segment) {
        return invalid(
            "is not the path of an engine",
            "write its path as `vault secrets list` shows it, such as \"pki\"",
        );
    }
    Ok(path.to_owned())
}

fn role_name(text: &str) -> Result<String, ValueError> {
    if text.contains(['/', '?', '#', '%', ' ']) {
        return invalid("is not the name of a role", "write the name alone, without the engine's path");
    }
    Ok(text.to_owned())
}

/// Parses a common name: 1 to 64 characters (RFC 5280, ub-common-name).
fn subject(text: &str) -> Result<String, ValueError> {
    if text.chars().count() > 64 {
        return invalid("is longer than 64 characters", "write a short name here, and the long one in alt_names");
    }
    Ok(text.to_owned())
}

/// Parses a host name, with `*.` in front of it or not, or a mail address.
fn alt_name(text: &str) -> Result<String, ValueError> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let name = name.rsplit_once('@').map_or(name, |(_, host)| host);
    if name.parse::<IpAddr>().is_ok() {
        return invalid("is an IP address", "write it in ip_sans");
    }
    if text.contains(',') || !text.is_ascii() {
        return invalid("is not a host name", values::host_advice(text, "write each name as a string of its own"));
    }
    values::host(name).map(|_| text.to_owned())
}

fn address(text: &str) -> Result<IpAddr, ValueError> {
    text.parse().or_else(|_| invalid("is not an IP address", "write one such as \"10.0.0.1\" or \"2001:db8::1\""))
}

fn uri(text: &str) -> Result<String, ValueError> {
    let is_uri = url::Url::parse(text).is_ok() && text.is_ascii() && !text.contains(',');
    if is_uri { Ok(text.to_owned()) } else { invalid("is not a URI", "write one such as \"spiffe://example.com/web\"") }
}

/// Parses a part of the life such as `66%`, or a time before the end such as `20d`.
fn renew_at(text: &str) -> Result<RenewAt, ValueError> {
    const FORMS: &str = "write a part of its life from \"1%\" to \"95%\", or the time before its end, such as \"20d\"";
    if let Some(digits) = text.trim().strip_suffix('%') {
        let percent = digits.trim().parse().ok().filter(|percent| (1..=95).contains(percent));
        return percent
            .map_or_else(|| invalid("is not a part of a life", FORMS), |percent| Ok(RenewAt::Percent(percent)));
    }
    match values::duration(text, &(Duration::from_secs(10)..=3650 * DAY)) {
        Ok(span) => Ok(RenewAt::BeforeEnd(span)),
        Err(error) => invalid(error.message, FORMS),
    }
}

/// Parses a part of each day in UTC: `03:00+2h`.
fn window(text: &str) -> Result<Window, ValueError> {
    const FORM: &str = "write when it begins, in UTC, and how long it lasts, such as \"03:00+2h\"";
    let Some((start, length)) = text.split_once('+') else { return invalid("is not a part of the day", FORM) };
    let number = |digits: &str, below: u64| {
        let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u64>().ok().filter(|number| is_number && *number < below)
    };
    let start = start.trim().split_once(':').and_then(|(hour, minute)| Some((number(hour, 24)?, number(minute, 60)?)));
    let Some((hour, minute)) = start else { return invalid("does not begin with a time of the day", FORM) };
    match values::duration(length, &(MIN_WINDOW..=MAX_WINDOW)) {
        Ok(length) => Ok(Window { start: Duration::from_mins(hour * 60 + minute), length }),
        Err(error) => invalid(format!("has a length that {}", error.message), error.advice),
    }
}

/// Shorter than this, one failed request could miss the window.
const MIN_WINDOW: Duration = Duration::from_mins(10);
const MAX_WINDOW: Duration = Duration::from_hours(23);

/// Formats a window as it is written.
fn format_window(window: Window) -> String {
    let minutes = window.start.as_secs() / 60;
    format!("{:02}:{:02}+{}", minutes / 60, minutes % 60, format_duration(window.length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_a_beginning_and_a_length() {
        let check = |text: &str, expected: Result<(u64, u64), &str>| {
            let found = window(text).map(|found| (found.start.as_secs() / 60, found.length.as_secs() / 60));
            let found = found.as_ref().map_err(|error| error.message.as_str());
            assert_eq!(found.copied(), expected, "{text}");
        };
        check("03:00+2h", Ok((180, 120)));
        check("23:45 + 90m", Ok((1425, 90)));
        check("00:00+23h", Ok((0, 1380)));
        check("03:00", Err("is not a part of the day"));
        check("3:00+2h", Err("does not begin with a time of the day"));
        check("24:00+2h", Err("does not begin with a time of the day"));
        check("03:60+2h", Err("does not begin with a time of the day"));
        check("+3:00+2h", Err("does not begin with a time of the day"));
        check("03:00+5m", Err("has a length that is out of range"));
        check("03:00+24h", Err("has a length that is out of range"));
        check("03:00+2", Err("has a length that has no unit"));
        assert_eq!(format_window(window("03:05+1h 30m").unwrap()), "03:05+1h 30m");
    }

    #[test]
    fn the_time_of_a_replacement_is_a_part_of_the_life_or_before_the_end() {
        let check = |text: &str, expected: Result<RenewAt, &str>| {
            let found = renew_at(text);
            assert_eq!(found.as_ref().map_err(|error| error.message.as_str()).copied(), expected, "{text}");
        };
        check("66%", Ok(RenewAt::Percent(66)));
        check(" 1 % ", Ok(RenewAt::Percent(1)));
        check("20d", Ok(RenewAt::BeforeEnd(20 * DAY)));
        for text in ["0%", "96%", "%", "-1%", "6.5%", "256%"] {
            check(text, Err("is not a part of a life"));
        }
        check("66", Err("has no unit"));
        check("1s", Err("is out of range"));
    }

    #[test]
    fn names_are_those_that_a_certificate_can_hold() {
        let check = |text: &str, is_good: bool| assert_eq!(alt_name(text).is_ok(), is_good, "{text}");
        for text in ["web.example.com", "*.example.com", "root@example.com", "localhost"] {
            check(text, true);
        }
        for text in ["10.0.0.1", "a,b", "b\u{fc}ro.example", "a b", "", "*", "web.example.com:443"] {
            check(text, false);
        }
        assert!(path_of_server("pki_int/team/").is_ok_and(|path| path == "pki_int/team"));
        for text in ["/pki", "v1/pki", "pki//x", "pki?x", "pki x"] {
            assert!(path_of_server(text).is_err(), "{text}");
        }
        assert!(role_name("web").is_ok() && role_name("sign/web").is_err());
        assert!(subject(&"x".repeat(64)).is_ok() && subject(&"x".repeat(65)).is_err());
        assert!(uri("spiffe://example.com/web").is_ok() && uri("web").is_err());
    }
}
