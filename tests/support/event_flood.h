// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <fstream>
#include <system_error>

#include <gtest/gtest.h>

namespace ferry::test {

/// How many events the kernel keeps for a watch that nobody reads.
inline std::size_t kept_events() {
  std::size_t kept = 0;
  std::ifstream("/proc/sys/fs/inotify/max_queued_events") >> kept;
  EXPECT_GT(kept, 0U);
  return kept;
}

/// Makes more of them in a directory; leaves nothing there.
inline void flood(const std::filesystem::path& directory) {
  const auto here = directory / "here";
  const auto there = directory / "there";
  std::ofstream(here) << "";
  for (std::size_t events = 0; events <= kept_events();
       events += 4) {  // one for each name that goes or comes
    std::filesystem::rename(here, there);
    std::filesystem::rename(there, here);
  }
  std::filesystem::remove(here);
}

}  // namespace ferry::test
