//! Finds the address that a failed connection went to: one of a name's addresses, or the proxy's.

use std::error::Error;
use std::net::SocketAddr;

/// Extracts the address from a call's error.
///
/// hyper-util's connector records the address without an accessor; only its `Debug` form shows it. An unknown form
/// gives `None`, and the error is reported without the address.
pub(super) fn address(error: &(dyn Error + 'static)) -> Option<SocketAddr> {
    let mut next = Some(error);
    while let Some(error) = next {
        let form = format!("{error:?}");
        if let Some(rest) = form.strip_prefix("ConnectError(\"tcp connect error\", ") {
            return rest.split(", ").next()?.parse().ok();
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unreachable_proxy_is_named_instead_of_the_server() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let proxy = reqwest::Proxy::all(format!("http://{free}")).unwrap();
        let client = reqwest::Client::builder().proxy(proxy).tls_certs_only([]).build().unwrap();
        for url in ["http://server.invalid/", "https://server.invalid/"] {
            let error = client.get(url).send().await.unwrap_err();
            assert_eq!(address(&error), Some(free), "{error:?}");
        }
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
        let error = client.get(format!("http://localhost:{}/", free.port())).send().await.unwrap_err();
        assert_eq!(address(&error).map(|address| address.port()), Some(free.port()), "{error:?}");
        let error = client.get("http://server.invalid/").send().await.unwrap_err();
        assert_eq!(address(&error), None, "a name that stands for nothing: {error:?}");
    }
}
