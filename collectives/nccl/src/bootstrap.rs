//! Distribution of one id to ranks that are separate processes.
//!
//! Rank 0 creates it, by `Real::make_id`; the others get it from one of three sources:
//!
//! * over TCP from rank 0, which listens on the address in torchrun's variables: `Comm::from_env`;
//! * from a file on a shared file system: [`through_file`];
//! * by a broadcast of the caller, such as MPI's: [`by_broadcast`].

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use reshard_collectives::Error;

use crate::UniqueId;

/// The first bytes of a rank's message in this protocol.
const HELLO: [u8; 8] = *b"reshard1";
/// Time between two polls of the network or of a file.
const PAUSE: Duration = Duration::from_millis(10);
/// Timeout for one peer that has connected, or may exist.
const PATIENCE: Duration = Duration::from_secs(2);

/// The rendezvous of the ranks: rank 0 listens there, the others connect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct Rendezvous {
    /// This rank.
    pub rank: usize,
    /// The number of ranks.
    pub size: usize,
    /// The host of rank 0.
    pub address: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Rendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} at {}:{}", self.rank, self.size, self.address, self.port)
    }
}

impl std::str::FromStr for Rendezvous {
    type Err = Error;

    fn from_str(input: &str) -> Result<Rendezvous, Error> {
        let parse = || {
            let (rank, rest) = input.trim().strip_prefix("rank ")?.split_once(" of ")?;
            let (size, place) = rest.split_once(" at ")?;
            let (address, port) = place.rsplit_once(':')?;
            let (rank, size, port) = (rank.parse().ok()?, size.parse().ok()?, port.parse().ok()?);
            (rank < size && !address.is_empty()).then(|| Rendezvous {
                rank,
                size,
                address: address.to_string(),
                port,
            })
        };
        parse().ok_or_else(|| Error::Parse {
            input: input.to_string(),
            message: "expected a text such as `rank 0 of 2 at host:29500`".to_string(),
        })
    }
}

fn failed(rank: usize, message: String) -> Error {
    Error::Engine { rank, message }
}

impl Rendezvous {
    /// Reads the rendezvous from the environment variables of torchrun.
    ///
    /// These are `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`. The port is `RESHARD_PORT` if that is
    /// set; else `MASTER_PORT`, or the one after it if torchrun itself listens on that port
    /// (`TORCHELASTIC_USE_AGENT_STORE=True`). Errors: the name of a variable that is missing or wrong.
    pub fn from_env() -> Result<Rendezvous, Error> {
        Rendezvous::from_variables(&|name| std::env::var(name).ok())
    }

    /// Reads the rendezvous as [`from_env`](Rendezvous::from_env), with variables from another source.
    ///
    /// ```
    /// use reshard_nccl::bootstrap::Rendezvous;
    /// let variables = |name: &str| match name {
    ///     "RANK" => Some("1".to_string()),
    ///     "WORLD_SIZE" => Some("2".to_string()),
    ///     "MASTER_ADDR" => Some("node0".to_string()),
    ///     "MASTER_PORT" => Some("29500".to_string()),
    ///     _ => None,
    /// };
    /// let rendezvous = Rendezvous::from_variables(&variables)?;
    /// assert_eq!(rendezvous.to_string(), "rank 1 of 2 at node0:29500");
    /// assert_eq!(rendezvous, rendezvous.to_string().parse()?);
    /// # Ok::<(), reshard_collectives::Error>(())
    /// ```
    pub fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Result<Rendezvous, Error> {
        let get = |name: &str| {
            variable(name).ok_or_else(|| {
                let way_out =
                    "start the program with torchrun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT";
                failed(0, format!("{name} is not set; {way_out}"))
            })
        };
        let number = |name: &str| -> Result<usize, Error> {
            let text = get(name)?;
            text.trim().parse().map_err(|_| failed(0, format!("{name} is {text:?}, which is not a number")))
        };
        let (rank, size) = (number("RANK")?, number("WORLD_SIZE")?);
        if rank >= size {
            return Err(failed(rank, format!("RANK is {rank}, but must be less than WORLD_SIZE, {size}")));
        }
        let (name, add) = if variable("RESHARD_PORT").is_some() {
            ("RESHARD_PORT", 0)
        } else {
            let agent = variable("TORCHELASTIC_USE_AGENT_STORE");
            ("MASTER_PORT", usize::from(agent.is_some_and(|text| text.eq_ignore_ascii_case("true"))))
        };
        let port = number(name)? + add;
        let port =
            u16::try_from(port).map_err(|_| failed(rank, format!("port {port} ({name}) is out of range")))?;
        Ok(Rendezvous { rank, size, address: get("MASTER_ADDR")?, port })
    }

