// SPDX-License-Identifier: Apache-2.0
// The text of `ferry explain` about one object, by pure functions of a snapshot.
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

/// A label, such as "link", with its lines.
struct StoryPart {
  std::string label;
  std::vector<StoryLine> lines;
};

struct Story {
  std::string title;
  std::vector<StoryPart> parts;
};

/// The snapshot that a story is made of.
struct StoryInputs {
  NodeSight sight;
  NodePicture view;
  std::map<PciAddress, DevicePlace> places;
  bool hostd_runs = false;
  bool plugin_runs = false;
  std::string node = {};                      ///< identity, to know vGPUs that Ferry made; empty: it has none
  std::optional<std::string> asked_for = {};  ///< the policy that wanted.json names
};

/// The object that a word of the command line names.
struct Subject {
  enum class Kind {
    function,  ///< a PCI function: an accelerator, a virtual function, or any other
    vgpu,      ///< a vGPU with a UUID
    resource,  ///< an advertised resource
  };
  Kind kind = Kind::function;
  PciAddress address;
  VgpuId vgpu = {};
  std::string resource = {};
};

/// Errc::usage: no object of this node has that name; the message suggests the nearest name.
Result<Subject> find_subject(const StoryInputs& inputs, const std::string& word);

Story story_of(const StoryInputs& inputs, const Subject& subject);
nlohmann::json to_json(const StoryInputs& inputs, const Subject& subject);

std::string story_text(const Story& story, const Canvas& canvas);

/// Compares a link with its best speed and width: "2.5 GT/s x8, could be 16.0 GT/s x16". Empty: the kernel
/// reports none.
StoryLine link_line(const LinkFacts& link);

}  // namespace ferry
