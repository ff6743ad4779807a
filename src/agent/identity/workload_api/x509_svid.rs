//! Certificates of this process's identity, which the API sends again before each ends and when the authorities of its domain change
//! (spiffe.io, "The SPIFFE Workload API": "X.509-SVID Profile").

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use keyward_http::tls::der::{Der, SEQUENCE};
use prost::Message as _;

use super::WorkloadApiError;
use super::call::{Messages, within_limit};
use crate::identity::error::quote;

/// A certificate of the Workload API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct X509SvidOptions {
    /// Path of the API's socket.
    pub socket: PathBuf,
    /// Identity to use if this process has several; `None` for the first.
    pub spiffe_id: Option<String>,
}

/// A certificate of an identity.
pub(crate) struct X509Svid {
    /// The identity.
    pub(crate) spiffe_id: String,
    /// The leaf, and the authorities between it and those of the domain; each in DER.
    pub(crate) chain: Vec<Vec<u8>>,
    /// The leaf's key: PKCS#8 in DER.
    pub(crate) key: Vec<u8>,
    /// The authorities of the trust domain; each in DER.
    pub(crate) authorities: Vec<Vec<u8>>,
}

impl fmt::Debug for X509Svid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("X509Svid").field(&self.spiffe_id).finish()
    }
}

/// The certificates that the API sends.
#[derive(Debug)]
pub(crate) struct X509SvidStream {
    messages: Messages,
    spiffe_id: Option<String>,
}

impl X509SvidStream {
    /// Calls the API.
    pub(crate) async fn open(options: &X509SvidOptions) -> Result<Self, WorkloadApiError> {
        let messages = within_limit(Messages::open(&options.socket, "FetchX509SVID", &FetchX509Svid {})).await?;
        Ok(Self { messages, spiffe_id: options.spiffe_id.clone() })
    }

    /// Waits for the next certificate. The stream is of no use after an error. Nothing is lost if the call is dropped.
    pub(crate) async fn next(&mut self) -> Result<X509Svid, WorkloadApiError> {
        let message = self.messages.next().await?;
        let ended = || WorkloadApiError::Broken("the API ended its answer".to_owned());
        parse(message.ok_or_else(ended)?, self.spiffe_id.as_deref())
    }
}

/// Returns the certificate of the wanted identity.
fn parse(message: Bytes, spiffe_id: Option<&str>) -> Result<X509Svid, WorkloadApiError> {
    let unreadable = WorkloadApiError::Unreadable;
    let found = FetchedX509Svids::decode(message).map_err(|_| unreadable("the message is not of the Workload API"))?;
    let offered: Vec<_> = found.svids.iter().take(10).map(|svid| quote(&svid.spiffe_id, 200)).collect();
    let wanted = |svid: &FetchedX509Svid| spiffe_id.is_none_or(|id| id == svid.spiffe_id);
    let Some(svid) = found.svids.into_iter().find(wanted) else {
        return Err(if offered.is_empty() {
            unreadable("it names no identity")
        } else {
            WorkloadApiError::OtherIdentity { offered }
        });
    };
    let certificates = |bytes: &[u8]| split(bytes).ok_or_else(|| unreadable("it holds no certificate"));
    Ok(X509Svid {
        chain: certificates(&svid.certificates)?,
        authorities: certificates(&svid.authorities)?,
        key: svid.key,
        spiffe_id: svid.spiffe_id,
    })
}

/// Splits certificates in DER that follow each other; `None` for anything else.
fn split(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut rest, mut certificates) = (Der(bytes), Vec::new());
    while let (before, Some(_)) = (rest.0, rest.element(SEQUENCE)) {
        certificates.push(before[..before.len() - rest.0.len()].to_vec());
    }
    (rest.0.is_empty() && !certificates.is_empty()).then_some(certificates)
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
struct FetchX509Svid {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
struct FetchedX509Svids {
    #[prost(message, repeated, tag = "1")]
    svids: Vec<FetchedX509Svid>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
struct FetchedX509Svid {
    #[prost(string, tag = "1")]
    spiffe_id: String,
    #[prost(bytes = "vec", tag = "2")]
    certificates: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    authorities: Vec<u8>,
}

impl fmt::Debug for FetchedX509Svids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.svids).finish()
    }
}

impl fmt::Debug for FetchedX509Svid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FetchedX509Svid").field(&self.spiffe_id).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An element of DER that begins as a certificate does.
    fn element(content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[SEQUENCE, 0x82], &length[..], content].concat()
    }

    fn message(ids: &[&str]) -> Bytes {
        let svid = |id: &&str| FetchedX509Svid {
            spiffe_id: (*id).to_owned(),
            certificates: [element(b"leaf"), element(id.as_bytes())].concat(),
            key: b"key of the leaf".to_vec(),
            authorities: element(b"root"),
        };
        FetchedX509Svids { svids: ids.iter().map(svid).collect() }.encode_to_vec().into()
    }

    #[test]
    fn the_wanted_identity_is_found_or_else_the_first() {
        let check = |ids: &[&str], wanted: Option<&str>, expected: Option<&str>| {
            let found = parse(message(ids), wanted).ok();
            assert_eq!(found.as_ref().map(|svid| svid.spiffe_id.as_str()), expected, "{ids:?} {wanted:?}");
            if let Some(svid) = found {
                assert_eq!(svid.chain, [element(b"leaf"), element(svid.spiffe_id.as_bytes())]);
                assert_eq!(svid.authorities, [element(b"root")]);
                assert!(!format!("{svid:?}").contains("key of"));
            }
        };
        check(&["spiffe://a/x", "spiffe://a/y"], None, Some("spiffe://a/x"));
        check(&["spiffe://a/x", "spiffe://a/y"], Some("spiffe://a/y"), Some("spiffe://a/y"));
        check(&["spiffe://a/x"], Some("spiffe://a/z"), None);
        check(&[], None, None);
    }

    #[test]
    fn certificates_follow_each_other_without_anything_between() {
        let (one, two) = (element(b"one"), element(&[b'x'; 300]));
        assert_eq!(split(&[one.clone(), two.clone()].concat()), Some(vec![one.clone(), two]));
        for bad in [&b""[..], b"x", &one[..one.len() - 1], &[one.as_slice(), &b"x"[..]].concat()] {
            assert_eq!(split(bad), None);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_of_an_answer_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = split(&bytes);
            let _ = parse(bytes.into(), None);
        }
    }
}