    /// Sends the id that rank 0 creates to all ranks.
    ///
    /// Requires that all ranks call it. Errors: the rank and address it waited for, after the timeout; ranks
    /// with a different number of ranks; the errors of `make`.
    pub fn meet(
        &self,
        time_out: Duration,
        make: impl FnOnce() -> Result<UniqueId, reshard_cuda::Error>,
    ) -> Result<UniqueId, Error> {
        let end = Instant::now() + time_out;
        if self.rank > 0 {
            return self.ask(time_out, end);
        }
        let id = make().map_err(|e| failed(0, e.to_string()))?;
        if self.size > 1 {
            self.answer(&id, time_out, end)?;
        }
        Ok(id)
    }

    fn places(&self) -> std::io::Result<Vec<SocketAddr>> {
        Ok((self.address.as_str(), self.port).to_socket_addrs()?.collect())
    }

    fn listen(&self) -> std::io::Result<TcpListener> {
        let places = self.places()?;
        TcpListener::bind(places.as_slice()).or_else(|e| {
            // The address may be one that other hosts use for this host, but that this host does not know.
            if e.kind() == ErrorKind::AddrNotAvailable {
                TcpListener::bind(("0.0.0.0", self.port))
            } else {
                Err(e)
            }
        })
    }

    /// Runs on rank 0: sends the id to all ranks.
    fn answer(&self, id: &UniqueId, time_out: Duration, end: Instant) -> Result<(), Error> {
        let Rendezvous { size, address, port, .. } = self;
        let listener = self.listen().and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = listener.map_err(|e| {
            let way_out = "set RESHARD_PORT to a free port on all ranks";
            failed(0, format!("rank 0 cannot listen at {address}:{port} ({e}); {way_out}"))
        })?;
        let mut missing: Vec<usize> = (1..*size).collect();
        while !missing.is_empty() {
            if Instant::now() >= end {
                let message =
                    format!("ranks {missing:?} did not connect to {address}:{port} within {time_out:?}");
                return Err(failed(0, message));
            }
            let Ok((stream, _)) = listener.accept() else {
                std::thread::sleep(PAUSE);
                continue;
            };
            // A peer that breaks off connects again, or was not a rank of this job.
            let Ok((rank, theirs)) = greeted(&stream) else { continue };
            if theirs != *size || rank >= *size {
                let _ = reply(&stream, &[1], *size);
                let message = format!("rank {rank} was started with {theirs} ranks, but rank 0 with {size}");
                return Err(failed(0, message));
            }
            if reply(&stream, &id.0, *size).is_ok() {
                missing.retain(|other| *other != rank);
            }
        }
        Ok(())
    }

