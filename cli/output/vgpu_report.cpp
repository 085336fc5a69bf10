// SPDX-License-Identifier: Apache-2.0
#include "cli/output/vgpu_report.h"

#include <cstddef>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "common/process/standard_streams.h"
#include "common/text/words.h"
#include "vfio/quiesce/quiesce_plan.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

std::string_view kind_of(const vgpu::VgpuStep& step) {
  using Kind = vgpu::VgpuStep::Kind;
  constexpr Words<Kind, 11> kWords = {{{"enable_virtual_functions", Kind::enable_vfs},
                                       {"remove", Kind::remove},
                                       {"create", Kind::create},
                                       {"disable_virtual_functions", Kind::disable_vfs},
                                       {"set_mig_mode", Kind::set_mig},
                                       {"make_gpu_instance", Kind::make_instance},
                                       {"remove_gpu_instance", Kind::remove_instance},
                                       {"set_mixed_sizes", Kind::set_mixed_sizes},
                                       {"set_autoprobe", Kind::set_autoprobe},
                                       {"set_params", Kind::set_params},
                                       {"set_placement", Kind::set_placement}}};
  return word_for(kWords, step.kind);
}

json described(const vgpu::VgpuStep& step) {
  return {{"text", step.text()},     {"kind", kind_of(step)},        {"id", step.id.text},
          {"type", step.short_name}, {"parent", step.parent.text()}, {"why", step.why}};
}

json described(const vfio::Step& step) {
  json out = to_json(step);
  out["kind"] = step.kind == vfio::Step::Kind::quiesce ? "let_go" : "take_hold";
  return out;
}

template <typename Steps>
std::string step_lines(const Steps& steps, bool explain, const char* head = "  ") {
  std::string out;
  for (const auto& step : steps) out += head + step.text() + (explain ? because(step.why) : "") + "\n";
  return out;
}

template <typename Steps>
void add(json& out, const Steps& steps) {
  for (const auto& step : steps) out.push_back(described(step));
}

/// The heading has the GPU's label, so the message goes without it.
std::string lines_without_label(Error error, const std::string& label) {
  const std::string named = label + ": ";
  for (auto at = error.message.find(named); at != std::string::npos; at = error.message.find(named, at))
    error.message.erase(at, named.size());
  return error_lines(error, "  ");
}

constexpr const char* kForClaims = "for ResourceClaims";

bool is_for_claims(const VgpuRequest& of, const vfio::PciAddress& gpu) {
  return of.policy != nullptr && of.policy->for_dra.contains(gpu);
}

/// The line of a GPU, or nothing for a GPU without vGPUs that goes to a VM whole. `idle`: nothing is done to
/// it.
std::string head_line(const VgpuRequest& of, const vfio::PciAddress& gpu, const std::string& label,
                      std::string_view what, bool idle, const std::vector<std::string>& notes) {
  if (idle && of.policy != nullptr && notes.empty()) {
    const auto mode = of.policy->modes.find(gpu);
    if (mode != of.policy->modes.end() && mode->second == policy::Mode::passthrough) return {};
  }
  // The notes name the vGPUs that a removal leaves.
  if (idle && of.removal) what = notes.empty() ? "no vGPU" : "nothing removed";
  return fmt::format("{}: {}\n", label, what);
}

}  // namespace

