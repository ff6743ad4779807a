//! A call by gRPC (github.com/grpc, "gRPC over HTTP2"): one message to the API, and those that it sends.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use h2::RecvStream;
use h2::client::Connection;
use http::{HeaderMap, Method, Request, StatusCode, header};
use prost::Message;
use tokio::net::UnixStream;

use super::WorkloadApiError;
use crate::identity::error::quote;

/// The messages of an answer.
pub(super) struct Messages {
    body: RecvStream,
    connection: Box<Connection<UnixStream, Bytes>>,
    /// Bytes of a message that is not whole yet.
    received: BytesMut,
}

/// Time limit of a call until its answer begins, and of one with a single message.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Limits an answer's part of a call.
pub(super) async fn within_limit<T>(
    call: impl Future<Output = Result<T, WorkloadApiError>>,
) -> Result<T, WorkloadApiError> {
    tokio::time::timeout(TIME_LIMIT, call).await.unwrap_or(Err(WorkloadApiError::Late(TIME_LIMIT.as_secs())))
}

impl Messages {
    /// Calls a method of the API at this socket; returns once the answer has begun.
    pub(super) async fn open(socket: &Path, method: &str, message: &impl Message) -> Result<Self, WorkloadApiError> {
        let stream = UnixStream::connect(socket).await;
        let stream = stream
            .map_err(|error| WorkloadApiError::Unreachable { socket: socket.to_owned(), reason: error.to_string() })?;
        let (client, connection) = h2::client::handshake(stream).await?;
        let mut connection = Box::new(connection);
        let body = tokio::select! {
            biased;
            body = call(client, method, message) => body?,
            ended = &mut connection => return Err(end_of(ended)),
        };
        Ok(Self { body, connection, received: BytesMut::new() })
    }

    /// Returns the next message; `None` at the end of an answer whose status is good. Nothing is lost if the call is dropped.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, WorkloadApiError> {
        loop {
            if let Some(message) = take_message(&mut self.received)? {
                return Ok(Some(message));
            }
            let chunk = tokio::select! {
                biased;
                chunk = self.body.data() => chunk,
                ended = &mut self.connection => return Err(end_of(ended)),
            };
            let Some(chunk) = chunk else { break };
            let chunk = chunk?;
            self.body.flow_control().release_capacity(chunk.len())?;
            self.received.extend_from_slice(&chunk);
        }
        if !self.received.is_empty() {
            return Err(WorkloadApiError::Unreadable("the answer holds no whole message"));
        }
        let trailers = tokio::select! {
            biased;
            trailers = self.body.trailers() => trailers?,
            ended = &mut self.connection => return Err(end_of(ended)),
        };
        let trailers = trailers.unwrap_or_default();
        if !trailers.contains_key(STATUS) {
            return Err(WorkloadApiError::Broken("the answer has no grpc-status".to_owned()));
        }
        check_status(&trailers).map(|()| None)
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Messages")
    }
}

/// The end of a connection before that of the answer.
fn end_of(ended: Result<(), h2::Error>) -> WorkloadApiError {
    ended.map_or_else(WorkloadApiError::from, |()| WorkloadApiError::Broken("the connection was closed".to_owned()))
}

async fn call(
    client: h2::client::SendRequest<Bytes>,
    method: &str,
    message: &impl Message,
) -> Result<RecvStream, WorkloadApiError> {
    // Without the last header a server must refuse: a client that can be made to send requests to a URL has none.
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://localhost/SpiffeWorkloadAPI/{method}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header("workload.spiffe.io", "true")
        .body(())
        .map_err(|error| WorkloadApiError::Broken(error.to_string()))?;
    let mut client = client.ready().await?;
    let (response, mut stream) = client.send_request(request, false)?;
    stream.send_data(frame(message), true)?;
    let (head, body) = response.await?.into_parts();
    if head.status != StatusCode::OK {
        let (status, name) = (head.status.as_u16(), "no gRPC".to_owned());
        return Err(WorkloadApiError::Refused { status, name, text: "an answer of HTTP".to_owned() });
    }
    // An answer without a message has its status here.
    check_status(&head.headers)?;
    Ok(body)
}

/// Prefixes a message with its length, as one that is not compressed.
fn frame(message: &impl Message) -> Bytes {
    let message = message.encode_to_vec();
    let mut frame = BytesMut::with_capacity(PREFIX + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.extend_from_slice(&message);
    frame.freeze()
}

/// Takes the first message of an answer; `None` if it is not whole yet.
fn take_message(received: &mut BytesMut) -> Result<Option<Bytes>, WorkloadApiError> {
    let mut prefix = &received[..];
    let (Ok(compressed), Ok(length)) = (prefix.try_get_u8(), prefix.try_get_u32()) else { return Ok(None) };
    if compressed != 0 {
        return Err(WorkloadApiError::Unreadable("the message is compressed"));
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > MAX_MESSAGE {
        return Err(WorkloadApiError::TooLarge);
    }
    if received.len() < PREFIX + length {
        return Ok(None);
    }
    received.advance(PREFIX);
    Ok(Some(received.split_to(length).freeze()))
}

/// Bytes in front of a message: a flag, and its length.
const PREFIX: usize = 5;

/// Bounds a message: some identities with the authorities of their domains.
const MAX_MESSAGE: usize = 1 << 20;

const STATUS: &str = "grpc-status";

/// Checks the status of a call, if these headers have one.
fn check_status(headers: &HeaderMap) -> Result<(), WorkloadApiError> {
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
    Err(WorkloadApiError::Refused { status, name: name.to_owned(), text: quote(&message, 300) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    struct Text {
        #[prost(string, tag = "1")]
        text: String,
    }

    #[test]
    fn a_status_is_an_error_with_its_words() {
        let check = |code: &str, expected: Option<(u16, &str)>| {
            let headers = [(STATUS, code), ("grpc-message", "no%20identity eyJhbGci.x")];
            let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            let found = match check_status(&headers.into_iter().collect()) {
                Ok(()) => None,
                Err(WorkloadApiError::Refused { status, name, text }) => {
                    assert_eq!(text, "no identity [hidden]");
                    Some((status, name))
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

    #[test]
    fn a_message_has_a_bound_and_is_not_compressed() {
        let take = |bytes: &[u8]| take_message(&mut BytesMut::from(bytes));
        assert_eq!(take(&[0, 0, 0x10, 0, 0]), Ok(None));
        assert_eq!(take(&[0, 0, 0x10, 0, 1]), Err(WorkloadApiError::TooLarge));
        assert!(take(&[1, 0, 0, 0, 0]).is_err());
    }

    proptest! {
        #[test]
        fn messages_are_read_from_their_own_frames_however_they_are_cut(texts in proptest::collection::vec(".{0,40}", 0..4),
            size in 1usize..20) {
            let sent: Vec<Text> = texts.into_iter().map(|text| Text { text }).collect();
            let bytes: Vec<u8> = sent.iter().flat_map(frame).collect();
            let (mut received, mut read) = (BytesMut::new(), Vec::new());
            for chunk in bytes.chunks(size) {
                received.extend_from_slice(chunk);
                while let Some(message) = take_message(&mut received).unwrap() {
                    read.push(Text::decode(message).unwrap());
                }
            }
            prop_assert_eq!(read, sent);
            prop_assert!(received.is_empty());
        }
    }
}
