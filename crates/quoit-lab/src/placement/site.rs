//! Where the processes of a run are put: the cores, the network between them, and who starts the generators.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;

use super::network::{Network, Prepared};
use super::veth::Veth;
use super::{allowed_cores, confine, pin_thread};
use crate::error::{LabError, Result};
use crate::experiment::model::{Experiment, PlacementKind};
use crate::experiment::template;

/// The place of a run. What was made for it is removed with the last copy, once its processes have ended.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    server_cores: Vec<usize>,
    generator_cores: Vec<usize>,
    host: IpAddr,
    network: Network,
    congestion_control: Option<String>,
    note: Option<String>,
    /// Commands of remote generators; empty if the generator runs here.
    remote: Vec<Vec<String>>,
}

impl Site {
    /// Chooses the cores, and makes the namespaces that the placement asks for.
    ///
    /// # Errors
    /// Too few cores, or namespaces that are not permitted.
    pub(crate) fn prepare(experiment: &Experiment) -> Result<Self> {
        let (server_cores, generator_cores) = cores(experiment.placement, &allowed_cores()?)?;
        let Prepared {
            network,
            congestion_control,
            note,
        } = match experiment.placement {
            PlacementKind::Veth => Network::veth()?,
            PlacementKind::Remote => Network::machine(),
            PlacementKind::SameCore | PlacementKind::SplitCore => Network::loopback(experiment.own_programs),
        };
        let host = match (&network, experiment.host) {
            (Network::Veth(_), _) => Veth::server_address().into(),
            (_, Some(host)) => host,
            (_, None) => Ipv4Addr::LOCALHOST.into(),
        };
        Ok(Self {
            server_cores,
            generator_cores,
            host,
            network,
            congestion_control,
            note,
            remote: experiment.generators.clone(),
        })
    }

    /// In ascending order.
    pub(crate) fn server_cores(&self) -> &[usize] {
        &self.server_cores
    }

    /// Those of this machine: none if the generators run elsewhere.
    pub(crate) fn generator_cores(&self) -> &[usize] {
        &self.generator_cores
    }

    /// Where the lab itself disturbs least: on cores that neither side uses, else on those of the generator.
    ///
    /// # Errors
    /// This process's cores cannot be read.
    pub(crate) fn observer_cores(&self) -> Result<Vec<usize>> {
        let allowed = allowed_cores()?;
        let used = |core: &usize| self.server_cores.contains(core) || self.generator_cores.contains(core);
        let free: Vec<usize> = allowed.iter().copied().filter(|core| !used(core)).collect();
        Ok(match (free.is_empty(), self.generator_cores.is_empty()) {
            (false, _) => free,
            (true, false) => self.generator_cores.clone(),
            (true, true) => allowed,
        })
    }

    /// The address that servers listen on, and that generators connect to.
    pub(crate) fn server_host(&self) -> IpAddr {
        self.host
    }

    /// The address at which generators find a server that says to listen on `listening`, which may be any address
    /// (`0.0.0.0`) or the wrong loopback.
    pub(crate) fn address_for_generator(&self, listening: SocketAddr) -> SocketAddr {
        SocketAddr::new(self.host, listening.port())
    }

    /// The addresses that many connections can come from.
    pub(crate) fn sources(&self) -> Vec<IpAddr> {
        match (&self.network, self.remote.is_empty()) {
            (Network::Veth(_), _) => Veth::sources().map(IpAddr::from).collect(),
            // 127.0.0.1 is left to everything else.
            (_, true) => (2..6).map(|last| Ipv4Addr::new(127, 0, 0, last).into()).collect(),
            // Only the machine of the generator knows its own.
            (_, false) => Vec::new(),
        }
    }

    /// Makes a server run in its place, and end with this process.
    pub(crate) fn place_server(&self, command: &mut Command) {
        confine(command, &self.server_cores);
        if let Some(namespace) = self.network.of_server() {
            namespace.confine(command);
        }
    }

