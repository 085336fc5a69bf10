// SPDX-License-Identifier: Apache-2.0
#include "kube/line_splitter.h"

namespace ferry {

bool LineSplitter::take(std::string_view bytes, const std::function<bool(std::string_view)>& line) {
  while (true) {
    const auto end = bytes.find('\n');
    const auto part = bytes.substr(0, end);
    if (part.size() > longest_ - rest_.size()) return false;
    if (end == std::string_view::npos) {
      rest_.append(part);
      return true;
    }
    bytes.remove_prefix(end + 1);
    if (rest_.empty()) {
      if (!part.empty() && !line(part)) return false;
      continue;
    }
    std::string whole;
    whole.swap(rest_);
    whole.append(part);
    if (!line(whole)) return false;
  }
}

}  // namespace ferry
