// SPDX-License-Identifier: Apache-2.0
// In which mode of confidential computing a node's GPUs are, as the cluster knows it: by the labels of
// NVIDIA's CC manager. Nothing here asks a GPU, and nothing switches one. ABI: nvidia.com/cc.mode, what
// somebody asks for (on, off, devtools, ppcie); nvidia.com/cc.mode.state, what the manager has reached, or
// "failed".
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "kata-manager/class_file.h"

namespace ferry {

struct ConfidentialMode {
  enum class State {
    unknown,  ///< nobody says
    off,
    on,
    devtools,  ///< VMs get the GPU as if it were on, and nothing is protected
    ppcie,     ///< on for GPUs and NVSwitches together
    failed,    ///< it was to be switched, and where that ended nobody knows
  };
  State state = State::unknown;
  std::string why_unknown = "no Node object was named";  ///< counts with State::unknown alone
  std::string asked_for = {};                            ///< nvidia.com/cc.mode; empty: nothing
  /// nvidia.com/cc.ready.state, which RuntimeClasses select; absent: the label is not there, or no Node was
  /// named.
  std::optional<std::string> ready = {};
  bool of_a_node = false;  ///< a Node was named

  /// By a Node's labels. A value that the manager does not write is unknown: nothing is guessed from it, nor
  /// from what is only asked for.
  static ConfidentialMode of_labels(const std::map<std::string, std::string>& labels);
  /// For people: "on", "off; on is asked for", "unknown: REASON".
  std::string text() const;
  bool known() const { return state != State::unknown; }
  /// Errc::unsupported: the class's VMs are confidential, and these GPUs are in no mode for it. Unknown is no
  /// reason to refuse.
  Result<> admits(const KataClass& kata) const;
};

/// "on"; that of State::unknown is "unknown".
const char* text(ConfidentialMode::State state);
/// By its text. Absent: it is none that the manager writes; "unknown" is none either.
std::optional<ConfidentialMode::State> confidential_state(std::string_view text);

}  // namespace ferry
