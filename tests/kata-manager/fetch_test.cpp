// SPDX-License-Identifier: Apache-2.0
// What a fetch makes of the host: versions, the link to the one in use, and what is left when it ends early.
#include "kata-manager/fetch/fetch.h"

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
#include "tests/kata-manager/archives.h"
#include "tests/kata-manager/fetching.h"
#include "tests/kata-manager/killed_at.h"
#include "tests/support/as_user.h"

namespace ferry::kata {
namespace {

using test::HttpAnswer;
using test::HttpSeen;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

class Fetch : public test::Fetching {
 protected:
  fs::path top() const { return scratch.path() / "opt/artifacts"; }
  fs::path store() const { return top() / ".ferry/kata-gpu"; }
  /// All but the name of the version that was fetched last.
  std::vector<std::string> in_store() const {
    auto names = must(host.list("opt/artifacts/.ferry/kata-gpu"));
    std::erase(names, kPulled);
    return names;
  }
  std::vector<std::string> put_aside() const {
    auto names = must(host.list("opt/artifacts"));
    std::erase_if(names, [](const std::string& name) { return !name.starts_with(".kata-gpu.replaced-"); });
    return names;
  }
  /// The target of a link that hostd would make for an artifact of this URL; empty: none.
  Result<fs::path> link_for(const std::string& url, const fs::path& version) const {
    const Artifact artifact{
        .name = request.name, .url = url, .folder = "/opt/artifacts/" + request.name, .version = version};
    const auto link = link_to_make(host, request.artifacts_dir, artifact);
    if (!link) return fail(Error(link.error()));
    return link->value_or(fs::path());
  }
  static std::string folder_of(std::string digest) {
    digest[digest.find(':')] = '-';
    return digest;
  }
};

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
  registry.spoil = [](const HttpSeen&, HttpAnswer& answer) { answer = {.status = 503}; };
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
  world.on_progress = [&](const FetchProgress&) {
    if (!std::exchange(is_swapped, true)) {
      fs::rename(store(), top() / ".ferry/aside");
      scratch.link("opt/artifacts/.ferry/kata-gpu", "../../../etc/containerd");
    }
    return true;
  };
  must(fetch());
  EXPECT_TRUE(is_swapped);
  EXPECT_THAT(must(host.list("etc/containerd")), ElementsAre("config.toml"));
  EXPECT_EQ(content("opt/artifacts/.ferry/aside/" + folder_of(digest) + "/guest.img"), "guest");
  EXPECT_TRUE(host.exists("opt/artifacts/.ferry/aside/" + folder_of(digest) + ".json"));
}

TEST_F(Fetch, WritesNoOtherFileByItsParts) {
  scratch.file("etc/containerd/config.toml", "root's");
  registry.image(layers());
  scratch.directory("opt/artifacts/.ferry/kata-gpu/blobs");
  fs::create_hard_link(scratch.path() / "etc/containerd/config.toml",
                       store() / "blobs" / (folder_of(registry.first_blob()) + ".part"));
  const Error refused = refusal();
  EXPECT_EQ(refused.code, Errc::refused);
  EXPECT_THAT(refused.message, HasSubstr("is no file with one name"));
  EXPECT_EQ(content("etc/containerd/config.toml"), "root's");
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
  std::vector<std::uint64_t> progress_seen;
  world.on_progress = [&](const FetchProgress& progress) {
    EXPECT_EQ(progress.total, 46U);
    progress_seen.push_back(progress.done);
    return true;
  };
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
  EXPECT_EQ(progress_seen.back(), 46U);
  EXPECT_THAT(in_store(), ElementsAre(folder_of(digest), folder_of(digest) + ".json"))
      << "nothing half done is left";
  const auto current = must(current_artifact(host, request.artifacts_dir, request.name, request.url));
  EXPECT_EQ(current.value_or(Artifact{}).files, artifact.files);
  EXPECT_EQ(current.value_or(Artifact{}).configuration, artifact.configuration);
}

TEST_F(Fetch, TwiceWritesNothing) {
  registry.image(layers());
  must(fetch());
  const auto before = fs::last_write_time(store());
  const Artifact again = must(fetch());
  EXPECT_FALSE(again.changed);
  EXPECT_EQ(fs::last_write_time(store()), before);
  EXPECT_EQ(registry.asked("/blobs/"), 2U) << "no blob again";
}

TEST_F(Fetch, OfADigestThatIsHereAsksNobody) {
  request.url = registry.address() + "/kata/gpu@" + registry.image(layers());
  must(fetch());
  const auto asked = registry.seen().size();
  EXPECT_FALSE(must(fetch()).changed);
  EXPECT_EQ(registry.seen().size(), asked);
}

TEST_F(Fetch, UsesWhatIsHereWhereNoRegistryCanBeReached) {
  const std::string digest = registry.image(layers());
  must(fetch());
  registry.spoil = [](const HttpSeen&, HttpAnswer& answer) { answer = {.status = 503}; };
  EXPECT_EQ(refusal().code, Errc::unreachable) << "only where that is asked for";
  request.or_what_is_here = true;
  const Artifact artifact = must(fetch());
  EXPECT_EQ(artifact.digest, digest);
  EXPECT_FALSE(artifact.changed);
  EXPECT_THAT(artifact.notes, ElementsAre(testing::AllOf(HasSubstr("cannot be reached"), HasSubstr(digest),
                                                         HasSubstr("503"))));
  for (const int status : {401, 403, 404}) {
    registry.spoil = [&](const HttpSeen&, HttpAnswer& answer) { answer = {.status = status}; };
    EXPECT_FALSE(fetch().has_value()) << status;
  }
  registry.spoil = [](const HttpSeen&, HttpAnswer& answer) { answer = {.status = 503}; };
  request.url = registry.reference("another");
  EXPECT_EQ(refusal().code, Errc::unreachable) << "what is here is not that";
  request.url = registry.reference();
  scratch.file(artifact.version.relative_path() / "guest.img", "cut");
  EXPECT_EQ(refusal().code, Errc::unreachable) << "what is here is not whole";
}

TEST_F(Fetch, UsesNotWhatIsHereOnceTheRegistryHasSaidThatItIsAnother) {
  registry.image(layers());
  must(fetch());
  registry.image(layers("newer"));
  registry.spoil = [](const HttpSeen& seen, HttpAnswer& answer) {
    if (seen.path.find("/blobs/") != std::string::npos) answer = {.status = 503};
  };
  request.or_what_is_here = true;
  EXPECT_EQ(refusal().code, Errc::unreachable);
}

TEST_F(Fetch, UsesNoSetuidFilesThatAreAllowedNoMore) {
  auto image = layers();
  image.push_back({.content = test::tar_of({{.path = "bin/su", .content = "x", .mode = 04755}}),
                   .media_type = "application/vnd.oci.image.layer.v1.tar+gzip"});
  const std::string digest = registry.image(image);
  request.allow_setuid = true;
  must(fetch());
  EXPECT_FALSE(must(fetch()).changed);
  request.allow_setuid = false;
  EXPECT_EQ(refusal().code, Errc::refused);
  request.url = registry.address() + "/kata/gpu@" + digest;
  EXPECT_EQ(refusal().code, Errc::refused) << "nor by its digest";
  request.allow_setuid = true;
  EXPECT_EQ(must(fetch()).digest, digest);
  registry.image(layers());
  request.url = registry.reference();
  must(fetch());
  request.allow_setuid = false;
  EXPECT_FALSE(must(fetch()).changed) << "one without such files is no other for having been allowed them";
}

TEST_F(Fetch, SwitchesToANewVersionAndKeepsTheOld) {
  const std::string first = registry.image(layers());
  must(fetch());
  const std::string second = registry.image(layers("newer"));
  const Artifact artifact = must(fetch());
  EXPECT_EQ(artifact.digest, second);
  EXPECT_EQ(seen("guest.img"), "newer");
  EXPECT_EQ(content("opt/artifacts/.ferry/kata-gpu/" + folder_of(first) + "/guest.img"), "guest");
  const auto asked = registry.asked("/blobs/");
  registry.image(layers());
  EXPECT_TRUE(must(fetch()).changed);
  EXPECT_EQ(seen("guest.img"), "guest") << "back again";
  EXPECT_EQ(registry.asked("/blobs/"), asked) << "from what is here";
}

TEST_F(Fetch, LeavesTheVersionInUseWhereTheNewOneCannotBeHad) {
  registry.image(layers());
  must(fetch());
  registry.image({{.content = "no configuration", .title = "guest.img"}});
  EXPECT_EQ(refusal().code, Errc::not_found);
  registry.image({{.content = "= [", .title = "broken.toml"}});
  const auto broken = fetch();
  EXPECT_EQ(broken.error().code, Errc::refused);
  EXPECT_THAT(broken.error().message, HasSubstr("broken.toml:1:"));
  registry.image({{.content = std::string((1U << 20) + 1, '\n'), .title = "endless.toml"}});
  const auto endless = fetch();
  ASSERT_FALSE(endless.has_value());
  EXPECT_EQ(endless.error().code, Errc::refused);
  registry.image({{.content = test::tar_of({{.path = "c.toml", .symlink = "."}}),
                   .media_type = "application/vnd.oci.image.layer.v1.tar+gzip"}});
  EXPECT_EQ(refusal().code, Errc::refused) << "a folder by way of a link";
  EXPECT_FALSE(fs::exists(store() / "staging")) << "what is refused takes no room";
  EXPECT_EQ(seen("guest.img"), "guest");
}

TEST_F(Fetch, NeedsOneConfigurationOrItsName) {
  auto several = layers();
  several.push_back({.content = "a = 1\n", .title = "snp.toml"});
  several.push_back({.content = "a = 1\n", .title = "defaults/deep.toml"});
  registry.image(several);
  const auto unnamed = fetch();
  ASSERT_FALSE(unnamed.has_value());
  EXPECT_EQ(unnamed.error().code, Errc::refused);
  EXPECT_THAT(unnamed.error().message, HasSubstr("configuration.toml, snp.toml"));
  request.configuration = "defaults/deep.toml";
  EXPECT_EQ(must(fetch()).configuration, "/opt/artifacts/kata-gpu/defaults/deep.toml");
  request.configuration = "snp.toml";
  const Artifact other = must(fetch());
  EXPECT_EQ(other.configuration, "/opt/artifacts/kata-gpu/snp.toml");
  EXPECT_TRUE(other.changed) << "what is recorded";
  EXPECT_EQ(must(current_artifact(host, request.artifacts_dir, request.name, request.url))
                .value_or(Artifact{})
                .configuration,
            other.configuration);
  request.configuration = "absent.toml";
  EXPECT_EQ(refusal().code, Errc::not_found);
}

TEST_F(Fetch, TakesImagesAndPackedFoldersToo) {
  registry.image({{.content = test::tar_of({{.path = "opt/kata/bin/shim", .content = "program", .mode = 0755},
                                            {.path = "configuration.toml", .symlink = "opt/c.toml"},
                                            {.path = "opt/c.toml", .content = "a = 1\n"}}),
                   .media_type = "application/vnd.oci.image.layer.v1.tar+gzip"},
                  {.content = test::tar_of({{.path = "guest/vmlinux", .content = "kernel"}}),
                   .title = "guest",
                   .unpack = true},
                  {.content = "ignored"}});
  const Artifact artifact = must(fetch());
  EXPECT_EQ(seen("guest/vmlinux"), "kernel");
  EXPECT_EQ(seen("opt/kata/bin/shim"), "program");
  EXPECT_EQ(artifact.configuration.filename(), "configuration.toml");
  EXPECT_THAT(artifact.notes, ElementsAre(HasSubstr("passed over: 1")));
  EXPECT_EQ(registry.asked(test::sha256_of_text("ignored")), 0U);
}

TEST_F(Fetch, ChoosesThePlatformFromAnIndex) {
  const std::string digest = registry.image(layers(), "amd64-only");
  const std::string type = "application/vnd.oci.image.index.v1+json";
  const std::string image = "application/vnd.oci.image.manifest.v1+json";
  registry.manifest(R"({"schemaVersion":2,"manifests":[{"mediaType":")" + image + R"(","size":1,"digest":")" +
                        digest + R"(","platform":{"os":"linux","architecture":"riscv64"}}]})",
                    type);
  EXPECT_EQ(refusal().code, Errc::not_found);
  request.architecture = "riscv64";
  EXPECT_EQ(must(fetch()).digest, digest);
}

