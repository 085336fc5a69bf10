// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <thread>

namespace ferry::test {

/// Waits until this process has a file open so many times: a way to see that another thread has come so far.
inline bool becomes_open(const std::filesystem::path& file, int times) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto open_now = [&] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code closed_meanwhile;
      count += std::filesystem::read_symlink(entry.path(), closed_meanwhile) == file ? 1 : 0;
    }
    return count;
  };
  while (open_now() < times) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace ferry::test
