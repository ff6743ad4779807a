//! A signed token (JWT-SVID) from SPIFFE's Workload API, which SPIRE's agent serves on a unix socket
//! (spiffe.io, "The SPIFFE Workload API": "JWT-SVID Profile").

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode, header};
use keyward_credentials::jwt::UnverifiedClaims;
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use prost::Message;
use tokio::net::UnixStream;

use super::attempts::Persistence;
use super::error::{AttemptError, ErrorResponse, MAX_RESPONSE, quote};
use super::retry::IdentityEndpoint;
use super::token_response;
use super::{IdentityError, IdentityProof, IdentitySource, LoginFields, SignedToken};

/// Options of a token of the Workload API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadApiOptions {
    /// Path of the API's socket.
    pub socket: PathBuf,
    /// Audience of the token.
    pub audience: String,
    /// Identity to use if this process has several; `None` for the first.
    pub spiffe_id: Option<String>,
}

impl WorkloadApiOptions {
    /// Creates the source, without any request.
    pub fn build(&self, clock: Clock) -> Box<dyn IdentitySource> {
        self.build_with(Persistence::new(clock))
    }

    pub(super) fn build_with(&self, persistence: Persistence) -> Box<dyn IdentitySource> {
        Box::new(WorkloadApiSource { options: self.clone(), persistence })
    }
}

#[derive(Debug)]
struct WorkloadApiSource {
    options: WorkloadApiOptions,
    persistence: Persistence,
}

#[async_trait]
impl IdentitySource for WorkloadApiSource {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        let mut attempts = self.persistence.start(IdentityEndpoint::WorkloadApi, "Workload API");
        let jwt = loop {
            match self.options.fetch_within_limit().await {
                Ok(token) => break attempts.succeed(token),
                Err(failure) => attempts.wait(&failure).await?,
            }
        };
        let claims = UnverifiedClaims::decode(jwt.expose_secret()).ok();
        let signed = SignedToken { jwt, fields: LoginFields::default(), claims, audience: None };
        Ok(IdentityProof::Signed(Box::new(signed)))
    }

    fn describe(&self) -> String {
        format!("the token of SPIFFE's Workload API at {}", self.options.socket.display())
    }
}

/// Time limit of a call.
const TIME_LIMIT: Duration = Duration::from_secs(10);

impl WorkloadApiOptions {
    async fn fetch_within_limit(&self) -> Result<SecretString, AttemptError> {
        let late = || AttemptError::Broken(format!("no response within {} s", TIME_LIMIT.as_secs()));
        tokio::time::timeout(TIME_LIMIT, self.fetch()).await.unwrap_or_else(|_| Err(late()))
    }

    async fn fetch(&self) -> Result<SecretString, AttemptError> {
        let unreachable = |error| AttemptError::Unreachable(format!("{}: {error}", self.socket.display()));
        let stream = UnixStream::connect(&self.socket).await.map_err(unreachable)?;
        let (client, connection) = h2::client::handshake(stream).await.map_err(broken)?;
        let request = FetchJwtSvid {
            audience: vec![self.audience.clone()],
            spiffe_id: self.spiffe_id.clone().unwrap_or_default(),
        };
        let answer = tokio::select! {
            biased;
            answer = call(client, &request) => answer?,
            ended = connection => {
                return Err(ended.map_or_else(broken, |()| AttemptError::Broken("the connection was closed".to_owned())));
            }
        };
        let unreadable = |what: &str| AttemptError::Unreadable(what.to_owned());
        let found = JwtSvids::decode(answer).map_err(|_| unreadable("the message is not of the Workload API"))?.svids;
        let wanted = |svid: &JwtSvid| self.spiffe_id.as_ref().is_none_or(|id| *id == svid.spiffe_id);
        let svid = found.into_iter().find(wanted).ok_or_else(|| unreadable("it names no identity"))?.svid;
        if token_response::is_signed_token(&svid) {
            Ok(svid.into())
        } else {
            Err(unreadable("it is not a signed token"))
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it maps the errors of calls")]
fn broken(error: h2::Error) -> AttemptError {
    AttemptError::Broken(error.to_string())
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

impl std::fmt::Debug for JwtSvids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.svids).finish()
    }
}

impl std::fmt::Debug for JwtSvid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("JwtSvid").field(&self.spiffe_id).finish()
    }
}

