// SPDX-License-Identifier: Apache-2.0
// The output about vGPUs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/output/document.h"
#include "cli/session.h"
#include "common/result.h"
#include "mdev/vgpu.h"
#include "policy/policy.h"
#include "vgpu-dm/apply/apply.h"
#include "vgpu-dm/plan/plan.h"

namespace ferry::cli {

/// The request that a plan or an outcome belongs to. A GPU with nothing to do is told by it.
struct VgpuRequest {
  const policy::ResolvedPolicy* policy = nullptr;  ///< nullptr: no policy, but a profile or a removal
  bool removal = false;
};
VerbOutput show_vgpus(const Session& session, const vgpu::VgpuPlan& plan, const VgpuRequest& of = {});
VerbOutput show_vgpus(const Session& session, const vgpu::VgpuOutcome& outcome, const VgpuRequest& of = {});

/// The AVAILABLE of a type: "4", or "up to 15" where fewer may fit.
std::string available_text(const mdev::VgpuType& type);

/// The result of an `assert`: `text` and `gpus`, and the verdict. `what` is "policy" or "profile". `gone`:
/// the host lacks a GPU that hostd has counted, and so it differs.
VerbOutput show_comparison(const std::string& what, const std::string& name, bool agrees,
                           const std::optional<Error>& gone, const nlohmann::json& gpus,
                           std::vector<std::string> warnings, const std::string& text);

/// {"T4-4Q": 2}
nlohmann::json to_json(const std::vector<vgpu::TypeCount>& counts);
/// Warns on stderr of items of a file that match no GPU; many of them in one line.
void warn_of_idle(const std::vector<std::string>& items);
/// A line for each note, after `indent`.
std::string note_lines(const std::vector<std::string>& notes, const char* indent);

}  // namespace ferry::cli
