//! Description of a gateway for `keyward check`.

use std::collections::BTreeMap;

use keyward_gateway::actions::DeprecatedCallMode;
use keyward_gateway::client_setup::{ClientTokenKind, NO_VARIABLE_REASON, ServiceHost};
use keyward_gateway::proxy::{GatewayOptions, RateLimit};
use keyward_http::client::ProxyMode;
use keyward_telemetry::time_format::format_duration;
use keyward_telemetry::wording::format_count;
use url::Url;

use super::Gateway;
use crate::platform_token::TokenSource;

/// Describes the gateway, one clause per entry; `references` maps keys to the references that replace their values.
pub(crate) fn describe_gateway(gateway: &Gateway, references: &BTreeMap<String, String>) -> Vec<String> {
    let Gateway { endpoints, proxy, token, local_token, required, .. } = gateway;
    let describe_value =
        |key: &str, value: &str| references.get(&format!("gateway.{key}")).map_or(value, String::as_str).to_owned();
    let upstream = describe_value("upstream", proxy.upstream.as_str().trim_end_matches('/'));
    let mut does = Vec::new();
    for endpoint in endpoints {
        let endpoint = describe_value("listen", &endpoint.to_string());
        does.push(format!("serves the platform's API of {upstream} on {endpoint}"));
    }
    match &proxy.proxy {
        ProxyMode::Environment => {}
        ProxyMode::Direct => does.push("connects directly, without a proxy".to_owned()),
        ProxyMode::Through(url) => {
            let host = format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(80));
            does.push(format!("connects through the proxy {}", describe_value("proxy", &host)));
        }
    }
    let from = match token {
        TokenSource::File(file) => format!("of the file {}", describe_value("token_file", &file.display().to_string())),
        TokenSource::Secret(secret) => {
            let path = describe_value("secret.path", &secret.path);
            format!("that session {} reads from {path}, field {}", secret.session, secret.field)
        }
        TokenSource::Mint(mint) => {
            let owner = &mint.owner;
            let ttl = format_duration(mint.ttl);
            let parent = describe_value("mint.parent_token_file", &mint.parent_token_file.display().to_string());
            format!("that it creates for {owner} with the token of {parent}, a new one every {ttl} at the latest,")
        }
    };
    does.push(format!("puts the platform token {from} on each request"));
    let rotation = match local_token.max_age {
        Some(age) => format!(
            ", which is replaced every {} and valid for {} after that",
            format_duration(age),
            format_duration(local_token.grace)
        ),
        None => String::new(),
    };
    let file = describe_value("local_token_file", &local_token.file.display().to_string());
    does.push(format!("accepts callers with the local token of {file}{rotation}"));
    describe_calls(proxy, &mut does);
    describe_clients(gateway, references, &mut does);
    if !required {
        does.push("is not required for readiness".to_owned());
    }
    does
}

/// Describes limits, deprecated and refused calls.
fn describe_calls(proxy: &GatewayOptions, does: &mut Vec<String>) {
    does.push(match proxy.limit {
        RateLimit::FromServer => "limits requests to the rate that the platform reports".to_owned(),
        RateLimit::PerSecond(rate) => format!("sends at most {} a second", format_count(rate, "request")),
        RateLimit::None => "does not limit requests".to_owned(),
    });
    does.push(
        match proxy.actions.deprecated {
            DeprecatedCallMode::Off => "sends deprecated calls unchanged, without a warning",
            DeprecatedCallMode::Warn => "sends deprecated calls unchanged, with a warning",
            DeprecatedCallMode::Fallback => "replaces deprecated calls that the platform no longer serves",
            DeprecatedCallMode::Always => "replaces all deprecated calls",
        }
        .to_owned(),
    );
    if proxy.token_wait.is_zero() {
        does.push("fails calls at once while the platform refuses the token".to_owned());
    } else {
        let wait = format_duration(proxy.token_wait);
        does.push(format!("holds calls while the platform refuses the token, for {wait} at most"));
    }
    let exempt: Vec<_> = proxy.exempt.iter().map(|kind| kind.name()).collect();
    does.push(match exempt.as_slice() {
        [] => "refuses calls that create platform tokens".to_owned(),
        _ => format!("allows calls that create platform tokens, as exempt: {}", exempt.join(", ")),
    });
    if proxy.actions.strict {
        does.push("refuses calls that this release of the platform does not support".to_owned());
    }
    if proxy.actions.merge_pages {
        does.push("merges the pages of lists that older releases returned whole".to_owned());
    }
}

/// Describes how Terraform, OpenTofu and child processes find the gateway.
fn describe_clients(gateway: &Gateway, references: &BTreeMap<String, String>, does: &mut Vec<String>) {
    let Gateway { proxy, host, terraform_config_file, process_token, process_files, .. } = gateway;
    let describe_value =
        |key: &str, value: &str| references.get(&format!("gateway.{key}")).map_or(value, String::as_str).to_owned();
    let has_variable = host.variable().is_some();
    let host = describe_host(host, &proxy.upstream, references);
    if let Some(terraform_file) = terraform_config_file {
        let file = describe_value("terraform_config_file.path", &terraform_file.file.display().to_string());
        does.push(match terraform_file.token_kind {
            ClientTokenKind::LocalToken => {
                format!("points Terraform and OpenTofu at the gateway for host {host}, by the file {file}")
            }
            ClientTokenKind::PlatformToken => {
                format!("gives the platform token to Terraform and OpenTofu for host {host}, by the file {file}")
            }
        });
        does.push(PROVIDER.to_owned());
    }
    let programs = if process_files.is_some() { "the program of [process]" } else { "programs of keyward exec" };
    does.extend(process_token.map(|token_kind| match token_kind {
        ClientTokenKind::LocalToken => {
            format!("gives {programs} variables that point clients at the gateway, with the local token")
        }
        ClientTokenKind::PlatformToken => format!("gives {programs} variables with the platform's address and token"),
    }));
    if let Some(token_kind) = process_token.filter(|_| !has_variable) {
        let file = match token_kind {
            ClientTokenKind::LocalToken => "the file of TF_CLI_CONFIG_FILE",
            ClientTokenKind::PlatformToken => "[gateway.terraform_config_file]",
        };
        does.push(format!("leaves the token of Terraform and OpenTofu for {host} to {file}: {NO_VARIABLE_REASON}"));
    }
}

/// Warning about a file that is read in addition to the user's own.
const PROVIDER: &str = "does not reach the tfe provider by that file, which reads only the main file: run it by keyward exec, or \
                        name the file in TF_CLI_CONFIG_FILE";

/// Describes the host as it was written, or the upstream's address that it came from.
fn describe_host(host: &ServiceHost, upstream: &Url, references: &BTreeMap<String, String>) -> String {
    let is_upstream = ServiceHost::parse(upstream.authority()).is_ok_and(|parsed| parsed == *host);
    let of_upstream = || references.get("gateway.upstream").filter(|_| is_upstream);
    references.get("gateway.host").or_else(of_upstream).map_or_else(|| host.to_string(), Clone::clone)
}
