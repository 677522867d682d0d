//! Inputs at URLs: objects of S3, Google Cloud Storage and Azure, and files of web servers, read by ranges (feature `remote`).
//!
//! ```text
//! s3://BUCKET/..   gs://BUCKET/..   az://CONTAINER/..   http(s)://HOST/..     who may read and where the servers are: the environment
//!
//! HEAD     once for a file: its length, and its tag or the time of its last change
//! GET      pieces of it of at most 4 MiB, 8 at a time, stretches with short gaps between them together; each if it still is that file
//! ```
//!
//! What fails on the way is asked for again: the crate does so where a server has no answer or a bad one, and here where the answer
//! is not what was asked for. What fails in the end is one sentence. Nobody is waited for without an end.

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
use super::copies::Stretch;

/// Stretches with shorter gaps between them are asked for together.
const GAP: u64 = 64 << 10;

/// At most so many bytes are asked for at once, so an answer has an end and a failure costs little.
const PIECE: u64 = 4 << 20;

/// So many questions are on their way at a time. Memory is so many pieces, and where the bytes belong.
const AT_A_TIME: usize = 8;

/// How often a piece is asked for whose answer was not what was asked for.
const ATTEMPTS: u32 = 5;

/// How long the first pause between two is; each is twice the one before.
const PAUSE: Duration = Duration::from_millis(50);

/// An object that can be read.
#[derive(Debug)]
pub(crate) struct Object {
    store: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
    patience: Duration,
}

/// A piece of an object, and which stretches lie in it: parts of them, where a stretch is longer than a piece.
struct Piece {
    range: Range<u64>,
    parts: Vec<Stretch>,
}

/// The object of a URL; None if there is none.
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

/// The names of the objects below a URL; None where nobody has a list.
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
    /// Adds what changes when somebody changes it.
    pub(crate) fn hash_identity(&self, hasher: &mut impl Hasher) {
        let meta = &self.meta;
        (&meta.size, &meta.e_tag, &meta.version, meta.last_modified.timestamp_millis()).hash(hasher);
    }

    pub(crate) fn len(&self) -> u64 {
        self.meta.size
    }

    /// The bytes from `at` on, as many as there is room for.
    pub(crate) fn read_exact_at(&self, at: u64, room: &mut [u8]) -> io::Result<()> {
        let all = Stretch { from: 0, to: 0, len: room.len() };
        self.read_stretches(at, std::slice::from_ref(&all), room).map(|_| ())
    }

    /// Several stretches, each from where it is behind `start` to where it belongs; says how many bytes came, with those of gaps.
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

    /// A range, if the object still is what it was.
    async fn once(&self, range: Range<u64>) -> Result<Vec<u8>, Why> {
        let meta = &self.meta;
        // A weak tag matches nothing, and a server that says no time has none to compare.
        let tag = meta.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
        let changed = (tag.is_none() && meta.last_modified.timestamp() != 0).then_some(meta.last_modified);
        let options = GetOptions {
            if_match: tag,
            if_unmodified_since: changed,
            range: Some(GetRange::Bounded(range.clone())),
            ..GetOptions::default()
        };
        let answer = self.store.get_opts(&meta.location, options).await.map_err(Why::Store)?;
        // There are servers that look at no condition.
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

    /// Whether what an answer says of an object is what it was, as far as it says anything.
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

/// What is asked for to have these stretches: those that ascend with short gaps between them together, the long ones in parts.
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

/// Asks until there is an answer, or one that asking again does not change, or patience is at its end.
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

    /// The law of pieces: each byte of each stretch lies in one of them, where it is said to; none is longer than it may be; and
    /// between stretches no gap is read that is as long as the bound.
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
            // One that does not ascend.
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
