//! The answer of a provider, in the query of the browser's return (RFC 6749, 4.1.2).

use std::borrow::Cow;

use keyward_http::client::sanitize::sanitize;
use keyward_machine::secret::ct_eq;
use keyward_machine::secret_string::SecretString;
use url::form_urlencoded;

/// The answer that a login waits for.
#[derive(Debug, Clone)]
pub(super) struct ExpectedAnswer {
    /// State of the login.
    pub(super) state: SecretString,
    /// Issuer of the provider; `None` if the server does not say it.
    pub(super) issuer: Option<String>,
    /// The answer must name it.
    pub(super) issuer_required: bool,
}

impl ExpectedAnswer {
    /// Reads an answer: the code, or the reason why there is none. `None` if it is not of this login: anybody on this machine
    /// can send one.
    pub(super) fn read(&self, query: Option<&str>) -> Option<Result<SecretString, String>> {
        let pairs: Vec<_> = form_urlencoded::parse(query.unwrap_or_default().as_bytes()).collect();
        // A parameter that is there twice is an error (RFC 6749, 3.1).
        let one = |wanted: &str| -> Result<Option<&Cow<'_, str>>, ()> {
            let mut values = pairs.iter().filter(|(name, _)| name == wanted).map(|(_, value)| value);
            match (values.next(), values.next()) {
                (value, None) => Ok(value),
                (_, Some(_)) => Err(()),
            }
        };
        let state = one("state").ok()??;
        if !ct_eq(&self.state, state.as_bytes()) {
            return None;
        }
        let code = one("code").ok()?;
        let error = one("error").ok()?;
        let description = one("error_description").ok()?;
        // RFC 9207, 2.4: the answer of another provider is not used.
        match (one("iss").ok()?, &self.issuer) {
            (Some(found), Some(expected)) if **found != **expected => {
                let found = sanitize(found, "");
                return Some(Err(format!(
                    "the answer is of the issuer {found:?}, expected {expected:?}; start the login again"
                )));
            }
            (None, _) if self.issuer_required => {
                let text = "the answer names no issuer, as each one of this provider does; start the login again";
                return Some(Err(text.to_owned()));
            }
            _ => {}
        }
        match (error, code.filter(|code| !code.is_empty())) {
            (Some(error), _) => {
                let separator = if description.is_some() { ": " } else { "" };
                let description = description.map_or("", |text| text);
                let text = sanitize(&format!("{error}{separator}{description}"), self.state.expose_secret());
                Some(Err(format!("the provider refused the login: {text}")))
            }
            (None, Some(code)) => Some(Ok(SecretString::from(&**code))),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expected(issuer_required: bool) -> ExpectedAnswer {
        let issuer = Some("https://issuer".to_owned());
        ExpectedAnswer { state: SecretString::from("s/1"), issuer, issuer_required }
    }

    fn read(query: &str) -> Option<Result<String, String>> {
        expected(false).read(Some(query)).map(|answer| answer.map(|code| code.expose_secret().to_owned()))
    }

    #[test]
    fn only_an_answer_with_the_state_of_the_login_counts() {
        let code = |code: &str| Some(Ok(code.to_owned()));
        assert_eq!(read("code=c%2B1&state=s%2F1"), code("c+1"));
        assert_eq!(read("state=s/1&code=c&session_state=x&iss=https://issuer"), code("c"));
        for query in [
            "",
            "code=c",
            "code=c&state=",
            "code=c&state=s",
            "code=c&state=s/1x",
            "code=c&state=s/1&state=s/1",
            "code=c&code=d&state=s/1",
            "code=&state=s/1",
            "state=s/1",
            "error=access_denied",
        ] {
            assert_eq!(read(query), None, "{query}");
        }
        assert_eq!(expected(false).read(None).map(drop), None);
    }

    #[test]
    fn errors_of_the_provider_are_repeated_on_one_line_and_another_issuer_is_refused() {
        let check = |query: &str, expected: &str| assert_eq!(read(query), Some(Err(expected.to_owned())), "{query}");
        check("error=access_denied&state=s/1", "the provider refused the login: access_denied");
        check(
            "error=access_denied&error_description=No%0Ayou%1B[2J+s/1&state=s/1&code=c",
            "the provider refused the login: access_denied: No\\nyou\\u{1b}[2J [redacted]",
        );
        let other = "the answer is of the issuer \"https://other\", expected \"https://issuer\"; start the login again";
        check("code=c&state=s/1&iss=https://other", other);
    }

    #[test]
    fn an_answer_without_an_issuer_is_refused_where_each_one_names_it() {
        let read = |query: &str| expected(true).read(Some(query)).map(|answer| answer.map(drop));
        assert_eq!(read("code=c&state=s/1&iss=https://issuer"), Some(Ok(())));
        for query in ["code=c&state=s/1", "error=access_denied&state=s/1"] {
            let error = read(query).unwrap().unwrap_err();
            assert!(error.starts_with("the answer names no issuer"), "{error}");
        }
        assert_eq!(read("code=c&state=s"), None);
    }

    proptest! {
        #[test]
        fn no_query_is_an_answer_without_the_state(query in "[a-z=&%/1+]{0,60}") {
            let has_state = form_urlencoded::parse(query.as_bytes()).any(|(name, value)| name == "state" && value == "s/1");
            prop_assert!(has_state || read(&query).is_none());
        }
    }
}
