//! Edition, release and API version of a server, and which changes it can have.

use http::{HeaderMap, HeaderName};
use keyward_telemetry::status::PlatformEntry;

use super::api_changelog::{Change, Edition, GatewayAction, Release};

/// A product that serves the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    /// HCP Terraform: run by the vendor, always current.
    Hosted,
    /// Terraform Enterprise: run by its users, each with a release of their choice.
    SelfManaged,
}

impl Product {
    /// Returns `hosted` or `self-managed`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Hosted => "hosted",
            Self::SelfManaged => "self-managed",
        }
    }
}

/// Properties of a server, as its response headers report them. Each part is unknown until it is learned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerInfo {
    /// Product, if known.
    pub product: Option<Product>,
    /// Release; HCP Terraform has none.
    pub release: Option<Release>,
    /// API version as the server writes it, such as `2.6`.
    pub api_version: Option<String>,
}

/// Answer to "can this server have this change?".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Availability {
    /// The row says that the server has it.
    Available,
    /// The row says that the server cannot have it.
    Unavailable,
    /// The row or the server does not say enough; such a call is always sent.
    Unknown,
}

impl ServerInfo {
    /// Converts to the form of the status report; `upstream` is the platform's origin.
    pub(crate) fn to_status(&self, upstream: &str) -> PlatformEntry {
        PlatformEntry {
            upstream: upstream.to_owned(),
            product: self.product.map(|product| product.as_str().to_owned()),
            release: self.release.map(|release| release.to_string()),
            api_version: self.api_version.clone(),
        }
    }

    /// Updates from the headers of a response, and returns the new state if it differs.
    ///
    /// Reads `TFP-AppName`, `TFP-API-Version`, `X-TFE-Version` and `X-TFE-Current-Version`. A response without them
    /// changes nothing; one that names the product replaces product and release. Contradictory or unknown values leave
    /// the part unknown.
    pub fn updated_by(&self, headers: &HeaderMap) -> Option<Self> {
        let header = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        let app = header(&APP_NAME);
        let current = header(&CURRENT_VERSION);
        let version = header(&VERSION);
        let mut product_now = self.product;
        let mut release = self.release;
        if app.is_some() || current.is_some() || version.is_some() {
            let released = current.is_some() || version.is_some();
            product_now = match (app.and_then(product), released) {
                (Some(Product::Hosted), true) => None,
                (product, false) => product,
                (_, true) => Some(Product::SelfManaged),
            };
            release = [current, version].into_iter().flatten().find_map(|release| release.parse().ok());
        }
        let api = header(&API_VERSION).filter(|version| (1..=32).contains(&version.len()));
        let api = api.or(self.api_version.as_deref());
        let is_unchanged = product_now == self.product && release == self.release && api == self.api_version.as_deref();
        (!is_unchanged).then(|| Self { product: product_now, release, api_version: api.map(str::to_owned) })
    }
}

static APP_NAME: HeaderName = HeaderName::from_static("tfp-appname");
static API_VERSION: HeaderName = HeaderName::from_static("tfp-api-version");
static VERSION: HeaderName = HeaderName::from_static("x-tfe-version");
static CURRENT_VERSION: HeaderName = HeaderName::from_static("x-tfe-current-version");

fn product(name: &str) -> Option<Product> {
    match name {
        "HCP Terraform" | "Terraform Cloud" => Some(Product::Hosted),
        "Terraform Enterprise" => Some(Product::SelfManaged),
        _ => None,
    }
}

impl Availability {
    /// Decides by the edition and release that the changelog's row is marked with, and by the row's date: a self-managed
    /// release of an earlier month lacks the change. That a later one has it is not said, nor that a change of HCP Terraform
    /// never came to Terraform Enterprise.
    pub(crate) fn for_change(change: &Change, server: &ServerInfo) -> Self {
        match (change.changelog.edition, server.product) {
            (_, None) => Self::Unknown,
            (Edition::Enterprise, Some(Product::Hosted)) => Self::Unavailable,
            (_, Some(Product::Hosted)) => Self::Available,
            (_, Some(Product::SelfManaged)) => match server.release {
                Some(release) if change.is_later_than(release) => Self::Unavailable,
                Some(_) if change.changelog.release.is_some() => Self::Available,
                _ => Self::Unknown,
            },
        }
    }

    /// Returns true if strict mode refuses a call that needs this change: the server is known, a mark of the row excludes
    /// it, and the row does not ask for a warning only. A date alone refuses nothing, as a release may have had a feature
    /// before it was documented.
    pub(crate) fn is_blocked(change: &Change, server: &ServerInfo) -> bool {
        let checked = change.gateway.action == GatewayAction::FeatureCheck && !change.gateway.warns_only;
        let has_mark = match server.product {
            Some(Product::SelfManaged) => {
                change.changelog.release.is_some() || change.changelog.edition == Edition::Hosted
            }
            _ => change.changelog.edition == Edition::Enterprise,
        };
        checked && has_mark && Self::for_change(change, server) == Self::Unavailable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_changelog::Changelog;

    /// Response headers of each kind of server.
    const SERVERS: [(&str, &[(&str, &str)]); 8] = [
        ("hosted", &[("tfp-appname", "HCP Terraform"), ("tfp-api-version", "2.6")]),
        ("v202012-1", &[("tfp-appname", "Terraform Enterprise"), ("x-tfe-version", "v202012-1")]),
        ("v202103-1", &[("x-tfe-version", "v202103-1")]),
        ("v202207-1", &[("tfp-appname", "Terraform Enterprise"), ("x-tfe-version", "v202207-1")]),
        ("1.0.3", &[("x-tfe-version", "v202507-1"), ("x-tfe-current-version", "1.0.3")]),
        ("nameless", &[("tfp-appname", "Terraform Enterprise"), ("x-tfe-version", "main-build")]),
        ("contradictory", &[("tfp-appname", "HCP Terraform"), ("x-tfe-version", "v202012-1")]),
        ("silent", &[("content-type", "application/json")]),
    ];

    fn server(name: &str) -> ServerInfo {
        let (_, headers) = SERVERS.iter().find(|(known, _)| *known == name).unwrap();
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        ServerInfo::default().updated_by(&headers).unwrap_or_default()
    }

    fn change(id: &str) -> &'static Change {
        Changelog::get().changes().find(|change| change.id == id).unwrap()
    }

