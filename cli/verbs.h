// SPDX-License-Identifier: Apache-2.0
// The verbs of the command line. Each prints its data to stdout, its errors to stderr, and gives the exit
// status.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "agent/agent_options.h"
#include "cli/naming_options.h"
#include "cli/selection.h"
#include "cli/session.h"
#include "policy/policy.h"
#include "vfio/move_apply.h"
#include "virt/selftest.h"

namespace ferry {

/// As given on the command line.
struct StatusOptions {
  bool watch = false;             ///< again whenever something changes, until SIGINT or SIGTERM
  std::filesystem::path capture;  ///< where to write this host for --host-root; empty: nowhere
};
/// `status`: every accelerator, its group and the other members, its driver, who uses it.
ExitStatus status_verb(const Session& session, const StatusOptions& options);
/// `explain`: the whole story of what `word` names: a PCI address, a vGPU's UUID, a resource. Wrong usage
/// where nothing is called so.
ExitStatus explain_verb(const Session& session, const std::string& word);

/// What `doctor` is to look for.
struct DoctorOptions {
  std::string purposes = "passthrough";  ///< words between commas
  std::string classes;                   ///< a class file for kata's checks; empty: of the host alone
  std::filesystem::path node;            ///< a Node object for them; empty: none
  NamingOptions naming;                  ///< the plugin's
};
/// `doctor`: what keeps this host from a purpose, and what to change. Failed when any check fails.
ExitStatus doctor_verb(const Session& session, const DoctorOptions& options);

/// `vfio plan` (a dry run of bind), `bind`, `unbind`.
ExitStatus move_verb(const Session& session, const SelectionOptions& options, Direction direction);
/// `vfio restore`: what Ferry has moved goes back, all of it where nothing is chosen.
ExitStatus restore_verb(const Session& session, const SelectionOptions& options);

/// Where verbs find their profile or policy.
struct ProfileOptions {
  std::filesystem::path file;                 ///< a profile file or a ConfigMap; "-" is stdin
  std::optional<std::string> name;            ///< -c
  std::optional<std::filesystem::path> node;  ///< a Node object whose label gives the name
  std::optional<std::string> otherwise;       ///< the name when the node has no label
  bool lenient = false;                       ///< Reading::lenient, for profiles
  std::vector<std::string> release = {};      ///< SelectionOptions::release, of `vgpu plan` and `apply`
  bool foreign = false;                       ///< vGPUs that Ferry has not made may go
};
ExitStatus vgpu_types_verb(const Session& session);
/// `vgpu validate`: the file alone; with `on_host` also what of it this host could not do, refused (4) where
/// only what there is now is in the way.
ExitStatus vgpu_validate_verb(const Session& session, const ProfileOptions& options, bool on_host);
ExitStatus vgpu_apply_verb(const Session& session, const ProfileOptions& options);
ExitStatus vgpu_assert_verb(const Session& session, const ProfileOptions& options);

/// `vgpu export`: the host's state as a profile file that apply and assert take back, called `name`.
ExitStatus vgpu_export_verb(const Session& session, const std::string& name);

/// As given on the command line.
struct ChoiceOptions {
  std::string memory;                 ///< parse_memory_mib()
  std::optional<std::string> series;  ///< A, B, C or Q
  std::vector<std::string> devices;   ///< addresses of GPUs; none: all
};
/// `vgpu choose`: the smallest vGPU type with enough memory, for each GPU. Done when one of all GPUs has such
/// a type, or each of those that are named; else refused where vGPUs take the room, and failed where no type
/// is large enough.
ExitStatus vgpu_choose_verb(const Session& session, const ChoiceOptions& options);

struct RemovalOptions {
  bool all = false;
  std::vector<std::string> devices;
  bool foreign = false;
};
ExitStatus vgpu_delete_verb(const Session& session, const RemovalOptions& options);

/// `apply`: the whole node by a policy, v2 or v1.
ExitStatus apply_verb(const Session& session, const ProfileOptions& options);
/// What that would do.
ExitStatus apply_preview(const Session& session, const Policy& policy, bool foreign);
/// As given on the command line.
struct KeepingOptions {
  bool once = false;
  bool own_scope = false;  ///< in a container: leave its control group for one of the host's
  std::filesystem::path wanted = "/var/lib/ferry/wanted.json";
  std::filesystem::path state = "/run/ferry/state.json";
  bool lenient = false;                   ///< Reading::lenient, for NVIDIA's profiles
  std::filesystem::path cri_socket = {};  ///< empty: nobody is asked which Kata handlers are ready
  bool kata = false;  ///< also install the Kata runtimes that the agent's file says (wanted_classes.h)
  std::optional<unsigned> agent_group;  ///< of an agent that is not root (host/agent_folders.h)
  std::vector<std::filesystem::path> agent_folders = {};  ///< beside that of its lock
  std::vector<std::filesystem::path> agent_trees = {};
};
/// `hostd`: makes the node what a file says, and again whenever that or the node changes, until SIGTERM or
/// SIGINT; with `once` one time, and ends as apply_verb() does. In a dry run what it would do.
ExitStatus hostd_verb(const Session& session, const KeepingOptions& keeping);
/// `assert`: is the node what a policy says?
ExitStatus assert_verb(const Session& session, const ProfileOptions& options);
/// `export`: the node as it is as a policy that apply and assert take back, called `name`.
ExitStatus export_verb(const Session& session, const std::string& name);
/// `convert`: policies, v2 or v1, as a v2 file; the host is not looked at.
ExitStatus convert_verb(const Session& session, const ProfileOptions& options);

/// As given on the command line.
struct ServingOptions {
  std::optional<std::filesystem::path> kubelet_directory;  ///< absent: the kubelet's own for either way
  bool plugin_watcher = false;    ///< the directory is that of the kubelet's plugin watcher
  std::string mode = "kubevirt";  ///< kubevirt, kata, both
  NamingOptions naming;
  std::string vgpu_placement = "pack";  ///< pack, spread
  bool cdi_names = false;
  bool name_pods = false;  ///< HolderWatch::Settings::names
};
/// `plugin`: serves the kubelet until SIGTERM or SIGINT. Takes P_GPU_ALIAS and NVSWITCH_ALIAS, what Kata's
/// GPUs and NVSwitches are called, from the environment as NVIDIA's plugin does: empty is one name for each
/// model; and from POD_NAME and POD_NAMESPACE HolderWatch::Settings::own_pod.
ExitStatus plugin_verb(const Session& session, const ServingOptions& serving);

/// As given on the command line.
struct AgentOptions {
  bool once = false;                           ///< else it becomes ferry-agent
  std::filesystem::path node;                  ///< a Node object
  std::vector<std::filesystem::path> configs;  ///< policies and vGPU profiles, alone or in ConfigMaps
  bool handed_over = false;         ///< NVIDIA's own programs are switched off, whatever labels say
  AgentProgramOptions program;      ///< of ferry-agent; some count for one look too
  std::string only_for_the_server;  ///< AgentOptionList::given_for_the_server()
  std::vector<std::string> words;   ///< what ferry-agent is to be told
};
/// `agent --once`: says what the node's labels ask for in wanted.json, and what the host's own process
/// answers in status files; prints what it would say to the cluster. Invalid configuration where what is
/// asked for cannot be; refused where others serve the node.
///
/// Without `once` it becomes ferry-agent, and returns only where that cannot be.
ExitStatus agent_verb(const Session& session, const AgentOptions& options);

/// As given on the command line.
struct KubevirtCrOptions {
  bool check = false;
  bool apply = false;
  std::string kubeconfig;  ///< empty: see cluster_access()
  std::string context;     ///< empty: the file's own
  NamingOptions naming;    ///< the plugin's
};
/// `kubevirt-cr`: the part of the KubeVirt object that permits what this host offers. Prints it; or becomes
/// ferry-agent, to compare the cluster's object with it or to add to that.
ExitStatus kubevirt_cr_verb(const Session& session, const KubevirtCrOptions& options);

/// As given on the command line.
struct KataOptions {
  std::filesystem::path file;                          ///< the class file, or a ConfigMap; "-" is stdin
  bool lenient = false;                                ///< Reading::lenient, for NVIDIA's file
  std::optional<std::string> runtime;                  ///< name of a RuntimePlace
  std::optional<std::filesystem::path> configuration;  ///< of containerd, on the host; instead of the place's
  std::optional<std::filesystem::path> socket;         ///< likewise
  std::optional<std::string> containerd_version;       ///< ContainerdRelease::parse()
  std::optional<std::filesystem::path> docker_config;  ///< on the host; instead of the class file's
  std::optional<std::filesystem::path> pull_secrets;   ///< our own, as `file` is: see read_pull_secret()
  std::filesystem::path node;                          ///< a Node object; empty: none
  bool no_restart = false;                             ///< write files only
  bool accept_edited_files = false;                    ///< ChangeContext::accept_edited_files
  bool no_modules = false;                             ///< load none
  bool keep_artifacts = false;
  unsigned wait_seconds = 0;  ///< for pods to end
};
/// `kata plan` (a dry run of install), `install`: the classes of a file are runtimes of this host, and no
/// others of ours.
ExitStatus kata_install_verb(const Session& session, const KataOptions& options);
/// The same for a program that stays: true where the host has what it can of the file (has_what_it_can()),
/// some classes refused or none.
bool kata_install_what_can_be(const Session& session, const KataOptions& options);
/// `kata uninstall`: none of ours is any more, and the container runtime's files are what they were before.
ExitStatus kata_uninstall_verb(const Session& session, const KataOptions& options);
/// `kata status`: our runtimes, whether the container runtime knows them, the pods that run with them.
ExitStatus kata_status_verb(const Session& session, const KataOptions& options);
/// `kata verify`: is all of a class file there, and known? Differs if not.
ExitStatus kata_verify_verb(const Session& session, const KataOptions& options);
/// `kata runtimeclass`: the RuntimeClass objects of a class file.
ExitStatus kata_runtimeclass_verb(const Session& session, const KataOptions& options);

/// `selftest`: a throw-away VM that has the devices, seen from inside.
ExitStatus selftest_verb(const Session& session, const SelftestOptions& options);

}  // namespace ferry
