//! Communicators by the ranks that they hold: made when first met, kept, freed together.

use std::collections::HashMap;
use std::ffi::c_int;
use std::time::Duration;

use reshard_collectives::{Error, Place};

use crate::exchange::Patience;
use crate::raw::{Handle, Requests, TAGS};
use crate::watchdog;

/// All communicators of an engine.
pub(crate) struct Groups {
    world: Handle,
    made: HashMap<Box<[usize]>, Handle>,
}

impl Groups {
    pub(crate) fn new(world: Handle) -> Groups {
        Groups { world, made: HashMap::new() }
    }

    /// The communicator of all ranks.
    pub(crate) fn world(&self) -> &Handle {
        &self.world
    }

    /// How many communicators there are, that of all ranks included.
    pub(crate) fn count(&self) -> usize {
        self.made.len() + 1
    }

    /// The communicator of some members, ascending. Collective over them if it is not known yet.
    pub(crate) fn get(
        &mut self,
        members: &[usize],
        step: usize,
        requests: &mut Requests,
        time_out: Duration,
    ) -> Result<&Handle, Error> {
        if members.len() == self.world.size() {
            return Ok(&self.world);
        }
        if !self.made.contains_key(members) {
            // First a meeting that has a time-out, then the call that has none.
            let place = Place { step, group: members.to_vec() };
            let name = fingerprint(members);
            let tag = (TAGS / 2 + name % (TAGS / 2)) as c_int;
            let names = meet(&self.world, members, tag, name, &place, requests, time_out)?;
            if let Some(other) = names.iter().position(|other| *other != name) {
                return Err(Error::Mismatch { rank: members[other], place });
            }
            let what = format!("making the communicator of {place}");
            let made = watchdog::within(time_out, &what, || self.world.subgroup(members, tag))?;
            self.made.insert(members.into(), made);
        }
        self.made.get(members).ok_or(Error::NotInPlan { rank: self.world.rank() })
    }
}

/// Gives every member's word to every member, in their order. Nobody returns before all have come.
pub(crate) fn meet(
    world: &Handle,
    members: &[usize],
    tag: c_int,
    word: u64,
    place: &Place,
    requests: &mut Requests,
    time_out: Duration,
) -> Result<Vec<u64>, Error> {
    let sent = word.to_ne_bytes();
    let mut received = vec![sent; members.len()];
    requests.scope(world, |scope| {
        for (bytes, &peer) in received.iter_mut().zip(members) {
            if peer != world.rank() {
                scope.receive(peer, tag, bytes, 0)?;
                scope.send(peer, tag, &sent)?;
            }
        }
        let mut patience = Patience::new(time_out);
        while scope.is_open() {
            let progress = scope.poll()?;
            patience.after(progress, || match scope.waits_for() {
                Some((rank, _)) => Error::TimedOut { rank, place: place.clone(), after: time_out },
                None => Error::Engine { rank: world.rank(), message: "waiting for nobody".to_string() },
            })?;
        }
        Ok(())
    })?;
    Ok(received.into_iter().map(u64::from_ne_bytes).collect())
}

/// FNV-1a of the ranks.
fn fingerprint(members: &[usize]) -> u64 {
    let bytes = members.iter().flat_map(|member| (*member as u64).to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
