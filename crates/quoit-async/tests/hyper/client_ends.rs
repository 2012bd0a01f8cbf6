//! HTTP/1 clients: servers that go, and clients that give up.

use crate::behaviour;
use crate::parts::{Body, HELLO, client, failure, get, heard, next, with};

behaviour! {
    fn the_server_goes_between_requests(says, net) {
        for resets in [false, true] {
            let (mut peer, mut client) = client(net, |_| {}).await;
            let asked = client.ask(get());
            peer.until("\r\n\r\n").await;
            peer.send(HELLO).await;
            says.note(heard(asked).await);
            peer.leave(resets);
            // It waits until the connection is known to be closed.
            while client.sender.ready().await.is_ok() {
                tokio::task::yield_now().await;
            }
            says.note(format!("{} {}", client.sender.is_closed(), client.sender.is_ready()));
            let mut refused = client.sender.try_send_request(get()).await.unwrap_err();
            says.note(failure(refused.error()));
            let again = refused.take_message().unwrap();
            says.note(format!("{} {}", again.method(), again.uri()));
            says.note(heard(client.ask(again)).await);
            says.note(client.ended().await);
        }
    }
}

behaviour! {
    fn the_server_goes_before_it_answers(says, net) {
        for resets in [false, true] {
            let (mut peer, mut client) = client(net, |_| {}).await;
            let asked = client.ask(get());
            peer.until("\r\n\r\n").await;
            peer.leave(resets);
            says.note(heard(asked).await);
            says.note(client.ended().await);
        }
    }
}

behaviour! {
    fn the_server_goes_in_an_answer(says, net) {
        for answer in [
            "HTTP/1.1 20",
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nhalf",
        ] {
            for resets in [false, true] {
                let (mut peer, mut client) = client(net, |_| {}).await;
                let asked = client.ask(get());
                peer.until("\r\n\r\n").await;
                peer.send(answer).await;
                client.used.read(answer.len()).await;
                peer.leave(resets);
                says.note(heard(asked).await);
                says.note(client.ended().await);
            }
        }
    }
}

behaviour! {
    fn the_server_only_listens_any_more(says, net) {
        let (mut peer, mut client) = client(net, |_| {}).await;
        let (pieces, body) = Body::pieces();
        let asked = client.ask(with(body));
        pieces.data("begun");
        says.note(peer.until("begun\r\n").await);
        peer.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok").await;
        peer.end().await;
        says.note(heard(asked).await);
        pieces.unwanted().await;
        says.note(client.ended().await);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn the_server_goes_while_a_body_is_sent(says, net) {
        let (mut peer, mut client) = client(net, |_| {}).await;
        let (pieces, body) = Body::pieces();
        let asked = client.ask(with(body));
        pieces.data("begun");
        says.note(peer.until("begun\r\n").await);
        peer.reset();
        pieces.unwanted().await;
        says.note(heard(asked).await);
        says.note(client.ended().await);
    }
}

behaviour! {
    fn more_comes_than_the_answer(says, net) {
        let (mut peer, mut client) = client(net, |_| {}).await;
        let asked = client.ask(get());
        peer.until("\r\n\r\n").await;
        peer.send(format!("{HELLO}{HELLO}")).await;
        says.note(heard(asked).await);
        says.note(client.ended().await);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn an_answer_comes_that_nobody_asked_for(says, net) {
        let (mut peer, mut client) = client(net, |_| {}).await;
        peer.send(HELLO).await;
        while client.sender.ready().await.is_ok() {
            tokio::task::yield_now().await;
        }
        says.note(client.ended().await);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn the_body_of_a_request_fails(says, net) {
        let (mut peer, mut client) = client(net, |_| {}).await;
        let (pieces, body) = Body::pieces();
        let asked = client.ask(with(body));
        pieces.data("begun");
        says.note(peer.until("begun\r\n").await);
        pieces.fail();
        says.note(heard(asked).await);
        says.note(client.ended().await);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn an_answer_is_dropped_half_read(says, net) {
        let (mut peer, mut client) = client(net, |_| {}).await;
        let asked = client.ask(get());
        peer.until("\r\n\r\n").await;
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
        let mut body = asked.await.unwrap().unwrap().into_body();
        says.note(next(&mut body).await);
        drop(body);
        says.note(client.ended().await);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn an_answer_that_has_come_is_dropped_unread(says, net) {
        let (mut peer, mut client) = client(net, |_| {}).await;
        let asked = client.ask(get());
        peer.until("\r\n\r\n").await;
        peer.send(HELLO).await;
        drop(asked.await.unwrap().unwrap());
        // What is in hand is passed over, and the connection kept.
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
    fn who_asks_gives_up(says, net) {
        let (mut peer, mut client) = client(net, |_| {}).await;
        let asked = client.ask(get());
        says.note(peer.until("\r\n\r\n").await);
        asked.abort();
        assert!(asked.await.unwrap_err().is_cancelled());
        says.note(client.ended().await);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn nobody_asks_any_more_while_a_body_comes(says, net) {
        let (mut peer, mut client) = client(net, |_| {}).await;
        let asked = client.ask(get());
        peer.until("\r\n\r\n").await;
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf").await;
        let mut body = asked.await.unwrap().unwrap().into_body();
        says.note(next(&mut body).await);
        let ending = tokio::spawn(client.let_go());
        peer.send("half").await;
        says.note(next(&mut body).await);
        says.note(next(&mut body).await);
        says.note(ending.await.unwrap());
        says.note(peer.rest().await);
    }
}
