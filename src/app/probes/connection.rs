//! Checks the connection to a server: its name, TCP, its certificate, and its clock.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use keyward_http::client::sanitize::parse_date_header;
use keyward_http::client::{ClientOptions, ServerAddress, connection_error_code};
use keyward_http::tls::{client_config, expiry};
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::time_format::{format_duration, format_rfc3339, format_span};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::Url;

use super::limits::Limits;
use crate::check_result::{Problem, StepResult, Steps};

/// Checks name resolution, TCP connection and certificate of a host. For a server behind a proxy, checks the proxy. Skips
/// later steps after a failure.
pub(super) async fn check_connection(
    options: &ClientOptions,
    unreachable: ErrorCode,
    limits: &Limits,
    steps: &mut Steps,
) -> bool {
    let ServerAddress::Url(url) = &options.address else {
        return steps.record("dns", Ok("a unix socket needs no name".to_owned()));
    };
    if let Some((host, port)) = options.proxy_endpoint(url) {
        let addresses = resolve(&host, port, limits).await.map_err(|problem| problem.with_prefix("the proxy "));
        let result = addresses
            .map(|addresses| format!("the proxy {host} is {}; it looks the server's name up itself", list(&addresses)));
        return steps.record("dns", result);
    }
    let addresses = resolve(url.host_str().unwrap_or_default(), port_of(url), limits).await;
    let addresses = match addresses {
        Ok(addresses) => addresses,
        Err(problem) => return steps.record("dns", Err(problem)),
    };
    steps.record("dns", Ok(list(&addresses)));
    let stream = match connect(&addresses, options, unreachable, limits).await {
        Ok(stream) => stream,
        Err(problem) => return steps.record("tcp", Err(problem)),
    };
    let peer = stream.peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
    steps.record("tcp", Ok(format!("connected to {peer}")));
    if url.scheme() != "https" {
        return true;
    }
    steps.record("tls", limits.bound(check_certificate(stream, url, options)).await.and_then(|result| result))
}

fn port_of(url: &Url) -> u16 {
    url.port_or_known_default().unwrap_or(443)
}

fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(|address| address.ip().to_string()).collect::<Vec<_>>().join(", ")
}

async fn resolve(host: &str, port: u16, limits: &Limits) -> Result<Vec<SocketAddr>, Problem> {
    let resolved = limits.bound(resolve_host(host, port)).await;
    resolved.map_err(|problem| problem.with_prefix(&format!("{host}: ")))?
}

/// Resolves a name within ten seconds.
pub(crate) async fn resolve_host(host: &str, port: u16) -> Result<Vec<SocketAddr>, Problem> {
    let looked_up = tokio::net::lookup_host((host.trim_matches(['[', ']']), port));
    let result = tokio::time::timeout(Duration::from_secs(10), looked_up).await;
    let unknown =
        |text: String| Problem::new(ErrorCode::ServerNameUnknown, text).with_remedy(format!("getent hosts {host}"));
    let result = result.map_err(|_| unknown(format!("{host}: no answer within 10 s")))?;
    let addresses: Vec<_> = result.map_err(|error| unknown(format!("{host}: {error}")))?.collect();
    if addresses.is_empty() { Err(unknown(format!("{host} has no address"))) } else { Ok(addresses) }
}

/// Connects to the first address that accepts.
async fn connect(
    addresses: &[SocketAddr],
    options: &ClientOptions,
    code: ErrorCode,
    limits: &Limits,
) -> Result<TcpStream, Problem> {
    let server = options.server();
    let mut last = Problem::new(code, format!("{server}: no address"));
    for address in addresses {
        let attempt = tokio::time::timeout(options.connect_timeout, TcpStream::connect(address));
        last = match limits.bound(attempt).await {
            Ok(Ok(Ok(stream))) => return Ok(stream),
            Ok(Ok(Err(error))) => Problem::new(code, format!("{server}: {address}: {error}")),
            Ok(Err(_)) => {
                let time = format_duration(options.connect_timeout);
                Problem::new(code, format!("{server}: {address}: no connection within {time}"))
            }
            Err(_) => return Err(Problem::new(code, format!("{server}: {address}: no connection in time"))),
        };
    }
    Err(last)
}

