// SPDX-License-Identifier: Apache-2.0
// A fetch that ends early or was killed, and the removal of what was fetched.
#include <fcntl.h>
#include <set>
#include <stdexcept>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "common/unique_fd.h"
#include "host/system/agent_folders.h"
#include "kata-manager/artifacts/artifact_store.h"
#include "tests/kata-manager/archives.h"
#include "tests/kata-manager/fetch_store.h"
#include "tests/kata-manager/killed_at.h"
#include "tests/support/as_user.h"

namespace ferry::kata {
namespace {

using test::HttpAnswer;
using test::must;
using test::ReceivedRequest;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

TEST_F(Fetch, BeginsAnewAfterItsEnd) {
  registry.image(layers(std::string(3'000'000, 'g')));
  registry.spoil = [](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (seen.path.find("/blobs/") != std::string::npos) answer.sent = 1'000'000;
  };
  EXPECT_EQ(refusal().code, Errc::unreachable);
  EXPECT_FALSE(fs::exists(top() / "kata-gpu"));
  EXPECT_THAT(in_store(), IsEmpty());
  registry.spoil = {};
  must(fetch());
  EXPECT_EQ(seen("guest.img"), std::string(3'000'000, 'g'));
}

TEST_F(Fetch, TrustsNothingThatAnEarlierOneLeft) {
  const std::string digest = registry.image(layers());
  for (const fs::path pull : {"opt/artifacts/.pull", "opt/artifacts/.ferry/kata-gpu/.pull"}) {
    if (pull.parent_path().filename() == "artifacts" && ::geteuid() != 0) continue;  // it is root's
    scratch.file(pull / "image" / registry.first_blob().substr(7), "evil!");
    scratch.file(pull / "registries.conf", "of another image");
  }
  scratch.file("opt/artifacts/.ferry/kata-gpu/staging/evil", "x");
  scratch.file("opt/artifacts/.ferry/kata-gpu/" + folder_of(digest) + "/evil", "a version without a record");
  scratch.link("opt/artifacts/.kata-gpu.link", "half");
  scratch.link("opt/artifacts/.kata-gpu.replaced-1", "half");
  must(fetch());
  EXPECT_EQ(seen("guest.img"), "guest");
  EXPECT_EQ(must(host.list("opt/artifacts/kata-gpu")),
            (std::vector<std::string>{"configuration.toml", "guest.img"}));
  EXPECT_THAT(in_store(), ElementsAre(folder_of(digest), folder_of(digest) + ".json"));
  EXPECT_EQ(must(host.list("opt/artifacts")),
            (std::vector<std::string>{".ferry", "k8s-kata-manager.pid", "kata-gpu"}));
}

TEST_F(Fetch, MakesAnewAVersionThatIsBroken) {
  registry.image(layers());
  const Artifact artifact = must(fetch());
  const auto inside = artifact.version.relative_path() / "guest.img";
  scratch.file(inside, "cut");
  EXPECT_TRUE(must(fetch()).changed) << "its size is another";
  EXPECT_EQ(seen("guest.img"), "guest");
  scratch.file(inside, "GUEST");
  EXPECT_FALSE(must(fetch()).changed) << "contents are not read";
}

// Before each change that it makes, one after the other: from a version in use, and from a stranger's folder.
TEST_F(Fetch, IsRightAfterAKillAnywhere) {
  registry.image(layers("before"), "before");
  auto image = layers("after");
  image.push_back(
      {.content = test::tar_of({{.path = "deep/a", .content = "a"}, {.path = "deep/b", .symlink = "a"}}),
       .media_type = "application/vnd.oci.image.layer.v1.tar+gzip"});
  registry.image(image, "after");
  for (const bool stranger : {false, true}) {
    unsigned kills = 0;
    for (bool killed = true; killed;) {
      fs::remove_all(top());
      request.url = registry.reference("before");
      if (stranger) {
        scratch.file("opt/artifacts/kata-gpu/guest.img", "before");
      } else {
        must(fetch());
      }
      request.url = registry.reference("after");
      killed = test::killed_at(kills + 1, [&] { (void)fetch(); });
      kills += killed ? 1U : 0U;
      const std::string now = seen("guest.img");
      ASSERT_TRUE(now == "before" || now == "after") << "killed at change " << kills << ": " << now;
      must(fetch());
      ASSERT_EQ(seen("guest.img"), "after") << "killed at change " << kills;
      ASSERT_EQ(seen("deep/b"), "a") << "killed at change " << kills;
      ASSERT_FALSE(must(fetch()).changed) << "killed at change " << kills;
      for (const std::string& name : in_store())
        ASSERT_TRUE(name.starts_with("sha256-")) << name << " at change " << kills;
      ASSERT_EQ(put_aside().size(), stranger ? 1U : 0U) << "killed at change " << kills;
      if (stranger) {
        ASSERT_EQ(content("opt/artifacts/.kata-gpu.replaced-1/guest.img"), "before") << kills;
      }
    }
    EXPECT_GT(kills, 30U) << "it was killed at many places";
  }
}

TEST_F(Fetch, IsAloneInItsFolder) {
  registry.image(layers());
  scratch.file("opt/artifacts/k8s-kata-manager.pid", "4711");
  const UniqueFd theirs(::open((top() / "k8s-kata-manager.pid").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(theirs.get(), LOCK_EX), 0);
  const auto refused = fetch();
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_THAT(refused.error().message, HasSubstr("(process 4711)"));
  EXPECT_EQ(registry.seen().size(), 0U);
  scratch.file("opt/artifacts/k8s-kata-manager.pid", "4711\x1b[31m");
  EXPECT_THAT(refusal().message, testing::EndsWith("another program works in /opt/artifacts"));
}

TEST_F(Fetch, LeavesVersionsUntilNobodyUsesThem) {
  scratch.file("opt/artifacts/kata-gpu/guest.img", "of another program");
  const std::string first = registry.image(layers());
  must(fetch());
  const std::string second = registry.image(layers("second"));
  must(fetch());
  const std::string third = registry.image(layers("third"));
  must(fetch());
  const std::string used = "/opt/artifacts/.ferry/kata-gpu/" + folder_of(first);
  std::set<fs::path> asked;
  const auto gone =
      must(collect_versions(host, request.artifacts_dir, request.name, [&](const fs::path& version) {
        asked.insert(version);
        return version == used;
      }));
  EXPECT_THAT(gone, ElementsAre("/opt/artifacts/.ferry/kata-gpu/" + folder_of(second)));
  EXPECT_EQ(asked.size(), 2U) << "the one in use now is not even asked about, nor is what is not ours";
  EXPECT_THAT(in_store(), testing::UnorderedElementsAre(folder_of(first), folder_of(first) + ".json",
                                                        folder_of(third), folder_of(third) + ".json"));
  EXPECT_THAT(put_aside(), ElementsAre(".kata-gpu.replaced-1"));
  EXPECT_EQ(seen("guest.img"), "third");
}

TEST_F(Fetch, IsUndoneWhole) {
  registry.image(layers());
  must(fetch());
  must(remove_artifact(host, request.artifacts_dir, request.name, Replaced::comes_back));
  EXPECT_FALSE(fs::exists(fs::symlink_status(top() / "kata-gpu")));
  EXPECT_FALSE(fs::exists(store()));
  must(remove_artifact(host, request.artifacts_dir, request.name, Replaced::comes_back));
  scratch.file("opt/artifacts/kata-gpu/x", "of another program");
  must(remove_artifact(host, request.artifacts_dir, request.name, Replaced::comes_back));
  EXPECT_EQ(seen("x"), "of another program");
  EXPECT_THAT(must(collect_versions(host, "/absent", "a", [](const fs::path&) { return false; })), IsEmpty());
}

TEST_F(Fetch, GivesBackTheFolderThatWasThere) {
  scratch.file("opt/artifacts/kata-gpu/guest.img", "of another program");
  registry.image(layers());
  must(fetch());
  must(remove_artifact(host, request.artifacts_dir, request.name, Replaced::comes_back));
  EXPECT_EQ(seen("guest.img"), "of another program");
  EXPECT_FALSE(fs::is_symlink(top() / "kata-gpu"));
  EXPECT_FALSE(fs::exists(store()));
  must(remove_artifact(host, request.artifacts_dir, request.name, Replaced::comes_back));
  EXPECT_EQ(seen("guest.img"), "of another program");
}

TEST_F(Fetch, GivesBackTheLastFolderThatWasThere) {
  registry.image(layers());
  for (int number = 1; number <= 10; ++number) {
    if (fs::is_symlink(top() / "kata-gpu")) fs::remove(top() / "kata-gpu");
    scratch.file("opt/artifacts/kata-gpu/guest.img", std::to_string(number));
    must(fetch());
  }
  must(remove_artifact(host, request.artifacts_dir, request.name, Replaced::comes_back));
  EXPECT_EQ(seen("guest.img"), "10");
  EXPECT_EQ(put_aside().size(), 9U) << "neither are the others ours";
  must(remove_artifact(host, request.artifacts_dir, request.name, Replaced::comes_back));
  EXPECT_EQ(seen("guest.img"), "10") << "what is there now is not replaced";
  EXPECT_EQ(put_aside().size(), 9U);
}

TEST_F(Fetch, LeavesTheFolderThatWasThereWhereItIsPutAside) {
  scratch.file("opt/artifacts/kata-gpu/guest.img", "of another program");
  registry.image(layers());
  must(fetch());
  must(remove_artifact(host, request.artifacts_dir, request.name, Replaced::stays));
  EXPECT_FALSE(fs::exists(fs::symlink_status(top() / "kata-gpu")));
  EXPECT_EQ(content("opt/artifacts/.kata-gpu.replaced-1/guest.img"), "of another program");
}

TEST_F(Fetch, IsUndoneAfterAKillAnywhere) {
  registry.image(layers());
  unsigned kills = 0;
  for (bool killed = true; killed;) {
    fs::remove_all(top());
    scratch.file("opt/artifacts/kata-gpu/guest.img", "before");
    must(fetch());
    killed = test::killed_at(kills + 1, [&] {
      (void)remove_artifact(host, request.artifacts_dir, request.name, Replaced::comes_back);
    });
    kills += killed ? 1U : 0U;
    must(remove_artifact(host, request.artifacts_dir, request.name, Replaced::comes_back));
    ASSERT_EQ(seen("guest.img"), "before") << "killed at change " << kills;
    ASSERT_FALSE(fs::exists(store())) << "killed at change " << kills;
  }
  EXPECT_GT(kills, 3U) << "it was killed at many places";
}

}  // namespace
}  // namespace ferry::kata