    /// Makes a generator or a client that runs on this machine run in its place, and end with this process.
    pub(crate) fn place_generator(&self, command: &mut Command) {
        confine(command, &self.generator_cores);
        if let Some(namespace) = self.network.of_generator() {
            namespace.confine(command);
        }
    }

    /// How connections between the two pace themselves; `None` if it is not known.
    pub(crate) fn congestion_control(&self) -> Option<&str> {
        self.congestion_control.as_deref()
    }

    /// What a reader of the figures has to know of the network.
    pub(crate) fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// How many generators there are: each gets its share of the load ([`super::remote::share`]).
    pub(crate) fn generators(&self) -> usize {
        self.remote.len().max(1)
    }

    /// Whether the generators run on this machine, so that they and this process see the same CLOCK_MONOTONIC and
    /// their CPU can be read from here.
    pub(crate) fn is_local(&self) -> bool {
        self.remote.is_empty()
    }

    /// The command that starts one of the generators in its place, for the words of `quoit load ...`.
    ///
    /// # Errors
    /// A placeholder of the template is unknown; reading the experiment has ruled that out.
    pub(crate) fn generator_command(&self, index: usize, words: &[String]) -> Result<Command> {
        let stated = match self.remote.get(index) {
            Some(template) => template::expand_generator(template, words).map_err(LabError::new)?,
            None => words.to_vec(),
        };
        let Some((program, arguments)) = stated.split_first() else {
            return Err(LabError::new("the command of the generator is empty"));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        if self.is_local() {
            self.place_generator(&mut command);
        } else {
            // What it starts elsewhere is not ours to place; the command itself ends with this process.
            confine(&mut command, &allowed_cores()?);
        }
        Ok(command)
    }

    /// Does something in the server's network, such as reading its counters, on a thread of its own that is not
    /// bound to a core.
    ///
    /// # Errors
    /// Those of `work`, and of entering the namespace.
    pub(crate) fn near_server<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        match self.network.of_server() {
            Some(namespace) => namespace.within(work)?,
            None => work(),
        }
    }

    /// Does something in the generator's place, such as reading a stream: in its network, on its cores.
    ///
    /// # Errors
    /// Those of `work`, and of getting there.
    pub(crate) fn near_generator<T: Send>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        let placed = || {
            if !self.generator_cores.is_empty() {
                pin_thread(&self.generator_cores)?;
            }
            work()
        };
        match self.network.of_generator() {
            Some(namespace) => namespace.within(placed)?,
            None => std::thread::scope(|scope| {
                let thread = scope.spawn(placed);
                let panicked = |_| Err(io::Error::other("the thread in the generator's place panicked"));
                thread.join().unwrap_or_else(panicked)
            }),
        }
    }
}

