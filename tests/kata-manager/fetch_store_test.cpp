// SPDX-License-Identifier: Apache-2.0
// The store of artifacts and the links to it: who writes them, and no link of others leads out of it.
#include "tests/kata-manager/fetch_store.h"

#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "common/unique_fd.h"
#include "host/system/agent_folders.h"
#include "kata-manager/artifacts/artifact_links.h"
#include "kata-manager/artifacts/artifact_store.h"
#include "kata-manager/artifacts/artifact_version.h"
#include "tests/kata-manager/archives.h"
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

TEST_F(Fetch, ByAnAgentThatIsNotRootGoesOnFromRootsAndIsRemovedByHostd) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  constexpr gid_t kAgent = 64'711;
  ASSERT_EQ(::chmod(scratch.path().c_str(), 0755), 0);
  registry.image(layers("root's"));
  must(fetch());
  must(host::give_to_group(host, "opt/artifacts", kAgent, host::Giving::tree));
  registry.image(layers("the agent's"));
  {
    const test::AsUser agent(kAgent);
    const mode_t before = ::umask(S_IWOTH);  // as ferry-agent has it
    EXPECT_EQ(refusal().code, std::errc::permission_denied) << "the link is root's";
    request.makes_link = false;
    const auto got = fetch();
    ::umask(before);
    ASSERT_TRUE(got) << got.error().message;
  }
  EXPECT_EQ(seen("guest.img"), "root's") << "until hostd makes the link";
  EXPECT_TRUE(test::holds_for_hostd_in_group(kAgent, [&] {
    const auto current = current_artifact(host, request.artifacts_dir, request.name, request.url);
    if (!current || !*current) return false;
    const auto link = link_to_make(host, request.artifacts_dir, **current);
    return link && *link && make_link(host, request.artifacts_dir, request.name, **link).has_value();
  }));
  EXPECT_EQ(seen("guest.img"), "the agent's");
  EXPECT_TRUE(test::holds_for_hostd_in_group(kAgent, [&] {
    const auto collected =
        collect_versions(host, request.artifacts_dir, request.name, [](const fs::path&) { return false; });
    return collected && collected->size() == 1 &&
           remove_artifact(host, request.artifacts_dir, request.name, Replaced::stays).has_value();
  })) << "root's version and the agent's";
  EXPECT_FALSE(host.exists("opt/artifacts/kata-gpu"));
  EXPECT_FALSE(host.exists("opt/artifacts/.ferry/kata-gpu"));
}

TEST_F(Fetch, WithoutTheLinkWritesTheStoreAlone) {
  scratch.file("opt/artifacts/kata-gpu/guest.img", "of another program");
  const std::string digest = registry.image(layers());
  request.makes_link = false;
  const Artifact artifact = must(fetch());
  EXPECT_TRUE(artifact.changed);
  EXPECT_FALSE(must(fetch()).changed);
  EXPECT_EQ(seen("guest.img"), "of another program");
  EXPECT_EQ(must(host.list("opt/artifacts")),
            (std::vector<std::string>{".ferry", "k8s-kata-manager.pid", "kata-gpu"}));
  const auto here = must(current_artifact(host, request.artifacts_dir, request.name, request.url));
  EXPECT_EQ(here.value_or(Artifact{}).version, artifact.version) << "by the version that was fetched last";
  EXPECT_FALSE(must(current_artifact(host, request.artifacts_dir, request.name, "another")).has_value());
  EXPECT_THAT(must(collect_versions(host, request.artifacts_dir, request.name,
                                    [](const fs::path&) { return false; })),
              IsEmpty())
      << "hostd may make the link to it later";
  registry.spoil = [](const ReceivedRequest&, HttpAnswer& answer) { answer = {.status = 503}; };
  request.or_what_is_here = true;
  EXPECT_EQ(must(fetch()).digest, digest);
  scratch.remove(artifact.version.relative_path());
  EXPECT_FALSE(must(current_artifact(host, request.artifacts_dir, request.name, request.url)).has_value())
      << "a record without its version";
}

