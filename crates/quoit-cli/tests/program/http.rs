//! HTTP/1.1 over real sockets: what a good client sees.

use std::io::Write;
use std::net::Shutdown;

use crate::support::{Server, engines};

#[test]
fn the_paths_answer_what_they_are_for() {
    for engine in engines() {
        let server = Server::on(engine, "http");
        let mut client = server.connect();
        let plain = client.get("/plaintext");
        assert_eq!((plain.status, plain.text()), (200, "Hello, World!"));
        assert_eq!(plain.field("Content-Type"), Some("text/plain"));
        assert_eq!(plain.field("Server"), Some("quoit"));
        let date = plain
            .field("Date")
            .and_then(|date| httpdate::parse_http_date(date).ok());
        let age = date.unwrap().elapsed().unwrap_or_default();
        assert!(age.as_secs() < 60, "{}", plain.head);

        let json = client.get("/json");
        assert_eq!(json.text(), r#"{"message":"Hello, World!"}"#);
        assert_eq!(json.field("Content-Type"), Some("application/json"));
        assert_eq!(client.get("/healthz").text(), "ok");
        assert_eq!(client.get("/bytes/3").body, [0, 1, 2]);
        assert_eq!(client.get("/bytes/0").text(), "");
        assert!(client.get("/metrics").text().contains("quoit_accepted_total"));
        // All on one connection, which stays open.
        assert_eq!(client.get("/plaintext?x=1").status, 200);
    }
}

#[test]
fn the_date_is_that_of_the_request_and_not_of_the_last_one() {
    let server = Server::on(engines()[0], "http");
    let mut client = server.connect();
    let date = |head: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix("Date: "));
        httpdate::parse_http_date(line.unwrap()).unwrap()
    };
    client.get("/plaintext");
    // The server sleeps meanwhile: wait for the clock to show another second.
    let before = httpdate::HttpDate::from(std::time::SystemTime::now());
    while httpdate::HttpDate::from(std::time::SystemTime::now()) == before {
        std::thread::yield_now();
    }
    assert!(date(&client.get("/plaintext").head) > before.into());
}

#[test]
fn head_has_the_fields_and_no_body() {
    for engine in engines() {
        let server = Server::on(engine, "http");
        let mut client = server.connect();
        for (path, length) in [
            ("/plaintext", "13"),
            ("/bytes/1000000000000", "1000000000000"),
            ("/json", "27"),
        ] {
            client.send(format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
            let head = client.head();
            assert!(
                head.starts_with("HTTP/1.1 200 ") && head.contains(&format!("Content-Length: {length}\r\n")),
                "{head}"
            );
        }
        assert_eq!(client.get("/json").status, 200);
    }
}

#[test]
fn bodies_are_echoed_as_they_were_framed() {
    for engine in engines() {
        let server = Server::on(engine, "http");
        let mut client = server.connect();
        client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
        let response = client.response();
        assert_eq!(
            (response.text(), response.field("Content-Length")),
            ("hello", Some("5"))
        );
        client.send(
            "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
             5\r\nhello\r\n10;extension=1\r\n, chunked world!\r\n0\r\nTrailer: 1\r\n\r\n",
        );
        let response = client.response();
        assert_eq!(
            (response.text(), response.field("Transfer-Encoding")),
            ("hello, chunked world!", Some("chunked"))
        );
        client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(client.response().text(), "");

        // More than is buffered anywhere, so that both ends must read while they write.
        let body: Vec<u8> = (0..20_000_000_u32).map(|byte| (byte % 253) as u8).collect();
        let mut writer = client.stream.get_ref().try_clone().unwrap();
        let sent = body.clone();
        let writing = std::thread::spawn(move || {
            write!(
                writer,
                "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
                sent.len()
            )
            .unwrap();
            writer.write_all(&sent).unwrap();
        });
        assert!(client.response().body == body, "what came back differs");
        writing.join().unwrap();
    }
}

#[test]
fn a_thousand_pipelined_requests_are_answered_in_order() {
    for engine in engines() {
        let server = Server::on(engine, "http");
        let mut client = server.connect();
        let mut requests = Vec::new();
        for number in 0..1000 {
            match number % 4 {
                0 => requests.extend(b"GET /plaintext HTTP/1.1\r\nHost: x\r\n\r\n"),
                1 => write!(
                    requests,
                    "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n{number:04}"
                )
                .unwrap(),
                2 => write!(
                    requests,
                    "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                     2\r\n{:02}\r\n2\r\n{:02}\r\n0\r\n\r\n",
                    number / 100,
                    number % 100
                )
                .unwrap(),
                _ => write!(requests, "GET /bytes/{number} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap(),
            }
        }
        let mut writer = client.stream.get_ref().try_clone().unwrap();
        let writing = std::thread::spawn(move || {
            let mut rest = &requests[..];
            for length in [1, 7, 2, 61, 3, 331, 17, 5, 1021].into_iter().cycle() {
                let (piece, left) = rest.split_at(rest.len().min(length));
                writer.write_all(piece).unwrap();
                rest = left;
                if rest.is_empty() {
                    return;
                }
            }
        });
        for number in 0..1000_usize {
            let response = client.response();
            assert_eq!(response.status, 200, "{number}");
            match number % 4 {
                0 => assert_eq!(response.text(), "Hello, World!"),
                1 | 2 => assert_eq!(response.text(), format!("{number:04}")),
                _ => assert_eq!(response.body.len(), number),
            }
        }
        writing.join().unwrap();
    }
}

#[test]
fn a_client_may_wait_for_the_permission_to_send_its_body() {
    for engine in engines() {
        let server = Server::on(engine, "http");
        let mut client = server.connect();
        client.send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
        assert_eq!(client.head(), "HTTP/1.1 100 Continue\r\n\r\n");
        client.send("body");
        assert_eq!(client.response().text(), "body");
        // A body that nobody wants is not asked for.
        client
            .send("POST /plaintext HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
        assert_eq!(client.response().status, 405);
        client.is_ended();
    }
}

#[test]
fn a_client_that_has_shut_its_side_still_gets_its_answers() {
    for engine in engines() {
        let server = Server::on(engine, "http");
        let mut client = server.connect();
        client
            .send("GET /bytes/3000000 HTTP/1.1\r\nHost: x\r\n\r\nGET /plaintext HTTP/1.1\r\nHost: x\r\n\r\n");
        client.stream.get_ref().shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.response().body.len(), 3_000_000);
        assert_eq!(client.response().text(), "Hello, World!");
        client.is_ended();

        let mut incomplete = server.connect();
        incomplete.send("GET /plaintext HTTP/1.1\r\nHo");
        incomplete.stream.get_ref().shutdown(Shutdown::Write).unwrap();
        incomplete.is_ended();
    }
}

#[test]
fn a_connection_lasts_as_long_as_the_request_says() {
    for engine in engines() {
        let server = Server::on(engine, "http");
        for (request, kept) in [
            (
                "GET /plaintext HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                false,
            ),
            ("GET /plaintext HTTP/1.0\r\n\r\n", false),
            ("GET /plaintext HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true),
            ("GET /plaintext HTTP/1.1\r\nHost: x\r\n\r\n", true),
        ] {
            let mut client = server.connect();
            client.send(request);
            assert_eq!(client.response().text(), "Hello, World!");
            if kept {
                assert_eq!(client.get("/json").status, 200, "{request}");
            } else {
                client.is_ended();
            }
        }
    }
}
