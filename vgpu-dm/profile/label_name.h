// SPDX-License-Identifier: Apache-2.0
// Names by which a node's label chooses a configuration. A file may use any name, but a node can choose only
// a valid label value. ABI: the syntax of label values,
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels.
#pragma once

#include <string>
#include <string_view>

namespace ferry::vgpu {

/// At most 63 letters, digits, `-`, `_` and `.`, the first and the last a letter or digit.
bool can_be_label(std::string_view name);
inline constexpr const char* kLabelNames =
    "at most 63 letters, digits, - _ and ., the first and the last a letter or a digit";

/// "p.yaml:4: 'two words' can be chosen by no node's label: at most 63 letters, ..."
std::string label_warning(std::string_view place, std::string_view name);

}  // namespace ferry::vgpu
