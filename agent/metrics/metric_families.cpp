// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/metric_families.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <prometheus/text_serializer.h>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "agent/operator_compat/cc_manager.h"
#include "api/words.h"
#include "common/text/words.h"
#include "common/version.h"
#include "vfio/registers/register_facts.h"

namespace ferry::agent {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

/// Collects the samples of a family. Prometheus refuses a whole scrape if one sample stands twice, so only
/// the first of two with the same labels stays.
class Family {
 public:
  Family(const char* name, const char* help, MetricType type) {
    family_.name = name;
    family_.help = help;
    family_.type = type;
  }
  template <typename Number>
  void add(Number value, Labels labels = {}) {
    ClientMetric metric;
    (family_.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) =
        static_cast<double>(value);
    add_metric(std::move(metric), std::move(labels));
  }
  void add_metric(ClientMetric metric, Labels labels) {
    if (!seen_.insert(labels).second) return;
    metric.label = std::move(labels);
    family_.metric.push_back(std::move(metric));
  }
  MetricFamily take() { return std::move(family_); }

 private:
  MetricFamily family_;
  std::set<Labels> seen_;
};

class Families {
 public:
  Family& gauge(const char* name, const char* help) { return add(name, help, MetricType::Gauge); }
  Family& counter(const char* name, const char* help) { return add(name, help, MetricType::Counter); }
  Family& add(const char* name, const char* help, MetricType type) {
    return all_.emplace_back(name, help, type);
  }
  /// The families that have samples, sorted by name.
  std::vector<MetricFamily> take() {
    std::vector<MetricFamily> out;
    for (Family& family : all_)
      if (MetricFamily taken = family.take(); !taken.metric.empty()) out.push_back(std::move(taken));
    std::ranges::sort(out, {}, &MetricFamily::name);
    return out;
  }

