//! A signed token of this process's identity (spiffe.io, "The SPIFFE Workload API": "JWT-SVID Profile").

use std::fmt;
use std::path::Path;

use bytes::Bytes;
use keyward_machine::secret_string::SecretString;
use prost::Message as _;

use super::WorkloadApiError;
use super::call::{Messages, within_limit};

/// Asks for a token for this audience; of this identity if the process has several, or else of the first.
pub(crate) async fn fetch_jwt_svid(
    socket: &Path,
    audience: &str,
    spiffe_id: Option<&str>,
) -> Result<SecretString, WorkloadApiError> {
    let request =
        FetchJwtSvid { audience: vec![audience.to_owned()], spiffe_id: spiffe_id.unwrap_or_default().to_owned() };
    let fetch = async {
        let mut messages = Messages::open(socket, "FetchJWTSVID", &request).await?;
        let message = messages.next().await?.ok_or(WorkloadApiError::Unreadable("the answer holds no message"))?;
        // The status of the call comes after it.
        match messages.next().await? {
            None => Ok(message),
            Some(_) => Err(WorkloadApiError::Unreadable("the answer holds several messages")),
        }
    };
    parse(within_limit(fetch).await?, spiffe_id)
}

fn parse(message: Bytes, spiffe_id: Option<&str>) -> Result<SecretString, WorkloadApiError> {
    let unreadable = |_| WorkloadApiError::Unreadable("the message is not of the Workload API");
    let found = JwtSvids::decode(message).map_err(unreadable)?.svids;
    let wanted = |svid: &JwtSvid| spiffe_id.is_none_or(|id| id == svid.spiffe_id);
    let svid = found.into_iter().find(wanted);
    svid.map(|svid| svid.svid.into()).ok_or(WorkloadApiError::Unreadable("it names no identity"))
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct FetchJwtSvid {
    #[prost(string, repeated, tag = "1")]
    audience: Vec<String>,
    #[prost(string, tag = "2")]
    spiffe_id: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
struct JwtSvids {
    #[prost(message, repeated, tag = "1")]
    svids: Vec<JwtSvid>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
struct JwtSvid {
    #[prost(string, tag = "1")]
    spiffe_id: String,
    #[prost(string, tag = "2")]
    svid: String,
}

impl fmt::Debug for JwtSvids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.svids).finish()
    }
}

impl fmt::Debug for JwtSvid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JwtSvid").field(&self.spiffe_id).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_of_an_answer_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(bytes.into(), None);
        }
    }
}
