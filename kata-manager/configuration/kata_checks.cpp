// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/configuration/kata_checks.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "api/labels.h"
#include "api/own_cdi_files.h"
#include "common/config/config_tree.h"
#include "common/text/text.h"
#include "hostfs/processes.h"
#include "kata-manager/classes/kubernetes_words.h"
#include "kata-manager/classes/root_only.h"
#include "kata-manager/classes/runtime_class.h"
#include "kata-manager/configuration/host_paths.h"
#include "kata-manager/configuration/kata_parts.h"
#include "kata-manager/runtimes/config_files.h"
#include "kata-manager/runtimes/containerd_config.h"
#include "kata-manager/runtimes/containerd_place.h"
#include "kata-manager/runtimes/crio.h"
#include "kata-manager/runtimes/k0s_plan.h"
#include "kata-manager/runtimes/runtime_place.h"

namespace ferry::kata {
namespace {

using Kind = ConfigNode::Kind;

constexpr const char* kUsualFile = "/var/lib/kubelet/config.yaml";
constexpr std::string_view kGate = "KubeletPodResourcesGet";

/// The command line of the process named "kubelet" that is in no pod; empty: none runs.
std::vector<std::string> kubelets_arguments(const HostFs& host) {
  const auto names = host.list("proc").value_or(std::vector<std::string>{});
  for (const std::string& name : names) {
    const auto pid = whole_number<int>(name);
    const std::filesystem::path process = std::filesystem::path("proc") / name;
    if (!pid || host.read_attribute(process / "comm").value_or("") != "kubelet") continue;
    if (pod_uid(host.read_file(process / "cgroup").value_or("")).empty())
      return words_between(command_line(host, *pid), '\0');
  }
  return {};
}

/// The value of "--NAME=VALUE" or "--NAME VALUE"; the last counts.
std::optional<std::string> flag_of(const std::vector<std::string>& arguments, const std::string& name) {
  std::optional<std::string> out;
  const std::string flag = "--" + name;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with(flag + "=")) out = arguments[i].substr(flag.size() + 1);
    if (arguments[i] == flag && i + 1 < arguments.size()) out = arguments[i + 1];
  }
  return out;
}

std::optional<bool> truth_of(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

}  // namespace

std::optional<std::chrono::seconds> parse_go_duration(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 7> kUnits = {
      {{"h", 3600.0}, {"m", 60.0}, {"s", 1.0}, {"ms", 1e-3}, {"us", 1e-6}, {"\u00b5s", 1e-6}, {"ns", 1e-9}}};
  constexpr double kLongest = 1e9;  // seconds; Go's durations are below 300 years
  if (text == "0") return std::chrono::seconds(0);
  if (text.empty()) return std::nullopt;
  double seconds = 0;
  while (!text.empty()) {
    const std::size_t number_end = std::min(text.find_first_not_of("0123456789."), text.size());
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + number_end, number);
    if (error != std::errc() || end != text.data() + number_end) return std::nullopt;
    text.remove_prefix(number_end);
    const std::size_t unit_end = std::min(text.find_first_of("0123456789."), text.size());
    const auto* const unit =
        std::ranges::find(kUnits, text.substr(0, unit_end), &std::pair<std::string_view, double>::first);
    if (unit == kUnits.end()) return std::nullopt;
    text.remove_prefix(unit_end);
    seconds += number * unit->second;
    if (!(seconds <= kLongest)) return std::nullopt;
  }
  return std::chrono::seconds(static_cast<std::chrono::seconds::rep>(seconds));
}