    /// Runs on the other ranks: requests the id from rank 0.
    fn ask(&self, time_out: Duration, end: Instant) -> Result<UniqueId, Error> {
        let Rendezvous { rank, size, address, port } = self;
        loop {
            let why = match self.ask_once() {
                Ok(Ok(id)) => return Ok(id),
                Ok(Err(theirs)) => {
                    let message =
                        format!("rank {rank} was started with {size} ranks, but rank 0 with {theirs}");
                    return Err(failed(*rank, message));
                }
                Err(e) => e,
            };
            if Instant::now() >= end {
                let message = format!(
                    "rank {rank} got no answer from rank 0 at {address}:{port} within {time_out:?}: {why}"
                );
                return Err(failed(*rank, message));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Returns the id, or the number of ranks according to rank 0.
    fn ask_once(&self) -> std::io::Result<Result<UniqueId, usize>> {
        let mut last = std::io::Error::from(ErrorKind::AddrNotAvailable);
        for place in self.places()? {
            let mut stream = match TcpStream::connect_timeout(&place, PATIENCE) {
                Ok(stream) => stream,
                Err(e) => {
                    last = e;
                    continue;
                }
            };
            stream.set_read_timeout(Some(PATIENCE))?;
            let number = |n: usize| (n as u32).to_le_bytes();
            stream.write_all(&[&HELLO[..], &number(self.rank), &number(self.size)].concat())?;
            let mut head = [0; 12];
            stream.read_exact(&mut head)?;
            if head[..8] != HELLO {
                return Err(std::io::Error::other("another service listens there"));
            }
            let theirs = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
            if theirs != self.size {
                return Ok(Err(theirs));
            }
            let mut id = [0; UniqueId::BYTES];
            stream.read_exact(&mut id)?;
            return Ok(Ok(UniqueId(id)));
        }
        Err(last)
    }
}

/// Returns the rank and the number of ranks that a connected peer reports.
fn greeted(mut stream: &TcpStream) -> std::io::Result<(usize, usize)> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut hello = [0; 16];
    stream.read_exact(&mut hello)?;
    if hello[..8] != HELLO {
        return Err(std::io::Error::from(ErrorKind::InvalidData));
    }
    let number = |at: usize| u32::from_le_bytes([hello[at], hello[at + 1], hello[at + 2], hello[at + 3]]);
    Ok((number(8) as usize, number(12) as usize))
}

fn reply(mut stream: &TcpStream, bytes: &[u8], size: usize) -> std::io::Result<()> {
    stream.write_all(&[&HELLO[..], &(size as u32).to_le_bytes(), bytes].concat())
}

/// Passes the id that rank 0 creates to all ranks, through a shared file.
///
/// The file must not exist when the job begins: rank 0 rejects an existing one, but others may have read it
/// by then. It can be removed when all ranks have their communicator.
pub fn through_file(
    path: &Path,
    rank: usize,
    time_out: Duration,
    make: impl FnOnce() -> Result<UniqueId, reshard_cuda::Error>,
) -> Result<UniqueId, Error> {
    let shown = path.display();
    if rank == 0 {
        let id = make().map_err(|e| failed(0, e.to_string()))?;
        // Written to a temporary file and linked, so that no rank sees half of it and no earlier file is
        // overwritten.
        let aside = path.with_extension(format!("{}.part", std::process::id()));
        let written = std::fs::write(&aside, [&HELLO[..], &id.0].concat());
        let linked = written.and_then(|()| std::fs::hard_link(&aside, path));
        // It may not have been created.
        let _ = std::fs::remove_file(&aside);
        return match linked {
            Ok(()) => Ok(id),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                Err(failed(0, format!("{shown} already exists; remove it, or use another file for each job")))
            }
            Err(e) => Err(failed(0, format!("{shown} cannot be written: {e}"))),
        };
    }
    let end = Instant::now() + time_out;
    loop {
        let why = match std::fs::read(path) {
            Ok(bytes) => match bytes.strip_prefix(&HELLO).and_then(|id| id.try_into().ok()) {
                Some(id) => return Ok(UniqueId(id)),
                None => return Err(failed(rank, format!("{shown} is not a file that rank 0 wrote"))),
            },
            Err(e) => e,
        };
        if Instant::now() >= end {
            let message =
                format!("rank {rank} waited {time_out:?} for {shown}, which rank 0 must write: {why}");
            return Err(failed(rank, message));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Passes the id that rank 0 creates to all ranks, by the caller's broadcast.
///
/// The broadcast is given the bytes on rank 0 and returns them on all ranks.
///
/// ```
/// use reshard_nccl::{UniqueId, bootstrap::by_broadcast};
/// // A world of one rank.
/// let broadcast = |bytes: Option<&[u8]>| Ok(bytes.unwrap_or_default().try_into().unwrap_or([0; 128]));
/// assert_eq!(by_broadcast(0, broadcast, || Ok(UniqueId([7; 128])))?, UniqueId([7; 128]));
/// # Ok::<(), reshard_collectives::Error>(())
/// ```
pub fn by_broadcast(
    rank: usize,
    mut broadcast: impl FnMut(Option<&[u8]>) -> Result<[u8; UniqueId::BYTES], Error>,
    make: impl FnOnce() -> Result<UniqueId, reshard_cuda::Error>,
) -> Result<UniqueId, Error> {
    let made = if rank == 0 { Some(make().map_err(|e| failed(0, e.to_string()))?) } else { None };
    broadcast(made.as_ref().map(|id| id.0.as_slice())).map(UniqueId)
}
