//! What the server answers to each kind of request, good and bad.

use std::time::{Duration, UNIX_EPOCH};

use super::fuzzing::SaysLittle;
use super::refused::REFUSED;
use super::*;

pub(super) const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
pub(super) use super::fuzzing::METRICS;

pub(super) fn environment() -> Environment {
    environment_with(HttpConfig::default())
}

pub(super) fn environment_with(config: HttpConfig) -> Environment {
    let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
    Environment::new(config, now, Box::new(SaysLittle))
}

/// A connection with what it needs, and no limit on output.
pub(super) struct Client {
    pub(super) environment: Environment,
    pub(super) connection: HttpConnection,
    pub(super) output: Vec<u8>,
}

impl Client {
    pub(super) fn new() -> Self {
        Self {
            environment: environment(),
            connection: HttpConnection::new(),
            output: Vec::new(),
        }
    }

    /// Passes `input` and says what is appended and what is next.
    pub(super) fn send(&mut self, input: impl AsRef<[u8]>) -> (String, Next) {
        let input = input.as_ref();
        let step = self
            .connection
            .receive(input, &mut self.output, usize::MAX, &mut self.environment);
        assert_eq!(step.consumed, input.len());
        (self.taken(), step.next)
    }

    pub(super) fn taken(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut self.output)).unwrap()
    }
}

fn answer(input: impl AsRef<[u8]>) -> (String, Next) {
    Client::new().send(input)
}

/// The status of the only response to `input`, which must close the connection and say so.
#[track_caller]
fn refusal(input: impl AsRef<[u8]>) -> u16 {
    let (text, next) = answer(&input);
    assert_eq!(next, Next::Close, "{text}");
    assert_eq!(text.matches("Server: quoit").count(), 1, "{text}");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("\r\nConnection: close"), "{text}");
    if !input.as_ref().starts_with(b"HEAD ") {
        assert!(
            head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())),
            "{text}"
        );
        assert!(!body.is_empty());
    }
    text["HTTP/1.1 ".len()..][..3].parse().unwrap()
}

pub(super) fn response(status: &str, fields: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nServer: quoit\r\nDate: {DATE}\r\n{fields}\r\n{body}")
}

pub(super) fn hello(connection: &str) -> String {
    let fields = format!("Content-Type: text/plain\r\nContent-Length: 13\r\n{connection}");
    response("200 OK", &fields, "Hello, World!")
}

