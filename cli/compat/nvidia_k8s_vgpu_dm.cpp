// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/compat/replaced_programs.h"
#include "cli/session.h"
#include "common/config/config_reader.h"
#include "common/pinned.h"
#include "common/process/spawn.h"
#include "common/process/standard_streams.h"
#include "common/version.h"

namespace ferry::cli {
namespace {

/// Options of the command line or of the environment.
struct Options {
  std::string kubeconfig;
  std::string node_name;
  std::string space;
  std::string config_file;
  std::string default_config;
  std::string host_root = "/host";
  std::string gpu_clients_file;
  bool with_reboot = false;
  bool stop_clients = false;
  std::string unused;
};

void describe(CLI::App& app, Options& options) {
  app.set_version_flag("-v,--version", std::string("ferry ") + kVersion);
  app.add_option("--kubeconfig", options.kubeconfig,
                 "how to reach the API server; else the pod's own account")
      ->envname("KUBECONFIG");
  app.add_option("-n,--node-name", options.node_name, "the Node that this host is")
      ->envname("NODE_NAME")
      ->required();
  app.add_option("--ns,--namespace", options.space, "where the operator runs its pods")
      ->envname("NAMESPACE")
      ->required();
  app.add_option("-f,--config-file", options.config_file, "the vGPU configurations")
      ->envname("CONFIG_FILE")
      ->required();
  app.add_option("-d,--default-vgpu-config", options.default_config, "that of a node whose label names none")
      ->envname("DEFAULT_VGPU_CONFIG")
      ->required();
  app.add_option("-m,--host-root-mount", options.host_root, "where the host's / is mounted")
      ->envname("HOST_ROOT_MOUNT")
      ->capture_default_str();
  app.add_option("-g,--gpu-clients-file", options.gpu_clients_file,
                 "services of the host that may be stopped, with --with-shutdown-host-gpu-clients")
      ->envname("GPU_CLIENTS_FILE");
  app.add_flag("-w,--with-shutdown-host-gpu-clients", options.stop_clients,
               "stop them where they keep a GPU from changing, and start them again")
      ->envname("WITH_SHUTDOWN_HOST_GPU_CLIENTS");
  app.add_flag("-r,--with-reboot", options.with_reboot, "taken, not used: nothing is rebooted")
      ->envname("WITH_REBOOT");
  const char* const unused = "taken, not used";
  app.add_option("-o,--host-mig-manager-state-file", options.unused, unused)
      ->envname("HOST_MIG_MANAGER_STATE_FILE");
  app.add_option("-k,--host-kubelet-systemd-service", options.unused, unused)
      ->envname("HOST_KUBELET_SYSTEMD_SERVICE");
  app.add_option("-a,--driver-root-ctr-path", options.unused, unused)->envname("DRIVER_ROOT_CTR_PATH");
}

/// The services that a gpu-clients file lists.
Result<std::vector<std::string>> gpu_clients(const std::string& file) {
  auto text = read_config_text(file);
  if (!text) return fail(std::move(text).error());
  const auto tree = parse_config(*text);
  if (!tree) return fail(tree.error());
  const ConfigReader reader(*text);
  if (auto known = reader.check_keys(*tree, "", {"version", "systemd-services"}); !known)
    return fail(std::move(known).error());
  std::vector<std::string> out;
  const ConfigMember* const services = tree->find("systemd-services");
  if (services == nullptr) return out;
  const char* const key = "systemd-services";
  if (services->value.kind != ConfigNode::Kind::list)
    return reader.refuse(services->value, key, services->value.described() + " is not a list");
  for (const ConfigNode& service : services->value.items) {
    if (service.kind != ConfigNode::Kind::scalar || service.text.empty())
      return reader.refuse(service, key, service.described() + " is not the name of a unit");
    out.push_back(service.text);
  }
  return out;
}

/// Two child programs, and the signals that end them. Signals are blocked before a child starts, so that none
/// is missed.
class Pair : Pinned {
 public:
  ~Pair() {
    for (const Child& child : children_) ::kill(child.pid, SIGTERM);
    for (const Child& child : children_) reap(child.pid);
  }

  Result<> start(const std::string& name, const std::vector<std::string>& words) {
    const auto folder = program_folder();
    if (!folder) return fail(folder.error());
    auto pid = spawn(*folder / name, words, {.out = STDOUT_FILENO, .err = STDERR_FILENO});
    if (!pid) return fail(std::move(pid).error());
    children_.push_back({.pid = *pid, .name = words.front()});
    return {};
  }

  /// Success: a signal asked this process to end. Error: a child has ended by itself.
  Result<> wait() {
    for (;;) {
      int signal = 0;
      ::sigwait(&signals_, &signal);
      if (signal != SIGCHLD) return {};
      for (auto child = children_.begin(); child != children_.end(); ++child) {
        int status = 0;
        if (::waitpid(child->pid, &status, WNOHANG) != child->pid) continue;
        const std::string name = child->name;
        children_.erase(child);
        return fail(Errc::failed, fmt::format("{} has ended", name), "its messages stand above");
      }
    }
  }

 private:
  struct Child {
    int pid;
    std::string name;
  };
  const sigset_t signals_ = block_signals({SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGCHLD});
  std::vector<Child> children_;
};

Result<> run(const Options& options) {
  if (auto there = check_host_root("--host-root-mount", options.host_root); !there) return there;
  std::vector<std::string> clients;
  if (options.stop_clients && !options.gpu_clients_file.empty()) {
    auto named = gpu_clients(options.gpu_clients_file);
    if (!named) return fail(std::move(named).error());
    clients = std::move(*named);
  }
  if (options.with_reboot)
    print_to_stderr("nvidia-k8s-vgpu-dm: note: nothing is rebooted; a GPU that needs it is reported\n");

  std::vector<std::string> words = {
      "ferry-agent",     "--host-root",           options.host_root,      "--node-name",
      options.node_name, "--namespace",           options.space,          "--operator-namespace",
      options.space,     "--config-file",         options.config_file,    "--default-workload",
      "vm-vgpu",         "--default-vgpu-config", options.default_config, "--among-others"};
  if (!options.kubeconfig.empty()) words.insert(words.end(), {"--kubeconfig", options.kubeconfig});
  for (const std::string& client : clients) words.insert(words.end(), {"--release", client});

  Pair pair;
  if (auto hostd = pair.start("ferry", {"ferry", "--host-root", options.host_root, "hostd", "--validations"});
      !hostd)
    return hostd;
  if (auto agent = pair.start("ferry-agent", words); !agent) return agent;
  return pair.wait();
}

}  // namespace

ExitStatus nvidia_k8s_vgpu_dm(int argc, char** argv) {
  CLI::App app(
      "Makes this node's GPUs carry the vGPUs that its label names: ferry, under the name of the "
      "program it replaces.",
      "nvidia-k8s-vgpu-dm");
  Options options;
  describe(app, options);
  if (const auto status = parse_replaced(app, argc, argv)) return *status;
  const auto ended = run(options);
  return ended ? ExitStatus::done : complain(ended.error());
}

}  // namespace ferry::cli
