//! `[access]`: the access-control service.

use std::time::Duration;

use humantime::format_duration;
use url::Url;

use super::leaf::{self, Wrong, wrong, wrong_and_secret};
use super::listener::endpoint;
use super::reader::Reader;
use crate::access::Options;
use crate::access::model::cloud::{Bounds, Trust};
use crate::access::model::policy::is_name;
use crate::access::model::token::{MAX_TTL, MIN_TTL};
use crate::access::service::keys::{self, Source};
use crate::access::service::login::{self, RoleOptions};
use crate::http::client::is_loopback;
use crate::http::listen::Endpoint;
use crate::http::tls::Certificate;

/// The access-control service and the socket that it is served on.
#[derive(Debug, Clone, PartialEq)]
pub struct Access {
    /// Where it listens.
    pub endpoint: Endpoint,
    /// What it speaks TLS with, where it does.
    pub tls: Option<Certificate>,
    /// The service itself.
    pub service: Options,
}

const DATACENTER: &str = "dc1";

/// How long tokens live where it is not said.
const TTL: Duration = Duration::from_hours(1);

/// Reads the section; `None` where it says too little, which is then said.
pub(super) fn read(mut reader: Reader<'_>) -> Option<Access> {
    let text = reader.required("listen", "where to listen, such as \"tcp://127.0.0.1:8500\"");
    let endpoint = text.as_ref().and_then(|text| reader.parse(text, endpoint));
    let tls = tls(&mut reader);
    if let (Some(Endpoint::Tcp(address)), Some(text), None) = (&endpoint, &text, &tls)
        && !address.ip().is_loopback()
    {
        let advice = "write tls_cert and tls_key, or listen on loopback or a unix socket";
        reader.scope.remarks.mistake(text.at, &text.key, "would take and give tokens in the clear", advice);
    }
    let data_dir = reader.required("data_dir", "the folder of its store, such as \"/var/lib/keyward/access\"");
    let data_dir = data_dir.and_then(|text| {
        let path = reader.parse(&text, leaf::path)?;
        reader.folder_of(&text, &path);
        Some(path)
    });
    let key_file = reader.key_file("key_file");
    let datacenter = reader.parsed("datacenter", name).unwrap_or_else(|| DATACENTER.to_owned());
    let methods = reader.tables("method").into_iter().map(|(name, table)| {
        let method = method(&name, table)?;
        Some((name, method))
    });
    let methods = methods.collect::<Vec<_>>();
    if methods.is_empty() && reader.place_of("method").is_none() {
        let advice = "write [access.method.NAME], or nobody can log in";
        reader.scope.remarks.warning(reader.at, &reader.key("method"), "no auth method", advice);
    }
    reader.finish();
    let methods = methods.into_iter().collect::<Option<_>>()?;
    let service = Options { data_dir: data_dir?, key_file, datacenter, methods };
    Some(Access { endpoint: endpoint?, tls, service })
}

fn tls(reader: &mut Reader<'_>) -> Option<Certificate> {
    let certificate = (reader.place_of("tls_cert"), reader.file("tls_cert"));
    let key = (reader.place_of("tls_key"), reader.key_file("tls_key"));
    match (certificate.0, key.0) {
        (Some(_), None) => reader.missing("tls_key", "the private key that belongs to tls_cert"),
        (None, Some(_)) => reader.missing("tls_cert", "the certificate that belongs to tls_key"),
        _ => {}
    }
    certificate.1.zip(key.1).map(|(certificate, key)| Certificate { certificate, key })
}

