// SPDX-License-Identifier: Apache-2.0
#include "cli/vgpu_report.h"

#include <cstddef>
#include <set>

#include <fmt/format.h>

#include "cli/document.h"
#include "common/standard_streams.h"
#include "vfio/letting_go.h"

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

json described(const VgpuStep& step) {
  return {{"text", step.text()},     {"kind", kind_of(step)},        {"id", step.id.text},
          {"type", step.short_name}, {"parent", step.parent.text()}, {"why", step.why}};
}

/// The steps that quiesce a GPU's users before its change, and those that resume them after it.
struct Around {
  std::vector<Step> before;
  std::vector<Step> after;
};
Around around(const std::set<Releasable>& holders) {
  std::vector<Step> steps;
  release_around(steps, holders);
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(holders.size());
  return {.before = {steps.begin(), middle}, .after = {middle, steps.end()}};
}

json described(const Step& step) {
  json out = to_json(step);
  out["kind"] = step.kind == Step::Kind::let_go ? "let_go" : "take_hold";
  return out;
}

template <typename Steps>
std::string step_lines(const Steps& steps, bool explain, const char* head = "  ") {
  std::string out;
  for (const auto& step : steps) out += head + step.text() + (explain ? "  because " + step.why : "") + "\n";
  return out;
}

template <typename Steps>
void add(json& out, const Steps& steps) {
  for (const auto& step : steps) out.push_back(described(step));
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
    const auto [let_go, take_hold] = around(gpu.releases);
    out += fmt::format("{}: {}\n", gpu.label(), what) + step_lines(let_go, session.explain) +
           step_lines(gpu.steps, session.explain);
    if (refused) {
      out += error_lines(*gpu.refusal);
      status = worse(status, ExitStatus::refused);
    }
    out += step_lines(gpu.later, session.explain, "  then ");
    add(later, gpu.later);
    if (!gpu.then.empty()) out += fmt::format("  then, if its driver lists them: {}\n", text(gpu.then));
    out += step_lines(take_hold, session.explain, "  in the end ") + note_lines(gpu.notes, "  ");
    json steps = json::array();
    add(steps, let_go);
    add(steps, gpu.steps);
    add(gpu.later.empty() ? steps : later, take_hold);
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
    const auto [let_go, take_hold] = around(gpu.released);
    out += fmt::format("GPU {} ({}): {}\n", gpu.index, gpu.gpu.text(), text(gpu.kind)) +
           step_lines(let_go, session.explain) + step_lines(gpu.done, session.explain);
    if (gpu.error) out += error_lines(*gpu.error);
    json undo = json::array();
    for (const Error& error : gpu.undo_errors) {
      out += "  not put back: " + error.message + "\n";
      undo.push_back(ferry::to_json(error));
    }
    out += step_lines(take_hold, session.explain, "  in the end ") + note_lines(gpu.notes, "  ");
    json steps = json::array();
    add(steps, let_go);
    add(steps, gpu.done);
    add(steps, take_hold);
    gpus.push_back({{"index", gpu.index},
                    {"address", gpu.gpu.text()},
                    {"status", text(gpu.kind)},
                    {"steps", steps},
                    {"error", gpu.error ? ferry::to_json(*gpu.error) : json(nullptr)},
                    {"undo_errors", undo},
                    {"notes", gpu.notes}});
  }
  out += note_lines(outcome.notes, "");
  json errors = json::array();
  for (const Error& error : outcome.errors) {
    out += fmt::format("failed: {}\n", error.message);
    if (!error.hint.empty()) out += "hint: " + error.hint + "\n";
    errors.push_back(ferry::to_json(error));
  }
  return {.document = {{"dry_run", false}, {"gpus", gpus}, {"notes", outcome.notes}, {"errors", errors}},
          .text = out,
          .status = outcome.status()};
}

}  // namespace ferry
