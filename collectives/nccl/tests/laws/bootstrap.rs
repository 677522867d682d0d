//! Distribution of one id: over TCP and from a file, and the errors when other ranks do not arrive.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use reshard_collectives::Error;
use reshard_nccl::UniqueId;
use reshard_nccl::bootstrap::{Rendezvous, through_file};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(300);

fn id() -> UniqueId {
    UniqueId(std::array::from_fn(|i| i as u8 ^ 0x5a))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn at(rank: usize, size: usize, port: u16) -> Rendezvous {
    Rendezvous { rank, size, address: "127.0.0.1".to_string(), port }
}

/// Returns the result of every rank, with rank 0 a little late.
fn together(all: Vec<Rendezvous>, time_out: Duration) -> Vec<Result<UniqueId, Error>> {
    let one = |rendezvous: Rendezvous| {
        std::thread::spawn(move || {
            if rendezvous.rank == 0 {
                std::thread::sleep(Duration::from_millis(50));
            }
            rendezvous.meet(time_out, || Ok(id()))
        })
    };
    let threads: Vec<_> = all.into_iter().map(one).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn all_ranks_get_the_id_of_rank_0_over_tcp() {
    for size in [1, 2, 5] {
        let port = free_port();
        let all = (0..size).map(|rank| at(rank, size, port)).collect();
        assert!(together(all, LONG).iter().all(|got| *got == Ok(id())), "{size} ranks");
    }
}

#[test]
fn strangers_do_not_disturb_the_meeting() {
    let port = free_port();
    let stranger = std::thread::spawn(move || {
        let end = Instant::now() + LONG;
        while Instant::now() < end {
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
                // Twenty bytes of another protocol.
                let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n..");
                return;
            }
        }
    });
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        at(1, 2, port).meet(LONG, || Ok(id()))
    });
    assert_eq!(at(0, 2, port).meet(LONG, || Ok(id())), Ok(id()));
    assert_eq!(late.join().unwrap(), Ok(id()));
    stranger.join().unwrap();
}

#[test]
fn whoever_is_missing_is_named_in_time() {
    let port = free_port();
    let start = Instant::now();
    let results = together(vec![at(0, 4, port), at(2, 4, port)], Duration::from_secs(1));
    // A run of this length counts as hanging.
    assert!(start.elapsed() < Duration::from_mins(1));
    assert_eq!(results[1], Ok(id()));
    let said = results[0].as_ref().unwrap_err().to_string();
    assert!(
        said.contains("ranks [1, 3] did not connect to 127.0.0.1:") && said.contains("within 1s"),
        "{said}"
    );

    let port = free_port();
    let said = at(1, 2, port).meet(SHORT, || Ok(id())).unwrap_err().to_string();
    assert!(said.contains(&format!("no answer from rank 0 at 127.0.0.1:{port} within 300ms")), "{said}");
}

#[test]
fn ranks_that_count_differently_are_told() {
    let port = free_port();
    let results = together(vec![at(0, 2, port), at(1, 3, port)], LONG);
    for result in results {
        let said = result.unwrap_err().to_string();
        assert!(said.contains("was started with 3 ranks, but rank 0 with 2"), "{said}");
    }
}

#[test]
fn a_port_in_use_is_an_error_with_a_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let said = at(0, 2, port).meet(SHORT, || Ok(id())).unwrap_err().to_string();
    assert!(said.contains("cannot listen") && said.contains("RESHARD_PORT"), "{said}");
}

#[test]
fn what_making_the_id_says_is_said() {
    let refuse = || Err(reshard_cuda::Error::Library { reason: "libnccl.so was not found".to_string() });
    let said = at(0, 2, free_port()).meet(SHORT, refuse).unwrap_err().to_string();
    assert_eq!(said, "rank 0: libnccl.so was not found");
}

#[test]
fn variables_that_are_missing_or_wrong_are_named() {
    let set = |changes: &[(&str, &str)]| {
        let mut all = vec![
            ("RANK", "1".to_string()),
            ("WORLD_SIZE", "4".to_string()),
            ("MASTER_ADDR", "localhost".to_string()),
            ("MASTER_PORT", "29500".to_string()),
        ];
        for (name, value) in changes {
            all.retain(|(other, _)| other != name);
            if !value.is_empty() {
                all.push((name, (*value).to_string()));
            }
        }
        Rendezvous::from_variables(&|name| {
            all.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone())
        })
    };
    assert_eq!(set(&[]).unwrap().to_string(), "rank 1 of 4 at localhost:29500");
    let agent = ("TORCHELASTIC_USE_AGENT_STORE", "True");
    assert_eq!(set(&[agent]).unwrap().port, 29501);
    assert_eq!(set(&[agent, ("RESHARD_PORT", "1234")]).unwrap().port, 1234);
    for (changes, expected) in [
        (("RANK", ""), "RANK is not set"),
        (("MASTER_ADDR", ""), "MASTER_ADDR is not set"),
        (("WORLD_SIZE", "many"), "WORLD_SIZE is \"many\""),
        (("RANK", "4"), "RANK is 4, but must be less than WORLD_SIZE, 4"),
        (("MASTER_PORT", "70000"), "port 70000 (MASTER_PORT) is out of range"),
    ] {
        let said = set(&[changes]).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn all_ranks_get_the_id_of_rank_0_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("id");
    let others: Vec<_> = (1..4)
        .map(|rank| {
            let path = path.clone();
            std::thread::spawn(move || through_file(&path, rank, LONG, || unreachable!()))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(through_file(&path, 0, LONG, || Ok(id())), Ok(id()));
    for other in others {
        assert_eq!(other.join().unwrap(), Ok(id()));
    }
    // Only the file is left, and it is not overwritten.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let said = through_file(&path, 0, LONG, || Ok(id())).unwrap_err().to_string();
    assert!(said.contains("already exists"), "{said}");
    std::fs::write(&path, "something else").unwrap();
    let said = through_file(&path, 1, LONG, || unreachable!()).unwrap_err().to_string();
    assert!(said.contains("is not a file that rank 0 wrote"), "{said}");
    let said =
        through_file(&folder.path().join("none"), 1, SHORT, || unreachable!()).unwrap_err().to_string();
    assert!(said.contains("waited 300ms for"), "{said}");
}
