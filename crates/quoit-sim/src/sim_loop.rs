//! The loop of a run.

use std::ops::{Deref, DerefMut};

use quoit::Loop;
use quoit::internals::engine::Engine;
use quoit_sim_kernel::faces::SimSockets;

/// A loop on the simulated kernel. Never dropped by unwinding: one that has failed must not be asked to end well.
#[derive(Debug)]
pub(crate) struct SimLoop<E: Engine>(Option<Loop<E, SimSockets>>);

impl<E: Engine> SimLoop<E> {
    pub(crate) fn new(event_loop: Loop<E, SimSockets>) -> Self {
        Self(Some(event_loop))
    }
}

impl<E: Engine> Deref for SimLoop<E> {
    type Target = Loop<E, SimSockets>;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref().expect("taken only when it is dropped")
    }
}

impl<E: Engine> DerefMut for SimLoop<E> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.as_mut().expect("taken only when it is dropped")
    }
}

impl<E: Engine> Drop for SimLoop<E> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::mem::forget(self.0.take());
        }
    }
}