TEST_F(Fetch, PutsAsideAFolderThatWasThere) {
  scratch.file("opt/artifacts/kata-gpu/guest.img", "of another program");
  registry.image(layers());
  must(fetch());
  EXPECT_EQ(seen("guest.img"), "guest");
  EXPECT_EQ(content("opt/artifacts/.kata-gpu.replaced-1/guest.img"), "of another program");
}

TEST_F(Fetch, KeepsEachUrlThatLedToAVersion) {
  registry.image(layers());
  registry.image(layers(), "2");
  request.makes_link = false;
  const std::string first = registry.reference("1");
  const std::string second = registry.reference("2");
  const auto current = [&](const std::string& url) {
    return must(current_artifact(host, request.artifacts_dir, request.name, url)).value_or(Artifact{}).url;
  };
  request.url = first;
  const Artifact artifact = must(fetch());
  request.url = second;
  EXPECT_EQ(must(fetch()).version, artifact.version) << "two tags of one digest";
  EXPECT_EQ(current(first), first) << "a class that still has the first one needs no fetch";
  EXPECT_EQ(current(second), second);
  EXPECT_EQ(current(registry.reference("3")), "");
  scratch.remove(artifact.version.relative_path() / "guest.img");
  EXPECT_TRUE(must(fetch()).changed) << "it is made anew";
  EXPECT_EQ(current(first), first);
}

