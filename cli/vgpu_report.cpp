// SPDX-License-Identifier: Apache-2.0
#include "cli/vgpu_report.h"

#include <fmt/format.h>

#include "cli/document.h"
#include "common/standard_streams.h"

namespace ferry {
namespace {

using nlohmann::json;

const char* kind_of(const VgpuStep& step) {
  switch (step.kind) {
    case VgpuStep::Kind::enable_vfs:
      return "enable_virtual_functions";
    case VgpuStep::Kind::remove:
      return "remove";
    case VgpuStep::Kind::create:
      return "create";
    case VgpuStep::Kind::disable_vfs:
      return "disable_virtual_functions";
    case VgpuStep::Kind::set_mig:
      return "set_mig_mode";
    case VgpuStep::Kind::make_instance:
      return "make_gpu_instance";
    case VgpuStep::Kind::remove_instance:
      return "remove_gpu_instance";
    case VgpuStep::Kind::set_mixed_sizes:
      return "set_mixed_sizes";
    case VgpuStep::Kind::set_params:
      return "set_params";
    case VgpuStep::Kind::set_placement:
      return "set_placement";
  }
  return "";
}

json to_json(const VgpuStep& step) {
  return {{"text", step.text()},     {"kind", kind_of(step)},        {"id", step.id.text},
          {"type", step.short_name}, {"parent", step.parent.text()}, {"why", step.why}};
}

std::string step_lines(const std::vector<VgpuStep>& steps, bool explain) {
  std::string out;
  for (const VgpuStep& step : steps)
    out += "  " + step.text() + (explain ? "  because " + step.why : "") + "\n";
  return out;
}

std::string error_lines(const Error& error) {
  return "  " + error.message + "\n" + (error.hint.empty() ? "" : "  hint: " + error.hint + "\n");
}

}  // namespace

json to_json(const std::vector<TypeCount>& counts) {
  json out = json::object();
  for (const TypeCount& count : counts) out[count.type] = count.count;
  return out;
}

void warn_of_idle(const std::vector<std::string>& items) {
  constexpr std::size_t kMost = 3;  // a file for many nodes has many
  if (items.size() > kMost) {
    print_to_stderr("warning: {}; nor do {} more\n", items.front(), items.size() - 1);
    return;
  }
  for (const std::string& item : items) print_to_stderr("warning: {}\n", item);
}

std::string note_lines(const std::vector<std::string>& notes, const char* indent) {
  std::string out;
  for (const std::string& note : notes) out += indent + ("note: " + note) + "\n";
  return out;
}

Shown show_vgpus(const Session& session, const VgpuPlan& plan) {
  std::string out;
  json gpus = json::array();
  ExitStatus status = ExitStatus::done;
  for (const GpuPlan& gpu : plan.gpus) {
    json later = json::array();
    const bool refused = gpu.refusal.has_value();
    const char* what = !gpu.matched        ? "left alone: not asked for"
                       : refused           ? "refused"
                       : gpu.steps.empty() ? "already so"
                                           : "would change";
    out += fmt::format("{}: {}\n", gpu.label(), what) + step_lines(gpu.steps, session.explain);
    if (refused) {
      out += error_lines(*gpu.refusal);
      status = worse(status, ExitStatus::refused);
    }
    for (const VgpuStep& step : gpu.later) {
      out += "  then " + step.text() + (session.explain ? "  because " + step.why : "") + "\n";
      later.push_back(to_json(step));
    }
    if (!gpu.then.empty()) out += fmt::format("  then, if its driver lists them: {}\n", text(gpu.then));
    out += note_lines(gpu.notes, "  ");
    json steps = json::array();
    for (const VgpuStep& step : gpu.steps) steps.push_back(to_json(step));
    gpus.push_back({{"index", gpu.index},
                    {"address", gpu.gpu.text()},
                    {"status", what},
                    {"wanted", to_json(gpu.wanted)},
                    {"found", to_json(gpu.found)},
                    {"steps", steps},
                    {"later", later},
                    {"then", to_json(gpu.then)},
                    {"refusal", refused ? ferry::to_json(*gpu.refusal) : json(nullptr)},
                    {"notes", gpu.notes}});
  }
  return {.document = {{"dry_run", true}, {"gpus", gpus}, {"notes", plan.notes}},
          .text = out + note_lines(plan.notes, ""),
          .status = status};
}

Shown show_vgpus(const Session& session, const VgpuOutcome& outcome) {
  std::string out;
  json gpus = json::array();
  for (const GpuOutcome& gpu : outcome.gpus) {
    out += fmt::format("GPU {} ({}): {}\n", gpu.index, gpu.gpu.text(), text(gpu.kind)) +
           step_lines(gpu.done, session.explain);
    if (gpu.error) out += error_lines(*gpu.error);
    json undo = json::array();
    for (const Error& error : gpu.undo_errors) {
      out += "  not put back: " + error.message + "\n";
      undo.push_back(ferry::to_json(error));
    }
    out += note_lines(gpu.notes, "  ");
    json steps = json::array();
    for (const VgpuStep& step : gpu.done) steps.push_back(to_json(step));
    gpus.push_back({{"index", gpu.index},
                    {"address", gpu.gpu.text()},
                    {"status", text(gpu.kind)},
                    {"steps", steps},
                    {"error", gpu.error ? ferry::to_json(*gpu.error) : json(nullptr)},
                    {"undo_errors", undo},
                    {"notes", gpu.notes}});
  }
  return {.document = {{"dry_run", false}, {"gpus", gpus}, {"notes", outcome.notes}},
          .text = out + note_lines(outcome.notes, ""),
          .status = outcome.status()};
}

}  // namespace ferry