fn method(name: &str, mut reader: Reader<'_>) -> Option<login::Options> {
    if name == "token" {
        let found = "the name token, which the tokens' own calls have in their path";
        reader.scope.remarks.mistake(reader.at, &reader.path, found, "take another name");
    }
    let issuer = reader.required("issuer", "who makes the tokens, such as \"https://sts.windows.net/TENANT/\"");
    let audience = reader.required("audience", "whom they are for: the agent's resource, byte for byte");
    let discovery = reader.parsed("discovery_url", keys_url);
    let jwks = reader.parsed("jwks_url", keys_url);
    match (reader.place_of("discovery_url"), reader.place_of("jwks_url")) {
        (None, None) => reader.missing("discovery_url", "where the issuer's keys are told; or write jwks_url"),
        (Some(_), Some(_)) => reader.conflict("jwks_url", "discovery_url", "the keys have one source"),
        _ => {}
    }
    let ca_file = reader.file("ca_file");
    let mut roles = Vec::new();
    for (name, table) in reader.tables("role") {
        roles.push((name, role(table)));
    }
    if roles.is_empty() && reader.place_of("role").is_none() {
        let advice = format!("write [{}.role.NAME], or nobody can log in", reader.path);
        reader.scope.remarks.warning(reader.at, &reader.key("role"), "no role", advice);
    }
    reader.finish();
    let source = discovery.map(Source::Discovery).or_else(|| jwks.map(Source::Jwks))?;
    Some(login::Options {
        trust: Trust { issuer: issuer?.value, audience: audience?.value },
        keys: keys::Options { source, ca_file },
        roles: roles.into_iter().collect(),
    })
}

fn role(mut reader: Reader<'_>) -> RoleOptions {
    let mut list = |name| {
        let texts = reader.list(name).unwrap_or_default();
        texts.into_iter().map(|text| text.value).collect::<Vec<_>>()
    };
    let bounds = Bounds {
        principals: list("principals"),
        subscriptions: list("subscriptions"),
        resource_groups: list("resource_groups"),
        scale_sets: list("scale_sets"),
        virtual_machines: list("virtual_machines"),
    };
    if let Some(mistake) = bounds.mistake() {
        let (found, advice) = mistake.split_once("; ").unwrap_or((mistake, ""));
        reader.scope.remarks.mistake(reader.at, &reader.path, found, advice);
    }
    let policies = reader.list("policies").unwrap_or_default();
    let policies = policies.iter().filter_map(|text| reader.parse(text, name)).collect();
    let ttl = reader.duration("ttl", TTL, MIN_TTL..=MAX_TTL);
    reader.finish();
    RoleOptions { bounds, policies, ttl }
}

fn name(text: &str) -> Result<String, Wrong> {
    if is_name(text) { Ok(text.to_owned()) } else { wrong("is no name", "write 1 to 128 letters, digits, - and _") }
}

/// Where keys are fetched: who can change what is answered there can make every login.
fn keys_url(text: &str) -> Result<Url, Wrong> {
    let Ok(url) = Url::parse(text) else { return wrong("is no URL", "write \"https://HOST/PATH\"") };
    let bare = url.username().is_empty() && url.password().is_none();
    if !bare || url.query().is_some() || url.fragment().is_some() {
        return wrong_and_secret("holds a user, a query or a fragment", "write \"https://HOST/PATH\"");
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        _ => wrong("could be answered by anyone on the way", "use https://; http:// is for loopback only"),
    }
}

/// What the service would do, a clause each.
pub(super) fn words(access: &Access) -> Vec<String> {
    let Access { endpoint, tls, service } = access;
    let secured = if tls.is_some() { ", over TLS" } else { "" };
    let mut does = vec![
        format!("serves the access-control API on {endpoint}{secured}"),
        format!("keeps the tokens of datacenter {} in {}", service.datacenter, service.data_dir.display()),
    ];
    for (name, method) in &service.methods {
        let trust = &method.trust;
        does.push(format!("lets in by auth/{name} whom {} vouches for, toward {}", trust.issuer, trust.audience));
        for (role, options) in &method.roles {
            let policies =
                if options.policies.is_empty() { "no policy".to_owned() } else { options.policies.join(", ") };
            let life = format_duration(options.ttl);
            does.push(format!("gives role {role} of {name} a token for {life} with {policies}"));
        }
    }
    does
}
