//! Attributes of another process, from its folder in `/proc`.

use super::{CONTAINER_ID, EXECUTABLE_NAME, HOST_NAME, PROCESS_PID, Resource, SERVICE_INSTANCE_ID, SERVICE_NAME};
use super::{container, context, environment, host_name, instance};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// The most attributes that are taken of another process.
const MOST_ATTRIBUTES: usize = 64;
/// The longest value and the longest name of an attribute that are taken of it, in bytes.
const LONGEST_VALUE: usize = 1024;
const LONGEST_NAME: usize = 255;
/// The most that is read of its environment, in bytes.
const MOST_ENVIRONMENT: u64 = 256 << 10;

/// Beginnings of the names of attributes that are not taken: arguments and variables may hold secrets, and `telemetry.` is of the library
/// that the process makes its own telemetry with, not of wlprof.
const NOT_TAKEN: [&str; 5] =
    ["process.command", "process.environment_variable", "container.command", "telemetry.sdk.", "telemetry.distro."];

/// What the kernel says, or does not say: it is not for the process to change.
const FACTS: [&str; 3] = [PROCESS_PID, EXECUTABLE_NAME, CONTAINER_ID];

/// The folder of a process in `/proc`. It is not that of a later process with the same number.
pub(super) struct Folder(File);

impl Folder {
    pub(super) fn open(pid: i32) -> Option<Self> {
        File::open(format!("/proc/{pid}")).ok().map(Self)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd()))
    }
}

/// The attributes of process `pid`.
pub(super) fn resource(pid: i32) -> Resource {
    let mut resource = Resource::default();
    let Some(folder) = Folder::open(pid) else {
        resource.set(PROCESS_PID, &pid.to_string());
        return resource;
    };
    let instance = start_time(&folder).zip(boot_id());
    let instance = instance.map(|(start, boot)| instance::derived(&[boot.trim(), &pid.to_string(), &start]));
    let container = container::of_files(&folder.path("cgroup"), &folder.path("mountinfo"));
    let variables = variables(&folder);
    let env = |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone());
    let (of_environment, _) = environment::attributes(&env);
    let of_context = context::attributes(&folder).unwrap_or_default();
    // At last: if it still has a program, the rest was there to be read.
    let program = program_name(&folder);
    let defaults = [(SERVICE_NAME, program.clone()), (SERVICE_INSTANCE_ID, instance), (HOST_NAME, host_name())];
    let facts = [Some(pid.to_string()), program, container];
    // First, so that there is room for them.
    for (name, value) in FACTS.into_iter().zip(facts) {
        set_untrusted(&mut resource, name, &value.unwrap_or_default());
    }
    let known = |(name, value): (&str, Option<String>)| Some((name.to_owned(), value?));
    let defaults = defaults.into_iter().filter_map(known);
    for (name, value) in defaults.chain(of_environment).chain(of_context) {
        if !FACTS.contains(&&*name) {
            set_untrusted(&mut resource, &name, &value);
        }
    }
    resource
}

/// Sets an attribute that another process gives, within the bounds and without control characters.
fn set_untrusted(resource: &mut Resource, name: &str, value: &str) {
    let printable = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>();
    let value = printable(&value[..value.floor_char_boundary(LONGEST_VALUE)]);
    let is_short = (1..=LONGEST_NAME).contains(&name.len());
    let is_taken =
        is_short && name == printable(name) && !NOT_TAKEN.iter().any(|beginning| name.starts_with(beginning));
    let has_room = resource.get(name).is_some() || resource.attributes().len() < MOST_ATTRIBUTES;
    if is_taken && has_room && !value.is_empty() {
        resource.set(name, &value);
    }
}

/// The name of its program's file. `None` once it is ending.
fn program_name(folder: &Folder) -> Option<String> {
    let link = fs::read_link(folder.path("exe")).ok()?;
    let name = link.file_name()?.to_string_lossy().into_owned();
    // An updated program has this at its end.
    Some(name.strip_suffix(" (deleted)").map(str::to_owned).unwrap_or(name))
}

/// When it started, in ticks since the machine did.
fn start_time(folder: &Folder) -> Option<String> {
    let stat = fs::read(folder.path("stat")).ok()?;
    // The name before has parentheses around it, and may have more in it.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = String::from_utf8_lossy(&stat[after_name..]).into_owned();
    fields.split_whitespace().nth(19).map(str::to_owned)
}

fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()
}

