// SPDX-License-Identifier: Apache-2.0
// Every test executable can be its own host writer, as `ferry` is.
#include <cstdlib>
#include <string>
#include <string_view>
#include <sys/stat.h>

#include <gmock/gmock.h>

#include "hostfs/host_writer.h"
#include "tests/support/child_libraries.h"

namespace {

// For the tests of the writer: prints its order, or does not come back.
std::string echo(const ferry::HostFs& host, std::string_view request) {
  if (request == "die") std::abort();
  if (request == "too much") {
    constexpr std::size_t kMoreThanAnAnswer = 65UL * 1024;
    std::string much(kMoreThanAnAnswer, 'x');
    return much;
  }
  return host.root().string() + " " + std::string(request);
}

}  // namespace

int main(int argc, char** argv) {
  ::umask(S_IWGRP | S_IWOTH);  // tests look at the modes of what they make
  if (argc > 1 && argv[1] == ferry::kHostActVerb) {
    ferry::test::child_libraries().push_back({.name = "echo", .answer = echo});
    return ferry::host_act_main(argc, argv, ferry::test::child_libraries());
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