/// Calls the API once (github.com/grpc, "gRPC over HTTP2"); returns the message of the answer.
async fn call(client: h2::client::SendRequest<Bytes>, message: &FetchJwtSvid) -> Result<Bytes, AttemptError> {
    // Without the last header a server must refuse: a client that can be made to send requests to a URL has none.
    let request = Request::builder()
        .method(Method::POST)
        .uri("http://localhost/SpiffeWorkloadAPI/FetchJWTSVID")
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header("workload.spiffe.io", "true")
        .body(())
        .map_err(|error| AttemptError::setting(error.to_string()))?;
    let mut client = client.ready().await.map_err(broken)?;
    let (response, mut stream) = client.send_request(request, false).map_err(broken)?;
    stream.send_data(frame(message), true).map_err(broken)?;
    let (head, mut body) = response.await.map_err(broken)?.into_parts();
    if head.status != StatusCode::OK {
        return Err(AttemptError::Refused(ErrorResponse { status: head.status.as_u16(), ..ErrorResponse::default() }));
    }
    // An answer without a message has its status here.
    check_status(&head.headers)?;
    let mut received = BytesMut::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.map_err(broken)?;
        body.flow_control().release_capacity(chunk.len()).map_err(broken)?;
        if received.len() + chunk.len() > MAX_RESPONSE {
            return Err(AttemptError::TooLarge);
        }
        received.extend_from_slice(&chunk);
    }
    let trailers = body.trailers().await.map_err(broken)?.unwrap_or_default();
    if !trailers.contains_key(STATUS) {
        return Err(AttemptError::Broken("the answer has no grpc-status".to_owned()));
    }
    check_status(&trailers)?;
    unframe(received.freeze()).ok_or_else(|| AttemptError::Unreadable("the answer holds no whole message".to_owned()))
}

/// Prefixes a message with its length, as one that is not compressed.
fn frame(message: &FetchJwtSvid) -> Bytes {
    let message = message.encode_to_vec();
    let mut frame = BytesMut::with_capacity(PREFIX + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.extend_from_slice(&message);
    frame.freeze()
}

/// Returns the only message of an answer; `None` for anything else.
fn unframe(mut answer: Bytes) -> Option<Bytes> {
    let is_compressed = answer.try_get_u8().ok()? != 0;
    let length = usize::try_from(answer.try_get_u32().ok()?).ok()?;
    (!is_compressed && answer.len() == length).then_some(answer)
}

/// Bytes in front of a message: a flag, and its length.
const PREFIX: usize = 5;

const STATUS: &str = "grpc-status";

/// Checks the status of a call, if these headers have one.
fn check_status(headers: &HeaderMap) -> Result<(), AttemptError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if !headers.contains_key(STATUS) {
        return Ok(());
    }
    let code: u32 = text(STATUS).and_then(|code| code.parse().ok()).unwrap_or(2);
    if code == 0 {
        return Ok(());
    }
    let message = percent_encoding::percent_decode_str(text("grpc-message").unwrap_or_default()).decode_utf8_lossy();
    // The statuses of HTTP that gRPC's codes have (google.rpc, "code.proto").
    let (status, name) = match code {
        3 => (400, "INVALID_ARGUMENT"),
        4 => (504, "DEADLINE_EXCEEDED"),
        5 => (404, "NOT_FOUND"),
        7 => (403, "PERMISSION_DENIED"),
        8 => (429, "RESOURCE_EXHAUSTED"),
        12 => (501, "UNIMPLEMENTED"),
        14 => (503, "UNAVAILABLE"),
        16 => (401, "UNAUTHENTICATED"),
        _ => (500, "INTERNAL"),
    };
    Err(AttemptError::Refused(ErrorResponse {
        status,
        error: name.to_owned(),
        text: quote(&message, 300),
        ..ErrorResponse::default()
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_status_is_an_error_with_its_words() {
        let check = |code: &str, expected: Option<(u16, &str)>| {
            let headers = [(STATUS, code), ("grpc-message", "no%20identity eyJhbGci.x")];
            let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            let found = match check_status(&headers.into_iter().collect()) {
                Ok(()) => None,
                Err(AttemptError::Refused(refusal)) => {
                    assert_eq!(refusal.text, "no identity [hidden]");
                    Some((refusal.status, refusal.error))
                }
                Err(other) => panic!("{other}"),
            };
            assert_eq!(found, expected.map(|(status, name)| (status, name.to_owned())), "{code}");
        };
        check("0", None);
        check("7", Some((403, "PERMISSION_DENIED")));
        check("14", Some((503, "UNAVAILABLE")));
        check("99", Some((500, "INTERNAL")));
        check("x", Some((500, "INTERNAL")));
        assert_eq!(check_status(&HeaderMap::new()), Ok(()));
    }

    proptest! {
        #[test]
        fn a_message_is_read_from_its_own_frame_alone(audience in ".{0,40}", cut in 0usize..60, more in any::<bool>()) {
            let message = FetchJwtSvid { audience: vec![audience], spiffe_id: String::new() };
            let framed = frame(&message);
            prop_assert_eq!(unframe(framed.clone()).and_then(|bytes| FetchJwtSvid::decode(bytes).ok()), Some(message));
            let mut other = framed.to_vec();
            if more { other.push(0) } else { other.truncate(cut.min(framed.len() - 1)) }
            prop_assert_eq!(unframe(other.into()), None);
        }

        #[test]
        fn no_bytes_of_an_answer_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(message) = unframe(bytes.clone().into()) {
                let _ = JwtSvids::decode(message);
            }
            let _ = JwtSvids::decode(Bytes::from(bytes));
        }
    }
}