Result<KubeletSettings> KubeletSettings::read(const HostFs& host) {
  KubeletSettings out;
  const std::vector<std::string> arguments = kubelets_arguments(host);
  const auto named = flag_of(arguments, "config");
  if (arguments.empty() || named) {
    const std::filesystem::path file = named.value_or(kUsualFile);
    auto text = host.read_file(file.relative_path());
    if (!text && arguments.empty() && is_gone(text.error()))
      return fail(Errc::not_found, "no kubelet runs here by that name, and there is no " + file.string());
    if (!text) return fail(std::move(text).error());
    auto root = parse_config({.file = file, .text = std::move(*text)});
    if (!root) return fail(std::move(root).error());
    if (root->kind == Kind::map) {
      const ConfigMember* gates = root->find("featureGates");
      const ConfigMember* gate =
          gates == nullptr || gates->value.kind != Kind::map ? nullptr : gates->value.find(kGate);
      if (gate != nullptr) out.pod_resources_get = truth_of(gate->value.text);
      const ConfigMember* timeout = root->find("runtimeRequestTimeout");
      if (timeout != nullptr) out.request_timeout = parse_go_duration(timeout->value.text);
      // The kubelet treats 0 as unset.
      if (out.request_timeout == std::chrono::seconds(0)) out.request_timeout.reset();
    }
  }

  // A flag counts more than the file.
  for (const std::string& gate : words_between(flag_of(arguments, "feature-gates").value_or(""), ',')) {
    const std::size_t equals = gate.find('=');
    if (equals == std::string::npos || std::string_view(gate).substr(0, equals) != kGate) continue;
    out.pod_resources_get = truth_of(std::string_view(gate).substr(equals + 1));
  }
  if (const auto timeout = flag_of(arguments, "runtime-request-timeout"))
    out.request_timeout = parse_go_duration(*timeout);
  return out;
}

namespace {

constexpr const char* kWhyShim = "the container runtime starts it for each pod in a VM";

/// Completes the check of a shim that was found.
Check answered_by_shim(Check check, const KataShim& shim, const ClassFile& file) {
  std::string found = shim.text() + " is there";
  if (!shim.asks_kubelet() && !file.pod_resources.empty()) {
    return std::move(check).warned(
        found + ", and does not ask the kubelet which devices a pod has: a class has to plug hot",
        "install Kata 3.24.0 or later (of runtime-rs 3.31.0)");
  }
  if (!shim.release) found += "; its release is not known: " + shim.unknown;
  return std::move(check).passed(std::move(found));
}

constexpr const char* kInstall = "`ferry kata install` with this class file";

// The files' content under one release. The plan proves the present release's reading of it.
std::vector<ContainerdFile> files_of_containerd(const RuntimePlace& place, const ConfigFiles& files) {
  return read_containerd_files(ContainerdRelease{2, 3, 4}, files, place.configuration).files;
}

/// The handler in the container runtime's files; absent: none has it.
Result<std::optional<ConfiguredRuntime>> find_installed(const HostFs& host, const RuntimePlace& place,
                                                        const std::string& handler) {
  const ConfigFiles files(host);
  if (place.kind == RuntimeKind::containerd) {
    TomlTable runtimes;
    for (const ContainerdFile& read : files_of_containerd(place, files))
      merge_over(runtimes, runtimes_in(read.root));
    const TomlTable* entry = find_table(runtimes, {handler});
    if (entry == nullptr) return std::optional<ConfiguredRuntime>();
    return std::optional(configured_runtime(handler, {}, *entry));
  }
  const auto configured = place.kind == RuntimeKind::k0s ? configured_in_k0s(place.configuration, files)
                                                         : configured_in_crio(place.configuration, files);
  if (!configured) return fail(configured.error());
  const auto found = std::ranges::find(*configured, handler, &ConfiguredRuntime::name);
  return found == configured->end() ? std::optional<ConfiguredRuntime>() : std::optional(*found);
}

/// Kata's configuration and drop-ins on the host.
struct KataSettings {
  TomlTable base;  ///< without drop-ins
  TomlTable effective;
  TomlTable site;  ///< from administrators' own drop-ins
};

Result<KataSettings> read_configuration(const HostFs& host, const std::filesystem::path& path) {
  auto text = host.read_file(path.relative_path());
  if (!text) return fail(std::move(text).error());
  auto base = parse_toml(*text, path);
  if (!base) return fail(std::move(base).error());
  KataSettings out{.base = *base, .effective = *base, .site = {}};
  const std::filesystem::path folder = path.parent_path() / "config.d";
  const auto names = host.list(folder.relative_path());
  if (!names && !is_gone(names.error())) return fail(names.error());
  if (!names) return out;
  for (const std::string& name : *names) {
    auto more = host.read_file((folder / name).relative_path());
    if (!more) return fail(std::move(more).error());
    const auto settings = parse_toml(*more, folder / name);
    if (!settings) return fail(settings.error());
    merge_over(out.effective, *settings);
    if (name != kKataDropIn) merge_over(out.site, *settings);
  }
  return out;
}

class ClassChecks {
 public:
  /// `place`: of the container runtime.
  ClassChecks(const HostFs& host, const ClassFile& file, const KataClass& kata,
              const Result<RuntimePlace>& place)
      : host_(host), file_(file), kata_(kata), place_(place) {}

