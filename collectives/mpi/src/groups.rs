//! Communicators by their ranks: created at the first agreement, cached, and freed jointly.

use std::collections::HashMap;
use std::ffi::c_int;
use std::time::Duration;

use reshard_collectives::{Error, Exchange, Location};

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

    /// Returns the communicator of all ranks.
    pub(crate) fn world(&self) -> &Handle {
        &self.world
    }

    /// Returns the number of communicators, including that of all ranks.
    pub(crate) fn count(&self) -> usize {
        self.made.len() + 1
    }

    /// Returns the communicator of an exchange's members, if it exists.
    pub(crate) fn get(&self, exchange: &Exchange) -> Result<&Handle, Error> {
        let members = exchange.members();
        let whole = members.len() == self.world.size();
        let known = if whole { Some(&self.world) } else { self.made.get(members) };
        known.ok_or_else(|| exchange.not_agreed())
    }

    /// Compares the members' tags, and creates their communicator if it does not exist. Collective over them.
    ///
    /// Errors: [`Error::Mismatch`] on every member if the tags differ.
    pub(crate) fn agree(
        &mut self,
        exchange: &Exchange,
        requests: &mut Requests,
        time_out: Duration,
    ) -> Result<(), Error> {
        let (members, place) = (exchange.members(), exchange.place());
        let tag = (TAGS / 2 + fingerprint(members) % (TAGS / 2 - 1)) as c_int;
        let words = meet(&self.world, tag, &[exchange.tag()], &place, requests, time_out)?;
        exchange.check_tags(members.iter().copied().zip(words.into_iter().flatten()))?;
        if members.len() < self.world.size() && !self.made.contains_key(members) {
            // All members have arrived, so this takes little time; otherwise the timeout ends it.
            let what = format!("creating the communicator of {place}");
            let made = watchdog::within(time_out, &what, || self.world.subgroup(members, tag))?;
            self.made.insert(members.into(), made);
        }
        Ok(())
    }
}

/// Gathers every member's words on every member, in member order; returns after all have arrived.
pub(crate) fn meet(
    world: &Handle,
    tag: c_int,
    words: &[u64],
    place: &Location,
    requests: &mut Requests,
    time_out: Duration,
) -> Result<Vec<Vec<u64>>, Error> {
    let sent: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut received = vec![sent.clone(); place.group.len()];
    requests.scope(world, |scope| {
        for (bytes, &peer) in received.iter_mut().zip(&place.group) {
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
                None => Error::Engine {
                    rank: world.rank(),
                    message: format!("no message is in flight in {place}, but it is not complete"),
                },
            })?;
        }
        Ok(())
    })?;
    // Eight bytes each.
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    Ok(received.iter().map(|bytes| bytes.chunks(8).map(word).collect()).collect())
}

/// Returns the FNV-1a hash of the ranks.
fn fingerprint(members: &[usize]) -> u64 {
    let bytes = members.iter().flat_map(|member| (*member as u64).to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
