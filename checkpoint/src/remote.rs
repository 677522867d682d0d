//! Inputs at URLs: objects of S3, Google Cloud Storage and Azure, and files of web servers, read by ranges (feature `remote`).
//!
//! ```text
//! s3://BUCKET/..   gs://BUCKET/..   az://CONTAINER/..   http(s)://HOST/..     who may read and where the servers are: the environment
//!
//! HEAD     once for a file: its length, and its tag or the time of its last change
//! GET      stretches of it, those with short gaps between together, if it still is that file
//! ```
//!
//! What fails on the way is asked for again: the crate does so where a server has no answer or a bad one, and here where the answer
//! ends too early. What fails in the end is one sentence.

use std::collections::HashMap;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path as ObjectPath;
use object_store::{
    BackoffConfig, ClientOptions, Error as StoreError, GetOptions, GetRange, ObjectMeta, ObjectStore,
    ObjectStoreExt, ObjectStoreScheme, RetryConfig, coalesce_ranges,
};
use tokio::runtime::{Builder, Handle, Runtime};
use url::Url;

/// Stretches with shorter gaps between them are asked for together.
const GAP: u64 = 64 << 10;

/// How often a stretch is asked for whose answer ended too early.
const ATTEMPTS: u32 = 5;

/// How long the first pause between two is; each is twice the one before.
const PAUSE: Duration = Duration::from_millis(50);

/// A longer sentence of a server is cut.
const LONGEST: usize = 300;

/// An object that can be read.
#[derive(Debug)]
pub(crate) struct Object {
    store: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
}

/// A store, and where in it a URL points.
struct Place {
    store: Arc<dyn ObjectStore>,
    path: ObjectPath,
    /// Whether what begins like it can be listed: web servers have no lists.
    lists: bool,
}

/// The object of a URL; None if there is none.
pub(crate) fn find(url: &Path) -> io::Result<Option<Object>> {
    let Place { store, path, .. } = Place::of(url)?;
    match wait(store.head(&path))? {
        Ok(meta) => Ok(Some(Object { store, meta })),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(said(&error)),
    }
}

