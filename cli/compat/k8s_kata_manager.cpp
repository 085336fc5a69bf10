// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "cli/compat/replaced_programs.h"
#include "cli/verbs/verbs.h"
#include "common/process/standard_streams.h"
#include "common/version.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/runtimes/runtime_place.h"

namespace ferry::cli {
namespace {

constexpr const char* kContainerdConfig = "/etc/containerd/config.toml";
constexpr const char* kContainerdSocket = "/run/containerd/containerd.sock";
constexpr const char* kCrioConfig = "/etc/crio/crio.conf";

class KataManager {
 public:
  explicit KataManager(CLI::App& app) {
    options_.file = "/etc/kubernetes/kata-manager/config.yaml";
    options_.lenient = true;
    app.set_version_flag("-v,--version", std::string("ferry ") + kVersion);
    app.add_option("-c,--config-file", options_.file, "the runtime classes")
        ->envname("CONFIG_FILE")
        ->capture_default_str();
    app.add_option("--runtime", runtime_, "containerd or crio; else what serves the kubelet here")
        ->envname("RUNTIME")
        ->check(CLI::IsMember({"containerd", "crio", ""}));
    app.add_option("--containerd-config", containerd_config_, "containerd's file, as the host names it")
        ->envname("CONTAINERD_CONFIG")
        ->capture_default_str();
    app.add_option("--containerd-socket", containerd_socket_, "containerd's socket, as the host names it")
        ->envname("CONTAINERD_SOCKET")
        ->capture_default_str();
    app.add_option("--crio-config", crio_config_, "taken, not used: CRI-O gets a file of its own")
        ->envname("CRIO_CONFIG")
        ->capture_default_str();
    add_switch(app, "--load-kernel-modules", load_modules_, "load vhost_vsock and vhost_net")
        ->envname("LOAD_KERNEL_MODULES")
        ->capture_default_str();
    app.add_option("--pull-secrets", options_.pull_secrets,
                   "folder with the Secrets that the file names, DIR/NAME/.dockerconfigjson")
        ->envname("PULL_SECRETS");
    add_switch(app, "--cdi-enabled", cdi_, "taken, not used: `ferry plugin --mode kata` keeps these files")
        ->envname("CDI_ENABLED");
    app.add_option("-n,--namespace", namespace_, "taken, not used")->envname("POD_NAMESPACE");
    app.add_option("-l,--log-level", log_level_, "taken, not used");
    app.add_option("--host-root", host_root_, "where the host's / is mounted")
        ->envname("HOST_ROOT")
        ->capture_default_str();
  }

  ExitStatus run() {
    if (const auto there = check_host_root("--host-root", host_root_); !there) return complain(there.error());
    // The signals that end NVIDIA's program. One that comes during an installation is taken after it.
    const sigset_t ends = block_signals({SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM});
    const Session session = open_session(host_root_);
    if (!kata_install_what_can_be(session, options(*session.host))) return ExitStatus::failed;
    const auto classes = kata::read_class_file(options_.file, Reading::lenient);
    if (!classes) return complain(classes.error());
    // Locked only now: the operator's probe takes this process's ID in the lock file for readiness.
    const auto lock = kata::lock_artifacts(*session.host, classes->artifacts_dir.relative_path());
    if (!lock) return complain(lock.error());
    print_to_stderr("k8s-kata-manager: the runtimes are installed, and stay when this ends\n");
    int signal = 0;
    ::sigwait(&ends, &signal);
    return ExitStatus::done;
  }

 private:
  /// NVIDIA's switches stand alone or have their value after `=`. An earlier version of this program took the
  /// next word as the value, and no word can be anything else, so that still works.
  static CLI::Option* add_switch(CLI::App& app, const char* name, bool& into, const char* what) {
    return app.add_flag(name, into, what)->expected(0, 1);
  }

  KataOptions options(const HostFs& host) const {
    KataOptions out = options_;
    out.no_modules = !load_modules_;
    if (runtime_ == "crio") {
      out.runtime = "cri-o";
      return out;
    }
    out.configuration = on_host("--containerd-config", containerd_config_, kContainerdConfig);
    out.socket = on_host("--containerd-socket", containerd_socket_, kContainerdSocket);
    if (out.configuration || out.socket) {
      out.runtime = "containerd";
    } else if (runtime_ == "containerd") {
      // The operator says containerd for k3s and similar runtimes, too.
      const auto found = kata::find_runtime(host, {});
      if (!found || found->kind == kata::RuntimeKind::crio) out.runtime = "containerd";
    }
    return out;
  }

  /// Absent: the host is searched. The GPU operator passes paths inside its own container, which say nothing
  /// of the host.
  static std::optional<std::filesystem::path> on_host(const char* flag, const std::string& given,
                                                      const std::string& usual) {
    if (given.empty() || given == usual) return std::nullopt;
    if (!given.starts_with("/runtime/")) return given;
    print_to_stderr("note: {} {} is inside a container: what serves the kubelet here is looked for\n", flag,
                    given);
    return std::nullopt;
  }

  KataOptions options_;
  std::string runtime_;
  std::string containerd_config_ = kContainerdConfig;
  std::string containerd_socket_ = kContainerdSocket;
  std::string crio_config_ = kCrioConfig;
  bool load_modules_ = true;
  bool cdi_ = false;
  std::string namespace_;
  std::string log_level_;
  std::string host_root_ = "/host";
};

}  // namespace

ExitStatus k8s_kata_manager(int argc, char** argv) {
  CLI::App app("Makes Kata's runtimes known to a node: ferry, under the name of the program it replaces.",
               "k8s-kata-manager");
  KataManager program(app);
  if (const auto status = parse_replaced(app, argc, argv)) return *status;
  return program.run();
}

}  // namespace ferry::cli
