//! How windows are pushed, and the handle on pushing them.

use crate::client::Client;
use crate::counts::PushCounts;
use crate::delivery::{Delivery, Say, Sending};
use crate::environment::{self, Environment};
use crate::headers::Headers;
use crate::queue::Queue;
use crate::queue_folder::QueueFolder;
use crate::resource::Resource;
use crate::target::Target;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use wlprof_export::KeptLabels;
use wlprof_recording::{Recording, View};

/// How long a request may take, unless the environment says so.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of windows that wait, in memory and on disk, unless the user says so.
const QUEUE_BYTES: u64 = 64 << 20;

/// How windows are pushed to a server.
///
/// ```
/// let push = wlprof_push::Push::to("pyroscope://localhost:4040")?
///     .service("shop")
///     .labels(["tenant"])
///     .every(std::time::Duration::from_secs(30));
/// assert_eq!(push.target().to_string(), "pyroscope://localhost:4040");
/// # Ok::<(), String>(())
/// ```
///
/// # Security
/// Windows have names of functions, files and lines, and the resource's attributes. Values of headers are in no window and no message.
pub struct Push {
    target: Target,
    headers: Headers,
    roots: Option<PathBuf>,
    timeout: Duration,
    pub(crate) every: Duration,
    pub(crate) resource: Resource,
    is_disabled: bool,
    /// What was wrong with the resource's attributes in the environment.
    problem: Option<String>,
    labels: Vec<String>,
    pub(crate) view: View,
    queue_bytes: u64,
    queue_folder: Option<PathBuf>,
    say: Say,
}

impl Push {
    /// Pushes to the server at `address`: `pyroscope://`, `otlp+http://`, `otlp+grpc://` or `parca://`, each with an `s` behind it for TLS. `otlp`
    /// and `pyroscope` are the addresses of the environment.
    ///
    /// Headers, certificates, the service's name and its attributes come from the environment where that has them, by the variables of
    /// OpenTelemetry and Pyroscope.
    ///
    /// # Errors
    /// What is wrong with the address or a variable, in words for the user.
    pub fn to(address: &str) -> Result<Self, String> {
        Self::in_environment(address, &environment::variable)
    }

    fn in_environment(address: &str, environment: Environment<'_>) -> Result<Self, String> {
        let target = environment::target(address, environment)?;
        let protocol = target.protocol();
        let (resource, problem) = Resource::of_this_process(environment);
        Ok(Self {
            is_disabled: environment::is_switched_off(protocol, environment),
            headers: environment::headers(&target, environment)?,
            roots: environment::roots(protocol, environment),
            timeout: environment::timeout(protocol, environment).unwrap_or(TIMEOUT),
            every: Duration::from_secs(15),
            resource,
            problem: problem.map(|problem| problem.to_string()),
            labels: Vec::new(),
            view: View::Guest,
            queue_bytes: QUEUE_BYTES,
            queue_folder: None,
            say: Box::new(|_| ()),
            target,
        })
    }

    /// Returns the server's address.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Has a window last so long, 15 s by default, from a tenth more to a tenth less; a second at least, and half an hour at most.
    #[must_use]
    pub fn every(self, interval: Duration) -> Self {
        Self { every: interval.clamp(Duration::from_secs(1), Duration::from_secs(1800)), ..self }
    }

    /// Returns whether the environment says that OpenTelemetry is to do nothing (`OTEL_SDK_DISABLED`): then no windows are pushed.
    pub fn is_disabled(&self) -> bool {
        self.is_disabled
    }

    /// Returns how long a window lasts, about.
    pub fn interval(&self) -> Duration {
        self.every
    }

    /// Calls the service so, unless the environment names it.
    #[must_use]
    pub fn service(mut self, name: &str) -> Self {
        if self.resource.get("service.name").is_none() {
            self.resource.set("service.name", name);
        }
        self
    }

    /// Adds an attribute of the resource, in the place of another one of that name.
    #[must_use]
    pub fn resource(mut self, name: &str, value: &str) -> Self {
        self.resource.set(name, value);
        self
    }

    /// Says what is known of another process in the place of what is known of this one.
    #[must_use]
    pub fn of(self, resource: Resource) -> Self {
        Self { resource, problem: None, ..self }
    }