    #[test]
    fn rows_are_evaluated_by_marks_and_dates_for_every_kind_of_server() {
        let check = |id: &str, expected: [char; 8]| {
            let symbol = |(name, _): &(&str, &[(&str, &str)])| match Availability::for_change(change(id), &server(name))
            {
                Availability::Available => '+',
                Availability::Unavailable => '-',
                Availability::Unknown => '?',
            };
            assert_eq!(SERVERS.iter().map(symbol).collect::<String>(), expected.iter().collect::<String>(), "{id}");
        };
        for id in ["2024-08-01/1", "2024-08-01/2", "2024-08-01/3", "2024-08-01/4"] {
            check(id, ['-', '-', '-', '-', '?', '?', '?', '?']);
        }
        // A later Terraform Enterprise may have it.
        for id in ["2021-06-08/4", "2021-05-27/1"] {
            check(id, ['+', '-', '-', '?', '?', '?', '?', '?']);
        }
        for id in ["2021-03-18/1", "2021-03-18/2", "2021-03-18/3"] {
            check(id, ['+', '-', '?', '?', '?', '?', '?', '?']);
        }
        // Without a mark, the date says which releases are too old.
        for id in ["2024-10-11/1", "2023-05-25/3", "2022-12-22/1"] {
            check(id, ['+', '-', '-', '-', '?', '?', '?', '?']);
        }
        for id in ["2021-06-08/d1", "2021-11-17/p1"] {
            check(id, ['+', '-', '-', '?', '?', '?', '?', '?']);
        }
        check("2022-06-21/1", ['-', '-', '-', '+', '+', '?', '?', '?']);
        check("2021-11-18/1", ['+', '-', '-', '+', '+', '?', '?', '?']);
        for id in ["2021-03-23/1", "2021-03-23/2", "2021-03-23/3", "2021-03-23/4", "2021-03-23/5"] {
            check(id, ['-', '-', '+', '+', '+', '?', '?', '?']);
        }
    }

    #[test]
    fn rows_without_marks_are_never_refused_and_are_unavailable_by_date_only() {
        let all = Changelog::get().changes();
        let unmarked: Vec<_> = all
            .filter(|change| change.changelog.edition == Edition::All && change.changelog.release.is_none())
            .collect();
        assert_eq!(unmarked.len(), 165 + 16 - 16);
        for (name, _) in SERVERS {
            let server = server(name);
            for change in &unmarked {
                let release = server.release.filter(|_| server.product == Some(Product::SelfManaged));
                let is_older = release.is_some_and(|release| release.predates(change.date));
                let found = Availability::for_change(change, &server) == Availability::Unavailable;
                assert_eq!(found, is_older, "{name} {}", change.id);
            }
            assert!(!unmarked.iter().any(|change| Availability::is_blocked(change, &server)));
        }
        // Documentation says self-managed, the row does not: the hosted product is not refused.
        assert_eq!(change("2021-04-16/1").documentation.edition, Some(Edition::Enterprise));
        assert!(!Availability::is_blocked(change("2021-04-16/1"), &server("hosted")));
    }

    #[test]
    fn strict_mode_refuses_unavailable_changes_unless_the_row_only_warns() {
        let refused = |name: &str| -> Vec<&str> {
            let server = server(name);
            let all = Changelog::get().changes().filter(|change| Availability::is_blocked(change, &server));
            all.map(|change| change.id.as_str()).collect()
        };
        let hosted = ["2024-08-01/3", "2024-08-01/4", "2022-06-21/1", "2021-03-23/3", "2021-03-23/4"];
        assert_eq!(refused("hosted"), hosted);
        let early = ["2022-06-21/1", "2021-11-18/1", "2021-06-08/4"];
        assert_eq!(refused("v202103-1"), early);
        let earlier = [&early[..], &["2021-03-23/3", "2021-03-23/4", "2021-03-18/2"]].concat();
        assert_eq!(refused("v202012-1"), earlier);
        for name in ["v202207-1", "1.0.3", "silent", "contradictory"] {
            assert_eq!(refused(name), [""; 0], "{name}");
        }
        assert_eq!(Availability::for_change(change("2021-05-27/1"), &server("v202103-1")), Availability::Unavailable);
    }

    #[test]
    fn empty_headers_change_nothing_and_new_releases_are_learned() {
        let server = server("v202103-1");
        assert_eq!(server.updated_by(&HeaderMap::new()), None);
        let name = HeaderMap::from_iter([("tfp-api-version".parse().unwrap(), "2.6".parse().unwrap())]);
        let server = server.updated_by(&name).unwrap();
        assert_eq!((server.release, server.api_version.as_deref()), ("v202103-1".parse().ok(), Some("2.6")));
        let next = HeaderMap::from_iter([("x-tfe-current-version".parse().unwrap(), "1.0.3".parse().unwrap())]);
        let server = server.updated_by(&next).unwrap();
        assert_eq!((server.release, server.updated_by(&next)), ("1.0.3".parse().ok(), None));
    }
}
