// SPDX-License-Identifier: Apache-2.0
#include "api/host_status.h"

#include <algorithm>
#include <array>

#include "api/files.h"
#include "api/sanitize_fields.h"
#include "common/generation.h"
#include "common/text/json.h"
#include "common/text/json_fields.h"
#include "vfio/registers/register_fields.h"

namespace ferry::api {
namespace {

constexpr const char* kHint = "ferry hostd writes it: is it of the same version? A restart writes it anew";

}  // namespace

template <typename Io, SameAs<ReportedUser> Value>
void fields(Io& io, Value& user) {
  io.or_default("kind", user.kind);
  io("name", user.name);
  io.or_null("pid", user.pid);
  io.or_null("pod_uid", user.pod_uid);
  io.or_default("by_the_plugin", user.by_the_plugin);
}

template <typename Io, SameAs<ReportedFinding> Value>
void fields(Io& io, Value& finding) {
  io("rule", finding.rule);
  io("about", finding.about);
  auto answer = std::string(vfio::text(finding.answer));
  io("answer", answer);
  if constexpr (Io::kReads)
    finding.answer = answer == vfio::text(vfio::Answer::yes) ? vfio::Answer::yes : vfio::Answer::not_looked;
  io.or_default("blocks", finding.blocks);
  io.or_default("text", finding.text);
  io.or_default("advice", finding.advice);
}

template <typename Io, SameAs<VgpuStatus> Value>
void fields(Io& io, Value& vgpu) {
  io("id", vgpu.id);
  io.or_default("type", vgpu.type);
  io.or_null("users", vgpu.users);
}

template <typename Io, SameAs<ReportedRegisters> Value>
void fields(Io& io, Value& registers) {
  io("read_at", registers.read_at);
  io.or_default("binding", registers.binding);
  fields(io, registers.facts);
}

template <typename Io, SameAs<AcceleratorStatus> Value>
void fields(Io& io, Value& gpu) {
  io("address", gpu.address);
  io.or_default("id", gpu.id);
  io.or_null("subsystem", gpu.subsystem);
  io.or_default("class", gpu.pci_class);
  io.or_default("model", gpu.model);
  io.or_null("iommu_group", gpu.iommu_group);
  io.or_null("driver", gpu.driver);
  io("mode", gpu.mode);
  io("desired", gpu.desired);
  io.or_default("allocation", gpu.allocation);  // a hostd from before DRA wrote no such key
  io("state", gpu.state);
  io.or_default("reason", gpu.reason);
  io.or_default("hint", gpu.hint);
  io("users", gpu.users);
  io.or_default("only_in_use", gpu.only_in_use);
  io.or_null("findings", gpu.findings);
  io("vgpus", gpu.vgpus);
  io.or_default("more_vgpus", gpu.more_vgpus);
  io.or_default("registers", gpu.registers);
  io.or_default("sanitize", gpu.sanitize);
}

template <typename Io, SameAs<NodeFeatures> Value>
void fields(Io& io, Value& features) {
  io("iommu", features.iommu);
  io.or_null("largest_group", features.largest_group);
  io.or_null("machine", features.machine);
  io.or_default("vgpu_types", features.vgpu_types);
}

template <typename Io, SameAs<DesiredMark> Value>
void fields(Io& io, Value& desired) {
  io.or_null("generation", desired.generation);
  io.check("generation", desired.generation.value_or(0) <= kLastGeneration, kGenerationFault);
  io.or_default("policy", desired.policy);
  io.or_default("source", desired.source);
}

template <typename Io, SameAs<StatusError> Value>
void fields(Io& io, Value& error) {
  io("message", error.message);
  io.or_default("hint", error.hint);
}

template <typename Io, SameAs<UnavailableDevice> Value>
void fields(Io& io, Value& device) {
  io("id", device.id);
  io.or_default("reason", device.reason);
}

template <typename Io, SameAs<UnfitDevice> Value>
void fields(Io& io, Value& device) {
  io("id", device.id);
  io.or_default("driver", device.driver);
  io("reason", device.reason);
}

template <typename Io, SameAs<SanitizedDevice> Value>
void fields(Io& io, Value& device) {
  io("id", device.id);
  io("state", device.state);
  io("count", device.count);
}

template <typename Io, SameAs<PluginOrders> Value>
void fields(Io& io, Value& orders) {
  io("generation", orders.generation);  // the plugin answers with it
  io.check("generation", orders.generation <= kLastGeneration, kGenerationFault);
  io.version(kStatusVersion);
  io("unavailable", orders.unavailable);
  io.or_default("unfit", orders.unfit);
  io.or_default("sanitized", orders.sanitized);
  io.or_null("standby", orders.standby);
}

template <typename Io, SameAs<HostStatus> Value>
void fields(Io& io, Value& status) {
  io.version(kStatusVersion);
  io.or_default("generation", status.generation);
  io.check("generation", status.generation <= kLastGeneration, kGenerationFault);
  io.or_default("pid", status.pid);
  io.or_default("boot_id", status.boot_id);
  io("desired", status.desired);
  io("phase", status.phase);
  io("accelerators", status.accelerators);
  io("unavailable", status.unavailable);
  if constexpr (!Io::kReads) {
    io("unfit", unfit_devices(status));
    std::vector<SanitizedDevice> sanitized;
    for (const AcceleratorStatus& gpu : status.accelerators)
      if (gpu.sanitize)
        sanitized.push_back(
            {.id = gpu.address.text(), .state = gpu.sanitize->state, .count = gpu.sanitize->count});
    io("sanitized", sanitized);
  }
  io.or_null("error", status.error);
  io.or_null("features", status.features);
  io.or_null("standby", status.standby);
}

std::string ReportedUser::text() const {
  std::string out = kind;
  std::ranges::replace(out, '_', ' ');
  if (!out.empty()) out += ' ';
  out += name;
  if (pid) out += " (pid " + std::to_string(*pid) + ")";
  return out;
}

bool AcceleratorStatus::counts_as_gpu() const {
  constexpr std::array<std::string_view, 5> kClasses = {"", "0300", "0302", "0380", "1200"};
  return std::ranges::find(kClasses, pci_class) != kClasses.end();
}

ReportedFinding reported(const vfio::Finding& finding) {
  ReportedFinding out{.rule = std::string(vfio::rule(finding.rule).name),
                      .about = finding.about,
                      .answer = finding.answer,
                      .text = finding.text,
                      .advice = finding.advice};
  for (const vfio::Blocks act : vfio::all_blocks())
    if (finding.blocks(act)) out.blocks.emplace_back(vfio::text(act));
  return out;
}

std::vector<UnfitDevice> unfit_devices(const HostStatus& status) {
  std::vector<UnfitDevice> out;
  for (const AcceleratorStatus& gpu : status.accelerators) {
    for (const ReportedFinding& finding : gpu.findings.value_or(std::vector<ReportedFinding>{})) {
      if (finding.answer != vfio::Answer::yes || !finding.has(vfio::text(vfio::Blocks::advertise))) continue;
      out.push_back({.id = gpu.address.text(), .driver = gpu.driver.value_or(""), .reason = finding.text});
      break;  // the gravest comes first
    }
  }
  return out;
}

std::string host_status_text(const HostStatus& status) {
  return json_text(written_fields(status));
}

Result<HostStatus> read_host_status(std::string_view text) {
  return read_json(text, kStatusFile, kHint, read_fields<HostStatus>);
}

Result<PluginOrders> read_plugin_orders(std::string_view text) {
  return read_json(text, kStatusFile, kHint, read_fields<PluginOrders>);
}

}  // namespace ferry::api