TEST_F(Fetch, HostdMakesALinkOnlyWhereNothingOrFerrysOwnIs) {
  const std::string version = "sha256-" + std::string(64, 'a');
  const std::string url = "registry.example/gpu:1";
  const fs::path pulled = "/opt/artifacts/.ferry/kata-gpu/" + version;
  const fs::path target = ".ferry/kata-gpu/" + version;
  EXPECT_EQ(must(link_for(url, pulled)), target) << "there is no folder of artifacts";
  scratch.directory("opt/artifacts");
  EXPECT_EQ(must(link_for(url, pulled)), target);
  EXPECT_EQ(must(link_for("file:///srv/gpu/", "/srv/gpu/")), "/srv/gpu");
  must(make_link(host, request.artifacts_dir, request.name, target));
  EXPECT_EQ(must(host.link_target("opt/artifacts/kata-gpu")), target);
  EXPECT_EQ(must(link_for(url, pulled)), "") << "it is so";
  EXPECT_EQ(must(link_for("file:///srv/gpu", "/srv/gpu")), "/srv/gpu") << "it replaces Ferry's own";
  scratch.link("opt/artifacts/kata-gpu", "/srv/other");
  const auto other = link_for(url, pulled);
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code, Errc::refused);
  EXPECT_THAT(other.error().message,
              HasSubstr("/opt/artifacts/kata-gpu is a link to /srv/other that Ferry did not make"));
  EXPECT_THAT(other.error().hint, HasSubstr("`rm /opt/artifacts/kata-gpu`"));
  must(make_link(host, request.artifacts_dir, request.name, "/srv/gpu"));
  EXPECT_EQ(must(link_for(url, pulled)), target) << "hostd has made the link, and recorded it";
  scratch.link("opt/artifacts/kata-gpu", "/srv/other");
  EXPECT_EQ(link_for(url, pulled).error().code, Errc::refused) << "its target is not recorded";
  scratch.remove("opt/artifacts/kata-gpu");
  scratch.file("opt/artifacts/kata-gpu", "a file");
  EXPECT_EQ(link_for(url, pulled).error().code, Errc::refused);
}

TEST_F(Fetch, HostdMovesNoFolder) {
  scratch.file("opt/artifacts/kata-gpu/deep/c.toml", "a = 1\n");
  scratch.directory("srv/gpu");
  scratch.link("other", "opt/artifacts");
  for (const auto& [url, version] :
       {std::pair("registry.example/gpu:1", "/opt/artifacts/.ferry/kata-gpu/sha256-x"),
        std::pair("file:///srv/gpu", "/srv/gpu"),
        std::pair("file:///opt/artifacts/kata-gpu/deep", "/opt/artifacts/kata-gpu/deep"),
        std::pair("file:///other/kata-gpu/deep", "/other/kata-gpu/deep")}) {
    scratch.directory(fs::path(version).relative_path());
    const auto link = link_for(url, version);
    ASSERT_FALSE(link.has_value()) << url;
    EXPECT_EQ(link.error().code, Errc::refused) << url;
    EXPECT_THAT(link.error().message,
                HasSubstr("/opt/artifacts/kata-gpu is a folder that Ferry did not make"))
        << url;
    EXPECT_FALSE(make_link(host, request.artifacts_dir, request.name, version).has_value()) << url;
  }
  for (const char* const place : {"/opt/artifacts/kata-gpu", "/other/kata-gpu", "/opt/artifacts/kata-gpu/"})
    EXPECT_EQ(must(link_for(std::string("file://") + place, place)), "") << "it lies in the very place";
  must(remove_artifact(host, request.artifacts_dir, request.name, Replaced::stays));
  EXPECT_EQ(seen("deep/c.toml"), "a = 1\n");
}

