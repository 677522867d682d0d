//! Inputs at URLs (feature `remote`): S3, Google Cloud Storage, Azure, and web servers.
//!
//! Objects and files are read by ranges.
//!
//! ```text
//! s3://BUCKET/..   gs://BUCKET/..   az://CONTAINER/..   http(s)://HOST/..     credentials and endpoints: from the environment
//!
//! HEAD     once for a file: its length, and its tag or the time of its last change
//! GET      ranges of at most 4 MiB, 8 at a time; ranges with short gaps are merged; each only if the file is unchanged
//! ```
//!
//! Failed requests are repeated: by the object store crate if a server gives no answer or an error, and here
//! if the answer does not match the request. A final failure is a one-line message. All waiting is bounded.

mod server;
mod why;

use std::future::Future;
use std::hash::{Hash, Hasher};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::{Error as StoreError, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};

use self::server::{Place, wait};
use self::why::Why;
use crate::model::copies::Stretch;

/// The shortest gap in bytes between ranges that are requested separately.
const GAP: u64 = 64 << 10;

/// The most bytes of one request, so that an answer is bounded and a failure costs little.
const PIECE: u64 = 4 << 20;

/// The largest number of requests in flight; memory holds as many blocks, and the target.
const AT_A_TIME: usize = 8;

/// The largest number of requests for a block whose answer did not match.
const ATTEMPTS: u32 = 5;

/// The first pause between two attempts; each next one is twice as long.
const PAUSE: Duration = Duration::from_millis(50);

/// An object that can be read.
#[derive(Debug)]
pub(crate) struct Object {
    store: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
    patience: Duration,
}

/// A block of an object, and the ranges (or parts of long ranges) that it contains.
struct Piece {
    range: Range<u64>,
    parts: Vec<Stretch>,
}

/// Finds the object of a URL; `None` if there is none.
pub(crate) fn find(url: &Path) -> io::Result<Option<Object>> {
    let Place { store, path, patience, .. } = Place::of(url)?;
    if path.as_ref().is_empty() {
        return Ok(None);
    }
    match wait(store.head(&path))? {
        Ok(meta) => Ok(Some(Object { store, meta, patience })),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(Why::Store(error).said()),
    }
}

/// Returns the names of the objects below a URL; `None` if they cannot be listed.
pub(crate) fn names(url: &Path) -> io::Result<Option<Vec<String>>> {
    let Place { store, path, patience, lists } = Place::of(url)?;
    if !lists {
        return Ok(None);
    }
    let list = || async { store.list_with_delimiter(Some(&path)).await.map_err(Why::Store) };
    let listed = wait(again(patience, list))?.map_err(|why| why.said())?;
    let names = listed.objects.iter().filter_map(|meta| meta.location.filename());
    Ok(Some(names.map(str::to_owned).collect()))
}

impl Object {
    /// Hashes the properties that change when the object changes.
    pub(crate) fn hash_identity(&self, hasher: &mut impl Hasher) {
        let meta = &self.meta;
        (&meta.size, &meta.e_tag, &meta.version, meta.last_modified.timestamp_millis()).hash(hasher);
    }

    pub(crate) fn len(&self) -> u64 {
        self.meta.size
    }

    /// Fills `room` with the bytes from `at` on.
    pub(crate) fn read_exact_at(&self, at: u64, room: &mut [u8]) -> io::Result<()> {
        let all = Stretch { from: 0, to: 0, len: room.len() };
        self.read_stretches(at, std::slice::from_ref(&all), room).map(|_| ())
    }

    /// Reads several ranges after `start`, each into its target; returns the received bytes, including gaps.
    pub(crate) fn read_stretches(
        &self,
        start: u64,
        stretches: &[Stretch],
        room: &mut [u8],
    ) -> io::Result<u64> {
        let pieces = pieces(start, stretches);
        if pieces.iter().any(|piece| piece.range.end > self.len()) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let all = async {
            let one = |piece: Piece| async move {
                let bytes = again(self.patience, || self.once(piece.range.clone())).await?;
                Ok::<_, Why>((piece, bytes))
            };
            let mut come = stream::iter(pieces).map(one).buffer_unordered(AT_A_TIME);
            let mut count = 0;
            while let Some((piece, bytes)) = come.try_next().await? {
                count += bytes.len() as u64;
                for Stretch { from, to, len } in piece.parts {
                    room[to..to + len].copy_from_slice(&bytes[from..from + len]);
                }
            }
            Ok::<_, Why>(count)
        };
        wait(all)?.map_err(|why| why.said())
    }

