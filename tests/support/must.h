// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <utility>

#include "common/result.h"

namespace ferry::test {

/// For the parts of a test that are not what it tests: the value, or the test ends with the error's text.
inline void must(const Result<>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}
template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

}  // namespace ferry::test
