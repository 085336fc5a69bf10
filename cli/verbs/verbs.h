// SPDX-License-Identifier: Apache-2.0
// The verbs of the command line. Each prints data to stdout and errors to stderr, and returns the exit
// status.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "agent/agent_options.h"
#include "api/files.h"
#include "cli/options/plugin_options.h"
#include "cli/options/selection.h"
#include "cli/session.h"
#include "policy/policy.h"
#include "vfio/bind/rebind_apply.h"

namespace ferry::cli {

/// `status`: every accelerator with its IOMMU group's other members, its driver and its users. `watches`:
/// again whenever something changes, until SIGINT or SIGTERM.
ExitStatus status_verb(const Session& session, bool watches);
/// `explain`: everything about the PCI function, vGPU or resource that `word` names. Usage error: none has
/// that name.
ExitStatus explain_verb(const Session& session, const std::string& word);

struct DoctorOptions {
  std::string purposes = "passthrough";  ///< separated by commas
  std::string classes;                   ///< a class file for kata's checks; empty: the host alone
  std::filesystem::path node;            ///< a Node object for kata's checks; empty: none
  bool verbose = false;                  ///< print also the checks that passed
  NamingOptions naming;                  ///< as the plugin has them
};
/// The words of `purposes`, in the order in which their checks are printed.
const std::vector<std::string>& doctor_purposes();
/// `doctor`: the obstacles of this host to a purpose, and their fixes. Failed: no GPU is ready.
ExitStatus doctor_verb(const Session& session, const DoctorOptions& options);

/// `vfio plan` (a dry run of bind), `bind`, `unbind`. On a terminal a bind with `all` asks first.
ExitStatus bind_verb(const Session& session, const SelectionOptions& options, vfio::Direction direction);
/// `vfio restore`: returns all that Ferry has bound, or the selected part, to its drivers.
ExitStatus restore_verb(const Session& session, const SelectionOptions& options);

/// The source of a verb's profile or policy.
struct ProfileOptions {
  std::filesystem::path file;                 ///< a profile file or a ConfigMap; "-" is stdin
  std::optional<std::string> name;            ///< -c
  std::optional<std::filesystem::path> node;  ///< a Node object whose label gives the name
  std::optional<std::string> otherwise;       ///< the name when the node has no label
  bool lenient = false;                       ///< Reading::lenient, for profiles
  std::vector<std::string> release = {};      ///< SelectionOptions::release, of `vgpu plan` and `apply`
  bool foreign = false;                       ///< removes also vGPUs that Ferry has not made
};
ExitStatus vgpu_types_verb(const Session& session);
/// `vgpu validate`: checks the file, and with `on_host` whether this host can do it. Refused (4): only the
/// host's present state is in the way.
ExitStatus vgpu_validate_verb(const Session& session, const ProfileOptions& options, bool on_host);
ExitStatus vgpu_apply_verb(const Session& session, const ProfileOptions& options);
ExitStatus vgpu_assert_verb(const Session& session, const ProfileOptions& options);

/// `vgpu export`: the host's vGPUs as profile `name` of a file that apply and assert take back.
ExitStatus vgpu_export_verb(const Session& session, const std::string& name);

struct VgpuChooseOptions {
  std::string memory;                 ///< parse_memory_mib()
  std::optional<std::string> series;  ///< A, B, C or Q
  std::vector<std::string> devices;   ///< addresses of GPUs; none: all
};
/// `vgpu choose`: the smallest vGPU type with enough memory, for each GPU. Done: one of all GPUs has such a
/// type, or each named one. Refused: vGPUs take the space. Failed: no type is large enough.
ExitStatus vgpu_choose_verb(const Session& session, const VgpuChooseOptions& options);

struct VgpuDeleteOptions {
  bool all = false;
  bool yes = false;  ///< `all` asks no person
  std::vector<std::string> devices;
  bool foreign = false;
};
ExitStatus vgpu_delete_verb(const Session& session, const VgpuDeleteOptions& options);

/// `apply`: changes the whole node to a policy, v2 or v1.
ExitStatus apply_verb(const Session& session, const ProfileOptions& options);
/// The dry run of `apply`.
ExitStatus apply_preview(const Session& session, const policy::Policy& policy, bool foreign,
                         policy::ResourceNames resources = {});
struct HostdOptions {
  bool once = false;
  bool own_scope = false;  ///< in a container: move to a control group of the host
  std::filesystem::path desired = std::string("/") + api::kDesiredFile;
  std::filesystem::path status_file = std::string("/") + api::kStatusFile;
  bool lenient = false;                   ///< Reading::lenient, for NVIDIA's profiles
  bool validations = false;               ///< write the files in host/validation_files.h
  bool sets_cc_mode = false;              ///< KeeperSettings::sets_cc_mode
  std::filesystem::path cri_socket = {};  ///< empty: it is unknown which Kata handlers are ready
  bool kata = false;  ///< also install the runtimes of the agent's class file (desired_classes.h)
  std::optional<unsigned> agent_group;  ///< an agent's that is not root (host/system/agent_folders.h)
  std::vector<std::filesystem::path> agent_trees = {};
  std::optional<unsigned> dra_user = {};   ///< of `ferry dra`; absent: requests about claims are not served
  std::optional<unsigned> dra_group = {};  ///< of `ferry dra`; with `dra_user`
  std::vector<std::filesystem::path> dra_folders = {};  ///< beside the folder of its checkpoint
  std::filesystem::path claim_metadata = "/var/lib/kubelet/plugins/gpu-ferry.io.hostd";
  std::vector<std::string> classes = {};  ///< RESOURCE=DEVICE (policy::NamedDevices)
  NamingOptions naming = {};              ///< as the plugin has them; with `classes`
};
/// `hostd`: keeps the node as a file says, whenever the file or the node changes, until SIGTERM or SIGINT.
/// `once`: applies the file one time and ends as apply_verb(). A dry run prints the plan.
ExitStatus hostd_verb(const Session& session, const HostdOptions& options);
/// `assert`: compares the node with a policy.
ExitStatus assert_verb(const Session& session, const ProfileOptions& options);
/// `export`: the node's present state as policy `name`, which apply and assert take back.
ExitStatus export_verb(const Session& session, const std::string& name);
/// `convert`: policies, v2 or v1, as a v2 file. It does not read the host.
ExitStatus convert_verb(const Session& session, const ProfileOptions& options);

/// `plugin`: serves the kubelet until SIGTERM or SIGINT. P_GPU_ALIAS and NVSWITCH_ALIAS in the environment
/// name Kata's GPUs and NVSwitches, as for NVIDIA's plugin; empty: each model has its own name. POD_NAME and
/// POD_NAMESPACE are PodResourcesMonitor::Settings::own_pod.
ExitStatus plugin_verb(const Session& session, const PluginVerbOptions& options);

struct AgentOptions {
  bool once = false;                           ///< false: become ferry-agent
  std::filesystem::path node;                  ///< a Node object
  std::vector<std::filesystem::path> configs;  ///< policies and vGPU profiles, alone or in ConfigMaps
  bool handed_over = false;                    ///< NVIDIA's own programs are off, whatever labels say
  agent::AgentProgramOptions program;          ///< of ferry-agent; some count for `once`, too
  std::string only_for_the_server;             ///< AgentOptionList::given_for_the_server()
  std::vector<std::string> words;              ///< the arguments of ferry-agent
};
/// `agent --once`: writes the desired state of the node's labels to desired.json, and the host's answers to
/// status files; prints the report that the cluster would get. Invalid configuration: the desired state is
/// invalid. Refused: others serve the node.
///
/// Without `once` it execs ferry-agent, and returns only if that fails.
ExitStatus agent_verb(const Session& session, const AgentOptions& options);

/// `claims list`: the ResourceClaims whose devices hostd has prepared, by its record.
ExitStatus claims_list_verb(const Session& session);
/// `claims release`: undoes the devices of a claim as hostd does for `ferry dra`, when that is gone. Done:
/// also if hostd has no such claim. Usage error: the text is no UID. Refused: a program uses a device, or
/// `ferry dra` runs and has the claim.
ExitStatus claims_release_verb(const Session& session, const std::string& uid);

/// `history`: the users of one GPU, or of all, and the resets between them, by hostd's record.
/// Errc::not_found: hostd has none of this GPU.
ExitStatus history_verb(const Session& session, const std::string& gpu);

struct SanitizeOptions {
  std::string gpu;
  bool accepts = false;  ///< make a GPU that failed available without a proof
};
/// `sanitize`: has hostd reset a free GPU again, or release one that failed, and waits for the end. Refused:
/// the GPU is in use, or hostd does not run. Failed: it could not be reset, or by `required` not proven.
ExitStatus sanitize_verb(const Session& session, const SanitizeOptions& options);

struct CcOptions {
  std::string mode;                  ///< off, on, devtools or ppcie
  std::vector<std::string> devices;  ///< PCI addresses; empty: all that have the mode
};
/// `cc plan` and `cc set`: changes the confidential mode of GPUs and NVSwitches on vfio-pci, all or none.
/// Refused: a device is in use, or is not on vfio-pci. Failed: the change was undone, or could not be.
ExitStatus cc_verb(const Session& session, const CcOptions& options);

struct KubevirtCrOptions {
  std::vector<std::string> models;  ///< GPUs and vGPU types by name, instead of this host's devices
  std::string hyperconverged;       ///< v1 or v1beta1: the HyperConverged object; empty: the KubeVirt object
  bool device_classes = false;      ///< print the chart's dra.deviceClasses.more instead
  NamingOptions naming;             ///< as the plugin has them
};
/// `kubevirt-cr`: prints the part of the object that permits this host's resources, also those of GPUs for
/// claims, or those of `models` by the tables of names. Errc::not_found: no table has such a name;
/// Errc::refused: the object cannot have it.
ExitStatus kubevirt_cr_verb(const Session& session, const KubevirtCrOptions& options);

struct KataOptions {
  std::filesystem::path file;                          ///< the class file, or a ConfigMap; "-" is stdin
  bool lenient = false;                                ///< Reading::lenient, for NVIDIA's file
  std::optional<std::string> runtime;                  ///< name of a RuntimePlace
  std::optional<std::filesystem::path> configuration;  ///< of containerd, on the host; instead of the place's
  std::optional<std::filesystem::path> socket;         ///< as `configuration`
  std::optional<std::string> containerd_version;       ///< ContainerdRelease::parse()
  std::optional<std::filesystem::path> docker_config;  ///< on the host; instead of the class file's
  std::optional<std::filesystem::path> pull_secrets;   ///< in this process's own root: see read_pull_secret()
  std::filesystem::path node;                          ///< a Node object; empty: none
  bool no_restart = false;                             ///< write files only
  bool accept_edited_files = false;                    ///< ChangeContext::accept_edited_files
  bool no_modules = false;                             ///< load none
  bool keep_artifacts = false;
  unsigned wait_seconds = 0;  ///< time for pods to end
};
/// `kata plan` (a dry run of install), `install`: make the classes of a file this host's runtimes, and remove
/// Ferry's other runtimes.
ExitStatus kata_install_verb(const Session& session, const KataOptions& options);
/// The same for a long-running program. True: the host has all that it can have of the file
/// (has_what_it_can()), even if some classes are refused.
bool kata_install_what_can_be(const Session& session, const KataOptions& options);
/// `kata uninstall`: removes Ferry's runtimes, and restores the container runtime's files.
ExitStatus kata_uninstall_verb(const Session& session, const KataOptions& options);
/// `kata status`: Ferry's runtimes, whether the container runtime knows them, and their pods.
ExitStatus kata_status_verb(const Session& session, const KataOptions& options);
/// `kata verify`: compares a class file with the host and the container runtime. Differs: a part is missing.
ExitStatus kata_verify_verb(const Session& session, const KataOptions& options);
/// `kata runtimeclass`: the RuntimeClass objects of a class file.
ExitStatus kata_runtimeclass_verb(const Session& session, const KataOptions& options);

}  // namespace ferry::cli