    /// Keeps these labels of samples; by default none are. Of texts a server makes a series of each set.
    #[must_use]
    pub fn labels<L: Into<String>>(self, names: impl IntoIterator<Item = L>) -> Self {
        Self { labels: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// Pushes the frames of `view`. By default those of the guest's own language are.
    #[must_use]
    pub fn view(self, view: View) -> Self {
        Self { view, ..self }
    }

    /// Stores windows as this tenant's (`X-Scope-OrgID`).
    ///
    /// # Errors
    /// If no tenant has such a name.
    pub fn tenant(mut self, id: &str) -> Result<Self, String> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "!-_.*'()".contains(c);
        if id.is_empty() || id.len() > 150 || !id.chars().all(is_allowed) {
            return Err("a tenant has 1 to 150 letters, digits or characters of !-_.*'()".to_owned());
        }
        self.headers.set("X-Scope-OrgID", id).map_err(|error| error.to_string())?;
        Ok(self)
    }

    /// Gives requests the headers of a file, one `Name: value` on a line.
    ///
    /// # Errors
    /// Why it cannot be read, without what is in it.
    pub fn headers_of(mut self, path: &Path) -> Result<Self, String> {
        self.headers.read(path)?;
        Ok(self)
    }

    /// Trusts servers whose certificates were signed by those in this file (PEM), and no others.
    #[must_use]
    pub fn roots_of(self, path: &Path) -> Self {
        Self { roots: Some(path.to_owned()), ..self }
    }

    /// Keeps so many bytes of windows at most that no server has taken yet: the oldest go first. 64 MiB by default.
    #[must_use]
    pub fn queue_bytes(self, bytes: u64) -> Self {
        Self { queue_bytes: bytes, ..self }
    }

    /// Keeps them in files below this folder, so that the next process delivers what this one could not.
    #[must_use]
    pub fn queue_in(self, folder: &Path) -> Self {
        Self { queue_folder: Some(folder.to_owned()), ..self }
    }

    /// Calls `say` with what there is to say of deliveries: that they fail, and that they do not any more. By default nothing is said.
    #[must_use]
    pub fn saying(self, say: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { say: Box::new(say), ..self }
    }

    /// Begins to deliver windows.
    ///
    /// # Errors
    /// What is wrong with certificates or the queue's folder, or if there can be no more threads.
    pub fn start(self) -> io::Result<Pusher> {
        self.problem.iter().for_each(|problem| (self.say)(problem));
        let client = Client::new(self.target, self.headers, self.roots.as_deref()).map_err(io::Error::other)?;
        let folder = self.queue_folder.as_deref().map(QueueFolder::open).transpose().map_err(io::Error::other)?;
        let mut queue = Queue::new(self.queue_bytes);
        folder.iter().flat_map(QueueFolder::abandoned).for_each(|window| queue.add(window));
        let sending = Sending { client, kept: KeptLabels::new(self.labels), timeout: self.timeout };
        Ok(Pusher(Delivery::start(sending, queue, folder, self.say)?))
    }
}

/// Delivers windows on a thread of its own, until it is ended or dropped.
///
/// ```no_run
/// # fn deliver(window: wlprof_recording::Recording) -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use std::time::Duration;
/// use wlprof_push::{Push, Resource};
///
/// let pusher = Push::to("otlp+grpc://localhost:4317")?.start()?;
/// let mut resource = Resource::default();
/// resource.set("service.name", "shop");
/// pusher.push(&Arc::new(resource), window);
/// let counts = pusher.end(Duration::from_secs(2));
/// # Ok(())
/// # }
/// ```
pub struct Pusher(Delivery);

impl Pusher {
    /// Takes a window of the process that `resource` describes. It does not wait for the server.
    pub fn push(&self, resource: &Arc<Resource>, window: Recording) {
        self.0.add(resource, window);
    }

    /// Returns what has become of windows so far.
    pub fn counts(&self) -> PushCounts {
        self.0.counts()
    }

    /// Sends what there is, for so long at most, and returns what has become of all windows. Nothing is sent after that.
    pub fn end(&self, patience: Duration) -> PushCounts {
        self.0.end(patience)
    }
}
