//! Query strings, parsed as Go's net/url parses them. What parsers differ about is refused, so that a rule and the server
//! see the same.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// A query that every parser reads alike.
#[derive(Debug, Clone, Copy)]
pub(super) struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    /// Checks a query.
    ///
    /// # Errors
    /// A pair holds `;` or a percent sign without two hexadecimal digits: Go drops it, other parsers keep it.
    pub(super) fn parse(query: Option<&'a str>) -> Result<Self, &'static str> {
        let query = query.unwrap_or_default();
        let bytes = query.as_bytes();
        let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b';' => return Err("the query holds a semicolon, which must be percent-encoded"),
                b'%' if !(is_hex(at + 1) && is_hex(at + 2)) => {
                    return Err("the query holds a percent sign without two hexadecimal digits");
                }
                _ => {}
            }
        }
        Ok(Self(query))
    }

    /// Returns the decoded values of a name.
    pub(super) fn values(self, name: &str) -> impl Iterator<Item = Cow<'a, [u8]>> {
        let pairs = self.0.split('&').filter(|pair| !pair.is_empty());
        pairs.filter_map(move |pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (*decode(key) == *name.as_bytes()).then(|| decode(value))
        })
    }

    /// Returns the only value of a name.
    ///
    /// # Errors
    /// The name is repeated: some parsers take the first value, others the last.
    pub(super) fn only(self, name: &str) -> Result<Option<Cow<'a, [u8]>>, RepeatedParameter> {
        let mut values = self.values(name);
        let first = values.next();
        if values.next().is_some() { Err(RepeatedParameter) } else { Ok(first) }
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// A name is repeated.
#[derive(Debug)]
pub(super) struct RepeatedParameter;

fn decode(text: &str) -> Cow<'_, [u8]> {
    if text.contains('+') {
        return Cow::Owned(percent_decode(text.replace('+', " ").as_bytes()).collect());
    }
    percent_decode(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_under_any_encoding_of_their_name() {
        let query = Query::parse(Some("a=1&%61=x%2By+z&b&&=c&a")).unwrap();
        let values: Vec<_> = query.values("a").map(|value| String::from_utf8(value.into_owned()).unwrap()).collect();
        assert_eq!(values, ["1", "x+y z", ""]);
        assert!(query.only("a").is_err() && query.only("c").unwrap().is_none());
        assert_eq!(query.only("b").unwrap().as_deref(), Some(&b""[..]));
        for wrong in ["a=1;b", "%", "a%2", "a=%zz", "%4g"] {
            assert!(Query::parse(Some(wrong)).is_err(), "{wrong}");
        }
        assert!(Query::parse(None).unwrap().is_empty());
    }
}