TEST_F(Fetch, UsesAFolderOfTheHostWhereItLies) {
  scratch.file("srv/kata/configuration.toml", "a = 1\n");
  scratch.file("srv/kata/deep/guest.img", "guest");
  request.url = "file:///srv/kata";
  const Artifact artifact = must(fetch());
  EXPECT_EQ(artifact.version, "/srv/kata");
  EXPECT_EQ(artifact.configuration, "/opt/artifacts/kata-gpu/configuration.toml");
  EXPECT_EQ(must(host.read_file("opt/artifacts/kata-gpu/deep/guest.img")), "guest");
  EXPECT_FALSE(must(fetch()).changed);
  scratch.file("srv/kata/deep/guest.img", "other");
  EXPECT_NE(must(fetch()).digest, artifact.digest);
  EXPECT_FALSE(must(current_artifact(host, request.artifacts_dir, request.name, request.url)).has_value());
  registry.image(layers());
  request.url = registry.reference();
  must(fetch());
  EXPECT_EQ(content("srv/kata/deep/guest.img"), "other") << "what is not ours stays";
}

TEST_F(Fetch, UsesAFolderInTheVeryPlace) {
  scratch.file("opt/artifacts/kata-gpu/c.toml", "a = 1\n");
  request.url = "file:///opt/artifacts/kata-gpu";
  EXPECT_FALSE(must(fetch()).changed);
  EXPECT_EQ(seen("c.toml"), "a = 1\n");
}