  /// `confidential` is ConfidentialHost::read() of the host.
  std::vector<Check> all(const Result<ConfidentialHost>& confidential, const VersionOf& version_of) {
    using Installed = std::optional<ConfiguredRuntime>;
    const auto installed =
        place_ ? find_installed(host_, *place_, kata_.name) : Result<Installed>(fail(place_.error()));
    const Installed there = installed ? *installed : std::nullopt;
    const auto settings = there ? read_configuration(host_, there->configuration)
                                : Result<KataSettings>(fail(Errc::not_found, "not installed"));
    shim_ = find_kata_shim(host_, kata_, version_of,
                           settings ? runtime_of_configuration(settings->base) : std::nullopt);
    std::vector<Check> out = {shim_check(), folder_check()};
    if (is_confidential(kata_.kind)) out.push_back(confidential_check(confidential));
    out.push_back(handler_check(installed));
    if (there) {
      out.push_back(annotations_check(*there));
      out.push_back(configuration_check(*there, settings));
    }
    out.push_back(overhead_check());
    if (kata_.snapshotter) out.push_back(snapshotter_check(*kata_.snapshotter));
    return out;
  }

 private:
  Check question(std::string id, std::string why) const {
    return {.id = std::move(id), .subject = "class " + kata_.name, .why = std::move(why)};
  }

  Check shim_check() const {
    Check check = question("kata-shim", kWhyShim);
    if (shim_) return answered_by_shim(std::move(check), *shim_, file_);
    return std::move(check).failed(shim_.error().message, shim_.error().hint);
  }

  Check folder_check() const {
    Check check = question("kata-artifacts", "kernel, image and configuration of the VMs come from there");
    const auto folder = kata_.artifacts.folder();
    if (!folder)
      return std::move(check).passed(kata_.artifacts.url + " is pulled when the class is installed");
    if (!host_.exists(folder->relative_path())) {
      return std::move(check).failed(fmt::format("there is no {}", folder->string()),
                                     "correct the class's artifacts.url, or put the artifact there");
    }
    if (const auto only = check_root_only(host_, *folder); !only)
      return std::move(check).failed(only.error().message, only.error().hint);
    return std::move(check).passed(folder->string() + " is there");
  }

  Check confidential_check(const Result<ConfidentialHost>& confidential) const {
    Check check =
        question("confidential-class", "its VMs hide their memory, which this host has to be able to");
    if (!confidential) return std::move(check).unreadable(confidential.error());
    const auto admitted = confidential->admits(kata_);
    if (!admitted) return std::move(check).failed(admitted.error().message, admitted.error().hint);
    if (!host_.exists(kIommufd)) {
      return std::move(check).failed(
          fmt::format("there is no /{}, and Kata gives a confidential VM its GPUs by iommufd alone",
                      kIommufd),
          "`modprobe iommufd`; the kernel needs CONFIG_IOMMUFD and CONFIG_VFIO_DEVICE_CDEV (Linux 6.6)");
    }
    return std::move(check).passed("KVM has " + confidential->text());
  }

  Check handler_check(const Result<std::optional<ConfiguredRuntime>>& installed) const {
    Check check = question("kata-handler", "a pod's RuntimeClass names it");
    if (!installed) return std::move(check).unknown(installed.error().message, installed.error().hint);
    if (*installed) return std::move(check).passed("the container runtime's files have it");
    return std::move(check).warned("the container runtime's files do not have it", kInstall);
  }

  Check annotations_check(const ConfiguredRuntime& installed) const {
    Check check =
        question("annotations-pass", "Kata reads annotations, and the container runtime must pass them on");
    if (place_->kind == RuntimeKind::crio) return std::move(check).passed("CRI-O lets all of them through");
    std::vector<std::string> needed = {"io.katacontainers.*"};
    if (file_.pod_resources.empty()) needed.emplace_back("cdi.k8s.io/*");
    std::erase_if(needed, [&](const std::string& pattern) {
      return std::ranges::find(installed.pod_annotations, pattern) != installed.pod_annotations.end();
    });
    if (needed.empty()) return std::move(check).passed("pod_annotations has all that are needed");
    return std::move(check).failed(fmt::format("pod_annotations lacks {}", fmt::join(needed, ", ")),
                                   kInstall);
  }

