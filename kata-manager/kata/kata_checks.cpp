// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/kata/kata_checks.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "common/text/counted.h"
#include "hostfs/cdi_registry.h"
#include "kata-manager/classes/class_checks.h"
#include "kata-manager/classes/kubelet_settings.h"
#include "kata-manager/kata/confidential_host.h"
#include "kata-manager/kata/kata_shim.h"

namespace ferry::kata {
namespace {

constexpr std::chrono::seconds kUsualTimeout{120};  // the kubelet's default
constexpr std::chrono::seconds kLongStart{1200};    // Kata's limit for a VM with GPUs

Check question(std::string id, std::string why) {
  return {.id = std::move(id), .subject = kHostSubject, .why = std::move(why)};
}

Check kvm_check(const HostFs& host) {
  Check check = question("kvm-there", "Kata's VMs are KVM's");
  if (host.exists("dev/kvm")) return std::move(check).passed("/dev/kvm is there");
  return std::move(check).failed(
      "there is no /dev/kvm",
      "switch VT-x or AMD-V (SVM) on in the firmware, then `modprobe kvm_intel` or `modprobe kvm_amd`; in a "
      "VM, allow nested virtualisation");
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
        "nobody asks: the class file says podResources: \"\", annotations name devices");
  if (host.exists(file.pod_resources.relative_path())) return std::move(check).passed(socket + " is there");
  return std::move(check).failed(
      fmt::format("there is no {}: pods would start without their devices", socket),
      "start the kubelet; where it has another root directory, say so in the class file: podResources");
}

Check gate_check(const ClassFile& file, const Result<KubeletSettings>& kubelet) {
  Check check =
      question("pod-resources-get",
               "Kata asks for one pod, which the kubelet answers by itself from Kubernetes 1.34 on");
  if (file.pod_resources.empty()) return std::move(check).passed("nobody asks");
  constexpr const char* kFix =
      "before Kubernetes 1.34 set the gate in the kubelet's configuration: featureGates: "
      "{KubeletPodResourcesGet: true}";
  if (!kubelet) return std::move(check).unknown(kubelet.error().message, kFix);
  if (kubelet->pod_resources_get.value_or(false))
    return std::move(check).passed("the gate KubeletPodResourcesGet is on");
  if (kubelet->pod_resources_get)
    return std::move(check).failed("the gate KubeletPodResourcesGet is off", kFix);
  return std::move(check).warned("the kubelet was told nothing of its gate KubeletPodResourcesGet", kFix);
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
                                        kubelet->request_timeout ? "" : ", since nothing is said of it");
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
  constexpr const char* kLabel = "nvidia.com/cc.ready.state";
  if (mode.ready) return std::move(check).passed(fmt::format("the node has {}={}", kLabel, *mode.ready));
  return std::move(check).warned(
      fmt::format("the node has no label {}: no pod of these classes comes here", kLabel),
      fmt::format("NVIDIA's CC manager writes it; where that does not run: kubectl label node NODE {}=false "
                  "(Ferry's own RuntimeClasses of kind gpu do not select it)",
                  kLabel));
}

Check cdi_check(const HostFs& host) {
  Check check = question("cdi-files",
                         "Kata looks a pod's devices up in all CDI files, and one that is wrong keeps every "
                         "pod with devices from starting");
  const std::array<std::filesystem::path, 2> directories = {"etc/cdi", "var/run/cdi"};
  const CdiRegistry registry = read_cdi_registry(host, directories);
  if (registry.faults.empty())
    return std::move(check).passed(fmt::format(
        "{} in /etc/cdi and /var/run/cdi, and Kata can read all of them", counted(registry.files, "file")));
  std::string found;
  for (const CdiFault& fault : registry.faults)
    found += fmt::format("{}{}: {}", found.empty() ? "" : "; ", fault.file.string(), fault.what);
  return std::move(check).failed(std::move(found),
                                 "correct or remove the file, or have its program write a version up to "
                                 "0.6.0; `ferry plugin` writes its own anew");
}

Check mode_check(const ClassFile& file, const ConfidentialMode& mode) {
  Check check = question("gpu-confidential-mode",
                         "confidential VMs want GPUs in a mode of their own, other VMs GPUs in none");
  const std::string found = "the mode of the GPUs for confidential computing is " + mode.text();
  if (!mode.known())
    return std::move(check).unknown(
        found,
        "name the node's object, which NVIDIA's CC manager labels: kubectl get node NODE -o yaml > FILE; "
        "ferry doctor --for kata --node-file FILE");
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
  for (const KataClass& kata : file.classes) {
    std::ranges::move(class_checks(host, file, kata, confidential, version_of), std::back_inserter(out));
  }
  return out;
}

}  // namespace ferry::kata