TEST_F(Fetch, UsesAFolderInTheVeryPlaceByAnyPath) {
  scratch.file("opt/artifacts/kata-gpu/c.toml", "a = 1\n");
  scratch.file("opt/artifacts/kata-gpu/deep/c.toml", "a = 1\n");
  scratch.link("other", "opt/artifacts");
  for (const char* url : {"file:///opt/artifacts/kata-gpu/", "file:///opt//artifacts/./kata-gpu/",
                          "file:///other/kata-gpu", "file:///other/kata-gpu/"}) {
    request.url = url;
    EXPECT_FALSE(must(fetch()).changed) << url;
    EXPECT_EQ(seen("c.toml"), "a = 1\n") << url;
    EXPECT_FALSE(fs::is_symlink(top() / "kata-gpu")) << url;
  }
  for (const char* url : {"file:///opt/artifacts/kata-gpu/deep", "file:///other/kata-gpu/deep/"}) {
    request.url = url;
    EXPECT_EQ(refusal().code, Errc::refused) << url;
    EXPECT_EQ(seen("c.toml"), "a = 1\n") << url;
  }
}

TEST_F(Fetch, UsesNoFolderOfItsOwnStore) {
  const std::string digest = registry.image(layers());
  must(fetch());
  const std::string own = "file:///opt/artifacts/.ferry/kata-gpu/";
  for (const auto& url : {own, own + folder_of(digest)}) {
    request.url = url;
    EXPECT_EQ(refusal().code, Errc::refused) << url;
    EXPECT_EQ(seen("guest.img"), "guest") << url;
  }
}

TEST_F(Fetch, TakesNoFolderThatIsNone) {
  scratch.file("srv/file", "x");
  for (const char* url : {"file:///srv/absent", "file:///srv/file"}) {
    request.url = url;
    EXPECT_FALSE(fetch().has_value()) << url;
  }
  for (const char* url : {"file://srv/kata", "file:///srv/../srv", "file://"}) {
    request.url = url;
    EXPECT_EQ(refusal().code, Errc::usage) << url;
  }
}