  Check configuration_check(const ConfiguredRuntime& installed, const Result<KataSettings>& settings) {
    Check check =
        question("kata-configuration", "no VM starts by one that is wrong, or whose files are gone");
    if (!settings && is_gone(settings.error()))
      return std::move(check).failed(settings.error().message, kInstall);
    if (!settings && settings.error().code != Errc::invalid_config)
      return std::move(check).unreadable(settings.error());
    if (!settings) return std::move(check).failed(settings.error().message, kInstall);
    const auto hypervisor = hypervisor_of(settings->effective);
    if (!hypervisor) return std::move(check).failed(hypervisor.error().message, kInstall);
    const TomlTable& read = settings_of(settings->effective, *hypervisor);
    if (const auto memory = integer_at(read, {"default_memory"}); memory && *memory > 0)
      memory_mib_ = static_cast<std::uint64_t>(*memory);
    if (auto wrong = wrong_in(kata_, settings->effective, *hypervisor))
      return std::move(check).failed(fmt::format("{}: {}", installed.configuration.string(), *wrong),
                                     kInstall);
    const auto wrong =
        shim_ ? wrong_for_shim(*shim_, settings->effective, *hypervisor, file_.pod_resources) : std::nullopt;
    if (wrong) {
      return std::move(check).failed(fmt::format("{}: {}", installed.configuration.string(), wrong->message),
                                     wrong->hint.empty() ? kInstall : wrong->hint);
    }
    if (const auto within = check_bounds(*settings); !within)
      return std::move(check).failed(within.error().message, within.error().hint);
    std::vector<std::string> missing;
    for (const auto& path : host_files_of(read))
      if (!host_.exists(path.relative_path())) missing.push_back(path);
    if (missing.empty()) return std::move(check).passed(installed.configuration.string() + " is fit for it");
    return std::move(check).failed(fmt::format("{} names what is not there: {}",
                                               installed.configuration.string(), fmt::join(missing, ", ")),
                                   kInstall);
  }

  Check snapshotter_check(const std::string& name) const {
    Check check = question("snapshotter", "a pod's images are unpacked by it");
    if (!place_) return std::move(check).unknown(place_.error().message, place_.error().hint);
    if (place_->kind != RuntimeKind::containerd)
      return std::move(check).passed(place_->name + " is not asked for one by Ferry");
    if (has_snapshotter(files_of_containerd(*place_, ConfigFiles(host_)), name))
      return std::move(check).passed("containerd has " + name);
    return std::move(check).warned(
        fmt::format("containerd's files name no snapshotter {}", name),
        fmt::format("install it, and name its socket in containerd's file: [proxy_plugins.{}]", name));
  }

  /// Checks the bounds of a pulled artifact, as an installation does.
  Result<> check_bounds(const KataSettings& settings) const {
    if (kata_.artifacts.folder() || !shim_) return {};
    TomlTable trusted;
    table_at(trusted, {"runtime"})["pod_resource_api_sock"].value = file_.pod_resources.string();
    merge_over(trusted, kata_.configuration);
    merge_over(trusted, settings.site);
    return refuse_beyond(kata_, beyond_bounds(kata_, settings.effective, trusted,
                                              {.version = file_.artifacts_dir / ".ferry" / kata_.name,
                                               .artifacts_dir = file_.artifacts_dir,
                                               .shim = shim_->path}));
  }

  // Runs after configuration_check(), which sets `memory_mib_`.
  Check overhead_check() const {
    Check check = question("overhead-covers-memory",
                           "a guest's memory is outside of its containers' limits: the node promises memory "
                           "that it does not have");
    const std::uint64_t guest = memory_mib_.value_or(guest_memory_mib(kata_));
    if (!kata_.overhead) return std::move(check).passed(fmt::format("made for a guest of {} MiB", guest));
    constexpr unsigned kMib = 20;
    const auto said = kata_.overhead->find("memory");
    const std::uint64_t overhead =
        said == kata_.overhead->end() ? 0 : parse_quantity(said->second).value_or(0) >> kMib;
    const std::string found = fmt::format("{} MiB of overhead for a guest of {} MiB", overhead, guest);
    const std::string fix =
        fmt::format("overhead: {{memory: {}Mi}} in the class, or leave it out", guest + kBesideGuestMib);
    if (overhead < guest) return std::move(check).failed(found, fix);
    if (overhead == guest) return std::move(check).warned(found + ", and nothing for QEMU itself", fix);
    return std::move(check).passed(found);
  }

