//! The id of the container that a process is in, from its control groups and mounts.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The most that is read of each file.
const MOST_BYTES: u64 = 1 << 20;

/// The id of this process's container.
pub(super) fn of_this_process() -> Option<String> {
    of_files(Path::new("/proc/self/cgroup"), Path::new("/proc/self/mountinfo"))
}

/// The id by a process's `cgroup` and `mountinfo`. In a control group namespace of its own a process sees `/` for its group. Its mounts
/// still show where the container's files are.
pub(super) fn of_files(cgroup: &Path, mounts: &Path) -> Option<String> {
    text(cgroup).and_then(|text| of_groups(&text)).or_else(|| text(mounts).and_then(|text| of_mounts(&text)))
}

fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Finds the id in lines such as `0::/kubepods.slice/cri-containerd-ID.scope`: the innermost of the first line that has one.
fn of_groups(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.splitn(3, ':').nth(2)?.rsplit('/').find_map(of_group))
}

/// The id in the name of one group: `ID`, `docker-ID.scope`, `cri-containerd:ID`.
fn of_group(name: &str) -> Option<String> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let last = name.rsplit(['-', ':']).next().unwrap_or(name);
    if is_id(last) { Some(last.to_owned()) } else { is_id_of_fargate(name).then(|| name.to_owned()) }
}

/// Finds the id in what is mounted from the container's own folder, as `/var/lib/docker/containers/ID/hostname`.
fn of_mounts(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let folders: Vec<&str> = line.split(' ').nth(3)?.split('/').collect();
        let of_pair = |pair: &[&str]| ["containers", "overlay-containers"].contains(&pair[0]) && is_id(pair[1]);
        folders.windows(2).find(|pair| of_pair(pair)).map(|pair| pair[1].to_owned())
    })
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether it is an id of AWS Fargate: that of the task and a number.
fn is_id_of_fargate(text: &str) -> bool {
    let is_task = |task: &str| task.len() == 32 && task.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('-').is_some_and(|(task, number)| is_task(task) && is_number(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "9fe3d1b0a7c54e6f8b2a1c0d9e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f";
    const OTHER: &str = "0000000000000000000000000000000000000000000000000000000000000000";

    #[test]
    fn groups_of_the_common_runtimes_have_the_id() {
        let groups = [
            format!("12:cpu:/docker/{ID}\n"),
            format!("0::/system.slice/docker-{ID}.scope\n"),
            format!("1:name=systemd:/user.slice\n0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope\n"),
            format!("0::/../../kubepods/burstable/pod-1/{ID}\n"),
            format!("11:memory:/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:{ID}\n"),
            format!("0::/machine.slice/libpod-{ID}.scope/container\n"),
            format!("0::/docker/{OTHER}/docker/{ID}/init.scope\n"),
        ];
        for text in groups {
            assert_eq!(of_groups(&text).as_deref(), Some(ID), "{text}");
        }
        let fargate = "0123456789abcdef0123456789abcdef-2531612879";
        assert_eq!(
            of_groups(&format!("3:cpu:/ecs/0123456789abcdef0123456789abcdef/{fargate}")).as_deref(),
            Some(fargate)
        );
    }

    #[test]
    fn other_groups_have_none() {
        let service = format!("0::/system.slice/{}.service\n", &ID[1..]);
        for text in ["", "0::/\n", "4:memory:/process_api/f7e2eaec8edefe611c6c2c68ff02ca3c\n", &service, "nonsense"] {
            assert_eq!(of_groups(text), None, "{text}");
        }
    }

    #[test]
    fn mounts_from_the_folder_of_the_container_have_it() {
        let of_docker = format!(
            "1 2 0:3 / / rw - overlay overlay rw\n4 2 8:1 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw - ext4 a rw"
        );
        assert_eq!(of_mounts(&of_docker).as_deref(), Some(ID));
        let of_podman =
            format!("4 2 0:5 /containers/overlay-containers/{ID}/userdata/hosts /etc/hosts rw - tmpfs t rw");
        assert_eq!(of_mounts(&of_podman).as_deref(), Some(ID));
        // A pod's sandbox is another container, and the root of the mount counts, not the place.
        let of_pod =
            format!("4 2 8:1 /io.containerd.grpc.v1.cri/sandboxes/{ID}/hostname /containers/{ID} rw - ext4 a rw");
        assert_eq!(of_mounts(&of_pod), None);
    }
}