json to_json(const std::vector<vgpu::TypeCount>& counts) {
  json out = json::object();
  for (const vgpu::TypeCount& count : counts) out[count.type] = count.count;
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

std::string available_text(const mdev::VgpuType& type) {
  return fmt::format("{}{}", type.fewer_may_fit ? "up to " : "", type.available);
}

VerbOutput show_vgpus(const Session& session, const vgpu::VgpuPlan& plan, const VgpuRequest& of) {
  std::string out;
  json gpus = json::array();
  ExitStatus status = ExitStatus::done;
  for (const vgpu::GpuPlan& gpu : plan.gpus) {
    json later = json::array();
    const bool refused = gpu.refusal.has_value();
    const char* what = is_for_claims(of, gpu.gpu) ? kForClaims
                       : !gpu.matched             ? "skipped: not asked for"
                       : refused                  ? "refused"
                       : gpu.steps.empty()        ? "already so"
                                                  : "would change";
    const bool idle = gpu.matched && !refused && gpu.steps.empty();
    std::vector<vfio::Step> around;
    vfio::quiesce_around(around, gpu.releases);
    const auto quiesce = std::span(around).first(gpu.releases.size());
    const auto resume = std::span(around).subspan(gpu.releases.size());
    out += head_line(of, gpu.gpu, gpu.label(), what, idle, gpu.notes) + step_lines(quiesce, session.explain) +
           step_lines(gpu.steps, session.explain);
    if (refused) {
      out += lines_without_label(*gpu.refusal, gpu.label());
      status = worse(status, ExitStatus::refused);
    }
    out += step_lines(gpu.later, session.explain, "  then ");
    add(later, gpu.later);
    if (!gpu.then.empty()) out += fmt::format("  then, if its driver lists them: {}\n", text(gpu.then));
    out += step_lines(resume, session.explain, "  in the end ") + note_lines(gpu.notes, "  ");
    json steps = json::array();
    add(steps, quiesce);
    add(steps, gpu.steps);
    add(gpu.later.empty() ? steps : later, resume);
    gpus.push_back({{"index", gpu.index},
                    {"address", gpu.gpu.text()},
                    {"status", what},
                    {"desired", to_json(gpu.desired)},
                    {"found", to_json(gpu.found)},
                    {"steps", steps},
                    {"later", later},
                    {"then", to_json(gpu.then)},
                    {"refusal", refused ? ferry::cli::to_json(*gpu.refusal) : json(nullptr)},
                    {"notes", gpu.notes}});
  }
  return {.document = {{"dry_run", true}, {"gpus", gpus}, {"notes", plan.notes}},
          .text = out + note_lines(plan.notes, ""),
          .status = status};
}

VerbOutput show_vgpus(const Session& session, const vgpu::VgpuOutcome& outcome, const VgpuRequest& of) {
  std::string out;
  json gpus = json::array();
  for (const vgpu::GpuOutcome& gpu : outcome.gpus) {
    std::vector<vfio::Step> around;
    vfio::quiesce_around(around, gpu.released);
    const auto quiesce = std::span(around).first(gpu.released.size());
    const auto resume = std::span(around).subspan(gpu.released.size());
    const std::string label = fmt::format("GPU {} ({})", gpu.index, gpu.gpu.text());
    const std::string_view what = is_for_claims(of, gpu.gpu) ? kForClaims : text(gpu.kind);
    const bool idle = gpu.kind == vgpu::GpuOutcome::Kind::already_so;
    out += head_line(of, gpu.gpu, label, what, idle, gpu.notes) + step_lines(quiesce, session.explain) +
           step_lines(gpu.done, session.explain);
    if (gpu.error) out += lines_without_label(*gpu.error, label);
    json undo = json::array();
    for (const Error& error : gpu.undo_errors) {
      out += "  not put back: " + error.message + "\n";
      undo.push_back(ferry::cli::to_json(error));
    }
    out += step_lines(resume, session.explain, "  in the end ") + note_lines(gpu.notes, "  ");
    json steps = json::array();
    add(steps, quiesce);
    add(steps, gpu.done);
    add(steps, resume);
    gpus.push_back({{"index", gpu.index},
                    {"address", gpu.gpu.text()},
                    {"status", what},
                    {"steps", steps},
                    {"error", gpu.error ? ferry::cli::to_json(*gpu.error) : json(nullptr)},
                    {"undo_errors", undo},
                    {"notes", gpu.notes}});
  }
  out += note_lines(outcome.notes, "");
  json errors = json::array();
  for (const Error& error : outcome.errors) {
    out += "failed: " + error_lines(error, "");
    errors.push_back(ferry::cli::to_json(error));
  }
  return {.document = {{"dry_run", false}, {"gpus", gpus}, {"notes", outcome.notes}, {"errors", errors}},
          .text = out,
          .status = outcome.status()};
}

VerbOutput show_comparison(const std::string& what, const std::string& name, bool agrees,
                           const std::optional<Error>& gone, const json& gpus,
                           std::vector<std::string> warnings, const std::string& text) {
  std::string lines = text;
  if (gone) {
    agrees = false;
    lines = gone->message + "\n" + text;
    warnings.push_back(gone->message);
  }
  return {.document = {{what, name}, {"agrees", agrees}, {"gpus", gpus}, {"warnings", warnings}},
          .text = fmt::format("{}{} {}: {}\n", lines, what, name,
                              agrees ? "the host agrees" : "the host differs"),
          .status = agrees ? ExitStatus::done : ExitStatus::differs};
}

}  // namespace ferry::cli
