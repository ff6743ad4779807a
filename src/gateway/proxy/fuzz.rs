//! Entry points of the fuzz targets `go_paths`, `links` and `paths`.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::Method;
use url::Url;

use super::link_rewriter::LinkRewriter;
use super::minting_guard::check_minting;
use super::origins::LinkPrefixes;
use super::path::{RequestTarget, classify_path};

/// Rewrites the links of a document that arrives in pieces of `size` bytes.
pub fn rewrite_links(from: &Url, to: &str, document: &[u8], size: usize) -> Vec<u8> {
    let mut rewriter = LinkRewriter::new(&Arc::new(LinkPrefixes::new([from])), to);
    let mut out = Vec::new();
    for piece in document.chunks(size.max(1)) {
        rewriter.rewrite(piece, &mut out);
    }
    rewriter.finish(&mut out);
    out
}

/// Returns true if a path is forwarded to the platform.
pub fn is_forwarded(path: &str) -> bool {
    matches!(classify_path(path), RequestTarget::Api | RequestTarget::State)
}

/// Returns true if a call of the API is refused because it mints a token.
pub fn is_minting(method: &Method, path: &str) -> bool {
    check_minting(method, path, &BTreeSet::new()).is_err()
}