  const HostFs& host_;
  const ClassFile& file_;
  const KataClass& kata_;
  const Result<RuntimePlace>& place_;
  Result<KataShim> shim_ = fail(Errc::not_found, "not looked for");
  std::optional<std::uint64_t> memory_mib_ = {};  ///< of the guest; absent: the class is not installed
};

constexpr std::chrono::seconds kUsualTimeout{120};  // the kubelet's default
constexpr std::chrono::seconds kLongStart{1200};    // Kata's limit for a VM with GPUs

Check question(std::string id, std::string why) {
  return {.id = std::move(id), .subject = kHostSubject, .why = std::move(why)};
}

Check kvm_check(const HostFs& host) {
  Check check = question("kvm-there", "Kata's VMs are KVM's");
  if (host.exists("dev/kvm")) return std::move(check).passed("/dev/kvm is there");
  return std::move(check).failed("there is no /dev/kvm",
                                 "switch VT-x or AMD-V (SVM) on in the firmware, then `modprobe kvm_intel` "
                                 "or `modprobe kvm_amd`; in a VM, allow nested virtualisation");
}

/// Checks a module's device node. `ferry kata install` loads the module if loadModules is true.
Check module_check(const HostFs& host, const std::string& module, const std::string& why, bool loaded_by_us) {
  std::string node = module;
  std::ranges::replace(node, '_', '-');
  Check check = question(node + "-there", why);
  if (host.exists("dev/" + node)) return std::move(check).passed(fmt::format("/dev/{} is there", node));
  const std::string found = fmt::format("there is no /dev/{}", node);
  const std::string fix =
      fmt::format("`modprobe {0}`, and at boot by a line {0} in /etc/modules-load.d/kata.conf", module);
  if (loaded_by_us) return std::move(check).warned(found + ": `ferry kata install` loads it", fix);
  return std::move(check).failed(found + ", and the class file says loadModules: false", fix);
}

Check socket_check(const HostFs& host, const ClassFile& file) {
  Check check = question("pod-resources", "Kata asks the kubelet there which devices a pod was given");
  const std::string socket = file.pod_resources;
  if (socket.empty())
    return std::move(check).passed(
        "Kata does not ask: the class file says podResources: \"\", annotations name devices");
  if (host.exists(file.pod_resources.relative_path())) return std::move(check).passed(socket + " is there");
  return std::move(check).failed(
      fmt::format("there is no {}: pods would start without their devices", socket),
      "start the kubelet; where it has another root directory, say so in the class file: podResources");
}

Check gate_check(const ClassFile& file, const Result<KubeletSettings>& kubelet) {
  Check check =
      question("pod-resources-get",
               "Kata asks for one pod, which the kubelet answers by itself from Kubernetes 1.34 on");
  if (file.pod_resources.empty()) return std::move(check).passed("Kata does not ask");
  constexpr const char* kFix =
      "before Kubernetes 1.34 set the gate in the kubelet's configuration: featureGates: "
      "{KubeletPodResourcesGet: true}";
  if (!kubelet) return std::move(check).unknown(kubelet.error().message, kFix);
  if (kubelet->pod_resources_get.value_or(false))
    return std::move(check).passed("the gate KubeletPodResourcesGet is on");
  if (kubelet->pod_resources_get)
    return std::move(check).failed("the gate KubeletPodResourcesGet is off", kFix);
  return std::move(check).warned("the kubelet's configuration does not set the gate KubeletPodResourcesGet",
                                 kFix);
}

Check timeout_check(const Result<KubeletSettings>& kubelet) {
  Check check =
      question("kubelet-waits",
               "a VM with large GPUs takes minutes to start; the kubelet gives up before and tries anew");
  const std::string fix =
      fmt::format("set runtimeRequestTimeout: {}m in the kubelet's configuration", kLongStart.count() / 60);
  if (!kubelet) return std::move(check).unknown(kubelet.error().message, fix);
  const std::chrono::seconds timeout = kubelet->request_timeout.value_or(kUsualTimeout);
  const std::string found = fmt::format("runtimeRequestTimeout is {} s{}", timeout.count(),
                                        kubelet->request_timeout ? "" : ", the kubelet's default");
  if (timeout >= kLongStart) return std::move(check).passed(found);
  return std::move(check).warned(found, fix);
}

Check confidential_check(const Result<ConfidentialHost>& confidential) {
  Check check = question("confidential-vms", "classes of kind snp and tdx need it");
  if (!confidential) return std::move(check).unreadable(confidential.error());
  const bool any = confidential->snp || confidential->tdx;
  return std::move(check).passed(fmt::format(
      "KVM has {}{}", confidential->text(),
      any ? "; whether the GPUs are in a fitting mode says the node's label nvidia.com/cc.ready.state"
          : ", which matters to classes of these kinds alone"));
}

/// kata-deploy's plain classes select nodes whose label is "false", its confidential classes "true".
Check ready_label_check(const ConfidentialMode& mode) {
  Check check = question("cc-ready-label",
                         "the RuntimeClasses of kata-deploy for GPUs go to nodes with this label alone");
  if (mode.ready)
    return std::move(check).passed(fmt::format("the node has {}={}", api::kCcReadyLabel, *mode.ready));
  return std::move(check).warned(
      fmt::format("the node has no label {}: no pod of these classes comes here", api::kCcReadyLabel),
      fmt::format("NVIDIA's CC manager writes it; where that does not run: kubectl label node NODE {}=false "
                  "(Ferry's own RuntimeClasses of kind gpu do not select it)",
                  api::kCcReadyLabel));
}

Check cdi_check(const HostFs& host) {
  Check check = question("cdi-files", "Kata looks a pod's devices up in Ferry's CDI files");
  const std::filesystem::path folder = "var/run/cdi";
  std::size_t files = 0;
  std::string faults;
  for (const std::string& name : host.list(folder).value_or(std::vector<std::string>())) {
    auto text = host.read_file(folder / name);
    if (!text || !api::is_own_cdi_file(name, *text)) continue;
    ++files;
    const auto checked =
        api::check_own_cdi_file({.file = ("/" / folder / name).string(), .text = std::move(*text)});
    if (!checked) faults += (faults.empty() ? "" : "; ") + checked.error().message;
  }
  if (faults.empty())
    return std::move(check).passed(
        fmt::format("{} of Ferry in /var/run/cdi, each as Ferry writes it", counted(files, "file")));
  return std::move(check).failed(
      std::move(faults),
      "find the program that has changed it, and remove the file: `ferry plugin` writes its own anew at its "
      "next scan, hostd a claim's when it prepares that");
}

Check mode_check(const ClassFile& file, const ConfidentialMode& mode) {
  Check check = question("gpu-confidential-mode",
                         "confidential VMs want GPUs in a mode of their own, other VMs GPUs in none");
  const std::string found = "the mode of the GPUs for confidential computing is " + mode.text();
  if (!mode.known())
    return std::move(check).unknown(found,
                                    "let hostd read the GPUs' registers (`registers: all` in the policy); or "
                                    "name the node's object, which NVIDIA's CC manager labels: kubectl get "
                                    "node NODE -o yaml > FILE; ferry doctor --for kata --node-file FILE");
  for (const KataClass& kata : file.classes) {
    if (const auto admitted = mode.admits(kata); !admitted)
      return std::move(check).failed(found, admitted.error().hint);
  }
  return std::move(check).passed(found);
}

Check shim_check(const HostFs& host, const ClassFile& file, const VersionOf& version_of) {
  Check check = question("kata-shim", kWhyShim);
  const auto shim = find_kata_shim(host, KataClass(), version_of);
  if (shim) return answered_by_shim(std::move(check), *shim, file);
  return std::move(check).failed("no shim of Kata's is where its installers put it", shim.error().hint);
}

}  // namespace

std::vector<Check> kata_checks(const HostFs& host, const ClassFile& file, const ConfidentialMode& mode,
                               const VersionOf& version_of) {
  const auto kubelet = KubeletSettings::read(host);
  const auto confidential = ConfidentialHost::read(host);
  std::vector<Check> out = {
      kvm_check(host),
      module_check(host, "vhost_vsock", "Kata speaks to a VM's agent through it", file.load_modules),
      module_check(host, "vhost_net", "a pod's network reaches its VM through it", file.load_modules),
      socket_check(host, file),
      gate_check(file, kubelet),
      cdi_check(host),
      timeout_check(kubelet),
      confidential_check(confidential)};
  if (mode.of_a_node) out.push_back(ready_label_check(mode));
  if (mode.known() || std::ranges::any_of(file.classes, is_confidential, &KataClass::kind))
    out.push_back(mode_check(file, mode));
  if (file.classes.empty()) out.push_back(shim_check(host, file, version_of));
  const auto place = find_runtime(host, file.runtime);
  for (const KataClass& kata : file.classes)
    std::ranges::move(ClassChecks(host, file, kata, place).all(confidential, version_of),
                      std::back_inserter(out));
  return out;
}

}  // namespace ferry::kata