TEST_F(Fetch, StaysBelowTheHostsRoot) {
  const test::ScratchDirectory outside;
  outside.file("kata/c.toml", "a = 1\n");
  scratch.link("srv", outside.path());
  request.url = "file:///srv/kata";
  EXPECT_EQ(refusal().code, Errc::not_found) << "a link's target is looked for below the root";
  for (const char* folder : {"opt", "/opt/../../etc", ""}) {
    request.artifacts_dir = folder;
    EXPECT_EQ(refusal().code, Errc::usage) << folder;
  }
  request.artifacts_dir = "/opt/artifacts";
  for (const char* name : {"", "..", "a/b", "Kata", ".ferry"}) {
    request.name = name;
    EXPECT_EQ(refusal().code, Errc::usage) << name;
  }
}

TEST_F(Fetch, GoesOnAfterItsEnd) {
  registry.image(layers(std::string(3'000'000, 'g')));
  request.patience.tries = 1;
  registry.spoil = [](const HttpSeen& seen, HttpAnswer& answer) {
    if (seen.path.find("/blobs/") != std::string::npos) answer.sent = 1'000'000;
  };
  EXPECT_FALSE(fetch().has_value());
  EXPECT_FALSE(fs::exists(top() / "kata-gpu"));
  registry.spoil = {};
  must(fetch());
  EXPECT_EQ(seen("guest.img"), std::string(3'000'000, 'g'));
  const auto all = registry.seen();
  EXPECT_TRUE(
      std::ranges::any_of(all, [](const HttpSeen& one) { return one.header("range") == "bytes=1000000-"; }));
}

TEST_F(Fetch, TrustsNothingThatAnEarlierOneLeft) {
  const std::string digest = registry.image(layers());
  scratch.file(fs::path("opt/artifacts/.ferry/kata-gpu/blobs") / (folder_of(registry.first_blob()) + ".part"),
               "evil");
  scratch.file("opt/artifacts/.ferry/kata-gpu/blobs/sha256-old.part", "of another image");
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

TEST_F(Fetch, HashesABlobThatAnEarlierOneLeft) {
  for (const char* left : {"guest", "GUEST", "gu", "guest and more"}) {
    registry.image(layers());
    scratch.file(fs::path("opt/artifacts/.ferry/kata-gpu/blobs") / folder_of(registry.first_blob()), left);
    const auto asked = registry.asked(registry.first_blob());
    must(fetch());
    EXPECT_EQ(seen("guest.img"), "guest") << left;
    const bool right = std::string_view(left) == "guest";
    EXPECT_EQ(registry.asked(registry.first_blob()), asked + (right ? 0U : 1U)) << left;
    must(remove_artifact(host, request.artifacts_dir, request.name, Replaced::comes_back));
  }
}

TEST_F(Fetch, MakesAnewAVersionThatIsBroken) {
  registry.image(layers());
  const Artifact artifact = must(fetch());
  const auto inside = artifact.version.relative_path() / "guest.img";
  scratch.file(inside, "cut");
  EXPECT_TRUE(must(fetch()).changed) << "its size is another";
  EXPECT_EQ(seen("guest.img"), "guest");
  scratch.file(inside, "GUEST");
  EXPECT_FALSE(must(fetch()).changed) << "contents are read only where that is asked for";
  request.check_contents = true;
  EXPECT_TRUE(must(fetch()).changed);
  EXPECT_EQ(seen("guest.img"), "guest");
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

TEST_F(Fetch, EndsWhenNobodyWaitsForIt) {
  registry.image(layers());
  world.on_progress = [](const FetchProgress&) { return false; };
  EXPECT_EQ(refusal().code, Errc::failed);
  EXPECT_FALSE(fs::exists(top() / "kata-gpu"));
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
  std::vector<fs::path> asked;
  const auto gone =
      must(collect_versions(host, request.artifacts_dir, request.name, [&](const fs::path& version) {
        asked.push_back(version);
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
  scratch.file("opt/artifacts/.ferry/kata-gpu/replaced-1/guest.img", "put aside by an earlier Ferry");
  must(remove_artifact(host, request.artifacts_dir, request.name, Replaced::stays));
  EXPECT_FALSE(fs::exists(fs::symlink_status(top() / "kata-gpu")));
  EXPECT_EQ(content("opt/artifacts/.kata-gpu.replaced-1/guest.img"), "of another program");
  EXPECT_THAT(in_store(), ElementsAre("replaced-1"));
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
