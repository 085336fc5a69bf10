// SPDX-License-Identifier: Apache-2.0
#include "agent/labels/feature_labels.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <ranges>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "api/labels.h"
#include "common/text/text.h"
#include "common/text/words.h"
#include "policy/accelerators.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::agent {
namespace {

constexpr std::string_view kNvidia = "nvidia.com";
constexpr std::string_view kOurs = "gpu-ferry.io";

constexpr std::string_view kVga = "0300";
constexpr std::string_view kDisplay3d = "0302";

/// Drops a label whose key or value Kubernetes would refuse.
void put(Labels& labels, std::string_view domain, const std::string& name, const std::string& value) {
  if (vgpu::can_be_label(name) && vgpu::can_be_label(value))
    labels[fmt::format("{}/{}", domain, name)] = value;
}

/// Cleans a name as GPU feature discovery does: a blank becomes "-", other characters are dropped. A "/"
/// counts as a blank, since names of several boards contain it: "Quadro RTX 6000/8000".
std::string cleaned(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '/';
    if (blank && !out.empty() && out.back() != '-') out += '-';
    if (is_alphanumeric(c) || c == '-' || c == '_' || c == '.') out += c;
  }
  const auto first = std::ranges::find_if(out, is_alphanumeric);
  out.erase(out.begin(), first);
  while (!out.empty() && !is_alphanumeric(out.back())) out.pop_back();
  return out;
}

/// "L40S" from "AD102GL [L40S]". Empty without brackets: a chip's name does not identify the product.
std::string_view in_brackets(std::string_view name) {
  const auto begin = name.find_last_of('[');
  const auto end = name.find_last_of(']');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return {};
  return name.substr(begin + 1, end - begin - 1);
}

struct Gpu {
  const api::AcceleratorStatus* seen = nullptr;
  std::string product;  ///< a label's value; empty: unknown
  std::string memory;
  std::string family;
  std::string mode;
  /// RegisterFacts::mode(), or "none" for a chip without such a mode; empty: unknown.
  std::string confidential = {};
};

std::vector<Gpu> gpus_of(const api::HostStatus& host) {
  // Hopper is the first family with a confidential mode.
  constexpr std::array<std::string_view, 7> kWithoutMode = {"kepler", "maxwell", "pascal",      "volta",
                                                            "turing", "ampere",  "ada-lovelace"};
  std::vector<Gpu> out;
  for (const api::AcceleratorStatus& one : host.accelerators) {
    const bool compute = one.pci_class == kDisplay3d;
    if (!compute && one.pci_class != kVga) continue;                // an NVSwitch
    if (!one.id.empty() && !one.id.starts_with("10de:")) continue;  // these labels are for NVIDIA's GPUs
    const policy::GpuModel model = policy::gpu_model(one.id, one.subsystem);
    out.push_back({.seen = &one,
                   .product = cleaned(model.product.empty() ? in_brackets(one.model) : model.product),
                   .memory = model.memory_mib ? std::to_string(*model.memory_mib) : std::string(),
                   .family = std::string(model.family),
                   .mode = compute ? "compute" : "graphics"});
    if (std::ranges::find(kWithoutMode, model.family) != kWithoutMode.end()) {
      out.back().confidential = "none";
    } else if (one.registers) {
      out.back().confidential = one.registers->facts.mode();
    }
  }
  return out;
}

/// The value that all GPUs share; empty: they differ, or a value is unknown.
std::string common(const std::vector<Gpu>& gpus, std::string Gpu::*property) {
  const std::string& first = gpus.front().*property;
  const bool same = std::ranges::all_of(gpus, [&](const Gpu& gpu) { return gpu.*property == first; });
  return same ? first : std::string();
}

// kata-deploy's classes select nodes by these labels. NVIDIA's CC manager, their usual writer, runs on few
// nodes.
void put_confidential_mode(const std::vector<Gpu>& gpus, bool not_confidential, Labels& labels) {
  const auto all_are = [&](std::initializer_list<std::string_view> modes) {
    return std::ranges::all_of(
        gpus, [&](const Gpu& gpu) { return std::ranges::find(modes, gpu.confidential) != modes.end(); });
  };
  const std::string mode = common(gpus, &Gpu::confidential);
  if (mode == "off" || mode == "on" || mode == "devtools" || mode == "ppcie")
    labels[api::kCcModeStateLabel] = mode;
  if (mode == "on" || mode == "ppcie") labels[api::kCcReadyLabel] = "true";
  // A person's declaration covers GPUs of an unknown mode.
  if (all_are({"none", "off"}) || (not_confidential && all_are({"none", "off", ""})))
    labels[api::kCcReadyLabel] = "false";
}

}  // namespace

