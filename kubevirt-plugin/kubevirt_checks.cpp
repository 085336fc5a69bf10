// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/kubevirt_checks.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/counted.h"
#include "common/serving_file.h"
#include "kubevirt-plugin/scanner.h"

namespace ferry {
namespace {

constexpr const char* kPlugins = "var/lib/kubelet/device-plugins";
constexpr const char* kOfferedFile = "run/ferry/offered.json";
constexpr const char* kPods = "var/lib/kubelet/pod-resources/kubelet.sock";

Check question(std::string id, std::string why) {
  return {.id = std::move(id), .subject = kHostSubject, .why = std::move(why)};
}

Check directory_check(const HostFs& host) {
  Check check =
      question("kubelet-directory", "device plugins are found in it, wherever else the kubelet's root is");
  if (host.list(kPlugins)) return std::move(check).passed(fmt::format("/{} is there", kPlugins));
  return std::move(check).failed(fmt::format("there is no /{}", kPlugins),
                                 "start the kubelet once; in a container, mount that directory");
}

Check kubelet_check(const HostFs& host) {
  Check check = question("kubelet-listens", "resources are registered there");
  if (host.exists(std::filesystem::path(kPlugins) / "kubelet.sock"))
    return std::move(check).passed(fmt::format("/{}/kubelet.sock is there", kPlugins));
  return std::move(check).warned(fmt::format("there is no /{}/kubelet.sock", kPlugins),
                                 "start the kubelet; the plugin waits for it");
}

Check pods_check(const HostFs& host) {
  Check check =
      question("pod-resources", "who holds a device, and that it was released, is told there alone");
  if (host.exists(kPods)) return std::move(check).passed(fmt::format("/{} is there", kPods));
  constexpr const char* kFix =
      "in a container, mount its directory; before Kubernetes 1.28 let the feature gate KubeletPodResources "
      "on";
  // The plugin takes it for a kubelet that is not there yet, or for one that does not say.
  if (!host.exists(std::filesystem::path(kPlugins) / "kubelet.sock"))
    return std::move(check).warned(fmt::format("there is no /{}", kPods), kFix);
  return std::move(check).failed(
      fmt::format("there is no /{}, though the kubelet is there: nothing is given out", kPods), kFix);
}

// Its PCI plugin's sockets begin with the whole resource name, ours with what follows the "/".
Check rival_check(const HostFs& host, const OfferRules& rules) {
  Check check =
      question("kubevirt-leaves-them", "KubeVirt's own plugin and this one would offer the same GPUs");
  const std::string theirs = fmt::format("kubevirt-{}-", rules.domain);
  std::vector<std::string> found;
  for (const auto& name : host.list(kPlugins).value_or(std::vector<std::string>{}))
    if (name.starts_with(theirs)) found.push_back(name);
  if (found.empty()) {
    return std::move(check).passed(fmt::format("/{} has no socket {}*", kPlugins, theirs));
  }
  return std::move(check).warned(
      fmt::format("/{} has {}", kPlugins, fmt::join(found, ", ")),
      "set externalResourceProvider: true for these resources in the KubeVirt object: "
      "`ferry kubevirt-cr` prints them so");
}

/// Absent: it serves, or has not run here.
std::optional<Check> stand_back_check(const HostFs& host) {
  const auto file = nlohmann::json::parse(host.read_file(kOfferedFile).value_or(""), nullptr, false);
  const auto why = file.is_object() ? file.find("stands_back") : file.end();
  if (why == file.end() || !why->is_string()) return std::nullopt;
  return question("plugin-serves", "two plugins that register the same resources displace each other")
      .warned(
          fmt::format("Ferry's device plugin stands back and offers nothing: {}", why->get<std::string>()),
          fmt::format("remove the other one; where none is here any more, /var/lib/ferry/{}",
                      kServingFileName));
}

/// How many of a resource can be given out.
std::size_t count_of(const Offer& offer, const Resource& resource) {
  if (!resource.places) return resource.devices.size();
  std::size_t places = 0;
  for (const auto& other : offer.resources)
    for (const auto& device : other.devices)
      places += static_cast<std::size_t>(
          std::ranges::count(device.companions, resource.name.text(), &Companion::resource));
  return places;
}

Check offered_check(const Offer& offer) {
  Check check = question("something-offered", "a pod can ask for nothing else");
  std::vector<std::string> names;
  names.reserve(offer.resources.size());
  for (const auto& resource : offer.resources)
    names.push_back(fmt::format("{} ({})", resource.name.text(), count_of(offer, resource)));
  if (!names.empty()) return std::move(check).passed(fmt::format("{}", fmt::join(names, ", ")));
  return std::move(check).failed(
      "no GPU is on a vfio driver, and there is no vGPU",
      "`ferry vfio bind` or `ferry vgpu apply`; `ferry doctor` says what is in the way");
}

Check names_check(const Offer& offer) {
  Check check = question("names-as-usual", "VMs ask for resources by name, on every node by the same one");
  if (offer.warnings.empty()) return std::move(check).passed("all have one that the kubelet takes");
  return std::move(check).warned(fmt::format("{}", fmt::join(offer.warnings, "; ")),
                                 "`ferry plugin --alias MODEL=NAME` gives one of your own");
}

Check device_check(const std::string& subject, const std::string& problem) {
  return Check{.id = "can-be-given", .subject = subject, .why = "KubeVirt itself looks at nothing of this"}
      .failed(problem, "`ferry vfio bind` moves whole groups; `ferry doctor` says what is in the way");
}

}  // namespace

std::vector<Check> kubevirt_checks(const HostFs& host, const OfferRules& rules, ReadVgpus read_vgpus) {
  std::vector<Check> checks = {directory_check(host), kubelet_check(host), pods_check(host),
                               rival_check(host, rules)};
  if (auto check = stand_back_check(host)) checks.push_back(std::move(*check));
  const auto offer = Scanner(host, rules, std::move(read_vgpus)).scan();
  if (!offer) {
    checks.push_back(
        question("something-offered", "a pod can ask for nothing else").unreadable(offer.error()));
    return checks;
  }
  checks.push_back(offered_check(*offer));
  checks.push_back(names_check(*offer));
  for (const auto& device : offer->not_offered) checks.push_back(device_check(device.id, device.reason));
  for (const auto& resource : offer->resources)
    for (const auto& device : resource.devices)
      if (!device.problem.empty()) checks.push_back(device_check(device.id, device.problem));
  return checks;
}

}  // namespace ferry