/// Those of the variables of its environment that give attributes.
fn variables(folder: &Folder) -> Vec<(&'static str, String)> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(folder.path("environ")) {
        // What was read before an error counts.
        let _ = file.take(MOST_ENVIRONMENT).read_to_end(&mut bytes);
    }
    if bytes.len() as u64 == MOST_ENVIRONMENT {
        // The last one may be cut off.
        bytes.truncate(bytes.iter().rposition(|byte| *byte == 0).unwrap_or(0));
    }
    let of_line = |line: &[u8]| {
        let (name, value) = line.split_at_checked(line.iter().position(|byte| *byte == b'=')?)?;
        let name = environment::VARIABLES.into_iter().find(|variable| variable.as_bytes() == name)?;
        Some((name, String::from_utf8(value[1..].to_vec()).ok()?))
    };
    bytes.split(|byte| *byte == 0).filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process that ends with its guard.
    struct Sleep(Child);

    impl Sleep {
        fn start(program: &str, variables: &[(&str, &str)]) -> Self {
            let mut command = Command::new(program);
            command.arg("600").env_clear().envs(variables.iter().copied()).stdout(Stdio::null());
            // It is in its own program when `spawn` returns.
            Self(command.spawn().unwrap())
        }

        fn resource(&self) -> Resource {
            Resource::of_process(self.0.id() as i32)
        }
    }

    impl Drop for Sleep {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_without_variables_is_called_as_its_program() {
        let child = Sleep::start("sleep", &[("SECRET", "hush"), ("OTEL_EXPORTER_OTLP_HEADERS", "key=hush")]);
        let resource = child.resource();
        let program = fs::canonicalize(format!("/proc/{}/exe", child.0.id())).unwrap();
        let program = program.file_name().unwrap().to_str();
        assert_eq!((resource.get(SERVICE_NAME), resource.get(EXECUTABLE_NAME)), (program, program));
        assert_eq!(resource.get(PROCESS_PID), Some(child.0.id().to_string().as_str()));
        assert_eq!(resource.get(HOST_NAME), host_name().as_deref());
        let texts = resource.attributes().iter().flat_map(|(name, value)| [name, value]);
        assert!(texts.into_iter().all(|text| !text.contains("hush") && !text.contains("600")), "{resource:?}");
    }

    #[test]
    fn its_variables_give_attributes() {
        let variables = [
            ("OTEL_SERVICE_NAME", "shop"),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "service.name=x,service.version=7%2C1,process.command_args=hush,host.name=node,process.pid=1,container.id=other",
            ),
        ];
        let resource = Sleep::start("sleep", &variables).resource();
        let values =
            [SERVICE_NAME, "service.version", HOST_NAME, "process.command_args"].map(|name| resource.get(name));
        assert_eq!(values, [Some("shop"), Some("7,1"), Some("node"), None]);
        assert_ne!(resource.get(PROCESS_PID), Some("1"));
        assert_ne!(resource.get(CONTAINER_ID), Some("other"));
    }

    #[test]
    fn the_instance_is_the_same_for_the_life_of_the_process() {
        let (first, second) = (Sleep::start("sleep", &[]), Sleep::start("sleep", &[]));
        let id = |process: &Sleep| process.resource().get(SERVICE_INSTANCE_ID).unwrap().to_owned();
        assert_eq!(id(&first), id(&first));
        assert_ne!(id(&first), id(&second));
    }

    #[test]
    fn a_process_that_has_gone_has_its_number_left() {
        let mut child = Sleep::start("sleep", &[]);
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        assert_eq!(child.resource().attributes(), [(PROCESS_PID.to_owned(), child.0.id().to_string())]);
    }

    #[test]
    fn a_process_that_is_ending_has_no_program() {
        let mut child = Sleep::start("sleep", &[("OTEL_SERVICE_NAME", "shop")]);
        child.0.kill().unwrap();
        // The kernel keeps its number and what it called itself until it is waited for.
        while fs::read_link(format!("/proc/{}/exe", child.0.id())).is_ok() {
            std::thread::yield_now();
        }
        let resource = child.resource();
        assert_eq!((resource.get(EXECUTABLE_NAME), resource.get(SERVICE_NAME)), (None, None));
    }

    #[test]
    fn sizes_are_bounded() {
        let many: Vec<String> = (0..100).map(|number| format!("a{number}={}", "é".repeat(600))).collect();
        let many = many.join(",");
        let padding = "x".repeat(100 << 10);
        let variables =
            [("A", &*padding), ("OTEL_RESOURCE_ATTRIBUTES", &many[..100 << 10]), ("OTEL_SERVICE_NAME", "shop")];
        let resource = Sleep::start("sleep", &variables).resource();
        assert_eq!(resource.attributes().len(), MOST_ATTRIBUTES);
        let longest = resource.attributes().iter().map(|(_, value)| value.len()).max();
        assert_eq!((longest, resource.get(SERVICE_NAME)), (Some(LONGEST_VALUE), Some("shop")));
        assert!(resource.get(PROCESS_PID).is_some() && resource.get(EXECUTABLE_NAME).is_some());

        let name = "n".repeat(LONGEST_NAME + 1);
        let mut resource = Resource::default();
        set_untrusted(&mut resource, &name, "x");
        set_untrusted(&mut resource, &name[1..], &format!("x{}", "é".repeat(LONGEST_VALUE)));
        assert_eq!(resource.attributes().len(), 1);
        assert_eq!(resource.get(&name[1..]).map(str::len), Some(LONGEST_VALUE - 1));
        set_untrusted(&mut resource, "a", "x\ny\t\u{1b}[1m");
        assert_eq!(resource.get("a"), Some("xy[1m"));
        set_untrusted(&mut resource, "b\u{7f}", "x");
        assert_eq!(resource.attributes().len(), 2);
    }

    #[test]
    fn of_an_environment_without_end_the_beginning_counts() {
        let padding = "x".repeat(100 << 10);
        let variables =
            [("A", &*padding), ("B", &padding), ("C", &padding), ("OTEL_SERVICE_NAME", "late"), ("AA", "first")];
        // `Command` sorts the variables by name: `A`, `AA`, `B`, `C`, `OTEL_SERVICE_NAME`.
        let resource = Sleep::start("sleep", &variables).resource();
        assert_ne!(resource.get(SERVICE_NAME), Some("late"));
    }
}
