//! An engine of somebody else: ranks that share no memory and send messages through channels. It shows that the contract
//! needs no view of a peer's buffer, and checks packing and unpacking against the threads engine.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use reshard_collectives::threads::World;
use reshard_collectives::{Communicator, Compiled, Error, Exchange};
use reshard_kernels::DType;
use reshard_sharding::redistribute::{Plan, Planner};
use reshard_sharding::{Mesh, Sharding};

/// A packed message: who sent it, of which phase, and the bytes.
type Letter = (usize, u64, Vec<u8>);

/// What letters are about in which ranks compare their plans.
const AGREEMENT: u64 = u64::MAX;

/// A rank with a mailbox and everybody's address.
struct Mailbox {
    rank: usize,
    inbox: Receiver<Letter>,
    early: VecDeque<Letter>,
    addresses: Vec<Sender<Letter>>,
}

/// An exchange whose messages have gone out.
struct Posted<'a> {
    exchange: &'a Exchange,
    source: &'a [u8],
    target: &'a mut [u8],
}

impl Mailbox {
    fn all(size: usize) -> Vec<Mailbox> {
        let (addresses, inboxes): (Vec<_>, Vec<_>) = (0..size).map(|_| channel()).unzip();
        let mailbox =
            |(rank, inbox)| Mailbox { rank, inbox, early: VecDeque::new(), addresses: addresses.clone() };
        inboxes.into_iter().enumerate().map(mailbox).collect()
    }

    fn fetch(&mut self, peer: usize, tag: u64, exchange: &Exchange) -> Result<Vec<u8>, Error> {
        let wanted = |letter: &Letter| (letter.0, letter.1) == (peer, tag);
        if let Some(at) = self.early.iter().position(wanted) {
            return Ok(self.early.remove(at).unwrap().2);
        }
        loop {
            match self.inbox.recv_timeout(self.time_out()) {
                Ok(letter) if wanted(&letter) => return Ok(letter.2),
                Ok(letter) => self.early.push_back(letter),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Err(Error::TimedOut {
                        rank: peer,
                        place: exchange.place(),
                        after: self.time_out(),
                    });
                }
            }
        }
    }
}

impl Communicator for Mailbox {
    type Buffer = [u8];
    type Owned = Vec<u8>;
    type Pending<'a> = Posted<'a>;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.addresses.len()
    }

    fn time_out(&self) -> Duration {
        Duration::from_secs(20)
    }

    fn allocate(&self, bytes: usize) -> Result<Vec<u8>, Error> {
        Ok(vec![0; bytes])
    }

    fn staging_bytes(&self, exchange: &Exchange) -> Result<usize, Error> {
        Ok(exchange.sends().iter().map(reshard_collectives::Send::bytes).max().unwrap_or(0))
    }

    fn agree(&mut self, exchange: &Exchange) -> Result<(), Error> {
        let others: Vec<usize> =
            exchange.members().iter().copied().filter(|peer| *peer != self.rank).collect();
        for &peer in &others {
            let letter = (self.rank, AGREEMENT, exchange.tag().to_ne_bytes().to_vec());
            let _ = self.addresses[peer].send(letter);
        }
        let mut differs = None;
        for peer in others {
            let tag = self.fetch(peer, AGREEMENT, exchange)?;
            differs = differs.or((tag != exchange.tag().to_ne_bytes()).then_some(peer));
        }
        match differs {
            Some(rank) => Err(Error::Mismatch { rank, place: exchange.place() }),
            None => Ok(()),
        }
    }

    fn post<'a>(
        &mut self,
        exchange: &'a Exchange,
        source: &'a [u8],
        target: &'a mut [u8],
        staging: &'a mut [u8],
    ) -> Result<Posted<'a>, Error> {
        for send in exchange.sends() {
            send.pack(staging, source)?;
            let letter = (self.rank, exchange.tag(), staging[..send.bytes()].to_vec());
            // A peer that has gone is noticed when something is wanted from it.
            let _ = self.addresses[send.peer()].send(letter);
        }
        Ok(Posted { exchange, source, target })
    }

    fn wait(&mut self, posted: Posted<'_>) -> Result<(), Error> {
        let Posted { exchange, source, target } = posted;
        exchange.prepare(target)?;
        for receive in exchange.receives() {
            if receive.peer() == self.rank {
                receive.take(target, source)?;
            } else {
                let message = self.fetch(receive.peer(), exchange.tag(), exchange)?;
                receive.unpack(target, &message)?;
            }
        }
        exchange.finish(target)
    }
}

/// Carries a plan out with a thread and a mailbox for each rank.
fn by_mail(plan: &Plan, dtype: DType, shards: &[Vec<u8>]) -> Vec<Vec<u8>> {
    std::thread::scope(|scope| {
        let run = |(mut mailbox, shard): (Mailbox, &'_ Vec<u8>)| {
            let shard = shard.clone();
            scope.spawn(move || {
                let compiled = Compiled::new(plan, mailbox.rank, dtype)?;
                let mut scratch = compiled.scratch(&mut mailbox)?;
                let mut target = vec![0; compiled.target_bytes()];
                compiled.run(&mut mailbox, &shard, &mut target, &mut scratch)?;
                Ok::<_, Error>(target)
            })
        };
        let ranks: Vec<_> = Mailbox::all(shards.len()).into_iter().zip(shards).map(run).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap().unwrap()).collect()
    })
}

#[test]
fn messages_and_shared_memory_agree() {
    let mesh = Mesh::new([("x", 2), ("y", 3)]).unwrap();
    let mut world = World::new(6).unwrap();
    let texts = ["R,R", "S(0),S(1)", "S(1),S(0)", "SS(0,3),S(0)", "P,S(0)", "S(1),P", "P,P", "R,S(1)"];
    for shape in [&[12, 18][..], &[7, 5], &[1200, 900]] {
        // The large one, where ranks take from each other before all have come, with few pairs.
        let texts = if shape[0] > 1000 { &texts[1..5] } else { &texts[..] };
        for from in texts {
            for to in texts {
                let parse = |text: &str| Sharding::parse(&mesh, shape, text).unwrap();
                let (source, target) = (parse(from), parse(to));
                let plan = Planner::new().plan(&source, &target, 4).unwrap();
                // Replicas must agree, so the data depends on the place in the shard only.
                let shard = |rank: usize| {
                    let held = reshard_sharding::meaning::held(&source, rank).unwrap();
                    held.into_iter()
                        .flat_map(|e| (0.1f32 + e as f32 * 1.7).to_ne_bytes())
                        .collect::<Vec<u8>>()
                };
                let shards: Vec<Vec<u8>> = mesh.ranks().map(shard).collect();
                let (want, _) = world.redistribute(&plan, DType::F32, &shards).unwrap();
                assert!(by_mail(&plan, DType::F32, &shards) == want, "{from} -> {to} of {shape:?}");
            }
        }
    }
}