#[test]
fn an_idle_connection_is_small_and_holds_no_memory() {
    assert!(
        size_of::<HttpConnection>() <= 32,
        "{}",
        size_of::<HttpConnection>()
    );
    let mut client = Client::new();
    client.send("GET /plaintext HT");
    assert_eq!(client.connection.phase(), Phase::Head);
    client.send("TP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.connection.phase(), Phase::Idle);
    assert!(!client.connection.holds_memory());
}

#[test]
fn every_route_answers() {
    let get = |path: &str| answer(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(get("/plaintext?q=1"), (hello(""), Next::NeedInput));
    let json = response(
        "200 OK",
        "Content-Type: application/json\r\nContent-Length: 27\r\n",
        "{\"message\":\"Hello, World!\"}",
    );
    assert_eq!(get("/json"), (json, Next::NeedInput));
    let bytes = response(
        "200 OK",
        "Content-Type: application/octet-stream\r\nContent-Length: 3\r\n",
        "\0\x01\x02",
    );
    assert_eq!(get("/bytes/3"), (bytes, Next::NeedInput));
    let none = response(
        "200 OK",
        "Content-Type: application/octet-stream\r\nContent-Length: 0\r\n",
        "",
    );
    assert_eq!(get("/bytes/0"), (none.clone(), Next::NeedInput));
    assert_eq!(
        answer("POST /echo HTTP/1.1\r\nHost: a\r\n\r\n"),
        (none, Next::NeedInput)
    );
    let metrics = response(
        "200 OK",
        "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\nContent-Length: 14\r\n",
        METRICS,
    );
    assert_eq!(get("/metrics"), (metrics, Next::NeedInput));
    let health = response(
        "200 OK",
        "Content-Type: text/plain\r\nContent-Length: 2\r\n",
        "ok",
    );
    for path in ["/healthz", "/readyz", "/livez"] {
        assert_eq!(get(path), (health.clone(), Next::NeedInput));
    }
    assert_eq!(get("http://host:80/plaintext"), (hello(""), Next::NeedInput));
}

#[test]
fn the_date_is_the_environment_s() {
    let mut client = Client::new();
    client
        .environment
        .set_time(UNIX_EPOCH + Duration::from_secs(784_111_778));
    for path in ["/plaintext", "/json"] {
        let (text, _) = client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(
            text.contains("\r\nDate: Sun, 06 Nov 1994 08:49:38 GMT\r\n"),
            "{text}"
        );
    }
}

#[test]
fn head_answers_with_the_head_of_get() {
    for path in [
        "/plaintext",
        "/json",
        "/bytes/9223372036854775807",
        "/metrics",
        "/healthz",
        "/readyz",
        "/livez",
    ] {
        let (head, next) = answer(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(next, Next::NeedInput);
        assert!(
            head.ends_with("\r\n\r\n") && head.matches("\r\n\r\n").count() == 1,
            "{head}"
        );
        let mut client = Client::new();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        client.connection.receive(
            request.as_bytes(),
            &mut client.output,
            400,
            &mut client.environment,
        );
        assert!(client.output.starts_with(head.as_bytes()), "{path}");
    }
    assert_eq!(refusal("HEAD /nowhere HTTP/1.1\r\nHost: a\r\n\r\n"), 404);
    let (text, _) = answer("HEAD /nowhere HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(text.ends_with("\r\n\r\n"), "{text}");
}

#[test]
fn pipelined_requests_are_answered_in_one_call_and_in_order() {
    let (text, next) = answer("GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n".repeat(16));
    assert_eq!((text, next), (hello("").repeat(16), Next::NeedInput));
}

#[test]
fn persistence_follows_version_and_connection_field() {
    let get = |rest: &str| answer(format!("GET /plaintext HTTP/{rest}\r\n\r\n"));
    let close = (hello("Connection: close\r\n"), Next::Close);
    assert_eq!(get("1.1\r\nHost: a\r\nConnection: close"), close);
    assert_eq!(
        get("1.1\r\nHost: a\r\nConnection: x, CLOSE\r\nConnection: keep-alive"),
        close
    );
    assert_eq!(get("1.0"), close);
    assert_eq!(get("1.0\r\nConnection: keep-alive, close"), close);
    assert_eq!(
        get("1.0\r\nConnection: Keep-Alive"),
        (hello("Connection: keep-alive\r\n"), Next::NeedInput)
    );
    // What is pipelined after a close is neither answered nor kept.
    let two = "GET /plaintext HTTP/1.0\r\n\r\nGET /plaintext HTTP/1.0\r\n\r\n";
    assert_eq!(answer(two), close);
}

#[test]
fn the_connection_option_of_one_request_does_not_outlive_it() {
    let mut client = Client::new();
    client.send("GET /plaintext HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(
        client.send("GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n"),
        (hello(""), Next::NeedInput)
    );
    client.send("HEAD /plaintext HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        client.send("GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n"),
        (hello(""), Next::NeedInput)
    );
}

#[test]
fn echo_answers_in_the_request_s_framing() {
    let (text, next) = answer("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    let fields = "Content-Type: application/octet-stream\r\nContent-Length: 5\r\n";
    assert_eq!(
        (text, next),
        (response("200 OK", fields, "hello"), Next::NeedInput)
    );

    let body = "5;a=b\r\nhello\r\n0B\r\n, wide world\r\n0\r\nTrailer: x\r\n\r\n".replace("wide ", "wide");
    let (text, next) = answer(format!(
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n{body}"
    ));
    let fields = "Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n";
    let echoed = "5\r\nhello\r\nb\r\n, wideworld\r\n0\r\n\r\n";
    assert_eq!(
        (text, next),
        (response("200 OK", fields, echoed), Next::NeedInput)
    );
}

#[test]
fn a_body_that_a_route_does_not_take_is_read_and_discarded() {
    for body in [
        "Content-Length: 5\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ] {
        let input = format!("GET /plaintext HTTP/1.1\r\nHost: a\r\n{body}").repeat(2);
        assert_eq!(answer(input), (hello("").repeat(2), Next::NeedInput));
    }
    let with_length =
        |length: u64| format!("GET /json HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    assert_eq!(
        answer(with_length(MAX_DISCARDED_BODY_BYTES)),
        (String::new(), Next::NeedInput)
    );
    assert_eq!(refusal(with_length(MAX_DISCARDED_BODY_BYTES + 1)), 413);
    let chunked = "GET /json HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n";
    assert_eq!(
        answer(format!("{chunked}ffff\r\n")),
        (String::new(), Next::NeedInput)
    );
    assert_eq!(refusal(format!("{chunked}10000\r\n")), 413);
}

#[test]
fn echo_has_a_limit() {
    let send = |body: &str| {
        let mut client = Client::new();
        client.environment = environment_with(HttpConfig {
            max_echo_body_bytes: 10,
        });
        let (text, next) = client.send(format!("POST /echo HTTP/1.1\r\nHost: a\r\n{body}"));
        (
            text.split("\r\n").next().unwrap_or_default().to_owned(),
            text.ends_with("\r\n0\r\n\r\n"),
            next,
        )
    };
    let large = "HTTP/1.1 413 Content Too Large".to_owned();
    let ok = "HTTP/1.1 200 OK".to_owned();
    let chunked = "Transfer-Encoding: chunked\r\n\r\n";
    assert_eq!(
        send("Content-Length: 11\r\n\r\n"),
        (large.clone(), false, Next::Close)
    );
    assert_eq!(
        send("Content-Length: 10\r\n\r\n0123456789"),
        (ok.clone(), false, Next::NeedInput)
    );
    assert_eq!(
        send(&format!("{chunked}b\r\n")),
        (large.clone(), false, Next::Close)
    );
    assert_eq!(
        send(&format!("{chunked}ffffffffffffffff\r\n")),
        (large, false, Next::Close)
    );
    assert_eq!(
        send(&format!("{chunked}a\r\n0123456789\r\n0\r\n\r\n")),
        (ok.clone(), true, Next::NeedInput)
    );
    // Past the limit after the response has begun: cut short, so that the client sees it is not whole.
    assert_eq!(
        send(&format!("{chunked}a\r\n0123456789\r\n1\r\n")),
        (ok, false, Next::Close)
    );
}

#[test]
fn expectations() {
    const HEAD: &str = "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n";
    let mut client = Client::new();
    assert_eq!(
        client.send(HEAD),
        ("HTTP/1.1 100 Continue\r\n\r\n".to_owned(), Next::NeedInput)
    );
    let fields = "Content-Type: application/octet-stream\r\nContent-Length: 2\r\n";
    let echoed = response("200 OK", fields, "hi");
    assert_eq!(client.send("hi"), (echoed.clone(), Next::NeedInput));
    // The body is there already: no interim response.
    assert_eq!(client.send(format!("{HEAD}hi")), (echoed, Next::NeedInput));
    // Nothing to wait for, or an HTTP/1.0 client.
    for version in ["1.1\r\nHost: a\r\nContent-Length: 0", "1.0\r\nContent-Length: 1"] {
        let (text, _) = answer(format!(
            "POST /echo HTTP/{version}\r\nExpect: 100-continue\r\n\r\n"
        ));
        assert!(!text.contains("100 Continue"), "{text}");
    }
    // A final answer at once where the body is not wanted.
    let (text, next) =
        answer("GET /plaintext HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_eq!((text, next), (hello("Connection: close\r\n"), Next::Close));
    for other in [
        "200-ok",
        "100-continue, x",
        "",
        "100-continue\r\nExpect: x",
        "x\r\nExpect: 100-continue",
    ] {
        let request =
            format!("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: {other}\r\nContent-Length: 2\r\n\r\n");
        assert_eq!(refusal(request), 417, "{other}");
    }
    assert!(
        answer("GET /plaintext HTTP/1.0\r\nExpect: x\r\n\r\n")
            .0
            .starts_with("HTTP/1.1 200")
    );
}

#[test]
fn paths_and_methods() {
    for path in [
        "/",
        "/plaintext/",
        "/Plaintext",
        "/bytes",
        "/bytes/",
        "/bytes/-1",
        "/bytes/+1",
        "/bytes/1a",
        "/bytes/9223372036854775808",
        "/bytes/99999999999999999999999",
        "/%70laintext",
    ] {
        assert_eq!(
            refusal(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")),
            404,
            "{path}"
        );
    }
    for (request, allow) in [
        ("GET /echo", "POST"),
        ("HEAD /echo", "POST"),
        ("PUT /echo", "POST"),
        ("POST /plaintext", "GET, HEAD"),
        ("DELETE /bytes/5", "GET, HEAD"),
        ("OPTIONS *", "GET, HEAD, POST"),
    ] {
        let request = format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(refusal(&request), 405, "{request}");
        let (text, _) = answer(&request);
        assert!(text.contains(&format!("\r\nAllow: {allow}\r\n")), "{text}");
    }
    for method in ["get", "BREW", "CONNECT", "PRI"] {
        assert_eq!(
            refusal(format!("{method} /plaintext HTTP/1.1\r\nHost: a\r\n\r\n")),
            501,
            "{method}"
        );
    }
}

#[test]
fn limits_of_the_head() {
    let target = |length: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(length - 1));
    assert_eq!(refusal(target(MAX_TARGET_BYTES)), 404);
    assert_eq!(refusal(target(MAX_TARGET_BYTES + 1)), 414);
    assert_eq!(refusal(target(MAX_HEAD_BYTES)), 414);

    let fields = |count: usize| {
        format!(
            "GET /json HTTP/1.1\r\nHost: a\r\n{}\r\n",
            "A: b\r\n".repeat(count - 1)
        )
    };
    assert!(answer(fields(MAX_FIELDS)).0.starts_with("HTTP/1.1 200"));
    assert_eq!(refusal(fields(MAX_FIELDS + 1)), 431);

    let long = |length: usize| {
        let rest = length - "GET /json HTTP/1.1\r\nHost: a\r\nA: \r\n\r\n".len();
        format!("GET /json HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "x".repeat(rest))
    };
    assert!(answer(long(MAX_HEAD_BYTES)).0.starts_with("HTTP/1.1 200"));
    assert_eq!(refusal(long(MAX_HEAD_BYTES + 1)), 431);
}

#[test]
fn ambiguous_and_malformed_requests_are_refused() {
    for (status, request) in REFUSED {
        let shown = request.escape_ascii();
        assert_eq!(refusal(request), *status, "{shown}");
        // Whatever follows is not taken for a request.
        let mut smuggled = request.to_vec();
        smuggled.extend_from_slice(b"GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(refusal(&smuggled), *status, "{shown}");
    }
}

#[test]
fn a_malformed_chunk_cuts_an_echo_short() {
    let (text, next) =
        answer("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabX\r\n0\r\n\r\n");
    assert!(
        text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n2\r\nab"),
        "{text}"
    );
    assert_eq!((text.matches("HTTP/1.1").count(), next), (1, Next::Close));
}
