// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <gmock/gmock.h>

#include "kata-manager/artifacts/content_hash.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kOfKernel = "6923dd1bc0460082c5d55a831908c24a282860b7f1cd6c2b79cf1bc8857c639c";

class ArtifactCheck : public testing::Test {
 protected:
  ArtifactCheck() {
    artifact.version = "/opt/v";
    artifact.files = {{.path = "guest/vmlinuz", .size = 6, .sha256 = kOfKernel, .link = {}},
                      {.path = "kernel", .size = 0, .sha256 = {}, .link = "guest/vmlinuz"}};
    scratch.file("opt/v/guest/vmlinuz", "kernel");
    scratch.link("opt/v/kernel", "guest/vmlinuz");
  }
  std::vector<std::string> changes() {
    return test::must(
        changes_since_fetch(host, artifact, [&](const CheckProgress& progress) { last = progress; }));
  }

  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
  Artifact artifact;
  CheckProgress last;
};

TEST_F(ArtifactCheck, ReadsEveryByte) {
  EXPECT_THAT(changes(), IsEmpty());
  EXPECT_EQ(last.done, 6U);
  EXPECT_EQ(last.total, 6U);
  scratch.file("opt/v/guest/vmlinuz", "kerneL");
  EXPECT_THAT(changes(), ElementsAre("/opt/v/guest/vmlinuz has another content than when it was fetched"));
}

TEST_F(ArtifactCheck, NamesWhatIsInItsPlace) {
  scratch.remove("opt/v/kernel");
  scratch.file("opt/v/guest/vmlinuz", "");
  EXPECT_THAT(changes(), ElementsAre("/opt/v/guest/vmlinuz has 0 bytes, and had 6 when it was fetched",
                                     "/opt/v/kernel is not there"));
  scratch.link("opt/v/kernel", "guest");
  scratch.remove("opt/v/guest/vmlinuz");
  ASSERT_EQ(::mkfifo((scratch.path() / "opt/v/guest/vmlinuz").c_str(), 0600), 0);
  EXPECT_THAT(changes(),
              ElementsAre("/opt/v/guest/vmlinuz is no file", "/opt/v/kernel is no link to guest/vmlinuz"));
  scratch.remove("opt/v/guest/vmlinuz");
  scratch.file("opt/v/other", "kernel");
  scratch.link("opt/v/guest/vmlinuz", "../other");
  EXPECT_EQ(changes().front(), "/opt/v/guest/vmlinuz is a link");
}

TEST_F(ArtifactCheck, FindsNothingInAFolderOfWhichNothingIsRecorded) {
  artifact.files = {{.path = "guest/vmlinuz", .size = 0, .sha256 = {}, .link = {}}};
  EXPECT_THAT(changes(), IsEmpty());
}

}  // namespace
}  // namespace ferry::kata
