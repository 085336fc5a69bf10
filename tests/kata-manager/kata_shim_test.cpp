// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/kata_shim.h"

#include <gmock/gmock.h>

#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

class KataShim : public testing::Test {
 protected:
  std::string found() const {
    const auto shim = find_kata_shim(host, kata);
    return shim ? shim->string() : shim.error().message;
  }

  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
  KataClass kata;
};

TEST_F(KataShim, IsWhereItsInstallersPutIt) {
  kata.name = "a";
  EXPECT_THAT(found(), testing::StartsWith("class a: no shim of Kata's is there: not /opt/kata/bin/"));
  scratch.file("usr/bin/containerd-shim-kata-v2", "");
  EXPECT_EQ(found(), "/usr/bin/containerd-shim-kata-v2");
  scratch.file("opt/kata/bin/containerd-shim-kata-v2", "");
  EXPECT_EQ(found(), "/opt/kata/bin/containerd-shim-kata-v2");
}

TEST_F(KataShim, IsTheOneThatTheClassNamesAndNoOther) {
  scratch.file("usr/bin/containerd-shim-kata-v2", "");
  kata.name = "a";
  kata.place = "k.yaml:3";
  kata.shim = "/srv/shim";
  EXPECT_EQ(found(), "k.yaml:3: class a: there is no /srv/shim");
  scratch.file("srv/shim", "");
  EXPECT_EQ(found(), "/srv/shim");
}

}  // namespace
}  // namespace ferry