/// Makes a TLS connection and reports how long the certificate is valid.
async fn check_certificate(stream: TcpStream, url: &Url, options: &ClientOptions) -> StepResult {
    let config = options.tls.follow(client_config)();
    let config = config.map_err(|error| Problem::new(ErrorCode::CertificateFile, format_chain(&error)))?;
    let name = options.tls.server_name.as_deref().or(url.host_str()).unwrap_or_default();
    let failed = |cause: String| {
        let code = match connection_error_code(&cause) {
            ErrorCode::ServerUnreachable => ErrorCode::ServerCertificate,
            code => code,
        };
        Problem::new(code, format!("{}: {cause}", options.server()))
    };
    let server_name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned());
    let server_name = server_name.map_err(|_| failed(format!("{name} is not a host name")))?;
    let connected = TlsConnector::from(Arc::new(config)).connect(server_name, stream).await;
    let connected = connected.map_err(|error| failed(format_chain(&error)))?;
    let connection = connected.get_ref().1;
    let version = connection.protocol_version().and_then(|version| version.as_str()).unwrap_or("TLS");
    let chain = connection.peer_certificates().unwrap_or_default();
    describe_expiry(chain.get(..1).unwrap_or_default(), &format!("{version}, the certificate"), SystemTime::now())
}

/// Reports how many days certificates are still valid.
pub(crate) fn describe_expiry(
    certificates: &[rustls::pki_types::CertificateDer<'_>],
    subject: &str,
    now: SystemTime,
) -> StepResult {
    let Some(due) = expiry(certificates) else { return Ok(format!("{subject} has no end that can be read")) };
    let Ok(remaining) = due.ends.duration_since(now) else {
        return Err(Problem::new(
            ErrorCode::CertificateExpiring,
            format!("{subject} ended at {}", format_rfc3339(due.ends)),
        ));
    };
    let days = remaining.as_secs() / (24 * 60 * 60);
    let message = format!("{subject} is valid for {days} more days, until {}", format_rfc3339(due.ends));
    if now < due.warn_at { Ok(message) } else { Err(Problem::new(ErrorCode::CertificateExpiring, message).warning()) }
}

/// Compares this machine's clock with the `Date` of a response, which is exact to a second. `None` without a date.
pub(super) fn check_clock(headers: &HeaderMap, server: &str) -> Option<StepResult> {
    let server_time = parse_date_header(headers)?;
    Some(compare_clocks(SystemTime::now(), server_time, server))
}

/// Clock difference from which logins fail: identity tokens have no leeway.
const FAILS_FROM: Duration = Duration::from_secs(30);
const WARNS_FROM: Duration = Duration::from_secs(5);

fn compare_clocks(own_time: SystemTime, server_time: SystemTime, server: &str) -> StepResult {
    let (skew, direction) = match own_time.duration_since(server_time) {
        Ok(skew) => (skew, "ahead of"),
        Err(error) => (error.duration(), "behind"),
    };
    if skew < WARNS_FROM {
        return Ok(format!("within {} s of {server}", skew.as_secs() + 1));
    }
    let message = format!("this machine's clock is {} {direction} that of {server}", format_span(skew.as_secs()));
    let problem = Problem::new(ErrorCode::ClockSkew, message).with_remedy("timedatectl set-ntp true");
    Err(if skew < FAILS_FROM { problem.warning() } else { problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_by_half_a_minute_are_a_failure_and_by_seconds_a_warning() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
        let check = |skew: i64, expected: Result<&str, (bool, &str)>| {
            let span = Duration::from_secs(skew.unsigned_abs());
            let theirs = if skew < 0 { now + span } else { now - span };
            let mut steps = Steps::new("session", None, &crate::check_result::Progress::default());
            let is_ok = steps.record("clock", compare_clocks(now, theirs, "vault"));
            let result = steps.into_results().remove(0);
            match expected {
                Ok(text) => assert_eq!((result.message.as_str(), result.code), (text, None)),
                Err((ok, text)) => {
                    assert_eq!((is_ok, result.message.as_str(), result.code), (ok, text, Some(ErrorCode::ClockSkew)));
                }
            }
        };
        check(0, Ok("within 1 s of vault"));
        check(-4, Ok("within 5 s of vault"));
        check(6, Err((true, "this machine's clock is 6 s ahead of that of vault")));
        check(-600, Err((false, "this machine's clock is 10 min behind that of vault")));
    }
}
