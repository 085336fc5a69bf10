// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/output/document.h"
#include "cli/output/table.h"
#include "cli/output/vgpu_report.h"
#include "cli/verbs/node_inputs.h"
#include "cli/verbs/verbs.h"
#include "common/text/json.h"
#include "vgpu-dm/plan/choose.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

json to_json(const std::optional<mdev::VgpuType>& fit) {
  if (!fit) return nullptr;
  return {{"id", fit->id},
          {"name", fit->name},
          {"short_name", fit->short_name},
          {"framebuffer_mib", or_null(fit->framebuffer_mib)},
          {"framebuffer_source", fit->framebuffer_by_name ? "name" : "driver"},
          {"left", fit->available}};
}

std::string memory_of(const mdev::VgpuType& fit) {
  return fmt::format("{}{} MiB", fit.framebuffer_by_name ? "about " : "", fit.framebuffer_mib.value_or(0));
}

VerbOutput show(const vgpu::TypeRequest& request, const vgpu::Choice& choice, bool named) {
  Table table({"GPU", "TYPE", "NAME", "MEMORY", "AVAILABLE"});
  json gpus = json::array();
  for (const vgpu::GpuChoice& gpu : choice.gpus) {
    const std::string label = fmt::format("GPU {} ({})", gpu.index, gpu.gpu.text());
    if (gpu.fit) {
      table.add({label, gpu.fit->short_name, gpu.fit->name, memory_of(*gpu.fit), available_text(*gpu.fit)});
    } else {
      table.add({label, "", "", "", ""});
    }
    gpus.push_back({{"index", gpu.index},
                    {"address", gpu.gpu.text()},
                    {"type", to_json(gpu.fit)},
                    {"reason", gpu.reason ? ferry::cli::to_json(*gpu.reason) : json(nullptr)}});
  }

  std::string out = table.text();
  ExitStatus status = choice.reason ? exit_status_of(*choice.reason) : ExitStatus::done;
  for (const vgpu::GpuChoice& gpu : choice.gpus) {
    if (!gpu.reason) continue;
    // Reasons stand below the table: in a cell they would push other columns off the screen.
    out += gpu.reason->message + "\n";
    // Among all GPUs one success is enough. Among named ones each counts.
    if (named && !choice.reason) status = worse(status, exit_status_of(*gpu.reason));
  }
  if (choice.smallest) {
    out += fmt::format("smallest: {} ({}), {} can still be made\n", choice.smallest->short_name,
                       memory_of(*choice.smallest), available_text(*choice.smallest));
  }
  return {.document = {{"memory_mib", request.framebuffer_mib},
                       {"series", request.series ? json(std::string(1, *request.series)) : json(nullptr)},
                       {"gpus", gpus},
                       {"smallest", to_json(choice.smallest)}},
          .text = out,
          .status = status};
}

}  // namespace

ExitStatus vgpu_choose_verb(const Session& session, const VgpuChooseOptions& options) {
  auto memory = vgpu::parse_memory_mib(options.memory);
  if (!memory) return complain(std::move(memory).error().during("--memory"));
  vgpu::TypeRequest request{.framebuffer_mib = *memory, .series = {}};
  if (options.series) {
    if (options.series->size() != 1 || std::string_view("QCBA").find(*options.series) == std::string::npos)
      return complain(
          {.code = make_error_code(Errc::usage),
           .message = fmt::format("--series: '{}' is not a series of vGPU types", *options.series),
           .hint = "Q (workstations), C (compute), B (desktops) or A (applications)"});
    request.series = options.series->front();
  }

  auto gpus = parse_gpus(options.devices);
  if (!gpus) return complain(gpus.error());
  // Without --device only NVIDIA's GPUs count: whole virtual functions have no framebuffer to choose by.
  auto vgpus = gpus->empty() ? read_vgpus(session, session.rules) : read_vgpus(session);
  if (!vgpus) return complain(vgpus.error());
  if (auto there = check_gpus(*gpus, *vgpus); !there) return complain(there.error());
  const vgpu::Choice choice = vgpu::choose_types(*vgpus, *gpus, request);
  if (choice.reason) complain(*choice.reason);
  return print(session, show(request, choice, !gpus->empty()));
}

}  // namespace ferry::cli
