// SPDX-License-Identifier: Apache-2.0
// The whole story of one thing, as `ferry explain` tells it: pure functions over what was seen.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "cli/canvas.h"
#include "host/node_view.h"
#include "vfio/device_place.h"

namespace ferry {

struct StoryLine {
  std::string text;
  Tint tint = Tint::plain;
};

/// "link", and what there is to say of it.
struct StoryPart {
  std::string label;
  std::vector<StoryLine> lines;
};

struct Story {
  std::string title;
  std::vector<StoryPart> parts;
};

/// What a story is told from.
struct StoryInputs {
  NodeSight sight;
  NodePicture view;
  std::map<PciAddress, DevicePlace> places;
  bool hostd_runs = false;
  bool plugin_runs = false;
  std::string node = {};  ///< its identity, of which vGPUs that Ferry made are known; empty: it has none
  std::optional<std::string> asked_for = {};  ///< the policy that wanted.json names
};

/// What a word on the command line names.
struct Subject {
  enum class Kind {
    function,  ///< a PCI function: an accelerator, a virtual function, or any other
    vgpu,      ///< a vGPU with a UUID
    resource,  ///< what is offered to the kubelet under a name
  };
  Kind kind = Kind::function;
  PciAddress address;
  VgpuId vgpu = {};
  std::string resource = {};
};

/// Errc::usage: nothing on this node is called so; the message has the nearest name that is.
Result<Subject> find_subject(const StoryInputs& inputs, const std::string& word);

Story story_of(const StoryInputs& inputs, const Subject& subject);
nlohmann::json to_json(const StoryInputs& inputs, const Subject& subject);

std::string story_text(const Story& story, const Canvas& canvas);

/// Whether a link runs as well as it could: "2.5 GT/s x8, could be 16.0 GT/s x16". Empty: the kernel does not
/// say.
StoryLine link_line(const LinkFacts& link);

}  // namespace ferry
