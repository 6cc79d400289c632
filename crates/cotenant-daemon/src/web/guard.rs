//! Protection of browsers: against other names of this server, and against framing by other pages.
//!
//! Any page can make its own name point to this machine, and then send requests as if from here (DNS rebinding).
//! Addresses and names without a dot cannot be abused so.

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{HOST, HeaderName, HeaderValue};
use axum::http::uri::Authority;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, SocketAddr};

/// Headers of every answer: only our own files are loaded, run or requested, and no other site may frame them.
const HEADERS: [(&str, &str); 5] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// The routes at this address, for permitted clients.
pub(super) fn guarded(router: Router, at: SocketAddr) -> Router {
    router.layer(from_fn(move |request: Request, next: Next| guard(at, request, next)))
}

async fn guard(at: SocketAddr, request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).map(|host| host.to_str().unwrap_or("?"));
    // Scrapers over the network may use any name of this machine.
    let by_any_name = !at.ip().is_loopback() && ["/metrics", "/healthz"].contains(&request.uri().path());
    let may = by_any_name || host.is_none_or(cannot_be_led_here);
    let mut answer = if may {
        next.run(request).await
    } else {
        let why = "open this page by the machine's address or as localhost; a host name could lead to another \
                   machine\n";
        (StatusCode::MISDIRECTED_REQUEST, why).into_response()
    };
    answer
        .headers_mut()
        .extend(HEADERS.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))));
    answer
}

/// Whether this host, with or without a port, is an address, `localhost`, or a name without a dot.
pub(crate) fn cannot_be_led_here(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let host = authority.host().to_ascii_lowercase();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok() || !host.contains('.') || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_nobody_elses() {
        for (host, fine) in [
            ("127.0.0.1", true),
            ("127.0.0.1:9844", true),
            ("192.168.0.7:9844", true),
            ("[::1]:9844", true),
            ("localhost:9844", true),
            ("LOCALHOST", true),
            ("page.localhost:9844", true),
            ("db1:9844", true),
            ("evil.example:9844", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("evil.example.", false),
            ("a@evil.example", false),
            ("127.0.0.1@evil.example:9844", false),
            ("evil.example#localhost", false),
            ("", false),
            ("?", false),
        ] {
            assert_eq!(cannot_be_led_here(host), fine, "{host}");
        }
    }
}