/// An agent that is taken over may write the folder of artifacts, and hostd works there as root.
TEST_F(Fetch, FollowsNoLinkInThePlaceOfTheStore) {
  scratch.file("etc/containerd/config.toml", "root's");
  scratch.file("etc/containerd/sha256-x.json", "root's");
  for (const auto& [place, target] :
       {std::pair("opt/artifacts/.ferry", "../../etc"),
        std::pair("opt/artifacts/.ferry/kata-gpu", "../../../etc/containerd")}) {
    scratch.remove("opt/artifacts/.ferry");
    request.name = std::string(place).ends_with("kata-gpu") ? "kata-gpu" : "containerd";
    scratch.directory(fs::path(place).parent_path());
    scratch.link(place, target);
    const auto removed = remove_artifact(host, request.artifacts_dir, request.name, Replaced::comes_back);
    ASSERT_FALSE(removed.has_value()) << place;
    EXPECT_EQ(removed.error().code, Errc::refused);
    EXPECT_THAT(removed.error().message, HasSubstr("is a link or no folder"));
    EXPECT_FALSE(collect_versions(host, request.artifacts_dir, request.name, [](const fs::path&) {
                   return false;
                 }).has_value());
    const auto places = must(ArtifactPlaces::of(request.artifacts_dir, request.name));
    const auto folder = must(open_top(host, places));
    EXPECT_EQ(open_store(folder, places).error().code, Errc::refused);
    EXPECT_EQ(open_or_make_store(folder, places).error().code, Errc::refused);
    EXPECT_EQ(refusal().code, Errc::refused) << place;
    EXPECT_EQ(content("etc/containerd/config.toml"), "root's") << place;
    EXPECT_EQ(content("etc/containerd/sha256-x.json"), "root's") << place;
  }
}

TEST_F(Fetch, StaysInTheStoreThatItOpened) {
  scratch.file("etc/containerd/config.toml", "root's");
  const std::string digest = registry.image(layers());
  bool is_swapped = false;
  registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer&) {
    if (seen.path.find("/blobs/") == std::string::npos || std::exchange(is_swapped, true)) return;
    fs::rename(store(), top() / ".ferry/aside");
    scratch.link("opt/artifacts/.ferry/kata-gpu", "../../../etc/containerd");
  };
  must(fetch());
  EXPECT_TRUE(is_swapped);
  EXPECT_THAT(must(host.list("etc/containerd")), ElementsAre("config.toml"));
  EXPECT_EQ(content("opt/artifacts/.ferry/aside/" + folder_of(digest) + "/guest.img"), "guest");
  EXPECT_TRUE(host.exists("opt/artifacts/.ferry/aside/" + folder_of(digest) + ".json"));
}

