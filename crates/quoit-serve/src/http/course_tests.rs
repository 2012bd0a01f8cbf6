//! The course of a connection: pieces, limits of output, time limits, draining and its end.

use super::connection::Step;
use super::tests::{Client, hello, response};
use super::*;

#[test]
fn one_empty_line_before_a_request_is_ignored() {
    let mut client = Client::new();
    for pieces in [vec!["\r\n"], vec!["\r", "\n"], vec![]] {
        for piece in pieces {
            assert_eq!(client.send(piece), (String::new(), Next::NeedInput));
        }
        assert_eq!(client.connection.phase(), Phase::Idle);
        assert_eq!(
            client.send("GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n"),
            (hello(""), Next::NeedInput)
        );
    }
}

#[test]
fn output_stops_at_its_limit_and_goes_on_where_it_stopped() {
    let mut client = Client::new();
    let mut input = b"GET /bytes/10000000000 HTTP/1.1\r\nHost: a\r\n\r\nGET /json HTTP/1.1\r\n".as_slice();
    let mut position = 0;
    for _ in 0..100 {
        let Client {
            environment,
            connection,
            output,
        } = &mut client;
        let step = connection.receive(input, output, 4096, environment);
        assert_eq!(
            (step.next, connection.phase(), output.len()),
            (Next::NeedOutput, Phase::Responding, 4096)
        );
        input = &input[step.consumed..];
        let head = if position == 0 {
            output.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4
        } else {
            0
        };
        for byte in output.drain(..).skip(head) {
            assert_eq!(u64::from(byte), position % 251);
            position += 1;
        }
    }
    assert_eq!(input, b"GET /json HTTP/1.1\r\n");

    // A full output takes no request.
    let mut client = Client::new();
    client.output = vec![0; 10];
    let input = b"GET /json HTTP/1.1\r\nHost: a\r\n\r\n";
    let step = client
        .connection
        .receive(input, &mut client.output, 10, &mut client.environment);
    assert_eq!(
        (step, client.output.len()),
        (
            Step {
                consumed: 0,
                next: Next::NeedOutput
            },
            10
        )
    );
}

#[test]
fn an_echo_is_held_back_by_its_output() {
    let mut client = Client::new();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx");
    let Client {
        environment,
        connection,
        output,
    } = &mut client;
    let step = connection.receive(&[b'y'; 60], output, 40, environment);
    assert_eq!(
        (step, output.len()),
        (
            Step {
                consumed: 40,
                next: Next::NeedOutput
            },
            40
        )
    );
    assert_eq!(connection.phase(), Phase::Body);
}

#[test]
fn the_end_of_the_client_s_stream() {
    let end = |before: &str, input: &str| {
        let mut client = Client::new();
        client.send(before);
        let Client {
            environment,
            connection,
            output,
        } = &mut client;
        let step = connection.end_of_stream(input.as_bytes(), output, usize::MAX, environment);
        assert_eq!((step.consumed, connection.phase()), (input.len(), Phase::Closed));
        (client.taken(), step.next)
    };
    let nothing = (String::new(), Next::Close);
    assert_eq!(end("", ""), nothing);
    assert_eq!(end("GET /plain", ""), nothing);
    assert_eq!(end("GET /plain", "text HTTP/1.1\r\n"), nothing);
    assert_eq!(
        end(
            "GET /json HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
            "hell"
        ),
        nothing
    );
    let request = "GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(end("", &request.repeat(2)), (hello("").repeat(2), Next::Close));
    assert_eq!(end(&request[..9], &request[9..]), (hello(""), Next::Close));
}

#[test]
fn a_response_outlives_the_end_of_the_client_s_stream() {
    let mut client = Client::new();
    let Client {
        environment,
        connection,
        output,
    } = &mut client;
    let input = b"GET /bytes/500 HTTP/1.1\r\nHost: a\r\n\r\nGET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut step = connection.end_of_stream(input, output, 400, environment);
    assert_eq!(step.next, Next::NeedOutput);
    let mut rest = &input[step.consumed..];
    while step.next != Next::Close {
        assert_eq!(step.next, Next::NeedOutput);
        let limit = output.len() + 100;
        step = connection.receive(rest, output, limit, environment);
        rest = &rest[step.consumed..];
    }
    assert!(output.ends_with(hello("").as_bytes()));
}

#[test]
fn time_limits() {
    let time_out = |input: &str| {
        let mut client = Client::new();
        client.send(input);
        client
            .connection
            .time_out(&mut client.output, &mut client.environment);
        assert_eq!(client.connection.phase(), Phase::Closed);
        assert!(!client.connection.holds_memory());
        let said = client.taken();
        assert_eq!(
            client.send("GET /json HTTP/1.1\r\nHost: a\r\n\r\n"),
            (String::new(), Next::Close)
        );
        said
    };
    assert_eq!(time_out(""), "");
    assert_eq!(time_out("GET /json HTTP/1.1\r\nHost: a\r\n\r\n"), "");
    let (begun, unbegun) = ("\r\n\r\nhel", "\r\n\r\n");
    let echo = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5";
    assert_eq!(time_out(&format!("{echo}{begun}")), "");
    for input in [
        "G",
        &format!("{echo}{unbegun}"),
        "GET /json HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel",
    ] {
        assert!(
            time_out(input).starts_with("HTTP/1.1 408 Request Timeout\r\n"),
            "{input}"
        );
    }
    assert!(time_out("HEAD /json").ends_with("\r\n\r\n"));
}

#[test]
fn draining_finishes_what_has_begun_and_closes() {
    let draining = |before: &str, after: &str| {
        let mut client = Client::new();
        client.send(before);
        client.environment.start_draining();
        client.environment.close_idle();
        client.send(after)
    };
    assert_eq!(draining("", ""), (String::new(), Next::Close));
    assert_eq!(
        draining("GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n", ""),
        (String::new(), Next::Close)
    );
    assert_eq!(
        draining("GET /plaintext HTTP", ""),
        (String::new(), Next::NeedInput)
    );
    let closed = (hello("Connection: close\r\n"), Next::Close);
    assert_eq!(draining("GET /plaintext HTTP", "/1.1\r\nHost: a\r\n\r\n"), closed);
    assert_eq!(
        draining("", "GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\nGET /json HT"),
        closed
    );
    let fields = "Content-Type: text/plain\r\nContent-Length: 8\r\nConnection: close\r\n";
    let unavailable = response("503 Service Unavailable", fields, "draining");
    assert_eq!(
        draining("", "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"),
        (unavailable, Next::Close)
    );
    let echo = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nhe";
    assert_eq!(draining(echo, "ll"), ("ll".to_owned(), Next::Close));
}