/// The names of the objects below a URL; None where nobody has a list.
pub(crate) fn names(url: &Path) -> io::Result<Option<Vec<String>>> {
    let Place { store, path, lists } = Place::of(url)?;
    if !lists {
        return Ok(None);
    }
    let listed = wait(store.list_with_delimiter(Some(&path)))?.map_err(|error| said(&error))?;
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
        let range = at..at + room.len() as u64;
        self.read_ranges(std::slice::from_ref(&range), |_, bytes| room.copy_from_slice(bytes))
    }

    /// Several stretches, in ascending order; `got` takes each by its number.
    pub(crate) fn read_ranges(
        &self,
        ranges: &[Range<u64>],
        mut got: impl FnMut(usize, &[u8]),
    ) -> io::Result<()> {
        let wanted: Vec<Range<u64>> = ranges.iter().filter(|range| !range.is_empty()).cloned().collect();
        if wanted.iter().any(|range| range.end > self.len()) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let all = wait(coalesce_ranges(&wanted, |range| self.stretch(range), GAP))?
            .map_err(|error| said(&error))?;
        let mut all = all.iter();
        for (number, range) in ranges.iter().enumerate() {
            let bytes = if range.is_empty() { Some(&[][..]) } else { all.next().map(|bytes| &bytes[..]) };
            let bytes = bytes.filter(|bytes| bytes.len() as u64 == range.end - range.start);
            got(number, bytes.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        }
        Ok(())
    }

    async fn stretch(&self, range: Range<u64>) -> Result<bytes::Bytes, StoreError> {
        let mut pause = PAUSE;
        for attempt in 1.. {
            let (error, is_last) = match self.once(range.clone()).await {
                Ok(bytes) if bytes.len() as u64 == range.end - range.start => return Ok(bytes),
                Ok(bytes) => {
                    let (found, asked) = (bytes.len(), range.end - range.start);
                    let short = format!("the server gave {found} bytes, and {asked} were asked for");
                    (StoreError::Generic { store: "remote", source: short.into() }, false)
                }
                // The answer was no, which asking again does not change.
                Err(error) => {
                    let is_last = !matches!(error, StoreError::Generic { .. });
                    (error, is_last)
                }
            };
            if is_last || attempt == ATTEMPTS {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Ok(bytes::Bytes::new())
    }

    /// A range, if the object still is what it was.
    async fn once(&self, range: Range<u64>) -> Result<bytes::Bytes, StoreError> {
        // A weak tag matches nothing.
        let tag = self.meta.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
        let unmodified = if tag.is_none() { Some(self.meta.last_modified) } else { None };
        let options = GetOptions {
            if_match: tag,
            if_unmodified_since: unmodified,
            range: Some(GetRange::Bounded(range)),
            ..GetOptions::default()
        };
        self.store.get_opts(&self.meta.location, options).await?.bytes().await
    }
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        /// The stores that were made, by what stands before the path of an object: connections are used again.
        static STORES: LazyLock<Mutex<HashMap<String, Arc<dyn ObjectStore>>>> = LazyLock::new(Mutex::default);
        let text = path.to_str().ok_or_else(|| io::Error::other("it is not UTF-8"))?;
        let url = Url::parse(text).map_err(|error| io::Error::other(format!("it is no URL: {error}")))?;
        let (scheme, path) = ObjectStoreScheme::parse(&url)
            .map_err(|error| io::Error::other(format!("it is no URL: {error}")))?;
        let lists = scheme != ObjectStoreScheme::Http;
        let store = url.as_str().trim_end_matches('/');
        let store = store.strip_suffix(path.as_ref()).unwrap_or(store).to_owned();
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = stores.get(&store) {
            return Ok(Self { store: Arc::clone(made), path, lists });
        }
        let made = build(&url, &scheme).map_err(|error| said(&error))?;
        stores.insert(store, Arc::clone(&made));
        Ok(Self { store: made, path, lists })
    }
}

/// What talks to the servers of a URL, as the environment says.
fn build(url: &Url, scheme: &ObjectStoreScheme) -> Result<Arc<dyn ObjectStore>, StoreError> {
    /// Who encrypts. Another that the program has chosen stays.
    static ENCRYPTION: LazyLock<()> = LazyLock::new(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    LazyLock::force(&ENCRYPTION);
    let backoff = BackoffConfig { init_backoff: PAUSE, ..BackoffConfig::default() };
    let retry = RetryConfig { backoff, max_retries: 6, retry_timeout: Duration::from_secs(60) };
    match scheme {
        ObjectStoreScheme::AmazonS3 => {
            Ok(Arc::new(AmazonS3Builder::from_env().with_url(url.as_str()).with_retry(retry).build()?))
        }
        ObjectStoreScheme::GoogleCloudStorage => Ok(Arc::new(
            GoogleCloudStorageBuilder::from_env().with_url(url.as_str()).with_retry(retry).build()?,
        )),
        ObjectStoreScheme::MicrosoftAzure => {
            Ok(Arc::new(MicrosoftAzureBuilder::from_env().with_url(url.as_str()).with_retry(retry).build()?))
        }
        ObjectStoreScheme::Http => {
            let options = ClientOptions::new().with_allow_http(true);
            let host = &url[..url::Position::BeforePath];
            let builder = HttpBuilder::new().with_url(host).with_client_options(options);
            Ok(Arc::new(builder.with_retry(retry).build()?))
        }
        ObjectStoreScheme::Local | ObjectStoreScheme::Memory | _ => {
            let source = format!("`{}` names no server", url.scheme());
            Err(StoreError::NotSupported { source: source.into() })
        }
    }
}

/// Waits for an answer. One thread after the other drives all connections; inside of somebody's own runtime a thread apart does.
fn wait<T: Send>(answer: impl Future<Output = T> + Send) -> io::Result<T> {
    static RUNTIME: LazyLock<io::Result<Runtime>> =
        LazyLock::new(|| Builder::new_current_thread().enable_all().build());
    let runtime =
        RUNTIME.as_ref().map_err(|error| io::Error::other(format!("no connection can be had: {error}")))?;
    if Handle::try_current().is_err() {
        return Ok(runtime.block_on(answer));
    }
    let apart = thread::scope(|scope| scope.spawn(|| runtime.block_on(answer)).join());
    apart.map_err(|_| io::Error::other("the thread that read it panicked"))
}

/// What a server said, in one sentence, without what follows a `?` in a URL: that may be what lets one in.
#[allow(clippy::wildcard_enum_match_arm, reason = "the others are said in the words of the crate")]
fn said(error: &StoreError) -> io::Error {
    let why = match error {
        StoreError::NotFound { .. } => "there is no such object".to_owned(),
        StoreError::Precondition { .. } => "it was changed while it was read".to_owned(),
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
            "the server does not let us read it: credentials are taken from the environment (AWS_.., GOOGLE_.., AZURE_..)".to_owned()
        }
        other => {
            let text = other.to_string();
            let words = text.split_whitespace().map(|word| word.split_once('?').map_or(word, |(before, _)| before));
            let words: Vec<&str> = words.collect();
            words.join(" ").chars().take(LONGEST).collect()
        }
    };
    io::Error::other(why)
}
