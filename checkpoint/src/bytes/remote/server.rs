//! Object stores: the server of a URL, its credentials, and the timeouts.

use std::collections::HashMap;
use std::env;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path as ObjectPath;
use object_store::{
    BackoffConfig, ClientConfigKey, ClientOptions, Error as StoreError, ObjectStore, ObjectStoreScheme,
    RetryConfig,
};
use tokio::runtime::{Builder, Handle, Runtime};
use url::Url;

use crate::bytes::place::is_plain;
use crate::bytes::remote::PAUSE;
use crate::bytes::remote::why::Why;

/// The environment variable for the time in seconds during which a request is repeated.
const PATIENCE: &str = "RESHARD_PATIENCE";

/// The default of that time, in seconds.
const SECONDS: u64 = 60;

/// The largest number of repetitions of a request without an answer, or with an error.
const REPEATS: usize = 10;

/// A store, and the path of a URL in it.
pub(super) struct Place {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) path: ObjectPath,
    /// `true` if names with a common prefix can be listed; web servers have no lists.
    pub(super) lists: bool,
    /// The time during which a request is repeated.
    pub(super) patience: Duration,
}

impl Place {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        /// The stores by URL prefix, so that connections are reused.
        static STORES: LazyLock<Mutex<HashMap<String, Arc<dyn ObjectStore>>>> = LazyLock::new(Mutex::default);
        is_plain(path)?;
        let patience = patience()?;
        let text = path.to_str().ok_or_else(|| io::Error::other("it is not UTF-8"))?;
        let url =
            Url::parse(text).map_err(|error| io::Error::other(format!("it is not a valid URL: {error}")))?;
        let (scheme, path) = ObjectStoreScheme::parse(&url)
            .map_err(|error| io::Error::other(format!("it is not a valid URL: {error}")))?;
        let lists = scheme != ObjectStoreScheme::Http;
        let store = url.as_str().trim_end_matches('/');
        let store = store.strip_suffix(path.as_ref()).unwrap_or(store).to_owned();
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = stores.get(&store) {
            return Ok(Self { store: Arc::clone(made), path, lists, patience });
        }
        let made = build(&url, &scheme, patience).map_err(|error| Why::Store(error).said())?;
        stores.insert(store, Arc::clone(&made));
        Ok(Self { store: made, path, lists, patience })
    }
}

/// Returns the time during which a request is repeated, from the environment.
fn patience() -> io::Result<Duration> {
    let Some(text) = env::var_os(PATIENCE) else { return Ok(Duration::from_secs(SECONDS)) };
    let seconds =
        text.to_str().and_then(|text| text.parse().ok()).filter(|seconds| (1..=3600).contains(seconds));
    let seconds = seconds.ok_or_else(|| {
        io::Error::other(format!(
            "{PATIENCE} is `{}`; it must be a number of seconds from 1 to 3600",
            text.display()
        ))
    })?;
    Ok(Duration::from_secs(seconds))
}

/// Returns a client for the servers of a URL, configured from the environment.
///
/// A server that sends nothing gets a new request after a quarter of the patience; a slow answer may take ten
/// times the patience in total.
fn build(
    url: &Url,
    scheme: &ObjectStoreScheme,
    patience: Duration,
) -> Result<Arc<dyn ObjectStore>, StoreError> {
    /// The TLS provider; one that the program has already chosen stays.
    static ENCRYPTION: LazyLock<()> = LazyLock::new(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    LazyLock::force(&ENCRYPTION);
    let backoff = BackoffConfig { init_backoff: PAUSE, ..BackoffConfig::default() };
    let retry = RetryConfig { backoff, max_retries: REPEATS, retry_timeout: patience };
    let times = [
        (ClientConfigKey::ConnectTimeout, patience.min(Duration::from_secs(20)) / 4),
        (ClientConfigKey::ReadTimeout, patience / 4),
        (ClientConfigKey::Timeout, patience * 10),
    ];
    let times = times.map(|(key, time)| (key, format!("{} ms", time.as_millis())));
    match scheme {
        ObjectStoreScheme::AmazonS3 => {
            let builder = AmazonS3Builder::from_env().with_url(url.as_str()).with_retry(retry);
            let set = |builder: AmazonS3Builder, (key, time)| {
                builder.with_config(AmazonS3ConfigKey::Client(key), time)
            };
            Ok(Arc::new(times.into_iter().fold(builder, set).build()?))
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            let builder = GoogleCloudStorageBuilder::from_env().with_url(url.as_str()).with_retry(retry);
            let set = |builder: GoogleCloudStorageBuilder, (key, time)| {
                builder.with_config(GoogleConfigKey::Client(key), time)
            };
            Ok(Arc::new(times.into_iter().fold(builder, set).build()?))
        }
        ObjectStoreScheme::MicrosoftAzure => {
            let builder = MicrosoftAzureBuilder::from_env().with_url(url.as_str()).with_retry(retry);
            let set = |builder: MicrosoftAzureBuilder, (key, time)| {
                builder.with_config(AzureConfigKey::Client(key), time)
            };
            Ok(Arc::new(times.into_iter().fold(builder, set).build()?))
        }
        ObjectStoreScheme::Http => {
            let options = ClientOptions::new().with_allow_http(true);
            let set = |options: ClientOptions, (key, time)| options.with_config(key, time);
            let host = &url[..url::Position::BeforePath];
            let builder = HttpBuilder::new().with_url(host).with_retry(retry);
            Ok(Arc::new(builder.with_client_options(times.into_iter().fold(options, set)).build()?))
        }
        ObjectStoreScheme::Local | ObjectStoreScheme::Memory | _ => {
            let source = format!("`{}` names no server", url.scheme());
            Err(StoreError::NotSupported { source: source.into() })
        }
    }
}

/// Waits for an answer.
///
/// One thread at a time drives all connections; if the caller is inside an async runtime, a separate thread
/// does.
pub(super) fn wait<T: Send>(answer: impl Future<Output = T> + Send) -> io::Result<T> {
    static RUNTIME: LazyLock<io::Result<Runtime>> =
        LazyLock::new(|| Builder::new_current_thread().enable_all().build());
    let runtime = RUNTIME
        .as_ref()
        .map_err(|error| io::Error::other(format!("cannot start network access: {error}")))?;
    if Handle::try_current().is_err() {
        return Ok(runtime.block_on(answer));
    }
    let apart = thread::scope(|scope| scope.spawn(|| runtime.block_on(answer)).join());
    apart.map_err(|_| io::Error::other("the thread that read it panicked"))
}
