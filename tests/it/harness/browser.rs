//! A client of the pages that sends what a browser sends.

use std::time::Duration;

/// A browser without a screen.
pub(crate) struct Browser {
    /// Such as `http://127.0.0.1:40000`.
    pub(crate) origin: String,
    pub(crate) http: reqwest::Client,
}

impl Browser {
    pub(crate) fn new(origin: impl Into<String>) -> Self {
        let http = reqwest::Client::builder()
            .no_proxy()
            .danger_accept_invalid_certs(true)
            .redirect(reqwest::redirect::Policy::none())
            .timeout(Duration::from_secs(20))
            .build()
            .unwrap();
        Self { origin: origin.into(), http }
    }

    pub(crate) fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.get(format!("{}{path}", self.origin))
    }

    pub(crate) fn post(&self, path: &str, form: &[(&str, &str)]) -> reqwest::RequestBuilder {
        self.http.post(format!("{}{path}", self.origin)).header("origin", &self.origin).form(form)
    }

    /// Signs in by a form; returns the cookie.
    pub(crate) async fn sign_in(&self, path: &str, secret: &str, cookie: Option<&str>) -> String {
        let mut request = self.post(path, &[("secret", secret), ("next", "/agent")]);
        if let Some(cookie) = cookie {
            request = request.header("cookie", cookie);
        }
        let response = request.send().await.unwrap();
        assert_eq!((response.status().as_u16(), &response.headers()["location"]), (303, &"/agent".parse().unwrap()));
        let cookie = response.headers()["set-cookie"].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }

    /// Reads a page with a cookie, which must be there.
    pub(crate) async fn page(&self, path: &str, cookie: &str) -> String {
        let response = self.get(path).header("cookie", cookie).send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        assert_eq!(status, 200, "{path}: {text}");
        text
    }
}