 private:
  std::deque<Family> all_;  // a new family moves no other
};

/// The words of a table. `others`: words that follow them.
template <typename Value, std::size_t N>
std::vector<std::string_view> words_in(const Words<Value, N>& table,
                                       std::initializer_list<std::string_view> others = {}) {
  std::vector<std::string_view> out;
  for (const auto& [word, value] : table) out.push_back(word);
  out.insert(out.end(), others);
  return out;
}

/// Adds a sample for each of `words`: 1 for `now`, 0 for the others. A word that is not among them adds none,
/// so that the number of series stays bounded.
void add_states(Family& family, const std::vector<std::string_view>& words, std::string_view now,
                const Labels& labels, const char* label) {
  if (std::ranges::find(words, now) == words.end()) return;
  for (const std::string_view word : words) {
    Labels all = labels;
    all.push_back({label, std::string(word)});
    family.add(word == now ? 1 : 0, std::move(all));
  }
}

std::string number_text(const auto& number) {
  return number ? std::to_string(*number) : std::string();
}

// ---- what hostd says

void add_gpus(const api::HostStatus& host, const std::vector<GpuFacts>& facts, Families& all) {
  // The kinds of DeviceUser::Kind. "other" stands for kinds that only a newer hostd knows.
  constexpr std::array<std::string_view, 10> kKinds = {
      "virtual_machine", "process", "pod",     "attached_device", "boot_display",
      "framebuffer",     "fabric",  "console", "resource_claim",  "other"};
  Family& info = all.gauge("ferry_gpu_info", "A GPU of this node; always 1.");
  Family& counts = all.gauge("ferry_gpus", "GPUs in each mode.");
  Family& states = all.gauge("ferry_gpu_state", "1 for the state of a GPU.");
  Family& refused = all.gauge("ferry_gpu_blocked", "1 while a GPU is blocked, by reason.");
  Family& users = all.gauge("ferry_gpu_users", "Device users of a blocked GPU, by kind.");
  std::map<policy::Mode, std::size_t> modes;
  for (const auto& [word, mode] : api::kModes) modes[mode] = 0;
  for (const api::AcceleratorStatus& gpu : host.accelerators) {
    const std::string address = gpu.address.text();
    const bool is_gpu = gpu.counts_as_gpu();
    const bool is_blocked = gpu.state == api::GpuState::blocked;
    // The alert FerryGpuBlocked uses this sample, also for functions that an unplugged GPU has left.
    if (is_gpu || is_blocked || gpu.state == api::GpuState::pending)
      add_states(states, words_in(api::kGpuStates), text(gpu.state), {{"pci_bus_id", address}}, "state");
    if (is_blocked) {
      refused.add(1, {{"pci_bus_id", address}, {"reason", std::string(refusal_reason(gpu))}});
      std::map<std::string_view, std::size_t> by_kind;
      for (const api::ReportedUser& user : gpu.users) {
        const auto* const kind = std::ranges::find(kKinds, user.kind);
        ++by_kind[kind == kKinds.end() ? kKinds.back() : *kind];
      }
      for (const auto& [kind, count] : by_kind)
        users.add(count, {{"pci_bus_id", address}, {"kind", std::string(kind)}});
    }
    if (!is_gpu) continue;

    ++modes[gpu.mode];
    const auto fact = std::ranges::find(facts, gpu.address, &GpuFacts::address);
    info.add(1, {{"pci_bus_id", address},
                 {"product", gpu.model},
                 {"device_id", gpu.id},
                 {"iommu_group", number_text(gpu.iommu_group)},
                 {"numa_node", fact == facts.end() ? std::string() : number_text(fact->numa_node)},
                 {"driver", gpu.driver.value_or("")},
                 {"mode", std::string(text(gpu.mode))},
                 {"desired", gpu.desired ? std::string(text(*gpu.desired)) : std::string()}});
  }
  for (const auto& [mode, count] : modes) counts.add(count, {{"mode", std::string(text(mode))}});
}

void add_vgpus(const api::HostStatus& host, const std::optional<api::AdvertisedResources>& advertised,
               Families& all) {
  Family& instances =
      all.gauge("ferry_vgpu_instances", "vGPUs of a GPU, by type; used: a pod, a VM or a process has it.");
  Family& more = all.gauge("ferry_vgpu_creatable_instances",
                           "How many more vGPUs of a type the GPU's driver would create now.");
  std::set<std::string_view> given;
  if (advertised) {
    for (const api::AdvertisedDevice& device : advertised->devices)
      if (device.allocated) given.insert(device.id);
  }

  const auto looked_at = [](const api::VgpuStatus& vgpu) { return vgpu.users.has_value(); };
  for (const api::AcceleratorStatus& gpu : host.accelerators) {
    for (const auto& [type, count] : gpu.more_vgpus)
      more.add(count, {{"pci_bus_id", gpu.address.text()}, {"type", type}});

    // A vGPU counts as free only if the plugin knows the pods' allocations, or hostd the vGPU's users.
    if (!advertised && !std::ranges::all_of(gpu.vgpus, looked_at)) continue;
    std::map<std::string, std::pair<std::size_t, std::size_t>> by_type;  // free, used
    for (const api::VgpuStatus& vgpu : gpu.vgpus) {
      auto& [free, taken] = by_type[vgpu.type];
      const bool held = vgpu.users && !vgpu.users->empty();
      ++(held || given.contains(vgpu.id) ? taken : free);
    }
    for (const auto& [type, counts] : by_type) {
      const auto& [free, used] = counts;
      const Labels labels = {{"pci_bus_id", gpu.address.text()}, {"type", type}};
      instances.add(free, {labels[0], labels[1], {"state", "free"}});
      instances.add(used, {labels[0], labels[1], {"state", "used"}});
    }
  }
}

void add_registers(const api::HostStatus& host, Families& all) {
  Family& modes = all.gauge("ferry_gpu_confidential_mode", "1 for the confidential mode of a GPU.");
  Family& recovery = all.gauge("ferry_gpu_recovery_mode",
                               "1 if the firmware of a GPU is in recovery mode, by its registers.");
  Family& memory = all.gauge("ferry_gpu_memory_bytes", "Memory of a GPU, by its registers.");
  Family& ecc = all.gauge("ferry_gpu_memory_ecc", "1 if the memory of a GPU has ECC, by its registers.");
  Family& read = all.gauge("ferry_gpu_registers_read_timestamp_seconds",
                           "Time of the last reading of a GPU's registers that gave facts.");
  for (const api::AcceleratorStatus& gpu : host.accelerators) {
    if (!gpu.registers || gpu.registers->read_at == 0) continue;
    const vfio::RegisterFacts& facts = gpu.registers->facts;
    const Labels labels = {{"pci_bus_id", gpu.address.text()}};
    read.add(gpu.registers->read_at, labels);
    // RegisterFacts::mode() has one word more than the mode register.
    add_states(modes, words_in(vfio::kCcModes, {"ppcie"}), facts.mode(), labels, "mode");
    if (facts.recovery) recovery.add(*facts.recovery ? 1 : 0, labels);
    if (facts.memory_bytes) memory.add(*facts.memory_bytes, labels);
    if (facts.ecc) ecc.add(*facts.ecc ? 1 : 0, labels);
  }
}

void add_sanitizing(const api::HostStatus& host, Families& all) {
  Family& states = all.gauge("ferry_gpu_sanitize_state", "1 for the state of a GPU between two users.");
  Family& results =
      all.gauge("ferry_gpu_sanitize_result", "1 for the result of the last sanitizing of a GPU.");
  Family& seconds = all.gauge("ferry_gpu_sanitize_seconds", "Duration of the last sanitizing of a GPU.");
  Family& count =
      all.counter("ferry_gpu_sanitizings_total", "Sanitizings of a GPU that ended, also in vain.");
  for (const api::AcceleratorStatus& gpu : host.accelerators) {
    if (!gpu.sanitize) continue;
    const Labels labels = {{"pci_bus_id", gpu.address.text()}};
    add_states(states, words_in(api::kSanitizeStates), text(gpu.sanitize->state), labels, "state");
    add_states(results, words_in(api::kSanitizeResults), text(gpu.sanitize->result), labels, "result");
    seconds.add(static_cast<double>(gpu.sanitize->milliseconds) / 1000.0, labels);
    count.add(gpu.sanitize->count, labels);
  }
}

// ---- what sysfs says

void add_facts(const std::vector<GpuFacts>& facts, Families& all) {
  const std::vector<std::string_view> power_states = {"D0",     "D1",    "D2",     "D3hot",
                                                      "D3cold", "error", "unknown"};
  Family& power = all.gauge("ferry_gpu_power_state", "1 for the PCI power state that a GPU is in.");
  Family& viable =
      all.gauge("ferry_gpu_group_viable", "1 if the drivers of a GPU's IOMMU group let a VM use it now.");
  Family& held =
      all.gauge("ferry_gpu_stuck",
                "1 while a write to a GPU has not returned from the kernel; the GPU is not read then.");
  Family& speed = all.gauge("ferry_pcie_link_transfers_per_second",
                            "Speed of a GPU's link (16 GT/s are 1.6e10). An idle GPU lowers it.");
  Family& max_speed =
      all.gauge("ferry_pcie_link_max_transfers_per_second", "Speed that both ends of a GPU's link support.");
  Family& lanes = all.gauge("ferry_pcie_link_lanes", "Lanes of a GPU's link that are in use.");
  Family& max_lanes = all.gauge("ferry_pcie_link_max_lanes", "Lanes that both ends of a GPU's link have.");
  Family& totals = all.counter("ferry_pcie_aer_errors_total",
                               "PCIe errors by severity and end of the link, by the kernel's own total.");
  Family& kinds = all.counter("ferry_pcie_aer_errors_by_kind_total",
                              "PCIe errors by the kernel's name, for names that have occurred.");
  for (const GpuFacts& gpu : facts) {
    const Labels of_gpu = {{"pci_bus_id", gpu.address.text()}};
    held.add(gpu.held ? 1 : 0, of_gpu);
    if (gpu.power_state) add_states(power, power_states, *gpu.power_state, of_gpu, "state");
    if (gpu.group_viable) viable.add(*gpu.group_viable ? 1 : 0, of_gpu);

    if (gpu.link.current_speed) speed.add(*gpu.link.current_speed, of_gpu);
    if (gpu.link.max_speed) max_speed.add(*gpu.link.max_speed, of_gpu);
    if (gpu.link.current_lanes) lanes.add(*gpu.link.current_lanes, of_gpu);
    if (gpu.link.max_lanes) max_lanes.add(*gpu.link.max_lanes, of_gpu);

    for (const ReportedErrors& errors : gpu.errors) {
      Labels labels = of_gpu;
      labels.push_back({"port", std::string(errors.port)});
      labels.push_back({"severity", std::string(errors.severity)});
      if (errors.counts.total) totals.add(*errors.counts.total, labels);
      for (const auto& [kind, count] : errors.counts.counts) {
        if (count == 0) continue;
        Labels with_kind = labels;
        with_kind.push_back({"error", kind});
        kinds.add(count, std::move(with_kind));
      }
    }
  }
}

// ---- what the plugin says

/// Finds the GPU of an advertised device, and the pod that has it.
class Owners {
 public:
  explicit Owners(const std::optional<api::HostStatus>& host) {
    if (!host) return;
    for (const api::AcceleratorStatus& gpu : host->accelerators) {
      const std::string address = gpu.address.text();
      by_id_[address] = address;
      if (gpu.iommu_group) by_group_[*gpu.iommu_group] = address;
      for (const api::VgpuStatus& vgpu : gpu.vgpus) by_id_[vgpu.id] = address;
    }
    for (const api::UnavailableDevice& device : host->unavailable) unavailable_.insert(device.id);
  }
  /// Empty: it is not known. For Kata a device has a number of its own, and its group tells which it is.
  std::string of(const api::AdvertisedDevice& device) const {
    if (const auto found = by_id_.find(device.id); found != by_id_.end()) return found->second;
    const auto found = by_group_.find(device.iommu_group);
    return found == by_group_.end() ? std::string() : found->second;
  }
  std::string_view state_of(const api::AdvertisedDevice& device) const {
    if (device.held_with_group) return "allocated";  // it goes to the pod with its IOMMU group
    if (!device.allocated) return device.healthy ? "free" : "unhealthy";
    // While hostd waits for the pod's end, the device has no fault: it is Unhealthy so that no other pod gets
    // it.
    const bool awaited = unavailable_.contains(device.id) || unavailable_.contains(of(device));
    return device.healthy || awaited ? "allocated" : "allocated_unhealthy";
  }

