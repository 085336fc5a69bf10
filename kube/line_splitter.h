// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace ferry {

/// Makes lines of bytes that come cut anywhere. What has no line end yet is kept, up to a bound.
class LineSplitter {
 public:
  explicit LineSplitter(std::size_t longest) : longest_(longest) {}

  /// Gives each line that is whole to `line`, without its end, and none that is empty. False: one is longer
  /// than the bound, or `line` wants no more; then nothing more can be taken.
  bool take(std::string_view bytes, const std::function<bool(std::string_view)>& line);

 private:
  const std::size_t longest_;
  std::string rest_;
};

}  // namespace ferry
