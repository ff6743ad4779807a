//! HTTP/1 messages as a strict reader and as hyper's server read them.

use std::convert::Infallible;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;

/// A request or a response.
#[derive(Debug)]
pub(crate) struct Message {
    /// Method and target, or the status.
    pub(crate) start: String,
    pub(crate) headers: HeaderMap,
    /// Content of the body; `None` if it is incomplete.
    pub(crate) body: Option<Vec<u8>>,
}

/// A message and the bytes after it; `None` if it is incomplete.
type ParsedMessage<'a> = Result<Option<(Message, &'a [u8])>, String>;

/// The content of a body and the bytes after it; `None` if it is incomplete.
type ParsedBody<'a> = Result<Option<(Vec<u8>, &'a [u8])>, String>;

/// Parses a request strictly: accepts only the form on which all parsers agree.
pub(crate) fn read_request(bytes: &[u8]) -> ParsedMessage<'_> {
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut head = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(bytes).map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    if head.version != Some(1) {
        return Err("not HTTP/1.1".to_owned());
    }
    let start = format!("{} {}", head.method.unwrap_or_default(), head.path.unwrap_or_default());
    read_body(&bytes[..length], start, head.headers, &bytes[length..], false)
}

/// Parses a response as strictly.
pub(crate) fn read_response(bytes: &[u8], bodiless: bool) -> ParsedMessage<'_> {
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(bytes).map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let status = head.code.unwrap_or_default();
    let bodiless = bodiless || status < 200 || status == 204 || status == 304;
    read_body(&bytes[..length], status.to_string(), head.headers, &bytes[length..], bodiless)
}

fn read_body<'a>(
    head: &[u8],
    start: String,
    lines: &[httparse::Header<'_>],
    rest: &'a [u8],
    bodiless: bool,
) -> ParsedMessage<'a> {
    if head.windows(2).any(|pair| pair[1] == b'\n' && pair[0] != b'\r') {
        return Err("a line ends without a carriage return".to_owned());
    }
    let mut headers = HeaderMap::new();
    for line in lines {
        let name: HeaderName = line.name.parse().map_err(|_| format!("invalid header name {}", line.name))?;
        headers
            .append(name, HeaderValue::from_bytes(line.value).map_err(|_| format!("invalid value of {}", line.name))?);
    }
    let single_value = |name: &str| -> Result<Option<String>, String> {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => Ok(Some(String::from_utf8_lossy(value.as_bytes()).into_owned())),
            _ => Err(format!("repeated header {name}")),
        }
    };
    let body_and_rest = match (single_value("content-length")?, single_value("transfer-encoding")?) {
        _ if bodiless => Some((Vec::new(), rest)),
        (None, None) => Some((Vec::new(), rest)),
        (Some(length), None) => {
            let is_decimal =
                length.bytes().all(|byte| byte.is_ascii_digit()) && (length == "0" || !length.starts_with('0'));
            let length =
                length.parse().ok().filter(|_| is_decimal).ok_or_else(|| format!("invalid length {length}"))?;
            rest.split_at_checked(length).map(|(body, rest)| (body.to_vec(), rest))
        }
        (None, Some(coding)) if coding == "chunked" => read_chunks(rest)?,
        _ => return Err("two framings, or an unknown one".to_owned()),
    };
    Ok(body_and_rest.map(|(body, rest)| (Message { start, headers, body: Some(body) }, rest)))
}

/// Reads chunks without extensions up to the last one. Trailers are skipped.
fn read_chunks(mut rest: &[u8]) -> ParsedBody<'_> {
    let mut body = Vec::new();
    let mut last = false;
    loop {
        let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
        let (line, after) = (&rest[..end], &rest[end + 2..]);
        rest = after;
        if last {
            if line.is_empty() {
                return Ok(Some((body, rest)));
            }
            continue;
        }
        let size = std::str::from_utf8(line).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let size = size.and_then(|text| usize::from_str_radix(text, 16).ok()).ok_or("a chunk without a size")?;
        if size == 0 {
            last = true;
            continue;
        }
        let Some((chunk, after)) = rest.split_at_checked(size.saturating_add(2)) else { return Ok(None) };
        if !chunk.ends_with(b"\r\n") {
            return Err("a chunk without its line end".to_owned());
        }
        body.extend_from_slice(&chunk[..size]);
        rest = after;
    }
}

/// Parses the bytes of a connection with hyper's server. The last request may have an incomplete body.
pub(crate) async fn parse_by_hyper(bytes: &[u8]) -> Vec<Message> {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let (mut client, server) = tokio::io::duplex(bytes.len() * 32 + 4096);
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let requests = Arc::clone(&requests);
        async move {
            let (head, body) = request.into_parts();
            let target = head.uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
            let start = format!("{} {target}", head.method);
            let body = body.collect().await.ok().map(|body| body.to_bytes().to_vec());
            let message = Message { start, headers: head.headers, body };
            requests.lock().push(message);
            Ok::<_, Infallible>(Response::new(Empty::<bytes::Bytes>::new()))
        }
    });
    client.write_all(bytes).await.expect("the pipe is too small");
    client.shutdown().await.expect("the pipe is closed");
    let mut builder = hyper::server::conn::http1::Builder::new();
    let _ = builder.half_close(true).header_read_timeout(None).serve_connection(TokioIo::new(server), service).await;
    std::mem::take(&mut *requests.lock())
}