// An agent that is taken over may put a link where skopeo is about to work for root.
TEST_F(Fetch, FollowsNoLinkInThePlaceOfSkopeosFolder) {
  scratch.directory("etc/containerd");
  registry.image(layers());
  scratch.link("opt/artifacts/.ferry/kata-gpu/.pull", "../../../../etc/containerd");
  must(fetch());
  EXPECT_THAT(must(host.list("etc/containerd")), IsEmpty());
  registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer&) {
    struct stat status {};
    if (seen.path.find("/manifests/") == std::string::npos) return;
    EXPECT_EQ(::stat(((::geteuid() == 0 ? top() : store()) / ".pull").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777U, 0700U) << "the agent cannot enter";
    // Root's files cannot be written from there.
    EXPECT_EQ(status.st_uid, ::geteuid() == 0 ? 64'713U : ::geteuid());
  };
  registry.image(layers("newer"));
  const Artifact artifact = must(fetch());
  for (const char* name : {"guest.img", "configuration.toml"}) {
    struct stat status {};
    ASSERT_EQ(::stat((scratch.path() / artifact.version.relative_path() / name).c_str(), &status), 0);
    EXPECT_EQ(status.st_uid, ::geteuid()) << name;
    EXPECT_EQ(status.st_mode & 07777U, 0644U) << name;
  }
}

TEST_F(Fetch, HashesBlobsWhereTheyLie) {
  const std::string name = test::sha256_of_text("guest").substr(7);
  ArtifactManifest manifest;
  manifest.layers = {{.digest = {.hex = name}, .size = 5, .title = "guest.img"}};
  scratch.directory("opt/artifacts/.ferry/kata-gpu");
  const auto places = must(ArtifactPlaces::of(request.artifacts_dir, request.name));
  const UniqueFd opened = must(open_store(must(open_top(host, places)), places));
  const auto built = [&] {
    scratch.remove("opt/artifacts/.ferry/kata-gpu/staging");
    return build_version(opened, places, must(host.open("blobs", O_RDONLY | O_DIRECTORY)), manifest, request);
  };
  for (const char* content : {"GUEST", "gu", "guest and more"}) {
    scratch.file("blobs/" + name, content);
    EXPECT_EQ(built().error().code, Errc::failed) << content;
  }
  scratch.file("etc/guest", "guest");
  scratch.remove("blobs/" + name);
  scratch.link("blobs/" + name, "../etc/guest");
  EXPECT_EQ(built().error().code, std::errc::too_many_symbolic_link_levels);
  scratch.remove("blobs/" + name);
  scratch.file("blobs/" + name, "guest");
  must(built());
}

TEST_F(Fetch, TakesNoRecordOfAFileElsewhere) {
  registry.image(layers());
  const Artifact artifact = must(fetch());
  const fs::path record = artifact.version.relative_path().string() + ".json";
  const std::string whole = content(record);
  const auto with = [&](const std::string& name, const std::string& after, const std::string& wrong) {
    const auto at = whole.find('"' + name + '"', whole.find('"' + after + '"'));
    if (at == std::string::npos) throw std::runtime_error("no " + name + " in " + whole);
    return whole.substr(0, at + 1) + wrong + whole.substr(at + 1 + name.size());
  };
  for (const char* const wrong : {"/etc/shadow", "../../../etc/shadow", "a/../../b", "", "."}) {
    scratch.file(record, with("guest.img", "files", wrong));
    EXPECT_FALSE(current_artifact(host, request.artifacts_dir, request.name, request.url).has_value())
        << wrong;
    scratch.file(record, with("configuration.toml", "configuration", wrong));
    const auto here = current_artifact(host, request.artifacts_dir, request.name, request.url);
    ASSERT_FALSE(here.has_value()) << wrong;
    EXPECT_EQ(here.error().code, Errc::malformed_host) << wrong;
    EXPECT_THAT(here.error().message, HasSubstr("it names a file that is not of the artifact")) << wrong;
  }
  must(fetch());
  EXPECT_EQ(content(record), whole) << "it is made anew";
}

TEST_F(Fetch, WritesNoOtherFileByItsLock) {
  scratch.file("etc/containerd/config.toml", "root's");
  scratch.directory("opt/artifacts");
  scratch.link("opt/artifacts/k8s-kata-manager.pid", "../../etc/containerd/config.toml");
  EXPECT_EQ(refusal().code, Errc::refused);
  scratch.remove("opt/artifacts/k8s-kata-manager.pid");
  fs::create_hard_link(scratch.path() / "etc/containerd/config.toml", top() / "k8s-kata-manager.pid");
  const Error refused = refusal();
  EXPECT_EQ(refused.code, Errc::refused);
  EXPECT_THAT(refused.message, HasSubstr("/opt/artifacts/k8s-kata-manager.pid is no file with one name"));
  scratch.remove("opt/artifacts/k8s-kata-manager.pid");
  ASSERT_EQ(::mkfifo((top() / "k8s-kata-manager.pid").c_str(), 0600), 0);
  EXPECT_EQ(refusal().code, Errc::refused);
  EXPECT_EQ(content("etc/containerd/config.toml"), "root's");
}

TEST_F(Fetch, MakesTheFolderThatUsersSee) {
  const std::string digest = registry.image(layers());
  const Artifact artifact = must(fetch());
  EXPECT_EQ(artifact.name, "kata-gpu");
  EXPECT_EQ(artifact.digest, digest);
  EXPECT_EQ(artifact.folder, "/opt/artifacts/kata-gpu");
  EXPECT_EQ(artifact.version, "/opt/artifacts/.ferry/kata-gpu/" + folder_of(digest));
  EXPECT_EQ(artifact.configuration, "/opt/artifacts/kata-gpu/configuration.toml");
  EXPECT_TRUE(artifact.changed);
  EXPECT_THAT(artifact.notes, IsEmpty());
  ASSERT_EQ(artifact.files.size(), 2U);
  EXPECT_EQ(
      artifact.files[1],
      (ArtifactFile{
          .path = "guest.img", .size = 5, .sha256 = test::sha256_of_text("guest").substr(7), .link = {}}));
  EXPECT_EQ(seen("guest.img"), "guest");
  EXPECT_THAT(in_store(), ElementsAre(folder_of(digest), folder_of(digest) + ".json"))
      << "nothing half done is left";
  const auto current = must(current_artifact(host, request.artifacts_dir, request.name, request.url));
  EXPECT_EQ(current.value_or(Artifact{}).files, artifact.files);
  EXPECT_EQ(current.value_or(Artifact{}).configuration, artifact.configuration);
}

}  // namespace
}  // namespace ferry::kata