/// The cores of server and generator, among those that this process may use, from the last one down: the first one
/// usually serves the devices' interrupts.
fn cores(kind: PlacementKind, allowed: &[usize]) -> Result<(Vec<usize>, Vec<usize>)> {
    match (kind, allowed) {
        (PlacementKind::SameCore, [.., last]) => Ok((vec![*last], vec![*last])),
        (PlacementKind::SplitCore | PlacementKind::Veth, [_, .., _]) => {
            let (generator, server) = allowed.split_at(allowed.len() / 2);
            Ok((server.to_vec(), generator.to_vec()))
        }
        // The generators use no core of this machine; the first is left to the devices and the lab.
        (PlacementKind::Remote, [_, server @ ..]) if !server.is_empty() => Ok((server.to_vec(), Vec::new())),
        (PlacementKind::Remote, [only]) => Ok((vec![*only], Vec::new())),
        _ => Err(LabError::new(format!(
            "placing server and generator: this process may use {} core(s), which is not enough; use --placement \
             same-core or allow more with taskset or the container's CPU set",
            allowed.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::super::veth::tests::veth_or_skip;
    use super::*;
    use crate::experiment::find;

    fn experiment(placement: PlacementKind) -> Experiment {
        let (experiment, _) = find("plaintext").expect("it is built in");
        Experiment {
            placement,
            ..experiment
        }
    }

    /// What `sh -c` prints that is placed so.
    fn printed(script: &str, place: impl Fn(&mut Command)) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        place(&mut command);
        let output = command.output().expect("sh runs");
        String::from_utf8(output.stdout).expect("text")
    }

    #[test]
    fn cores_are_chosen_from_the_last_one_down() {
        let chosen = |kind, allowed: &[usize]| cores(kind, allowed).map_err(|error| error.to_string());
        assert_eq!(chosen(PlacementKind::SameCore, &[0, 3]), Ok((vec![3], vec![3])));
        assert_eq!(chosen(PlacementKind::SplitCore, &[0, 3]), Ok((vec![3], vec![0])));
        assert_eq!(chosen(PlacementKind::Veth, &[0, 1, 2]), Ok((vec![1, 2], vec![0])));
        assert_eq!(
            chosen(PlacementKind::Remote, &[0, 1, 2]),
            Ok((vec![1, 2], vec![]))
        );
        assert_eq!(chosen(PlacementKind::Remote, &[5]), Ok((vec![5], vec![])));
        let refused = chosen(PlacementKind::Veth, &[5]).expect_err("two are needed");
        assert!(refused.contains("--placement same-core"), "{refused}");
    }

    #[test]
    fn over_loopback_both_are_confined() {
        let site = Site::prepare(&experiment(PlacementKind::SameCore)).expect("one core is enough");
        let status = printed("grep Cpus_allowed_list /proc/self/status", |command| {
            site.place_server(command)
        });
        assert_eq!(
            status,
            format!("Cpus_allowed_list:\t{}\n", site.server_cores()[0])
        );
        assert_eq!((site.generators(), site.is_local()), (1, true));
        let listening = "0.0.0.0:80".parse().expect("an address");
        assert_eq!(site.address_for_generator(listening).to_string(), "127.0.0.1:80");
        let command = site.generator_command(0, &["a b".to_owned(), "c".to_owned()]);
        assert_eq!(format!("{:?}", command.expect("it is complete")), r#""a b" "c""#);
    }

    #[test]
    fn over_veth_each_has_its_network() {
        if veth_or_skip("over_veth_each_has_its_network").is_none() {
            return;
        }
        let site = match Site::prepare(&experiment(PlacementKind::Veth)) {
            Ok(site) => site,
            Err(error) => return quoit_skipped::skip_this(error),
        };
        let links = "cat /proc/self/net/dev";
        let server = printed(links, |command| site.place_server(command));
        let generator = printed(links, |command| site.place_generator(command));
        assert!(
            server.contains("quoit-server:") && !server.contains("quoit-load:"),
            "{server}"
        );
        assert!(
            generator.contains("quoit-load:") && !generator.contains("quoit-server:"),
            "{generator}"
        );

        let listener = site.near_server(|| TcpListener::bind((site.server_host(), 0)));
        let address = listener
            .as_ref()
            .expect("it listens")
            .local_addr()
            .expect("it is bound");
        site.near_generator(|| TcpStream::connect(site.address_for_generator(address)))
            .expect("the generator reaches it");
        assert_eq!(site.sources().len(), Veth::sources().count());
    }

    #[test]
    fn a_remote_generator_runs_where_its_command_takes_it() {
        let Some(elsewhere) = veth_or_skip("a_remote_generator_runs_where_its_command_takes_it") else {
            return;
        };
        let template = [
            "nsenter".to_owned(),
            format!("--net={}", elsewhere.generator.path()),
            "{generator}".to_owned(),
        ];
        let site = Site::prepare(&Experiment {
            generators: vec![template.to_vec()],
            host: Some("192.0.2.1".parse().expect("an address")),
            ..experiment(PlacementKind::Remote)
        })
        .expect("one core is enough");
        assert_eq!((site.generators(), site.is_local()), (1, false));
        assert_eq!(site.server_host().to_string(), "192.0.2.1");
        let words = ["cat", "/proc/self/net/dev"].map(str::to_owned);
        let output = site
            .generator_command(0, &words)
            .expect("it is complete")
            .output();
        let links = String::from_utf8(output.expect("nsenter runs").stdout).expect("text");
        assert!(links.contains("quoit-load:"), "{links}");
    }
}
