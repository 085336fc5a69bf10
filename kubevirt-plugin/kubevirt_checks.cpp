// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/kubevirt_checks.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/counted.h"
#include "common/plugin_files.h"
#include "common/presence.h"
#include "common/serving_file.h"
#include "kubevirt-plugin/scanner.h"

namespace ferry {
namespace {

constexpr const char* kPlugins = "var/lib/kubelet/device-plugins";
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

nlohmann::json offered_file(const HostFs& host) {
  return nlohmann::json::parse(host.read_file(kOfferedFile).value_or(""), nullptr, false);
}

/// The resources that the kubelet reads of a plugin of Ferry's that runs now.
Result<std::set<std::string>> served_by_ferry(const HostFs& host) {
  const auto runs = is_present(host, kPluginPresence);
  if (!runs) return fail(Error(runs.error()));
  std::set<std::string> names;
  const auto file = offered_file(host);
  if (!*runs || !file.is_object()) return names;
  for (const auto& resource : file.value("resources", nlohmann::json()))
    if (resource.is_object() && resource.value("registered", nlohmann::json()) == true)
      if (const auto name = resource.value("name", nlohmann::json()); name.is_string())
        names.insert(name.get<std::string>());
  return names;
}

/// Its PCI plugin's sockets begin with the whole resource name, ours with what follows the "/": what bears
/// its names is its. Its plugin for mediated devices names them as we do: what bears ours, and is read of
/// nobody of ours, is its too, or left over.
Result<std::vector<std::string>> foreign_sockets(const HostFs& host, const OfferRules& rules,
                                                 const Offer* offer) {
  const std::string theirs = fmt::format("kubevirt-{}-", rules.domain);
  std::vector<std::string> found;
  for (const auto& name : host.list(kPlugins).value_or(std::vector<std::string>{}))
    if (name.starts_with(theirs)) found.push_back(name);
  if (offer == nullptr) return found;
  const auto served = served_by_ferry(host);
  if (!served) return fail(Error(served.error()));
  for (const Resource& resource : offer->resources) {
    const std::string socket = endpoint_name(resource.name, resource.env_prefix);
    if (!served->contains(resource.name.text()) && host.exists(std::filesystem::path(kPlugins) / socket))
      found.push_back(socket);
  }
  return found;
}

/// `offer`: null where it cannot be told, or another plugin may serve it.
Check rival_check(const HostFs& host, const OfferRules& rules, const Offer* offer) {
  Check check =
      question("kubevirt-leaves-them", "KubeVirt's own plugins and this one would offer the same devices");
  const auto found = foreign_sockets(host, rules, offer);
  if (!found) return std::move(check).unreadable(found.error());
  if (found->empty()) return std::move(check).passed(fmt::format("/{} has no socket of theirs", kPlugins));
  return std::move(check).warned(
      fmt::format("/{} has {}, which no plugin of Ferry's serves", kPlugins, fmt::join(*found, ", ")),
      "set externalResourceProvider: true for these resources in the KubeVirt object, `ferry kubevirt-cr` "
      "prints them so, and let no other plugin serve them; a socket that nobody serves goes when `ferry "
      "plugin` "
      "starts");
}

/// Absent: it serves, or has not run here.
std::optional<Check> stand_back_check(const HostFs& host) {
  const auto file = offered_file(host);
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
  const auto offer = Scanner(host, rules, std::move(read_vgpus)).scan();
  auto stands_back = stand_back_check(host);
  // The sockets of whom it stands back for are called as ours are: that check names them.
  const Offer* const served = offer && !stands_back ? &*offer : nullptr;
  std::vector<Check> checks = {directory_check(host), kubelet_check(host), pods_check(host),
                               rival_check(host, rules, served)};
  if (stands_back) checks.push_back(std::move(*stands_back));
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