    /// Requests a range, on condition that the object is unchanged.
    async fn once(&self, range: Range<u64>) -> Result<Vec<u8>, Why> {
        let meta = &self.meta;
        // A weak tag never matches, and a server without a time has none to compare.
        let tag = meta.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
        let changed = (tag.is_none() && meta.last_modified.timestamp() != 0).then_some(meta.last_modified);
        let options = GetOptions {
            if_match: tag,
            if_unmodified_since: changed,
            range: Some(GetRange::Bounded(range.clone())),
            ..GetOptions::default()
        };
        let answer = self.store.get_opts(&meta.location, options).await.map_err(Why::Store)?;
        // Some servers ignore conditions.
        if !self.is_still(&answer.meta) {
            return Err(Why::Changed);
        }
        let asked = (range.end - range.start) as usize;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(asked).map_err(|_| Why::Memory(asked))?;
        let mut come = answer.into_stream();
        while let Some(some) = come.try_next().await.map_err(Why::Store)? {
            if some.len() > asked - bytes.len() {
                return Err(Why::TooLong(asked));
            }
            bytes.extend_from_slice(&some);
        }
        if bytes.len() < asked { Err(Why::TooShort(bytes.len(), asked)) } else { Ok(bytes) }
    }

    /// Returns `true` if the answer's metadata, as far as it is given, matches the object.
    fn is_still(&self, now: &ObjectMeta) -> bool {
        let was = &self.meta;
        let tag =
            |meta: &ObjectMeta| meta.e_tag.as_deref().map(|tag| tag.trim_start_matches("W/").to_owned());
        let same = match (tag(was), tag(now)) {
            (Some(was), Some(now)) => was == now,
            _ => now.last_modified.timestamp() == 0 || was.last_modified == now.last_modified,
        };
        same && was.size == now.size
    }
}

/// Groups ranges into requests: ascending ranges with short gaps are merged, long ones are split.
fn pieces(start: u64, stretches: &[Stretch]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for &Stretch { from, to, len } in stretches {
        let mut done = 0;
        while done < len {
            let count = (len - done).min(PIECE as usize);
            let (begin, to) = (start + (from + done) as u64, to + done);
            let end = begin + count as u64;
            match pieces.last_mut() {
                Some(Piece { range, parts })
                    if begin >= range.end && begin - range.end < GAP && end - range.start <= PIECE =>
                {
                    range.end = end;
                    parts.push(Stretch { from: (begin - range.start) as usize, to, len: count });
                }
                _ => {
                    pieces
                        .push(Piece { range: begin..end, parts: vec![Stretch { from: 0, to, len: count }] });
                }
            }
            done += count;
        }
    }
    pieces
}

/// Repeats a request until it succeeds, fails permanently, or the time is over.
async fn again<T, F: Future<Output = Result<T, Why>>>(
    patience: Duration,
    mut ask: impl FnMut() -> F,
) -> Result<T, Why> {
    let (begin, mut pause, mut attempt) = (Instant::now(), PAUSE, 1);
    loop {
        match ask().await {
            Err(why) if why.may_pass() && attempt < ATTEMPTS && begin.elapsed() < patience => {
                tokio::time::sleep(pause).await;
                pause *= 2;
                attempt += 1;
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{GAP, PIECE, Stretch, pieces};

    /// The invariants of requests: each byte of each range is in exactly one request, at its offset.
    ///
    /// No request is longer than the limit, and no gap as long as the bound is read.
    #[test]
    fn pieces_hold_every_byte_of_every_stretch_once_and_no_long_gap() {
        let (piece, gap) = (PIECE as usize, GAP as usize);
        let lists: [&[(usize, usize)]; 8] = [
            &[],
            &[(0, 0)],
            &[(5, 1)],
            &[(0, piece), (piece, 1)],
            &[(3, 2 * piece + 7)],
            &[(0, 8), (7 + gap, 8), (15 + 2 * gap, 8)],
            &[(0, 8), (8 + gap, 8), (900_000, piece), (900_000 + piece + 5, 2)],
            // A list that does not ascend.
            &[(1000, 10), (0, 10), (5, 10)],
        ];
        for list in lists {
            let mut to = 0;
            let stretch = |&(from, len): &(usize, usize)| {
                to += len;
                Stretch { from, to: to - len, len }
            };
            let stretches: Vec<Stretch> = list.iter().map(stretch).collect();
            let mut came = vec![None; to];
            for one in pieces(100, &stretches) {
                assert!(!one.range.is_empty() && one.range.end - one.range.start <= PIECE);
                let mut known = 0;
                for part in one.parts {
                    assert!(
                        part.from < known + gap || part.from == 0,
                        "{list:?}: a gap of {}",
                        part.from - known
                    );
                    known = part.from + part.len;
                    for i in 0..part.len {
                        let byte = one.range.start + (part.from + i) as u64;
                        assert_eq!(came[part.to + i].replace(byte), None, "{list:?}");
                    }
                }
                assert_eq!(known as u64, one.range.end - one.range.start);
            }
            let right =
                stretches.iter().flat_map(|one| (0..one.len).map(|i| Some(100 + (one.from + i) as u64)));
            assert!(came.into_iter().eq(right), "{list:?}");
        }
    }
}
