//! The place of keyward in a pod: before or beside its containers, and the containers that get the files.

use std::collections::BTreeSet;

use super::annotations::Key;
use super::given::GivenAnnotations;
use super::pod::{Container, Pod};
use super::problems::Problems;
use super::values;

/// Name of the container that is added.
pub(crate) const CONTAINER: &str = "keyward";

/// Prefix of the volumes that are added.
pub(crate) const VOLUME: &str = "keyward-";

/// User and group of keyward's image.
const USER: i64 = 65532;

/// Port of the probes and of the metrics.
const HEALTH_PORT: u16 = 8301;

/// Life of the added container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// A native sidecar: it runs beside the containers, and ends after them.
    Sidecar {
        /// The containers start once the files are there.
        is_awaited: bool,
    },
    /// An init container: it writes the files once.
    Init,
}

/// Place of keyward in a pod.
#[derive(Debug)]
pub(crate) struct Placement {
    pub(crate) life: Life,
    /// Keyward is the first init container instead of the last.
    pub(crate) is_first: bool,
    /// Containers that get the files, by name.
    pub(crate) receivers: BTreeSet<String>,
    pub(crate) user: i64,
    pub(crate) group: i64,
    pub(crate) health_port: u16,
    /// All containers of the pod are members of a group that the volumes have.
    pub(crate) has_shared_group: bool,
}

impl Placement {
    /// Reads the place from a pod's annotations. `folders` are those of the files.
    pub(crate) fn read(pod: &Pod, given: &GivenAnnotations, folders: &[String], problems: &mut Problems) -> Self {
        let flag = |key: Key, problems: &mut Problems| problems.parse(given.get(key), values::boolean);
        let is_init = flag(Key::PrePopulateOnly, problems).unwrap_or_default();
        let is_awaited = flag(Key::PrePopulate, problems).unwrap_or(true);
        let life = match (is_init, is_awaited) {
            (true, true) => Life::Init,
            (false, is_awaited) => Life::Sidecar { is_awaited },
            (true, false) => {
                problems.add("annotations pre-populate: \"false\" and pre-populate-only: \"true\" exclude each other; remove one of them");
                Life::Init
            }
        };
        let is_first = flag(Key::InitFirst, problems).unwrap_or_default();
        let health_port = problems.parse(given.get(Key::HealthPort), values::port).unwrap_or(HEALTH_PORT);
        let (user, group) = ids(pod, given, problems);
        let placement = Self {
            life,
            is_first,
            receivers: receivers(pod, given, is_first, problems),
            user,
            group,
            health_port,
            has_shared_group: pod.spec.security_context.fs_group.is_some(),
        };
        placement.check(pod, folders, problems);
        placement
    }

    /// Reports names and ports that the pod has already, and mounts at the folders of the files.
    fn check(&self, pod: &Pod, folders: &[String], problems: &mut Problems) {
        if pod.all_containers().any(|container| container.name == CONTAINER) {
            problems.add(format!("the pod already has a container called {CONTAINER}; rename it"));
        }
        for volume in pod.spec.volumes.iter().flatten().filter(|volume| volume.name.starts_with(VOLUME)) {
            problems.add(format!("the pod already has a volume called {}; rename it", volume.name));
        }
        if matches!(self.life, Life::Sidecar { .. }) {
            let port = i64::from(self.health_port);
            let listens = |container: &&Container| container.ports.iter().any(|other| other.container_port == port);
            if let Some(other) = pod.all_containers().find(listens) {
                problems.add(format!(
                    "container {} has the port {port} of keyward's probes; set another one by keyward.dev/health-port",
                    other.name
                ));
            }
        }
        for container in pod.all_containers().filter(|container| self.receivers.contains(&container.name)) {
            for mount in container.volume_mounts.iter().flatten() {
                if folders.iter().any(|folder| folder == mount.mount_path.trim_end_matches('/')) {
                    problems.add(format!(
                        "container {} has another volume at {}; set another folder by keyward.dev/volume-path",
                        container.name, mount.mount_path
                    ));
                }
            }
        }
    }
}

/// Reads user and group of the container.
fn ids(pod: &Pod, given: &GivenAnnotations, problems: &mut Problems) -> (i64, i64) {
    let mut user = problems.parse(given.get(Key::RunAsUser), values::id);
    let mut group = problems.parse(given.get(Key::RunAsGroup), values::id);
    let same = given.get(Key::RunAsSameUser);
    if let (Some(true), Some(annotation)) = (problems.parse(same, values::boolean), same) {
        let pod_wide = &pod.spec.security_context;
        let first = pod.spec.containers.first().map(|container| &container.security_context);
        let its_user = first.and_then(|first| first.run_as_user).or(pod_wide.run_as_user);
        let its_group = first.and_then(|first| first.run_as_group).or(pod_wide.run_as_group);
        match its_user {
            Some(id) if id > 0 => {
                user = Some(id);
                group = group.or(its_group.filter(|id| *id > 0));
            }
            Some(_) => problems
                .value(annotation, "the first container runs as root, and keyward does not; remove the annotation"),
            None => problems.value(annotation, "neither the first container nor the pod has a runAsUser; set it there"),
        }
    }
    (user.unwrap_or(USER), group.unwrap_or(USER))
}

/// Reads the names of the containers that get the files.
fn receivers(pod: &Pod, given: &GivenAnnotations, is_first: bool, problems: &mut Problems) -> BTreeSet<String> {
    let names =
        |containers: &[Container]| containers.iter().map(|container| container.name.clone()).collect::<Vec<_>>();
    let mut receivers: BTreeSet<String> = match given.get(Key::Containers) {
        None => names(&pod.spec.containers).into_iter().collect(),
        Some(list) => {
            let listed = list.value.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
            let listed: BTreeSet<String> = listed.collect();
            let unknown = listed.iter().find(|name| !pod.all_containers().any(|container| container.name == **name));
            if let Some(name) = unknown {
                problems.value(list, &format!("the pod has no container called {name:.63}"));
            } else if listed.is_empty() {
                problems.value(list, "expected names of containers, separated by commas");
            }
            listed
        }
    };
    if is_first {
        receivers.extend(names(pod.spec.init_containers.as_deref().unwrap_or_default()));
    }
    receivers
}
