// SPDX-License-Identifier: Apache-2.0
// The class file lists the Kata runtimes of a node: NVIDIA's kata-manager file as it is, or Ferry's format,
// which has all of NVIDIA's keys and more.
//
//   version: v2                                   # absent: NVIDIA's file
//   artifactsDir: /opt/kata-classes
//   runtimeClasses:
//   - name: kata-nvidia-gpu
//     nodeSelector: {example.com/gpu: "true"}
//     artifacts: {url: "registry.example/kata-gpu:1", pullSecret: pull}
//     aliases: [kata-qemu-nvidia-gpu]             # from here on: Ferry's format only
//     kind: gpu                                   # gpu, vgpu, snp or tdx
//     overhead: {memory: 10240Mi, cpu: "1"}
//     configuration: {hypervisor: {qemu: {default_memory: 8192}}}
//   runtime: {name: containerd}
//   restart: {unit: containerd.service}
//
// docs/kata-reference.md describes all of it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/config_reader.h"
#include "common/config/config_tree.h"
#include "common/result.h"
#include "kata-manager/runtimes/runtime_place.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {

/// The devices of a class's VMs, and whether the host can read the VMs' memory. Mediated devices have no
/// kind: at a VM's start Kata would plug the whole GPU (kata_class_reader.cpp refuses them).
enum class KataKind {
  gpu,   ///< whole GPUs on a vfio driver
  vgpu,  ///< virtual functions that carry a vGPU; the guest's image needs NVIDIA's driver for vGPUs
  snp,   ///< whole GPUs in a confidential VM of AMD's SEV-SNP
  tdx,   ///< the same with Intel's TDX
};
/// "gpu", "vgpu", "snp", "tdx"
std::string_view text(KataKind kind);
inline bool is_confidential(KataKind kind) {
  return kind == KataKind::snp || kind == KataKind::tdx;
}

struct KataArtifacts {
  /// An OCI reference, whose grammar the puller checks, or "file:///DIR", a folder of the host.
  std::string url;
  std::string pull_secret;  ///< name of a Secret in Ferry's namespace; empty: none
  /// Kata's configuration, relative to the artifact's folder; empty: the only *.toml at its top or, if
  /// that has none, in the folder of Kata's own build (kKataDefaults).
  std::filesystem::path configuration = {};
  /// True: set-user-ID and set-group-ID files in archives are unpacked as such, owned by ferry-fetch's
  /// user. False: they are refused; no known Kata artifact has any.
  bool allow_setuid = false;
  /// Programs, files and patterns outside Kata's installation that a pulled artifact's configuration may
  /// name (host_paths.h), spelt as there.
  std::vector<std::string> allow_host_paths = {};

  /// The folder of "file:///DIR", an absolute path of the host; absent: `url` is a reference.
  std::optional<std::filesystem::path> folder() const;
};

/// The prefix of the names of Kata's shims. containerd and CRI-O find a shim by this name and a runtime's
/// type.
inline constexpr std::string_view kKataShimPrefix = "containerd-shim-kata";

struct KataClass {
  std::string name;                  ///< handler, folder below artifacts_dir, RuntimeClass; is_handler_name()
  std::vector<std::string> aliases;  ///< further handlers and RuntimeClasses, equal in all else
  KataKind kind = KataKind::gpu;
  KataArtifacts artifacts;
  /// Absent: the kind's default (runtime_class.h).
  std::optional<std::map<std::string, std::string>> node_selector = {};
  /// Resources that a pod's VM takes beside its containers; absent: derived from the guest's memory
  /// (runtime_class.h).
  std::optional<std::map<std::string, std::string>> overhead = {};
  std::optional<std::string> snapshotter = {};  ///< absent: the container runtime's default
  /// The shim's path; its name begins with kKataShimPrefix. Absent: where Kata's installers put it
  /// (kata_shim.h).
  std::optional<std::filesystem::path> shim = {};
  /// Hypervisor settings that pods may change by annotation, beside those that the artifact allows.
  std::vector<std::string> annotations = {};
  TomlTable configuration = {};  ///< overrides Kata's configuration and Ferry's settings
  std::string place;             ///< "classes.yaml:12"

  /// The class's handlers: its name, then its aliases.
  std::vector<std::string> handlers() const;
};

/// How the container runtime is made to read a changed configuration.
struct RuntimeRestart {
  enum class How {
    unit,     ///< restart of its systemd unit
    command,  ///< a command on the host
    none,     ///< Ferry restarts nothing
  };
  How how = How::unit;
  std::vector<std::string> command = {};  ///< the program's path on the host, then its arguments
};

/// Settings for pulling artifacts.
struct PullSettings {
  std::string proxy;                                          ///< URL; empty: none
  std::vector<std::string> no_proxy;                          ///< hosts, domains
  std::map<std::string, std::vector<std::string>> mirrors;    ///< registry to URLs, in order of trial
  std::optional<std::filesystem::path> certificates;          ///< file of CA certificates on the host
  std::optional<std::filesystem::path> docker_configuration;  ///< credentials, on the host
};

struct ClassFile {
  /// The default of NVIDIA's program.
  static constexpr const char* kArtifactsDir = "/opt/nvidia-gpu-operator/artifacts/runtimeclasses";

  std::string file;  ///< its path, for messages
  std::filesystem::path artifacts_dir = kArtifactsDir;
  std::vector<KataClass> classes;  ///< in order of the file; each handler occurs once

  // All paths are absolute paths of the host, without "..".
  RuntimeChoice runtime = {};  ///< `runtime`, and the unit of `restart`
  RuntimeRestart restart = {};
  bool load_modules = true;  ///< vhost_vsock and vhost_net
  /// The kubelet's socket that Kata asks for a pod's devices; empty: annotations name the devices.
  std::filesystem::path pod_resources = "/var/lib/kubelet/pod-resources/kubelet.sock";
  PullSettings pull = {};

  std::vector<std::string> warnings = {};  ///< tolerated faults, each with its place
};

/// Reads a text of either format; an empty document is NVIDIA's file without classes. Any fault is
/// Errc::invalid_config, "file:line: key: reason". Lenient reading tolerates the faults that NVIDIA's
/// program tolerates, with a warning: classes without a name or URL are dropped, unknown keys are ignored,
/// and the last of two classes of one name counts. `version: v2` is always read strictly.
Result<ClassFile> read_classes(const ConfigText& source, Reading how = Reading::strict);

/// The same from a file, or from a ConfigMap: its key config.yaml, or its only key. "-" is standard input.
Result<ClassFile> read_class_file(const std::filesystem::path& path, Reading how = Reading::strict);

/// The class with this name or alias. Errc::invalid_config lists the names in the file.
Result<KataClass> select_class(const ClassFile& file, std::string_view name);

}  // namespace ferry::kata
