// SPDX-License-Identifier: Apache-2.0
// What `ferry hostd` says of its host, /run/ferry/state.json, as far as the cluster is told of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "policy/policy.h"

namespace ferry {

/// Relative to the host's root.
inline constexpr const char* kStateFile = "run/ferry/state.json";

enum class SeenPhase {
  as_wanted,
  withdrawing,  ///< waiting until the kubelet is offered nothing of what moves
  changing,
  refused,  ///< somebody uses what should change; nothing of that was written
  failed,
  nothing_wanted,
};

struct SeenAccelerator {
  std::string address;
  std::string model;           ///< empty: nobody knows one
  Mode mode = Mode::host;      ///< as it is
  std::optional<Mode> wanted;  ///< absent: the policy says nothing of it
  std::string state;           ///< "as_wanted", "refused", "failed", "waiting", "left_alone"
  std::string reason;
  std::string hint;
  std::vector<std::string> holders;  ///< "virtual machine guest-7 (pid 4711)"
  std::size_t vgpus = 0;             ///< how many it carries
};

struct SeenHost {
  std::optional<std::uint64_t> wanted;  ///< the generation of wanted.json that this is about
  SeenPhase phase = SeenPhase::nothing_wanted;
  std::vector<SeenAccelerator> accelerators;
  std::vector<std::string> withdraw;  ///< what the kubelet shall not be offered just now
  std::string error;                  ///< of the whole, not of one accelerator; empty: none
  std::string hint;                   ///< what to do about it
};

/// Keys that are not known are passed over: a newer hostd may write them. Errc::malformed_host says where.
Result<SeenHost> read_seen_host(std::string_view text);

}  // namespace ferry
