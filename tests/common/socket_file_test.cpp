// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/socket_file.h"

#include <fcntl.h>
#include <filesystem>
#include <set>
#include <string>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

using test::must;

class SocketFileTest : public testing::Test {
 protected:
  std::set<std::string> names() const {
    std::set<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.path()))
      out.insert(entry.path().filename());
    return out;
  }

  const test::ScratchDirectory scratch_;
  const UniqueFd directory_{::open(scratch_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
};

// Two pods may share the directory: each has a process of this number, in a PID namespace of its own.
TEST_F(SocketFileTest, LeavesWhatAnotherProcessOfItsNumberIsAboutToMoveIntoPlace) {
  for (const std::string name : {"nvidia.com+GPU.sock", "a", "a.b.sock"}) {
    const std::string of_rival = fmt::format(".{}.{}", ::getpid(), name);
    const auto rival = must(SocketFile::listen(directory_.get(), of_rival, SocketFile::Rival::replace));
    {
      const auto ours = must(SocketFile::listen(directory_.get(), name, SocketFile::Rival::replace));
      EXPECT_TRUE(rival.is_there());
      EXPECT_TRUE(ours.is_there());
      EXPECT_THAT(names(), testing::UnorderedElementsAre(of_rival, name));
    }
    EXPECT_THAT(names(), testing::ElementsAre(of_rival));
  }
}

TEST_F(SocketFileTest, YieldsOnlyToASocketThatIsServed) {
  using Rival = SocketFile::Rival;
  auto first = must(SocketFile::listen(directory_.get(), "a", Rival::yield));
  EXPECT_FALSE(SocketFile::listen(directory_.get(), "a", Rival::yield).has_value());
  const auto second = must(SocketFile::listen(directory_.get(), "a", Rival::replace));
  EXPECT_FALSE(first.is_there());
  EXPECT_TRUE(second.is_there());
}

}  // namespace
}  // namespace ferry