 private:
  std::map<std::string, std::string> by_id_;
  std::map<std::uint32_t, std::string> by_group_;
  std::set<std::string> unavailable_;
};

void add_devices(const api::AdvertisedResources& advertised, const Owners& owners,
                 const std::map<std::string, std::string>& vmis, Families& all) {
  Family& registered = all.gauge("ferry_resource_registered", "1 while the kubelet reads a resource's list.");
  Family& devices = all.gauge(
      "ferry_resource_devices",
      "Devices of a resource. No pod has a free or unhealthy one; a pod has an allocated one, or another "
      "device of its IOMMU group; an allocated_unhealthy one failed while a pod had it.");
  Family& left_out = all.gauge("ferry_devices_not_advertised", "Devices that are not advertised now.");
  Family& allocated = all.gauge("ferry_device_allocated", "1 if a pod has the device, else 0.");
  for (const api::AdvertisedResource& resource : advertised.resources) {
    // On standby no kubelet reads the lists, and a 0 would fire FerryResourceNotRegistered.
    if (advertised.standby.empty())
      registered.add(resource.registered ? 1 : 0, {{"resource", resource.name}});
    std::map<std::string_view, std::size_t> counts = {
        {"allocated", 0}, {"allocated_unhealthy", 0}, {"free", 0}, {"unhealthy", 0}};
    for (const api::AdvertisedDevice& device : advertised.devices)
      if (device.resource == resource.name) ++counts[owners.state_of(device)];
    for (const auto& [state, count] : counts)
      devices.add(count, {{"resource", resource.name}, {"state", std::string(state)}});
  }
  left_out.add(advertised.not_advertised.size());

  for (const api::AdvertisedDevice& device : advertised.devices) {
    const auto slash = device.pod.find('/');
    const bool named = device.allocated && slash != std::string::npos;
    const auto vmi = named ? vmis.find(device.pod) : vmis.end();
    allocated.add(device.allocated ? 1 : 0,
                  {{"pci_bus_id", owners.of(device)},
                   {"device", device.id},
                   {"resource", device.resource},
                   {"namespace", named ? device.pod.substr(0, slash) : std::string()},
                   {"pod", named ? device.pod.substr(slash + 1) : std::string()},
                   {"vmi", vmi == vmis.end() ? std::string() : vmi->second}});
  }
}

// ---- what has happened

void add_changes(const ChangeHistory::Counts& changes, Families& all) {
  Family& ended = all.counter("ferry_reconciles_total",
                              "Changes of the node that ended since the agent started, by result.");
  // Zero from the start, so that the first one is an increase.
  for (const api::NodePhase phase :
       {api::NodePhase::ready, api::NodePhase::failed, api::NodePhase::idle, api::NodePhase::blocked}) {
    const auto found = changes.ended.find(phase);
    ended.add(found == changes.ended.end() ? 0 : found->second, {{"result", std::string(text(phase))}});
  }
  Family& duration =
      all.add("ferry_reconcile_duration_seconds", "Duration of the changes that the agent saw begin and end.",
              MetricType::Histogram);
  ClientMetric histogram;
  std::uint64_t so_far = 0;
  for (std::size_t i = 0; i < ChangeHistory::kBounds.size(); ++i) {
    so_far += changes.by_duration.at(i);
    histogram.histogram.bucket.push_back(
        {.cumulative_count = so_far, .upper_bound = ChangeHistory::kBounds.at(i)});
  }
  histogram.histogram.sample_count = so_far + changes.by_duration.back();
  histogram.histogram.sample_sum = changes.seconds;
  duration.add_metric(std::move(histogram), {});
  Family& refusals =
      all.counter("ferry_blocked_changes_total", "GPUs that became blocked since the agent started.");
  for (const std::string_view reason : {kInUse, kAnotherReason}) {
    const auto found = changes.refusals.find(reason);
    refusals.add(found == changes.refusals.end() ? 0 : found->second, {{"reason", std::string(reason)}});
  }
}

void add_programs(const MetricsSnapshot& snapshot, Families& all) {
  Family& build = all.gauge("ferry_build_info", "The version of the agent; always 1.");
  build.add(1, {{"version", kVersion}});
  Family& runs = all.gauge("ferry_process_up", "1 while this process of Ferry runs on the node.");
  for (const auto& [process, up] : snapshot.runs) runs.add(up ? 1 : 0, {{"process", process}});
  Family& broken =
      all.gauge("ferry_file_unreadable", "1 while this file of hostd or the plugin cannot be read.");
  broken.add(snapshot.host.broken ? 1 : 0, {{"file", "status.json"}});
  broken.add(snapshot.advertised.broken ? 1 : 0, {{"file", "advertised.json"}});
  Family& looked = all.gauge("ferry_sysfs_read_timestamp_seconds",
                             "Time of the last read of sysfs, in seconds since 1970.");
  if (snapshot.looked_at)
    looked.add(std::chrono::duration<double>(snapshot.looked_at->time_since_epoch()).count());

  if (snapshot.pulls) {
    Family& ended = all.counter("ferry_artifact_pulls_total",
                                "Pulls of Kata's artifacts that ended since the agent started, by result.");
    ended.add(snapshot.pulls->done, {{"result", "done"}});
    ended.add(snapshot.pulls->failed, {{"result", "failed"}});
    Family& running =
        all.gauge("ferry_artifact_pull_running", "1 while the artifact of a class is being pulled.");
    if (!snapshot.pulls->under_way.empty()) running.add(1, {{"class", snapshot.pulls->under_way}});
  }
  if (snapshot.claims) {
    Family& claims = all.gauge("ferry_dra_claims", "ResourceClaims that have devices of the node, by phase.");
    for (const auto& [phase, count] : *snapshot.claims) claims.add(count, {{"phase", phase}});
  }
  Family& requests = all.counter("ferry_api_requests_total",
                                 "Requests to the API server that ended; code none: no answer came.");
  for (const auto& [outcome, count] : snapshot.requests)
    requests.add(count, {{"verb", outcome.verb}, {"code", outcome.code}});
}

}  // namespace

std::vector<MetricFamily> metric_families(const MetricsSnapshot& snapshot) {
  Families all;
  add_programs(snapshot, all);
  const auto& host = snapshot.host.content;
  const auto& advertised = snapshot.advertised.content;
  if (host) {
    add_states(all.gauge("ferry_node_phase", "1 for the phase of `ferry hostd`."), words_in(api::kNodePhases),
               text(host->phase), {}, "phase");
    add_gpus(*host, snapshot.facts, all);
    add_vgpus(*host, advertised, all);
    add_registers(*host, all);
    add_sanitizing(*host, all);
    Family& resets = all.gauge("ferry_gpu_reset_in_use",
                               "1 for a GPU in use that NVIDIA's CC manager resets for another mode.");
    for (const ResetInUse& reset : resets_in_use(snapshot.node_labels, *host))
      resets.add(1, {{"pci_bus_id", reset.gpu.text()}});
  }
  add_facts(snapshot.facts, all);
  if (advertised) add_devices(*advertised, Owners(host), snapshot.vmis, all);
  add_changes(snapshot.changes, all);
  return all.take();
}

std::string metrics_text(const std::vector<MetricFamily>& families) {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return std::move(out).str();
}

}  // namespace ferry::agent
