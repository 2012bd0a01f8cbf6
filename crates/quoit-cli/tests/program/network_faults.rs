//! A network that loses packets, resets connections and falls silent: two namespaces joined by a virtual cable, with
//! nftables between them and the real server. Nothing outside of them is touched. And peers that reset.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use quoit_skipped::{skip, skip_for};

use crate::cable::{Cable, ENTERED, SERVER};
use crate::support::{Server, connect, engines, quoit, reset};
use crate::traffic::{self, Harm};

/// Server and clients, and what is between them: an empty table of nftables on the server's side.
struct Network(Cable);

impl Network {
    /// The network, or a line that says why a test is skipped.
    fn or_skip(test: &str) -> Option<Self> {
        let cable = Cable::or_skip(test)?;
        let table = || {
            cable.server.run("nft add table inet faults")?;
            for hook in ["input", "output"] {
                cable.server.run(&format!(
                    "nft add chain inet faults {hook} {{ type filter hook {hook} priority 0 ; }}"
                ))?;
            }
            Ok(())
        };
        table()
            .inspect_err(|error| skip_for(test, error, "CAP_NET_ADMIN"))
            .ok()?;
        Some(Self(cable))
    }

    fn serve(&self, engine: &str, arguments: &str) -> Server {
        let listen = format!("serve {arguments} --engine {engine} --listen {SERVER}:0");
        let mut command = quoit(&listen);
        self.0.server.confine(&mut command);
        Server::start_command(command, 1)
    }

    /// Does this with every TCP packet that passes these hooks, seen from the server, and fits the condition.
    fn add_rules(&self, hooks: &[&str], condition: &str, verdict: &str) -> io::Result<()> {
        for hook in hooks {
            self.0.server.run(&format!(
                "nft add rule inet faults {hook} meta l4proto tcp {condition} counter {verdict}"
            ))?;
        }
        Ok(())
    }

    /// Takes all rules away, and returns how many packets they have met.
    fn clear_rules(&self) -> u64 {
        let text = self
            .0
            .server
            .run("nft list table inet faults")
            .expect("it can be listed");
        for hook in ["input", "output"] {
            self.0
                .server
                .run(&format!("nft flush chain inet faults {hook}"))
                .expect("it can be emptied");
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        words
            .windows(2)
            .filter(|pair| pair[0] == "packets")
            .map(|pair| pair[1].parse::<u64>().expect("a number"))
            .sum()
    }
}

#[test]
fn lost_packets_lose_nothing() {
    const TEST: &str = "lost_packets_lose_nothing";
    let Some(network) = Network::or_skip(TEST) else {
        return;
    };
    for engine in engines() {
        let mut server = network.serve(engine, "echo");
        let before = traffic::open_descriptors(&server);
        let address = server.address();
        if let Err(error) = network.add_rules(&["input", "output"], "numgen inc mod 29 0", "drop") {
            skip(TEST, error);
            return;
        }
        network
            .0
            .clients
            .within(|| traffic::exchange(address, Harm::None))
            .expect(ENTERED);
        let lost = network.clear_rules();
        println!("{engine}: {lost} packets were lost");
        assert!(lost > 0);
        traffic::wait_for_descriptors(&server, before);
        server.terminate();
        server.ends_with(0);
    }
}

/// Resets that no peer has made, as of a firewall that forgets: the clients are told, the server is not.
#[test]
fn resets_from_the_network_end_their_connections_alone() {
    const TEST: &str = "resets_from_the_network_end_their_connections_alone";
    let Some(network) = Network::or_skip(TEST) else {
        return;
    };
    for engine in engines() {
        let mut server = network.serve(engine, "echo --drain 1");
        let before = traffic::open_descriptors(&server);
        let address = server.address();
        let mut clients: Vec<TcpStream> = network
            .0
            .clients
            .within(|| (0..8).map(|_| connect(address)).collect())
            .expect(ENTERED);
        clients.iter_mut().for_each(echo);
        if let Err(error) = network.add_rules(&["input"], "", "reject with tcp reset") {
            skip(TEST, error);
            return;
        }
        for client in &mut clients {
            // The segment is answered with a reset in the server's place.
            client.write_all(b"?").unwrap();
            let error = client.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{engine}: {error}");
        }
        assert!(network.clear_rules() >= 8);
        // The server has been told nothing, so its ends are half open. Others are served.
        network
            .0
            .clients
            .within(|| traffic::exchange(address, Harm::None))
            .expect(ENTERED);
        assert_eq!(
            traffic::open_descriptors(&server),
            before + clients.len(),
            "{engine}"
        );
        // Whoever has the same port again tells it; here draining gives them up at its deadline.
        drop(clients);
        server.terminate();
        server.ends_with(0);
    }
}

/// Peers that reset with everything in flight, next to others who must not notice.
#[test]
fn resets_by_peers_leave_nothing_behind() {
    for engine in engines() {
        let mut server = Server::on(engine, "echo");
        let before = traffic::open_descriptors(&server);
        let address = server.address();
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..200_usize {
                    let mut stream = connect(address);
                    match round % 4 {
                        // At once; in the midst of what it sends; with the answer unread; after its own end.
                        0 => {}
                        1 => {
                            let _ = stream.write(&[7; 300_000]).unwrap();
                        }
                        2 => echo(&mut stream),
                        _ => {
                            stream.write_all(&[7; 1000]).unwrap();
                            stream.shutdown(Shutdown::Write).unwrap();
                        }
                    }
                    reset(stream);
                }
            });
            scope.spawn(|| traffic::exchange(address, Harm::None));
        });
        traffic::wait_for_descriptors(&server, before);
        server.terminate();
        server.ends_with(0);
    }
}

fn echo(stream: &mut TcpStream) {
    stream.write_all(b"there and back").unwrap();
    let mut back = [0; 14];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"there and back");
}