std::optional<FeatureWay> parse_feature_way(std::string_view word) {
  constexpr Words<FeatureWay, 3> kWays = {
      {{"none", FeatureWay::none}, {"node", FeatureWay::node}, {"nfd", FeatureWay::nfd}}};
  return value_for(kWays, word);
}

std::optional<Labels> feature_labels(const api::HostStatus& host, bool not_confidential) {
  if (!host.features) return std::nullopt;
  const std::vector<Gpu> gpus = gpus_of(host);
  Labels labels;
  if (gpus.empty()) return labels;
  put(labels, kNvidia, "gpu.count", std::to_string(gpus.size()));
  put(labels, kNvidia, "gpu.memory", common(gpus, &Gpu::memory));
  put(labels, kNvidia, "gpu.family", common(gpus, &Gpu::family));
  put(labels, kNvidia, "gpu.mode", common(gpus, &Gpu::mode));
  const std::string product = common(gpus, &Gpu::product);
  put(labels, kNvidia, "gpu.product", product);
  if (product.empty()) {
    std::map<std::string, std::size_t> counts;
    for (const Gpu& gpu : gpus)
      if (!gpu.product.empty()) ++counts[gpu.product];
    for (const auto& [name, count] : counts)
      put(labels, kNvidia, fmt::format("gpu.{}.count", name), std::to_string(count));
  }

  for (const auto& [word, mode] : api::kModes) {
    const auto count = std::ranges::count(gpus, mode, [](const Gpu& gpu) { return gpu.seen->mode; });
    put(labels, kOurs, fmt::format("gpu.{}.count", word), std::to_string(count));
  }
  std::map<std::string, std::size_t> drivers;
  for (const Gpu& gpu : gpus) ++drivers[gpu.seen->driver.value_or("none")];
  for (const auto& [driver, count] : drivers)
    put(labels, kOurs, fmt::format("gpu.driver.{}.count", driver), std::to_string(count));

  const api::NodeFeatures& features = *host.features;
  put(labels, kNvidia, "gpu.machine", cleaned(features.machine));
  put(labels, kOurs, "iommu.mode", features.iommu);
  if (features.largest_group)
    put(labels, kOurs, "iommu.largest-group", std::to_string(*features.largest_group));
  for (const auto& [type, most] : features.vgpu_types)
    put(labels, kOurs, fmt::format("vgpu.{}.count", type), std::to_string(most));

  put_confidential_mode(gpus, not_confidential, labels);
  return labels;
}

bool is_feature_label(std::string_view key) {
  constexpr std::array<std::string_view, 6> kOfNvidia = {"gpu.count",  "gpu.product", "gpu.memory",
                                                         "gpu.family", "gpu.mode",    "gpu.machine"};
  if (key == api::kCcReadyLabel || key == api::kCcModeStateLabel) return true;
  const auto slash = key.find('/');
  if (slash == std::string_view::npos) return false;
  const std::string_view domain = key.substr(0, slash);
  const std::string_view name = key.substr(slash + 1);
  if (name.find('/') != std::string_view::npos) return false;
  const auto is_below = [&](std::string_view prefix) {
    return name.starts_with(prefix) && name.size() > prefix.size();
  };
  if (domain == kOurs) return is_below("gpu.") || is_below("vgpu.") || is_below("iommu.");
  if (domain != kNvidia) return false;
  constexpr std::string_view kCount = ".count";
  return std::ranges::find(kOfNvidia, name) != kOfNvidia.end() ||
         (is_below("gpu.") && name.ends_with(kCount) &&
          name.size() > std::string_view("gpu.").size() + kCount.size());
}

void leave_mode_labels(const Labels& record, Labels& desired) {
  if (!record.contains(api::kCcModeStateLabel) && !desired.contains(api::kCcModeStateLabel)) return;
  for (const char* const key : {api::kCcModeStateLabel, api::kCcReadyLabel}) {
    desired.erase(key);
    if (const auto set = record.find(key); set != record.end()) desired.insert(*set);
  }
}

Labels own_features(const Labels& labels, std::string_view set_by_nfd) {
  std::set<std::string_view> of_nfd;
  for (const auto part : std::views::split(set_by_nfd, ','))
    of_nfd.insert(std::string_view(part.begin(), part.end()));
  Labels out;
  for (const auto& label : labels) {
    const std::string_view key = label.first;
    if (!key.starts_with(kOurs) || of_nfd.contains(key)) continue;
    const std::string_view name = key.substr(kOurs.size());
    const bool counts = name.starts_with("/gpu.") || name.starts_with("/vgpu.");
    if ((counts && name.ends_with(".count")) || name == "/iommu.mode" || name == "/iommu.largest-group")
      out.insert(label);
  }
  return out;
}

}  // namespace ferry::agent
