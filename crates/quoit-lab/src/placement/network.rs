//! The network between server and generator, and its congestion control: cubic, as bbr's pacing timers distort a loopback
//! and a cable without delay.
//!
//! What a run wants of TCP is set in network namespaces that it makes, and never on the machine. Namespaces have no names,
//! so that nothing is left of a run that is killed.

use std::fs;
use std::io;
use std::sync::Arc;

use quoit_namespace::Namespace;

use super::veth::Veth;
use crate::error::Result;

const WANTED: &str = "cubic";
const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
/// What a namespace may have that is not the machine's own: others are refused it with `EPERM`, root or not
/// (`tcp_set_default_congestion_control` in `net/ipv4/tcp_cong.c`).
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// Where both sides are.
#[derive(Clone, Debug)]
pub(super) enum Network {
    /// On the machine's own network.
    Machine,
    /// On the loopback of a namespace that has nothing else.
    Loopback(Arc<Namespace>),
    /// On a cable.
    Veth(Arc<Veth>),
}

/// A network, and what is to be known of it.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) network: Network,
    /// Of connections that are made there; `None` if it is not known.
    pub(super) congestion_control: Option<String>,
    /// Why it is not as it should be.
    pub(super) note: Option<String>,
}

impl Network {
    /// Whatever the machine has.
    pub(super) fn machine() -> Prepared {
        Prepared {
            network: Self::Machine,
            congestion_control: here(),
            note: None,
        }
    }

    /// The machine's loopback where that is as wanted, and one of its own otherwise; `own_programs` are left where they may
    /// need what else is there.
    pub(super) fn loopback(own_programs: bool) -> Prepared {
        let machine = Self::machine();
        match &machine.congestion_control {
            Some(set) if set != WANTED && !own_programs => match own_loopback() {
                Ok(namespace) => Prepared {
                    network: Self::Loopback(Arc::new(namespace)),
                    congestion_control: Some(WANTED.to_owned()),
                    note: None,
                },
                Err(error) => Prepared {
                    note: Some(format!(
                        "the run is on the machine's loopback: one of its own, with {WANTED} in place of {set}, could not \
                         be made ({error}); {}",
                        what_is_missing()
                    )),
                    ..machine
                },
            },
            _ => machine,
        }
    }

    /// A cable.
    ///
    /// # Errors
    /// Those of [`Veth::make`].
    pub(super) fn veth() -> Result<Prepared> {
        let veth = Veth::make()?;
        let set = [&veth.server, &veth.generator].into_iter().try_for_each(want);
        let congestion_control = veth.server.within(here).unwrap_or_default();
        Ok(Prepared {
            network: Self::Veth(Arc::new(veth)),
            congestion_control,
            note: set.err().map(|error| {
                let missing = if is_allowed() { "" } else { what_is_missing() };
                format!("the congestion control could not be set to {WANTED} on the cable: {error} {missing}")
                    .trim_end()
                    .to_owned()
            }),
        })
    }

    /// Of the server; `None` for the machine's.
    pub(super) fn of_server(&self) -> Option<&Namespace> {
        match self {
            Self::Machine => None,
            Self::Loopback(namespace) => Some(namespace),
            Self::Veth(veth) => Some(&veth.server),
        }
    }

    /// Of the generator; `None` for the machine's.
    pub(super) fn of_generator(&self) -> Option<&Namespace> {
        match self {
            Self::Machine => None,
            Self::Loopback(namespace) => Some(namespace),
            Self::Veth(veth) => Some(&veth.generator),
        }
    }
}

/// That of the calling thread's network.
fn here() -> Option<String> {
    Some(fs::read_to_string(CONGESTION_CONTROL).ok()?.trim().to_owned())
}

/// Whether a namespace may have what is wanted.
fn is_allowed() -> bool {
    fs::read_to_string(ALLOWED).is_ok_and(|allowed| allowed.split_whitespace().any(|one| one == WANTED))
}

fn what_is_missing() -> &'static str {
    if is_allowed() {
        "it needs root and iproute2"
    } else {
        "namespaces are not allowed to use it: add cubic to net.ipv4.tcp_allowed_congestion_control"
    }
}

/// Sets what is wanted in a namespace.
fn want(namespace: &Namespace) -> io::Result<()> {
    // The file shows the namespace of the thread that opens it.
    namespace.within(|| fs::write(CONGESTION_CONTROL, WANTED))?
}

fn own_loopback() -> io::Result<Namespace> {
    let namespace = Namespace::make()?;
    namespace.run("ip link set lo up")?;
    want(&namespace)?;
    Ok(namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A namespace that stands for a machine with this congestion control, or a line that says why a test is skipped.
    fn machine_or_skip(test: &str, congestion_control: &str) -> Option<Namespace> {
        if congestion_control == WANTED && !is_allowed() {
            quoit_skipped::skip(test, what_is_missing());
            return None;
        }
        let machine = Namespace::make()
            .inspect_err(|error| quoit_skipped::skip_for(test, error, "CAP_SYS_ADMIN"))
            .ok()?;
        let set = machine.within(|| fs::write(CONGESTION_CONTROL, congestion_control));
        set.and_then(|written| written).expect("every kernel has it");
        Some(machine)
    }

    #[test]
    fn a_run_has_cubic_and_the_machine_keeps_its_own() {
        let Some(machine) = machine_or_skip("a_run_has_cubic_and_the_machine_keeps_its_own", "reno") else {
            return;
        };
        let made = machine.within(|| Network::loopback(false)).expect("ours");
        if !is_allowed() {
            let note = made.note.expect("it says what is missing");
            assert!(note.contains("tcp_allowed_congestion_control"), "{note}");
            assert!(made.network.of_server().is_none() && made.network.of_generator().is_none());
            quoit_skipped::skip_this(what_is_missing());
            return;
        }
        assert_eq!(
            (made.congestion_control.as_deref(), &made.note),
            (Some("cubic"), &None)
        );
        let inside = made.network.of_server().expect("it has its own");
        assert_eq!(inside.within(here).expect("ours").as_deref(), Some("cubic"));
        assert!(std::ptr::eq(
            inside,
            made.network.of_generator().expect("the same")
        ));
        assert_eq!(machine.within(here).expect("ours").as_deref(), Some("reno"));
    }

    #[test]
    fn programs_of_ones_own_stay_on_the_machine() {
        let Some(machine) = machine_or_skip("programs_of_ones_own_stay_on_the_machine", "reno") else {
            return;
        };
        let made = machine.within(|| Network::loopback(true)).expect("ours");
        assert!(made.network.of_server().is_none() && made.network.of_generator().is_none());
        assert_eq!(made.congestion_control.as_deref(), Some("reno"));
    }

    #[test]
    fn a_machine_with_cubic_is_good_as_it_is() {
        let Some(machine) = machine_or_skip("a_machine_with_cubic_is_good_as_it_is", "cubic") else {
            return;
        };
        let made = machine.within(|| Network::loopback(false)).expect("ours");
        assert!(made.network.of_server().is_none() && made.note.is_none());
        assert_eq!(made.congestion_control.as_deref(), Some("cubic"));
    }
}
