//! Options of UDP sockets that are bound.

use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::io::Interest;

use crate::scenario;

scenario! {
    fn options_are_read_as_they_were_set(says) {
        let (socket, _) = udp().await;
        says.told("broadcast", socket.broadcast());
        says.told("loop", socket.multicast_loop_v4());
        says.told("ttl of groups", socket.multicast_ttl_v4());
        says.told("device", socket.device());
        socket.set_broadcast(true).unwrap();
        socket.set_multicast_loop_v4(false).unwrap();
        socket.set_multicast_ttl_v4(9).unwrap();
        socket.set_ttl(77).unwrap();
        socket.set_tos_v4(0x10).unwrap();
        says.told("broadcast", socket.broadcast());
        says.told("loop", socket.multicast_loop_v4());
        says.told("ttl of groups", socket.multicast_ttl_v4());
        says.told("ttl", socket.ttl());
        says.told("tos", socket.tos_v4());
        says.told("no such device", socket.bind_device(Some(b"nothere")));
        says.told("error", socket.take_error().map(|error| error.is_none()));
        let v6 = UdpSocket::bind("[::1]:0").await.unwrap();
        says.told("loop", v6.multicast_loop_v6());
        v6.set_multicast_loop_v6(false).unwrap();
        v6.set_tclass_v6(0x20).unwrap();
        says.told("loop", v6.multicast_loop_v6());
        says.told("class", v6.tclass_v6());
    }
}

scenario! {
    fn broadcast_has_to_be_allowed(says) {
        let (socket, _) = udp().await;
        socket.set_broadcast(true).unwrap();
        says.told("allowed", socket.send_to(b"x", "127.255.255.255:9").await);
    }
}

scenario! {
    fn what_is_sent_to_a_group_comes_to_who_has_joined(says) {
        let group = Ipv4Addr::new(239, 255, 77, 41);
        let here = Ipv4Addr::LOCALHOST;
        let member = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        let at = (group, member.local_addr().unwrap().port());
        let (sender, sender_at) = udp().await;
        says.told("join", member.join_multicast_v4(group, here));
        says.told("twice", member.join_multicast_v4(group, here));
        sender.send_to(b"hello", at).await.unwrap();
        let mut buffer = [0; 8];
        assert_eq!(member.recv_from(&mut buffer).await.unwrap(), (5, sender_at));
        says.told("leave", member.leave_multicast_v4(group, here));
        says.told("twice", member.leave_multicast_v4(group, here));

        let group: Ipv6Addr = "ff01::4:7711".parse().unwrap();
        let v6 = UdpSocket::bind("[::]:0").await.unwrap();
        // The loopback interface.
        says.told("join", v6.join_multicast_v6(&group, 1));
        says.told("leave", v6.leave_multicast_v6(&group, 1));
        says.told("twice", v6.leave_multicast_v6(&group, 1));
        says.told("no interface", v6.join_multicast_v6(&group, 999_999));
    }
}

scenario! {
    fn what_the_network_tells_is_taken_once(says) {
        let (socket, _) = udp().await;
        let (_bound, refuses) = crate::support::nobody();
        socket.connect(refuses).await.unwrap();
        says.told("send", socket.send(b"x").await);
        says.note(format!("{}", socket.ready(Interest::ERROR).await.unwrap().is_error()));
        let error = socket.take_error().unwrap().unwrap();
        says.note(format!("{:?} {:?}", error.kind(), error.raw_os_error()));
        says.told("once", socket.take_error().map(|error| error.is_none()));
        says.told("nothing", socket.try_recv(&mut [0; 8]));
    }
}
