// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/class_checks.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kata-manager/classes/host_paths.h"
#include "kata-manager/classes/kubernetes_words.h"
#include "kata-manager/classes/runtime_class.h"
#include "kata-manager/containerd/containerd_config.h"
#include "kata-manager/containerd/containerd_place.h"
#include "kata-manager/containerd/k0s_plan.h"
#include "kata-manager/crio/crio_plan.h"
#include "kata-manager/kata/kata_parts.h"
#include "kata-manager/kata/kata_shim.h"
#include "kata-manager/runtime/config_files.h"
#include "kata-manager/runtime/runtime_place.h"

namespace ferry::kata {
namespace {

constexpr const char* kInstall = "`ferry kata install` with this class file";

/// A handler in the container runtime's files.
struct Installed {
  std::filesystem::path configuration;  ///< Kata's configuration
  /// Patterns of the pod annotations that reach the shim; absent: all do.
  std::optional<std::vector<std::string>> pod_annotations = {};
};

std::vector<std::string> texts_in(const TomlValue* list) {
  std::vector<std::string> out;
  if (list == nullptr || list->array() == nullptr) return out;
  for (const TomlValue& element : *list->array())
    if (const auto* text = element.string()) out.push_back(*text);
  return out;
}

// The files' content under one release. The plan proves the present release's reading of it.
std::vector<ContainerdFile> files_of_containerd(const RuntimePlace& place, const ConfigFiles& files) {
  return predict_containerd(ContainerdRelease{2, 3, 4}, files, place.configuration).files;
}
TomlTable runtimes_of_containerd(const RuntimePlace& place, const ConfigFiles& files) {
  TomlTable out;
  for (const ContainerdFile& file : files_of_containerd(place, files))
    merge_over(out, runtimes_in(file.root));
  return out;
}

std::optional<Installed> installed_in(const TomlTable& runtimes, const std::string& handler) {
  const TomlValue* entry = find(runtimes, {handler});
  if (entry == nullptr || entry->table() == nullptr) return std::nullopt;
  const TomlValue* path = find(*entry->table(), {"options", "ConfigPath"});
  return Installed{
      .configuration = path == nullptr || path->string() == nullptr ? std::string() : *path->string(),
      .pod_annotations = texts_in(find(*entry->table(), {"pod_annotations"}))};
}

/// Absent: no file of the runtime has the handler.
Result<std::optional<Installed>> find_installed(const HostFs& host, const ClassFile& file,
                                                const std::string& handler) {
  const auto place = find_runtime(host, file.runtime);
  if (!place) return fail(place.error());
  const ConfigFiles files(host);
  if (place->kind == RuntimeKind::containerd)
    return installed_in(runtimes_of_containerd(*place, files), handler);
  if (place->kind == RuntimeKind::k0s) {
    const auto runtimes = runtimes_in_k0s(place->configuration, files);
    if (!runtimes) return fail(runtimes.error());
    return installed_in(*runtimes, handler);
  }
  const auto placed = placed_in_crio(place->configuration, files);
  if (!placed) return fail(placed.error());
  const auto found = std::ranges::find(*placed, handler, &PlacedRuntime::name);
  if (found == placed->end()) return std::optional<Installed>();
  return std::optional<Installed>({.configuration = found->configuration});
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
  ClassChecks(const HostFs& host, const ClassFile& file, const KataClass& kata)
      : host_(host), file_(file), kata_(kata) {}

  std::vector<Check> all(const Result<ConfidentialHost>& confidential, const VersionOf& version_of) {
    const auto installed = find_installed(host_, file_, kata_.name);
    const std::optional<Installed> there = installed ? *installed : std::nullopt;
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
    if (host_.exists(folder->relative_path())) return std::move(check).passed(folder->string() + " is there");
    return std::move(check).failed(fmt::format("there is no {}", folder->string()),
                                   "correct the class's artifacts.url, or put the artifact there");
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

  Check handler_check(const Result<std::optional<Installed>>& installed) const {
    Check check = question("kata-handler", "a pod's RuntimeClass names it");
    if (!installed) return std::move(check).unknown(installed.error().message, installed.error().hint);
    if (*installed) return std::move(check).passed("the container runtime's files have it");
    return std::move(check).warned("the container runtime's files do not have it", kInstall);
  }

  Check annotations_check(const Installed& installed) const {
    Check check =
        question("annotations-pass", "Kata is told by annotations, and sees those that are let through");
    if (!installed.pod_annotations) return std::move(check).passed("CRI-O lets all of them through");
    std::vector<std::string> needed = {"io.katacontainers.*"};
    if (file_.pod_resources.empty()) needed.emplace_back("cdi.k8s.io/*");
    std::erase_if(needed, [&](const std::string& pattern) {
      return std::ranges::find(*installed.pod_annotations, pattern) != installed.pod_annotations->end();
    });
    if (needed.empty()) return std::move(check).passed("pod_annotations has all that are needed");
    return std::move(check).failed(fmt::format("pod_annotations lacks {}", fmt::join(needed, ", ")),
                                   kInstall);
  }

  Check configuration_check(const Installed& installed, const Result<KataSettings>& settings) {
    Check check =
        question("kata-configuration", "no VM starts by one that is wrong, or whose files are gone");
    if (!settings && is_gone(settings.error()))
      return std::move(check).failed(settings.error().message, kInstall);
    if (!settings && settings.error().code != Errc::invalid_config)
      return std::move(check).unreadable(settings.error());
    if (!settings) return std::move(check).failed(settings.error().message, kInstall);
    const auto hypervisor = hypervisor_of(settings->effective);
    if (!hypervisor) return std::move(check).failed(hypervisor.error().message, kInstall);
    const HypervisorSettings read(settings->effective, *hypervisor);
    if (const auto memory = read.number("default_memory"); memory && *memory > 0)
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
    const auto place = find_runtime(host_, file_.runtime);
    if (!place) return std::move(check).unknown(place.error().message, place.error().hint);
    if (place->kind != RuntimeKind::containerd)
      return std::move(check).passed(place->name + " is not asked for one by Ferry");
    if (has_snapshotter(files_of_containerd(*place, ConfigFiles(host_)), name))
      return std::move(check).passed("containerd has " + name);
    return std::move(check).warned(
        fmt::format("containerd's files name no snapshotter {}", name),
        fmt::format("install it, and name its socket in containerd's file: [proxy_plugins.{}]", name));
  }

  /// Checks the bounds of a pulled artifact, as an installation does.
  Result<> check_bounds(const KataSettings& settings) const {
    if (kata_.artifacts.folder() || !shim_) return {};
    const std::filesystem::path link = file_.artifacts_dir / kata_.name;
    TomlTable trusted;
    table_at(trusted, {"runtime"})["pod_resource_api_sock"].value = file_.pod_resources.string();
    merge_over(trusted, kata_.configuration);
    merge_over(trusted, settings.site);
    return refuse_beyond(kata_, beyond_bounds(kata_, settings.effective, trusted,
                                              {.version = file_.artifacts_dir / ".ferry" / kata_.name,
                                               .link = link,
                                               .artifacts_dir = file_.artifacts_dir,
                                               .shim = shim_->path}));
  }

  // Runs after configuration_check(), which sets `memory_mib_`.
  Check overhead_check() const {
    Check check =
        question("overhead-covers-memory",
                 "a guest's memory is outside of its containers' limits: the node gives out what it has not");
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
  Result<KataShim> shim_ = fail(Errc::not_found, "not looked for");
  std::optional<std::uint64_t> memory_mib_ = {};  ///< of the guest; absent: the class is not installed
};

}  // namespace

std::vector<Check> class_checks(const HostFs& host, const ClassFile& file, const KataClass& kata,
                                const Result<ConfidentialHost>& confidential, const VersionOf& version_of) {
  return ClassChecks(host, file, kata).all(confidential, version_of);
}

}  // namespace ferry::kata
