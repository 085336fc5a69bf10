// SPDX-License-Identifier: Apache-2.0
// The file that says which Kata runtimes a node shall have: that of NVIDIA's kata-manager as it is, or ours,
// which has all of its keys and more.
//
//   version: v2                                   # absent: NVIDIA's file
//   artifactsDir: /opt/kata-classes
//   runtimeClasses:
//   - name: kata-nvidia-gpu
//     nodeSelector: {example.com/gpu: "true"}
//     artifacts: {url: "registry.example/kata-gpu:1", pullSecret: pull}
//     aliases: [kata-qemu-nvidia-gpu]             # from here on: ours alone
//     kind: gpu                                   # gpu, vgpu, snp or tdx
//     overhead: {memory: 10240Mi, cpu: "1"}
//     configuration: {hypervisor: {qemu: {default_memory: 8192}}}
//   runtime: {name: containerd}
//   restart: {unit: containerd.service}
//
// docs/kata.md describes all of it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config_reader.h"
#include "common/config_tree.h"
#include "common/result.h"
#include "kata-manager/runtime_place.h"
#include "kata-manager/toml.h"

namespace ferry {

/// What a class's VMs are given, and whether their memory is hidden from the host. Mediated devices are none:
/// plugged at a VM's start they become their whole GPU (class_file.cpp says so to who asks).
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
  /// An OCI reference (its grammar is checked by who pulls it), or "file:///DIR": a folder of the host.
  std::string url;
  std::string pull_secret;  ///< name of a Secret in our own namespace; empty: none
  /// Kata's configuration, relative to the artifact's folder; absent: the only *.toml at its top, or
  /// where Kata's own build has it (kKataDefaults).
  std::optional<std::filesystem::path> configuration;
  /// Its archives may have set-user-ID and set-group-ID files, which are unpacked as such, and root's. They
  /// are refused else: nothing that is known of Kata's has any.
  bool allow_setuid = false;
  /// Programs, files and patterns beyond Kata's installation that the configuration of a pulled artifact may
  /// name (host_paths.h), as they stand there.
  std::vector<std::string> allow_host_paths = {};

  /// The folder of "file:///DIR", absolute and below the host's root; absent: it is a reference.
  std::optional<std::filesystem::path> folder() const;
};

/// How the programs are called that are Kata's shims: as containerd and CRI-O look for them by a runtime's
/// type.
inline constexpr std::string_view kKataShimPrefix = "containerd-shim-kata";

struct KataClass {
  std::string name;                  ///< handler, folder below artifacts_dir, RuntimeClass; is_handler_name()
  std::vector<std::string> aliases;  ///< further handlers and RuntimeClasses with the same of everything
  KataKind kind = KataKind::gpu;
  KataArtifacts artifacts;
  /// Absent: what the kind asks for (runtime_class.h).
  std::optional<std::map<std::string, std::string>> node_selector = {};
  /// What a pod's VM takes beside its containers, by resource; absent: by the guest's memory
  /// (runtime_class.h).
  std::optional<std::map<std::string, std::string>> overhead = {};
  std::optional<std::string> snapshotter = {};  ///< absent: the container runtime's own choice
  /// Its name begins with kKataShimPrefix. Absent: where Kata's installers put it (kata_shim.h).
  std::optional<std::filesystem::path> shim = {};
  /// Names of hypervisor settings that pods may change by annotation, beside those that the artifact allows.
  std::vector<std::string> annotations = {};
  TomlTable configuration = {};  ///< laid over Kata's configuration, after all that Ferry says
  std::string place;             ///< "classes.yaml:12"

  /// The handlers: its name, then its aliases.
  std::vector<std::string> handlers() const;
};

/// How the container runtime takes over a changed configuration.
struct RuntimeRestart {
  enum class How {
    unit,     ///< restart of its systemd unit
    command,  ///< a command on the host
    none,     ///< somebody else sees to it
  };
  How how = How::unit;
  std::vector<std::string> command = {};  ///< the program's path on the host, then its arguments
};

/// How artifacts are pulled.
struct PullSettings {
  std::string proxy;                                          ///< URL; empty: none
  std::vector<std::string> no_proxy;                          ///< hosts, domains
  std::map<std::string, std::vector<std::string>> mirrors;    ///< registry to URLs, in order of trial
  std::optional<std::filesystem::path> certificates;          ///< file of CA certificates on the host
  std::optional<std::filesystem::path> docker_configuration;  ///< credentials, on the host
};

struct ClassFile {
  /// What NVIDIA's program takes where nothing is said.
  static constexpr const char* kArtifactsDir = "/opt/nvidia-gpu-operator/artifacts/runtimeclasses";

  std::string file;  ///< as it was given to us
  std::filesystem::path artifacts_dir = kArtifactsDir;
  std::vector<KataClass> classes;  ///< in order of the file; no handler stands twice

  // All paths are the host's own: absolute, without "..".
  RuntimeChoice runtime = {};  ///< what is said of the container runtime, with `restart`'s unit
  RuntimeRestart restart = {};
  bool load_modules = true;  ///< vhost_vsock and vhost_net
  /// Where Kata asks the kubelet for a pod's devices; empty: it does not, and annotations name them.
  std::filesystem::path pod_resources = "/var/lib/kubelet/pod-resources/kubelet.sock";
  PullSettings pull = {};

  std::vector<std::string> warnings = {};  ///< what was let pass, with its place
};

/// Reads a text of either kind; an empty document is NVIDIA's file without classes. Any fault is
/// Errc::invalid_config, "file:line: key: what". Leniently what NVIDIA's program lets pass passes in its
/// sense, and is among the warnings: classes without a name or without a URL are dropped, unknown keys are
/// not read, of two classes of one name the last one counts. `version: v2` is read strictly in any case.
Result<ClassFile> read_classes(const ConfigText& source, Reading how = Reading::strict);

/// The same from a file, or from a ConfigMap: its key config.yaml, or its only key. "-" is standard input.
Result<ClassFile> read_class_file(const std::filesystem::path& path, Reading how = Reading::strict);

/// The class that has such a name or alias; Errc::invalid_config lists the names there are.
Result<KataClass> select_class(const ClassFile& file, std::string_view name);

}  // namespace ferry
