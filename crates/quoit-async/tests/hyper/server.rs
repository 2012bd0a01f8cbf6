//! HTTP/1 servers: requests and answers.

use bytes::Bytes;
use hyper::{Response, StatusCode};

use crate::behaviour;
use crate::net::Peer;
use crate::parts::{Body, Service, next, read, serve};

const GET: &str = "GET / HTTP/1.1\r\nhost: quoit\r\n\r\n";

/// Asks for what [`Service::hello`] says.
async fn hello(peer: &mut Peer, request: &str) -> String {
    peer.send(request).await;
    peer.until("hello").await
}

behaviour! {
    fn requests_follow_each_other(says, net) {
        let (mut peer, server) = serve(net, |_| {}, Service::hello()).await;
        for _ in 0..3 {
            says.note(hello(&mut peer, GET).await);
        }
        peer.end().await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn the_client_asks_to_close(says, net) {
        let (mut peer, server) = serve(net, |_| {}, Service::hello()).await;
        says.note(hello(&mut peer, GET).await);
        says.note(hello(&mut peer, "GET / HTTP/1.1\r\nconnection: close\r\n\r\n").await);
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn the_service_asks_to_close(says, net) {
        let closing = Service::new(|_| async {
            let answer = Response::builder().header("connection", "close");
            Ok(answer.body(Body::of("hello")).unwrap())
        });
        let (mut peer, server) = serve(net, |_| {}, closing).await;
        peer.send(GET).await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn nothing_is_kept_alive(says, net) {
        let (mut peer, server) = serve(net, |http| { http.keep_alive(false); }, Service::hello()).await;
        peer.send(GET).await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn http_1_0(says, net) {
        let (mut peer, server) = serve(net, |_| {}, Service::hello()).await;
        let kept = "GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n";
        says.note(hello(&mut peer, kept).await);
        says.note(hello(&mut peer, kept).await);
        peer.send("GET / HTTP/1.0\r\n\r\n").await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn http_1_0_has_no_chunks(says, net) {
        let service = Service::new(|_| async {
            let (pieces, body) = Body::pieces();
            pieces.data("of no ");
            pieces.data("known length");
            Ok(Response::new(body))
        });
        let (mut peer, server) = serve(net, |_| {}, service).await;
        peer.send("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn pipelined(says, net) {
        for gathered in [false, true] {
            let (mut peer, server) = serve(net, |http| { http.pipeline_flush(gathered); }, Service::hello()).await;
            peer.send(GET.repeat(3)).await;
            for _ in 0..3 {
                says.note(peer.until("hello").await);
            }
            peer.end().await;
            says.note(peer.rest().await);
            let used = server.used.clone();
            says.note(server.ended().await);
            says.note(format!("{} writes", used.writes()));
        }
    }
}

behaviour! {
    fn pipelined_bodies(says, net) {
        let (mut peer, server) = serve(net, |http| { http.pipeline_flush(true); }, Service::echo()).await;
        let mut requests = String::new();
        for body in ["one", "two", "three"] {
            requests += &format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        }
        // Cut where no request ends.
        for part in requests.as_bytes().chunks(37) {
            peer.send(part).await;
        }
        says.note(peer.until("three []").await);
        peer.end().await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn a_head_byte_by_byte(says, net) {
        let (mut peer, server) = serve(net, |_| {}, Service::echo()).await;
        let request = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n";
        for (at, byte) in request.bytes().enumerate() {
            peer.send([byte]).await;
            server.used.read(at + 1).await;
        }
        says.note(peer.until("abcd").await);
        peer.end().await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn expecting_to_be_told_to_continue(says, net) {
        let (mut peer, server) = serve(net, |_| {}, Service::echo()).await;
        for expected in ["100-continue", "100-Continue"] {
            peer.send(format!("POST / HTTP/1.1\r\nexpect: {expected}\r\ncontent-length: 4\r\n\r\n")).await;
            says.note(peer.until("\r\n\r\n").await);
            peer.send("body").await;
            says.note(peer.until("body").await);
        }
        peer.end().await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn nobody_is_told_to_continue(says, net) {
        for request in [
            // Nobody reads the body.
            "GET / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n",
            // There is none.
            "GET / HTTP/1.1\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n",
            // It cannot be understood.
            "GET / HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\nbody",
        ] {
            let (mut peer, server) = serve(net, |_| {}, Service::hello()).await;
            peer.send(request).await;
            says.note(peer.rest().await);
            says.note(server.ended().await);
        }
    }
}

behaviour! {
    fn chunks_and_trailers_come(says, net) {
        let (mut peer, server) = serve(net, |_| {}, Service::echo()).await;
        peer.send("POST / HTTP/1.1\r\ntrailer: sum\r\ntransfer-encoding: chunked\r\n\r\n").await;
        for part in ["5\r\nfir", "st\r\n7;x=y\r\n second\r", "\n0\r\nsum: 1", "1\r\n\r\n"] {
            peer.send(part).await;
        }
        says.note(peer.until("}]").await);
        peer.end().await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn chunks_and_trailers_go(says, net) {
        for asks in ["te: trailers\r\n", ""] {
            let service = Service::new(|_| async {
                let (pieces, body) = Body::pieces();
                pieces.data("first");
                pieces.data("second");
                pieces.trailer("sum", "11");
                Ok(Response::builder().header("trailer", "sum").body(body).unwrap())
            });
            let (mut peer, server) = serve(net, |http| { http.title_case_headers(true); }, service).await;
            peer.send(format!("GET / HTTP/1.1\r\n{asks}\r\n")).await;
            says.note(peer.until("0\r\n").await);
            says.note(peer.until(if asks.is_empty() { "\r\n" } else { "Sum: 11\r\n\r\n" }).await);
            peer.end().await;
            says.note(peer.rest().await);
            says.note(server.ended().await);
        }
    }
}

behaviour! {
    fn chunks_leave_as_they_are_made(says, net) {
        let (service, mut asked) = Service::waiting();
        let (mut peer, server) = serve(net, |_| {}, service).await;
        peer.send(GET).await;
        let (pieces, body) = Body::pieces();
        assert!(asked.recv().await.unwrap().send(Ok(Response::new(body))).is_ok());
        says.note(peer.until("\r\n\r\n").await);
        for piece in ["one", "two", "three"] {
            pieces.data(piece);
            says.note(peer.until(piece).await);
        }
        drop(pieces);
        says.note(peer.until("0\r\n\r\n").await);
        peer.end().await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn names_keep_their_case(says, net) {
        for (title, preserve) in [(true, false), (false, true), (true, true)] {
            let service = Service::new(|mut request| async move {
                let mut answer = Response::new(Body::of("hello"));
                // The case that is kept is that of the request's.
                std::mem::swap(answer.extensions_mut(), request.extensions_mut());
                answer.headers_mut().insert("x-some-thing", "1".parse().unwrap());
                answer.headers_mut().insert("x-other", "2".parse().unwrap());
                Ok(answer)
            });
            let options = |http: &mut hyper::server::conn::http1::Builder| {
                http.title_case_headers(title).preserve_header_case(preserve);
            };
            let (mut peer, server) = serve(net, options, service).await;
            says.note(hello(&mut peer, "GET / HTTP/1.1\r\nX-sOME-tHING: 3\r\n\r\n").await);
            peer.end().await;
            says.note(peer.rest().await);
            says.note(server.ended().await);
        }
    }
}

behaviour! {
    fn answers_without_a_body(says, net) {
        let service = Service::new(|request| async move {
            let status: u16 = request.uri().path()[1..].parse().unwrap();
            Ok(Response::builder().status(status).body(Body::of("body")).unwrap())
        });
        let (mut peer, server) = serve(net, |_| {}, service).await;
        for request in ["HEAD /200", "GET /204", "GET /304", "GET /404"] {
            peer.send(format!("{request} HTTP/1.1\r\n\r\n")).await;
        }
        says.note(peer.until("body").await);
        peer.end().await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn a_small_body_that_nobody_reads_is_passed_over(says, net) {
        let service = Service::new(|request| async move {
            // Of this one a part is read.
            if request.uri() == "/part" {
                next(&mut request.into_body()).await;
            }
            Ok(Response::new(Body::of("hello")))
        });
        let (mut peer, server) = serve(net, |_| {}, service).await;
        says.note(hello(&mut peer, "POST / HTTP/1.1\r\ncontent-length: 10\r\n\r\nnever used").await);
        says.note(hello(&mut peer, GET).await);
        let chunked = "POST /part HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n4\r\nread\r\n0\r\n\r\n";
        says.note(hello(&mut peer, chunked).await);
        says.note(hello(&mut peer, GET).await);
        peer.end().await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn a_body_that_is_not_there_ends_the_connection_when_nobody_reads_it(says, net) {
        let (mut peer, server) = serve(net, |_| {}, Service::hello()).await;
        peer.send("POST / HTTP/1.1\r\ncontent-length: 1000000\r\n\r\nonly this").await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn large_bodies(says, net) {
        const LENGTH: usize = 300_000;
        let service = Service::new(|request| async {
            let (body, end) = crate::parts::all(request.into_body()).await;
            Ok(Response::builder().header("x-end", end).body(Body::of(body)).unwrap())
        });
        let (mut peer, server) = serve(net, |_| {}, service).await;
        let body = crate::support::pattern(LENGTH);
        for _ in 0..2 {
            peer.send(format!("POST / HTTP/1.1\r\ncontent-length: {LENGTH}\r\n\r\n")).await;
            peer.send(&body).await;
            says.note(peer.until("\r\n\r\n").await);
            assert!(peer.exactly(LENGTH).await == body);
        }
        peer.end().await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn what_cannot_be_understood(says, net) {
        for request in [
            "nonsense\r\n\r\n",
            "GET / HTTP/7.0\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: +3\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: unknown\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            let (mut peer, server) = serve(net, |_| {}, Service::hello()).await;
            peer.send(request).await;
            says.note(peer.rest().await);
            says.note(server.ended().await);
        }
    }
}

behaviour! {
    fn chunks_that_cannot_be_understood(says, net) {
        for chunk in ["x\r\n", "f0000000000000003\r\n", "3 4\r\n"] {
            let service = Service::new(|request| async {
                let body = Body::of(read(request.into_body()).await);
                Ok(Response::builder().status(StatusCode::BAD_REQUEST).body(body).unwrap())
            });
            let (mut peer, server) = serve(net, |_| {}, service).await;
            peer.send(format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{chunk}")).await;
            says.note(peer.rest().await);
            says.note(server.ended().await);
        }
    }
}

behaviour! {
    fn heads_that_are_too_large(says, net) {
        // As much as hyper reads before it knows: what it left unread would reset the connection.
        let long_name = format!("GET / HTTP/1.1\r\n{}: x\r\n\r\n", "x".repeat(1 << 16));
        let long_target = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 16));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(11));
        let full = format!("GET / HTTP/1.1\r\nx: {:x<8173}", "");
        assert_eq!(full.len(), 8192);
        for (request, most) in [(long_name, 1 << 20), (long_target, 1 << 20), (many, 8192), (full, 8192)] {
            let options = |http: &mut hyper::server::conn::http1::Builder| {
                http.max_buf_size(most).max_headers(10);
            };
            let (mut peer, server) = serve(net, options, Service::hello()).await;
            peer.send(request).await;
            says.note(peer.rest().await);
            says.note(server.ended().await);
        }
    }
}

behaviour! {
    fn a_body_larger_than_the_buffer(says, net) {
        let (mut peer, server) = serve(net, |http| { http.max_buf_size(8192); }, Service::echo()).await;
        let body = "0123456789".repeat(10_000);
        peer.send(format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len())).await;
        peer.send(&body).await;
        says.note(peer.until("\r\n\r\n").await);
        assert_eq!(peer.exactly(body.len()).await, Bytes::from(body));
        peer.end().await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}
