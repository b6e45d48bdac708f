//! Resource attributes: what a pushed profile says of the process that it is of, by OpenTelemetry's conventions.
//!
//! Values of another process are not trusted: their number and their lengths are bounded.

mod container;
#[cfg(target_os = "linux")]
mod context;
mod environment;
mod instance;
#[cfg(target_os = "linux")]
mod process;

pub use environment::AttributesError;
pub(crate) use environment::decoded_lossy;
pub(crate) use instance::{random as random_id, uuid};

/// The name that engines show profiles by.
pub(crate) const SERVICE_NAME: &str = "service.name";
/// The attribute that tells instances of one service apart.
pub(crate) const SERVICE_INSTANCE_ID: &str = "service.instance.id";
const HOST_NAME: &str = "host.name";
const PROCESS_PID: &str = "process.pid";
const EXECUTABLE_NAME: &str = "process.executable.name";
const CONTAINER_ID: &str = "container.id";

/// The attributes of a process, each name once, in the order in which they were set first.
///
/// ```
/// use wlprof_push::Resource;
///
/// let (mut resource, problem) = Resource::of_this_process(&|name| std::env::var(name).ok());
/// if let Some(problem) = problem {
///     eprintln!("{problem}");
/// }
/// resource.set("deployment.environment.name", "staging");
/// assert_eq!(resource.get("deployment.environment.name"), Some("staging"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource(Vec<(String, String)>);

impl Resource {
    /// Detects the attributes of this process. `env` reads its environment variables.
    ///
    /// `service.name` is missing if the environment has none. The instance's id is a new one at each call.
    /// If `OTEL_RESOURCE_ATTRIBUTES` is malformed, all of it is left out and the error says why.
    pub fn of_this_process(env: &dyn Fn(&str) -> Option<String>) -> (Self, Option<AttributesError>) {
        let mut resource = Self::default();
        resource.set_some(SERVICE_INSTANCE_ID, instance::random());
        resource.set_some(HOST_NAME, host_name().or_else(|| env("HOSTNAME")).or_else(|| env("COMPUTERNAME")));
        resource.set(PROCESS_PID, &std::process::id().to_string());
        let program = std::env::current_exe().ok();
        let program = program.as_deref().and_then(|path| path.file_name());
        resource.set_some(EXECUTABLE_NAME, program.map(|name| name.to_string_lossy().into_owned()));
        resource.set_some(CONTAINER_ID, container::of_this_process());
        let (attributes, problem) = environment::attributes(env);
        attributes.iter().for_each(|(name, value)| resource.set(name, value));
        (resource, problem)
    }

    /// Detects the attributes of process `pid`. Linux only: elsewhere the result has its number and nothing else.
    ///
    /// They come from `/proc`, from the variables of OpenTelemetry and Pyroscope in its environment, and from the process context that its
    /// OpenTelemetry SDK may publish (OTEP 4719). Later ones replace earlier ones. `service.name` is the executable's name if nothing else
    /// gives one. The instance's id stays the same for the life of the process. Attributes that cannot be read are left out; where there is
    /// `process.executable.name`, the process was not ending and all others were read.
    pub fn of_process(pid: i32) -> Self {
        #[cfg(target_os = "linux")]
        let resource = process::resource(pid);
        #[cfg(not(target_os = "linux"))]
        let resource = Self(vec![(PROCESS_PID.to_owned(), pid.to_string())]);
        resource
    }

    /// Returns the names and values.
    pub fn attributes(&self) -> &[(String, String)] {
        &self.0
    }

    /// Returns the value of an attribute.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Sets an attribute. A value that is there already is replaced.
    pub fn set(&mut self, name: &str, value: &str) {
        match self.0.iter_mut().find(|(other, _)| other == name) {
            Some((_, old)) => value.clone_into(old),
            None => self.0.push((name.to_owned(), value.to_owned())),
        }
    }

    fn set_some(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.set(name, &value);
        }
    }
}

/// The name of the host, as this process sees it.
fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim_end().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_variables(variables: &[(&str, &str)]) -> (Resource, Option<AttributesError>) {
        Resource::of_this_process(&|name| {
            variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn names_are_unique_and_keep_their_order() {
        let mut resource = Resource::default();
        for (name, value) in [("b", "1"), ("a", "2"), ("b", "3")] {
            resource.set(name, value);
        }
        assert_eq!(resource.attributes(), [("b".to_owned(), "3".to_owned()), ("a".to_owned(), "2".to_owned())]);
        assert_eq!((resource.get("b"), resource.get("c")), (Some("3"), None));
    }

    #[test]
    fn this_process_has_its_number_and_its_program_but_no_service_unless_named() {
        let (resource, problem) = of_variables(&[]);
        assert_eq!(problem, None);
        assert_eq!(resource.get(PROCESS_PID), Some(std::process::id().to_string().as_str()));
        assert!(resource.get(EXECUTABLE_NAME).unwrap().starts_with("wlprof_push"));
        assert_eq!(resource.get(SERVICE_NAME), None);
        #[cfg(target_os = "linux")]
        assert!(resource.get(HOST_NAME).is_some());
        let (other, _) = of_variables(&[]);
        assert_ne!(resource.get(SERVICE_INSTANCE_ID).unwrap(), other.get(SERVICE_INSTANCE_ID).unwrap());
    }

    #[test]
    fn the_environment_replaces_what_was_detected() {
        let (resource, problem) =
            of_variables(&[("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=mine,host.name=node-7,a=b")]);
        assert_eq!(problem, None);
        let values = [SERVICE_INSTANCE_ID, HOST_NAME, "a"].map(|name| resource.get(name));
        assert_eq!(values, [Some("mine"), Some("node-7"), Some("b")]);
    }

    #[test]
    fn of_malformed_attributes_none_is_used_and_the_rest_is_there() {
        let (resource, problem) = of_variables(&[("OTEL_RESOURCE_ATTRIBUTES", "a=b,c"), ("OTEL_SERVICE_NAME", "shop")]);
        assert!(problem.unwrap().to_string().contains("`c`"));
        assert_eq!((resource.get("a"), resource.get(SERVICE_NAME)), (None, Some("shop")));
    }
}
