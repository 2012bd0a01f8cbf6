//! HTTP/1 clients: requests and answers.

use hyper::{Method, Request, Version};

use crate::behaviour;
use crate::parts::{Body, Client, HELLO, Service, all, builder, client, get, heard, next, serve_on, with};
use crate::support::pattern;

behaviour! {
    fn requests_follow_each_other(says, net) {
        let (mut peer, mut client) = client(net, |_| {}).await;
        for _ in 0..3 {
            client.sender.ready().await.unwrap();
            let asked = client.ask(get());
            says.note(peer.until("\r\n\r\n").await);
            peer.send(HELLO).await;
            says.note(heard(asked).await);
        }
        says.note(client.let_go().await);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn names_have_a_case(says, net) {
        for (title, preserve) in [(true, false), (false, true)] {
            let options = |http: &mut hyper::client::conn::http1::Builder| {
                http.title_case_headers(title).preserve_header_case(preserve);
            };
            let (mut peer, mut client) = client(net, options).await;
            let mut request = get();
            request.headers_mut().insert("x-some-thing", "1".parse().unwrap());
            let asked = client.ask(request);
            says.note(peer.until("\r\n\r\n").await);
            peer.send("HTTP/1.1 200 OK\r\ncOnTeNt-LeNgTh: 2\r\nX-sOME: y\r\n\r\nok").await;
            let answer = asked.await.unwrap().unwrap();
            says.note(format!("{:?} {:?}", answer.headers(), answer.extensions()));
            drop(answer);
            says.note(client.let_go().await);
            says.note(peer.rest().await);
        }
    }
}

behaviour! {
    fn bodies_of_requests(says, net) {
        let (mut peer, mut client) = client(net, |_| {}).await;

        let asked = client.ask(with(Body::of("whole")));
        says.note(peer.until("whole").await);
        peer.send(HELLO).await;
        says.note(heard(asked).await);

        client.sender.ready().await.unwrap();
        let (pieces, body) = Body::pieces();
        let mut request = with(body);
        request.headers_mut().insert("trailer", "sum".parse().unwrap());
        let asked = client.ask(request);
        says.note(peer.until("\r\n\r\n").await);
        for piece in ["one", "two"] {
            pieces.data(piece);
            says.note(peer.until(&format!("{piece}\r\n")).await);
        }
        pieces.trailer("sum", "6");
        drop(pieces);
        says.note(peer.until("\r\n\r\n").await);
        peer.send(HELLO).await;
        says.note(heard(asked).await);

        // Without a length, HTTP/1.0 knows no body.
        client.sender.ready().await.unwrap();
        let mut request = with(Body::of("whole"));
        *request.version_mut() = Version::HTTP_10;
        let asked = client.ask(request);
        says.note(peer.until("whole").await);
        peer.send("HTTP/1.0 200 OK\r\n\r\nto the end").await;
        drop(peer);
        says.note(heard(asked).await);
        says.note(client.ended().await);
    }
}

behaviour! {
    fn bodies_of_answers(says, net) {
        let (mut peer, mut client) = client(net, |_| {}).await;
        for (method, answer) in [
            (Method::GET, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n3;x\r\ntwo\r\n0\r\n\r\n"),
            (Method::GET, "HTTP/1.1 200 Fine\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nsum: 2\r\n\r\n"),
            (Method::HEAD, "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"),
            (Method::GET, "HTTP/1.1 204 No Content\r\n\r\n"),
            (Method::GET, "HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n"),
            (Method::GET, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nas long as it lasts"),
        ] {
            client.sender.ready().await.unwrap();
            let mut request = get();
            *request.method_mut() = method;
            let asked = client.ask(request);
            peer.until("\r\n\r\n").await;
            // In parts that end nowhere in particular.
            for part in answer.as_bytes().chunks(11) {
                peer.send(part).await;
            }
            if answer.contains("close") {
                peer.end().await;
            }
            says.note(heard(asked).await);
        }
        says.note(client.ended().await);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn pieces_come_as_they_are_sent(says, net) {
        let (mut peer, mut client) = client(net, |_| {}).await;
        let asked = client.ask(get());
        peer.until("\r\n\r\n").await;
        peer.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
        let mut body = asked.await.unwrap().unwrap().into_body();
        for piece in ["one", "two", "three"] {
            peer.send(format!("{:x}\r\n{piece}\r\n", piece.len())).await;
            says.note(next(&mut body).await);
        }
        peer.send("0\r\n\r\n").await;
        says.note(next(&mut body).await);
        says.note(client.let_go().await);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn told_to_continue(says, net) {
        let (mut peer, mut client) = client(net, |_| {}).await;
        let mut request = with(Body::of("body"));
        request.headers_mut().insert("expect", "100-continue".parse().unwrap());
        let told = says.clone();
        hyper::ext::on_informational(&mut request, move |answer| {
            told.note(format!("{} {:?}", answer.status(), answer.headers()));
        });
        let asked = client.ask(request);
        says.note(peer.until("body").await);
        peer.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n").await;
        peer.send(HELLO).await;
        says.note(heard(asked).await);
        says.note(client.let_go().await);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn the_answer_comes_before_the_body_has_gone(says, net) {
        let (mut peer, mut client) = client(net, |_| {}).await;
        let (pieces, body) = Body::pieces();
        let asked = client.ask(with(body));
        pieces.data("begun");
        says.note(peer.until("begun\r\n").await);
        peer.send(HELLO).await;
        says.note(heard(asked).await);
        pieces.data("done");
        drop(pieces);
        says.note(peer.until("0\r\n\r\n").await);
        client.sender.ready().await.unwrap();
        let asked = client.ask(get());
        says.note(peer.until("\r\n\r\n").await);
        peer.send(HELLO).await;
        says.note(heard(asked).await);
        says.note(client.let_go().await);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn answers_that_cannot_be_understood(says, net) {
        for answer in [
            "HEAT/1.1 200 OK\r\n\r\n",
            "HTTP/2.7 200 OK\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
            "without any head\r\n\r\n",
        ] {
            let (mut peer, mut client) = client(net, |_| {}).await;
            let asked = client.ask(get());
            peer.until("\r\n\r\n").await;
            peer.send(answer).await;
            says.note(heard(asked).await);
            says.note(client.ended().await);
            says.note(peer.rest().await);
        }
    }
}

behaviour! {
    fn heads_that_are_too_large(says, net) {
        let full = format!("HTTP/1.1 200 OK\r\nx: {:x<8172}", "");
        assert_eq!(full.len(), 8192);
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(11));
        for answer in [full, many] {
            let options = |http: &mut hyper::client::conn::http1::Builder| {
                http.max_buf_size(8192).max_headers(10);
            };
            let (mut peer, mut client) = client(net, options).await;
            let asked = client.ask(get());
            peer.until("\r\n\r\n").await;
            peer.send(answer).await;
            says.note(heard(asked).await);
            says.note(client.ended().await);
            says.note(peer.rest().await);
        }
    }
}

behaviour! {
    fn reads_of_one_size(says, net) {
        let (mut peer, mut client) = client(net, |http| { http.read_buf_exact_size(Some(7)); }).await;
        let asked = client.ask(get());
        peer.until("\r\n\r\n").await;
        peer.send(HELLO).await;
        says.note(heard(asked).await);
        says.note(client.let_go().await);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn both_sides(says, net) {
        let (theirs, ours) = net.pair().await;
        let server = serve_on(ours, &builder(), Service::new(|request| async {
            let (head, body) = request.into_parts();
            let (body, end) = all(body).await;
            let (pieces, answer) = Body::pieces();
            for part in body.chunks(10_007) {
                pieces.data(part.to_vec());
            }
            let answer = hyper::Response::builder()
                .header("x-asked", format!("{} {} {end}", head.method, head.uri))
                .body(answer);
            Ok(answer.unwrap())
        }));
        let mut client = Client::on(theirs, &hyper::client::conn::http1::Builder::new()).await;
        let sent = pattern(300_000);
        for chunked in [false, true] {
            client.sender.ready().await.unwrap();
            let body = if chunked {
                let (pieces, body) = Body::pieces();
                for part in sent.chunks(9001) {
                    pieces.data(part.to_vec());
                }
                body
            } else {
                Body::of(sent.clone())
            };
            let answer = client.ask(with(body)).await.unwrap().unwrap();
            says.note(format!("{} {:?}", answer.status(), answer.headers()));
            let (back, end) = all(answer.into_body()).await;
            assert!(back == sent);
            says.note(end);
        }
        client.sender.ready().await.unwrap();
        let asked = client.ask(Request::new(Body::empty()));
        says.note(heard(asked).await);
        says.note(client.let_go().await);
        says.note(server.ended().await);
    }
}
