// SPDX-License-Identifier: Apache-2.0
// Inside this room: is there room on a GPU for what a profile asks, known before anything is removed?
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "vgpu-dm/gpu_match.h"

namespace ferry {

struct Room {
  std::optional<Error> lacking;  ///< Errc::invalid_config: it cannot fit
  /// Those with something missing, in the order in which they fit. Whose type is not listed comes last;
  /// behind it only MIG-backed ones that may go beside those which stay.
  std::vector<const Want*> order;
  std::vector<std::string> notes;  ///< what only the driver can say, once the others are gone
};

/// By the driver's rule for equal-size mode: all vGPUs of a GPU have one framebuffer size, and one more of a
/// type can be made while the GPU carries fewer, of whatever type, than the type's maximum; on virtual
/// functions one on each. Of mixed sizes so much is known: not more of a type than by themselves, and not
/// more than there is memory.
Room check_room(const GpuMatch& match, const VgpuGpu& gpu);

/// What the table knows not to fit on a GPU once it has its virtual functions; nothing where it knows
/// nothing.
std::optional<Error> lacking_on_functions(const GpuMatch& match, const VgpuGpu& gpu);

/// Whether time-sliced vGPUs of more than one framebuffer size are on a GPU, as far as their sizes are known.
bool carries_several_sizes(const VgpuGpu& gpu);

}  // namespace ferry
